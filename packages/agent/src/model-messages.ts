import type { Message } from "@larkline/protocol";

/** The history as sent to a vendor. */
export function modelMessagesOf(history: readonly Message[]): readonly Message[] {
  return history;
}
