import { Type, type Static } from "typebox";

/**
 * Names one conversation in every store and queue: app, chat and thread joined by `.`.
 * Safe in Redis keys, job ids (no `:`) and URLs.
 */
export const SessionKey = Type.String({ pattern: "^[A-Za-z0-9_.-]{1,240}$" });
export type SessionKey = string;

/** A person of the platform, by open_id. */
export const Sender = Type.Object({
  id: Type.String(),
  name: Type.Optional(Type.String()),
});
export type Sender = Static<typeof Sender>;

/**
 * Features that a process needs to continue with a stored value. A process that lacks one leaves the value to others,
 * because it could lose fields that it does not know. The first field of stored JSON, so that scripts find it
 * without parsing the rest.
 */
export const Needs = Type.Array(Type.String({ pattern: "^[a-z0-9-]{1,40}$" }), { maxItems: 20 });

/**
 * The features of this version. `held-step`: checkpoints that hold the assistant message of open calls.
 * `put-off-step`: those whose model step waits for its next try. `given-history`: messages that bring the conversation
 * before them.
 */
export const knownFeatures: readonly string[] = ["held-step", "put-off-step", "given-history"];

/** Session of the HTTP API for messages that only prove that messages are answered. */
export const canarySessionId = "larkline-canary";

/**
 * The only message of that session: an order that goes the whole way of a message, from receipt to the event
 * stream, and that no model sees, so that it costs nothing and leaves no history.
 */
export const canaryMessage = "/new";

/** Whether a session belongs to the canary, whose turns are left out of metrics and traces. */
export function isCanary(session: SessionKey): boolean {
  return session.endsWith(`.${canarySessionId}`) && session.startsWith("api.");
}
