import type { SessionKey } from "./session-key.ts";

/** Session of the HTTP API for messages that only prove that messages are answered. */
export const canarySessionId = "larkline-canary";

/**
 * The only message of that session: an order that goes the whole way of a message, from receipt to the event
 * stream, and that no model sees, so that it costs nothing and leaves no history.
 */
export const canaryMessage = "/new";

/** Whether what is done in this session is no work for people, and so left out of what is observed. */
export function isCanary(session: SessionKey): boolean {
  return session.endsWith(`.${canarySessionId}`) && session.startsWith("api.");
}
