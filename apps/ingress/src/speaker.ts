import { sharedNow, type InboundMessage } from "@larkline/protocol";
import type { OutboxLease, SessionStore } from "@larkline/store";
import { recordOf, type Statement } from "./notice.ts";

/** Says something outside a turn; resolves when that is stored, false when it was said before. */
export type Speaker = (
  statement: Omit<Statement, "nowMs">,
  /** Under which message id the outbox remembers it, and a message to park behind the question. */
  options?: { messageId?: string; parked?: InboundMessage },
) => Promise<boolean>;

export function createSpeaker(deps: {
  store: Pick<SessionStore, "pushOutbox">;
  /** Sends what the outbox holds, in the background. */
  deliver: (lease: OutboxLease) => void;
}): Speaker {
  return async (statement, { messageId, parked } = {}) => {
    const record = recordOf({ ...statement, nowMs: sharedNow() });
    const lease = await deps.store.pushOutbox(record, messageId ?? record.id, parked);
    if (lease !== undefined) deps.deliver(lease);
    return lease !== undefined;
  };
}
