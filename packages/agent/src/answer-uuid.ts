import { createHash } from "node:crypto";

/**
 * Idempotency key of the answer to a message: whoever sends it, again or elsewhere, the platform takes
 * it once (within an hour; Feishu, "Send a message").
 */
export function answerUuid(app: string, messageId: string): string {
  const digest = createHash("sha256").update(`${app} ${messageId} answer`).digest("base64url");
  return `lk-${digest.slice(0, 40)}`;
}
