import { hash } from "node:crypto";
import { Type, type Static } from "./type.ts";

/**
 * Names one conversation in every store and queue: app, chat and thread joined by `.`. A child session, in which a helper
 * works, has the name of its root, `~` and an id. Safe in Redis keys, job ids (no `:`) and URLs.
 */
export const SessionKey = Type.String({ pattern: "^[A-Za-z0-9_.-]{1,240}(?:~[0-9a-f]{20})?$" });
export type SessionKey = string;

/** The app of the HTTP API in session keys, and in what is stored by app; a bot has its app id there. */
export const apiApp = "api";

const childMark = "~";

/** The session whose cell, life and people a session shares: its own key, or for a child that of its root. */
export function rootSessionOf(session: SessionKey): SessionKey {
  const at = session.indexOf(childMark);
  return at === -1 ? session : session.slice(0, at);
}

export function isChildSession(session: SessionKey): boolean {
  return session.includes(childMark);
}

/** The session in which a call is worked on by a helper: always the same one for the same call. */
export function childSessionOf(session: SessionKey, turnId: string, callId: string): SessionKey {
  const id = hash("sha256", JSON.stringify([turnId, callId]), "hex").slice(0, 20);
  return `${rootSessionOf(session)}${childMark}${id}`;
}

/** A person of the platform, by open_id. */
export const Sender = Type.Object({
  id: Type.String(),
  name: Type.Optional(Type.String()),
});
export type Sender = Static<typeof Sender>;

const programMark = "program:";

/** Who writes where a program does, which the platform does not know. */
export function programSender(name: string): Sender {
  return { id: `${programMark}${name}`, name };
}

/** Whether a message is a program's: no call of its turn acts as a person. */
export function isProgram({ id }: Sender): boolean {
  return id.startsWith(programMark);
}

/**
 * Features that a process needs to continue with a stored value. A process that lacks one leaves the value to others,
 * because it could lose fields that it does not know. The first field of stored JSON, so that scripts find it
 * without parsing the rest.
 */
export const Needs = Type.Array(Type.String({ pattern: "^[a-z0-9-]{1,40}$" }), { maxItems: 20 });

/**
 * The features of this version. `held-step`: checkpoints that hold the assistant message of open calls.
 * `put-off-step`: those whose model step waits for its next try. `given-history`: messages that bring the conversation
 * before them. `run-options`: messages, and turns, whose answer has a form or whose requests have options of their own.
 * `hand-over`: sessions and turns in which another agent answers than the one their messages are for, and messages
 * for an agent that may hand over. `team`: those in which, or after which, a team answers. `question`: turns that
 * wait for the answer of a person. `helpers`: turns that have called helpers, and tasks of helpers.
 * `server-question`: turns with a call whose server asks people. `helper-waits`: entries for an asker whose helper waits
 * for people, or does not any more. `send-file`: turns with an open call that sends a file of the working folder.
 * `agent-versions`: turns of agents that an operator had changed. `ask-in-reply`: turns whose card has buttons that decide
 * about a call. `stored-response`: messages, and turns, that continue an answer which the vendor keeps. `schedule`: turns
 * with an open call that makes or changes a schedule. `consent`: turns that wait until a person lets the app act as them.
 * `private-answer`: turns with an open call that answers a person of a group in their own chat.
 * `reply-object`: messages that are answered in a comment. `reply-task`: those that are answered in a task.
 */
export const knownFeatures: readonly string[] = [
  "held-step",
  "put-off-step",
  "given-history",
  "run-options",
  "hand-over",
  "team",
  "question",
  "helpers",
  "server-question",
  "helper-waits",
  "send-file",
  "agent-versions",
  "ask-in-reply",
  "stored-response",
  "schedule",
  "consent",
  "private-answer",
  "reply-object",
  "reply-task",
];

/** Names one run. Deterministic, so that a redelivered message and its retry share it. */
export function turnIdOf(session: SessionKey, seq: number): string {
  return `${session}-${seq}`;
}

/**
 * Something of the platform besides chats in which an answer is written.
 * `comment`: the thread of a comment in a document; `isWhole`: it is about the whole document, and takes no replies.
 * `task`: a task that the bot is responsible for.
 */
const ReplyObject = Type.Union([
  Type.Object({
    kind: Type.Literal("comment"),
    fileType: Type.Enum(["doc", "docx", "sheet", "file"]),
    fileToken: Type.String({ minLength: 1, maxLength: 128 }),
    commentId: Type.String({ minLength: 1, maxLength: 128 }),
    isWhole: Type.Boolean(),
  }),
  Type.Object({
    kind: Type.Literal("task"),
    guid: Type.String({ minLength: 1, maxLength: 128 }),
  }),
]);
export type ReplyObject = Static<typeof ReplyObject>;

/** What a process must know to answer in an object. */
export const objectFeatures: Readonly<Record<ReplyObject["kind"], string>> = {
  comment: "reply-object",
  task: "reply-task",
};

/**
 * Where the answer to a message goes. `none`: read from the event stream only (HTTP API). With `object` the answer is written
 * there, `chatId` is the open_id of the person, and people are asked in their own chat; `needs` names the feature of its
 * kind then.
 */
export const ReplyTarget = Type.Union([
  Type.Object({
    channel: Type.Literal("feishu"),
    app: Type.String(),
    chatId: Type.String(),
    messageId: Type.String(),
    inThread: Type.Boolean(),
    object: Type.Optional(ReplyObject),
  }),
  Type.Object({ channel: Type.Literal("none") }),
]);

export type ReplyTarget = Static<typeof ReplyTarget>;

/** What of a message says where its people are. `task`: where the run of the person's message is answered. */
interface Placed {
  readonly session: SessionKey;
  readonly reply: ReplyTarget;
  readonly task?: { readonly reply: ReplyTarget };
}

/** Where people are who a message belongs to. */
export function peopleOf({ reply, session, task }: Placed): {
  reply: ReplyTarget;
  session: SessionKey;
} {
  return { reply: task?.reply ?? reply, session: rootSessionOf(session) };
}

/** The chat that a message belongs to; over HTTP, where there are none, its session. */
export function chatOf(message: Placed): string {
  const { reply, session } = peopleOf(message);
  return reply.channel === "feishu" ? reply.chatId : session;
}

/** Whose memories are meant: those of a person or of a chat, within one app and one tenant. */
export interface MemoryOwner {
  readonly kind: "person" | "chat";
  readonly app: string;
  readonly tenant?: string | undefined;
  readonly id: string;
}

/** Who has written a message, and where, as owners of memories. */
interface MemoryOwners {
  person: MemoryOwner;
  chat: MemoryOwner;
}

/**
 * Owners come from the message alone. All callers of the HTTP API without names are one sender, which may stand for
 * many people: there the session is the person.
 */
export function memoryOwnersOf(
  message: Placed & { readonly app: string; readonly tenant?: string; readonly sender: Sender },
): MemoryOwners {
  const { app, tenant, sender } = message;
  const { reply, session } = peopleOf(message); // helpers have the memories of those they work for
  const place = chatOf(message);
  const person = reply.channel === "none" && sender.id === app ? session : sender.id;
  return {
    person: { kind: "person", app, tenant, id: person },
    chat: { kind: "chat", app, tenant, id: place },
  };
}
