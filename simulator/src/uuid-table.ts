import { PlatformError } from "./platform-error.ts";

const windowMs = 3_600_000;
const maximumLength = 50;

/** How a repeated `uuid` is answered: with the first message, or as still being sent (230049). */
export type DuplicateUuid = "original" | "in_progress";

/** Send idempotency: one success per `uuid` and app within an hour (message create page). */
export interface UuidTable {
  /** The message that this uuid has sent within the last hour. */
  find(appId: string, uuid: string): string | undefined;
  remember(appId: string, uuid: string, messageId: string): void;
}

export function createUuidTable(now: () => number, duplicate: DuplicateUuid): UuidTable {
  const sent = new Map<string, { messageId: string; at: number }>();
  return {
    find(appId, uuid) {
      if (uuid.length > maximumLength) {
        throw new PlatformError(99992402, `field validation failed: uuid the max len is ${maximumLength}`);
      }
      const entry = sent.get(`${appId} ${uuid}`);
      if (entry === undefined || now() - entry.at >= windowMs) return undefined;
      if (duplicate === "in_progress") {
        throw new PlatformError(230049, "The message is being sent, please try again later.");
      }
      return entry.messageId;
    },
    remember(appId, uuid, messageId) {
      const time = now();
      for (const [key, entry] of sent) {
        if (time - entry.at < windowMs) break;
        sent.delete(key);
      }
      sent.delete(`${appId} ${uuid}`);
      sent.set(`${appId} ${uuid}`, { messageId, at: time });
    },
  };
}
