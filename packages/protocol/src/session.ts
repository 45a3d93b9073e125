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
 * Features that a process must have to go on with what is stored. One that lacks any of them leaves it to others:
 * what it does not know it might lose, and that would be worse than a wait. The first field of stored JSON, so
 * that scripts find it without reading the rest.
 */
export const Needs = Type.Array(Type.String({ pattern: "^[a-z0-9-]{1,40}$" }), { maxItems: 20 });

/**
 * What this version can go on with. `held-step`: checkpoints that hold what the model said with its calls.
 * `put-off-step`: those whose model step waits for its next try.
 */
export const knownFeatures: readonly string[] = ["held-step", "put-off-step"];

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
