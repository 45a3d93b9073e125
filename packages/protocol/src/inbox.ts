import { Type, type Static } from "typebox";
import { UserPart } from "./content.ts";
import { ToolOutcome } from "./tool.ts";

/**
 * Names one conversation in every store and queue: app, chat and thread joined by `.`.
 * Safe in Redis keys, job ids (no `:`) and URLs.
 */
export const SessionKey = Type.String({ pattern: "^[A-Za-z0-9_.-]{1,240}$" });
export type SessionKey = string;

/** Where the answer to a message goes. `none`: read from the event stream only (HTTP API). */
export const ReplyTarget = Type.Union([
  Type.Object({
    channel: Type.Literal("feishu"),
    app: Type.String(),
    chatId: Type.String(),
    messageId: Type.String(),
    inThread: Type.Boolean(),
  }),
  Type.Object({ channel: Type.Literal("none") }),
]);
export type ReplyTarget = Static<typeof ReplyTarget>;

export const Sender = Type.Object({
  id: Type.String(),
  name: Type.Optional(Type.String()),
});
export type Sender = Static<typeof Sender>;

/** A user message, normalised: mentions resolved, attachments as references. */
export const InboundMessage = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  /** The platform's message id; with `app` it is the dedup key. */
  id: Type.String({ minLength: 1, maxLength: 200 }),
  app: Type.String({ minLength: 1 }),
  sender: Sender,
  chatType: Type.Enum(["p2p", "group", "api"]),
  parts: Type.Array(UserPart, { minItems: 1 }),
  createdAtMs: Type.Integer(),
  reply: ReplyTarget,
  /** Which agent answers; absent means the default agent. */
  agent: Type.Optional(Type.String()),
});
export type InboundMessage = Static<typeof InboundMessage>;

/** Everything that reaches a session besides user messages. */
export const ControlEntry = Type.Union([
  Type.Object({ type: Type.Literal("outcome"), callId: Type.String(), outcome: ToolOutcome }),
  Type.Object({ type: Type.Literal("cancel"), turnId: Type.Optional(Type.String()), reason: Type.String() }),
]);
export type ControlEntry = Static<typeof ControlEntry>;

/** A user message as it waits in the inbox. `seq` counts the messages of the session from 1. */
export interface QueuedMessage {
  seq: number;
  message: InboundMessage;
}

/** Names one run. Deterministic, so that a redelivered message and its retry share it. */
export function turnIdOf(session: SessionKey, seq: number): string {
  return `${session}-${seq}`;
}
