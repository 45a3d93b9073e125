import { parserOf } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import {
  maxListed,
  pathId,
  type ApiCaller,
  type CallOptions,
  objectOf,
  parsedObject,
} from "../transport/api-call.ts";
import { isKind } from "../transport/error.ts";
import { contentsOf } from "./outgoing-text.ts";

/** Which answer to look for, and where. */
export interface FindReplyRequest {
  chatId: string;
  /** The message that was to be answered. */
  messageId: string;
  /** Epoch ms; older messages are not looked at. */
  sinceMs: number;
  /** The text that was to be sent: when it takes several messages, all of them must be there. */
  text?: string;
  /** The card that was to be sent instead. */
  card?: Record<string, unknown>;
  /** The file that was to be sent instead; the platform may list it under another key. */
  file?: { key: string; name: string };
}

/** Which card to look for, and where. */
export interface FindCardRequest {
  chatId: string;
  /** A message of the thread that the card is in; absent: the chat itself. */
  threadOf?: string;
  /** Epoch ms; older messages are not looked at. */
  sinceMs: number;
  /** A text that the JSON of this card holds and of no other, such as an id that its buttons carry. */
  mark: string;
}

/** What was said in a chat before a message. */
export interface SaidRequest {
  chatId: string;
  /** A message of the thread that counts in place of the chat. */
  threadOf?: string;
  /** Epoch ms, exclusive. */
  afterMs: number;
  /** The message; others may be of the same millisecond as it. */
  before: { messageId: string; createdAtMs: number };
  /** Nothing that is older than the newest message of the app's own in that time. */
  sinceOwn: boolean;
  most: number;
}

/** What a person has said, as `readContent` reads it. */
export interface SaidMessage {
  messageId: string;
  senderId: string;
  messageType: string;
  content: string;
  mentions: { key: string; openId: string; name: string }[];
}

/** A message as the platform lists it, without its content. */
export interface ListedFacts {
  messageId: string;
  createdAtMs: number;
  /** Written by a person, not by a bot or by the platform, and not taken back. */
  isByPerson: boolean;
  /** It may be a command: a text in it begins with a slash. */
  isOrder: boolean;
}

/**
 * What the chats of an app hold, mostly to learn whether a message whose sending was uncertain is there. Every
 * method needs the right to read the chat's history, reads at most 500 messages back, newest first, and rejects
 * with a FeishuError only.
 */
export class ChatHistory {
  readonly #caller: ApiCaller;

  constructor(caller: ApiCaller) {
    this.#caller = caller;
  }

  /** Looks for the app's own answer to a message. Resolves to its message id, of a split text that of a part. */
  async findReply(request: FindReplyRequest, options?: CallOptions): Promise<string | undefined> {
    const { messageId, sinceMs } = request;
    const threadId = (await this.#threadOf(messageId, options)) ?? "";
    const parts = new AnswerParts(request, threadId);
    const place =
      threadId === ""
        ? { type: "chat" as const, id: request.chatId }
        : { type: "thread" as const, id: threadId };
    const container: Container = { ...place, sinceMs, cardsAsSent: request.card !== undefined };
    for await (const message of this.#messagesOf(container, options)) {
      if (Number(message.create_time ?? sinceMs) < sinceMs) return undefined;
      if (isOurs(message, this.#caller.appId)) parts.add(message);
      if (parts.isComplete) return message.message_id;
    }
    return undefined;
  }

  /** Looks for a card of the app's own. Resolves to the id of its message. */
  async findCard(request: FindCardRequest, options?: CallOptions): Promise<string | undefined> {
    const { chatId, sinceMs, mark } = request;
    const threadId =
      request.threadOf === undefined ? undefined : await this.#threadOf(request.threadOf, options);
    const place =
      threadId === undefined
        ? { type: "chat" as const, id: chatId }
        : { type: "thread" as const, id: threadId };
    for await (const message of this.#messagesOf(
      { ...place, sinceMs, cardsAsSent: true },
      options,
    )) {
      if (Number(message.create_time ?? sinceMs) < sinceMs) return undefined;
      const { sender, msg_type: type, deleted, body } = message;
      const isOurCard =
        sender?.id === this.#caller.appId && type === "interactive" && deleted !== true;
      if (isOurCard && body?.content?.includes(mark) === true) return message.message_id;
    }
    return undefined;
  }

  /** The messages of a chat since `sinceMs`. */
  async list(
    request: { chatId: string; sinceMs: number },
    options?: CallOptions,
  ): Promise<ListedFacts[]> {
    const { chatId, sinceMs } = request;
    const listed: ListedFacts[] = [];
    for await (const message of this.#messagesOf({ type: "chat", id: chatId, sinceMs }, options)) {
      const {
        message_id: messageId,
        create_time: createTime = "0",
        deleted,
        sender,
        msg_type: type,
        body,
      } = message;
      const createdAtMs = Number(createTime);
      if (createdAtMs < sinceMs) break;
      const isByPerson = sender?.sender_type === "user" && deleted !== true && type !== "system";
      const isOrder = order.test(body?.content ?? "");
      listed.push({ messageId, createdAtMs, isByPerson, isOrder });
    }
    return listed;
  }

  /** The newest messages of people in a chat, oldest first: none of bots, and none that were taken back. */
  async said(request: SaidRequest, options?: CallOptions): Promise<SaidMessage[]> {
    const { chatId, threadOf, afterMs: sinceMs, before, sinceOwn, most } = request;
    const threadId = threadOf === undefined ? undefined : await this.#threadOf(threadOf, options);
    const container: Container =
      threadId === undefined
        ? { type: "chat", id: chatId, sinceMs }
        : { type: "thread", id: threadId, sinceMs };
    const said: SaidMessage[] = [];
    let isReached = false;
    for await (const message of this.#messagesOf(container, options)) {
      const atMs = Number(message.create_time ?? 0);
      const isNewer = atMs > before.createdAtMs || (atMs === before.createdAtMs && !isReached);
      isReached ||= message.message_id === before.messageId;
      if (isNewer) continue;
      if (atMs <= sinceMs || said.length === most) break;
      if (sinceOwn && isOurs(message, this.#caller.appId)) break;
      if (message.sender?.sender_type === "user" && message.deleted !== true) {
        said.unshift(saidMessage(message));
      }
    }
    return said;
  }

  /** The thread that a message belongs to: answers inside a thread are missing from the chat's own list. */
  async #threadOf(messageId: string, callOptions?: CallOptions): Promise<string | undefined> {
    const api = "im.message.get";
    const path = { message_id: pathId(api, messageId) };
    try {
      const { data } = await this.#caller.call(
        {
          api,
          run: (client, options) => client.im.v1.message.get({ path }, options),
          parse: parseItems,
        },
        callOptions,
      );
      return data.items?.[0]?.thread_id;
    } catch (error) {
      // The message is gone; its answer may still be in the chat.
      if (isKind(error, "target_gone")) return undefined;
      throw error;
    }
  }

  async *#messagesOf(
    container: Container,
    callOptions?: CallOptions,
  ): AsyncIterable<ListedMessage> {
    let pageToken = "";
    for (let page = 0; page < maxPages; page += 1) {
      const params = {
        container_id_type: container.type,
        container_id: container.id,
        sort_type: "ByCreateTimeDesc" as const,
        page_size: pageSize,
        // The platform refuses time filters for threads; seconds.
        ...(container.type === "chat"
          ? { start_time: String(Math.floor(container.sinceMs / 1000)) }
          : {}),
        ...(pageToken === "" ? {} : { page_token: pageToken }),
        ...(container.cardsAsSent === true
          ? { card_msg_content_type: "user_card_content" as const }
          : {}),
      };
      const { data } = await this.#caller.call(
        {
          api: "im.message.list",
          run: (client, options) => client.im.v1.message.list({ params }, options),
          parse: parseItems,
        },
        callOptions,
      );
      yield* data.items ?? [];
      pageToken = data.page_token ?? "";
      if (data.has_more !== true || pageToken === "") return;
    }
  }
}

const ListedMessage = Type.Object({
  message_id: Type.String(),
  msg_type: Type.Optional(Type.String()),
  parent_id: Type.Optional(Type.String()),
  thread_id: Type.Optional(Type.String()),
  create_time: Type.Optional(Type.String()),
  deleted: Type.Optional(Type.Boolean()),
  sender: Type.Optional(
    Type.Object({ id: Type.Optional(Type.String()), sender_type: Type.Optional(Type.String()) }),
  ),
  mentions: Type.Optional(
    Type.Array(
      Type.Object({
        key: Type.Optional(Type.String()),
        id: Type.Optional(Type.String()),
        name: Type.Optional(Type.String()),
      }),
      { maxItems: maxListed },
    ),
  ),
  body: Type.Optional(Type.Object({ content: Type.Optional(Type.String()) })),
});
type ListedMessage = Static<typeof ListedMessage>;

const parseItems = parserOf(
  Type.Object({
    data: Type.Object({
      items: Type.Optional(Type.Array(ListedMessage, { maxItems: maxListed })),
      has_more: Type.Optional(Type.Boolean()),
      page_token: Type.Optional(Type.String()),
    }),
  }),
);

const pageSize = 50;
const maxPages = 10;

interface Container {
  type: "chat" | "thread";
  id: string;
  sinceMs: number;
  /** Cards as the JSON that was sent, not as what a reader sees of them. */
  cardsAsSent?: boolean;
}

function saidMessage({
  message_id: messageId,
  msg_type: messageType = "",
  ...message
}: ListedMessage): SaidMessage {
  const mentions = (message.mentions ?? []).map(({ key = "", id = "", name = "" }) => ({
    key,
    openId: id,
    name,
  }));
  return {
    messageId,
    senderId: message.sender?.id ?? "",
    messageType,
    content: message.body?.content ?? "",
    mentions,
  };
}

function isOurs(message: ListedMessage, appId: string): boolean {
  return (
    message.sender?.sender_type === "app" && message.sender.id === appId && message.deleted !== true
  );
}

/**
 * Collects the messages that together are the answer in question. Being an answer to the same message is not
 * enough: that may be a notice, or a card that was replaced by a text. And in a thread the platform names the first
 * message as the parent of all others ("Reply message").
 */
class AnswerParts {
  readonly #request: FindReplyRequest;
  readonly #threadId: string;
  /** Marks of the messages that are not found yet. */
  readonly #missing: string[];

  constructor(request: FindReplyRequest, threadId: string) {
    this.#request = request;
    this.#threadId = threadId;
    this.#missing = marksOf(request);
  }

  get isComplete(): boolean {
    return this.#missing.length === 0;
  }

  /** Takes one of the app's own messages into account. */
  add({ parent_id: parentId = "", msg_type: messageType, body }: ListedMessage): void {
    const { text, card, file, messageId } = this.#request;
    const kind = card === undefined ? kindOf(file === undefined ? "text" : "file") : "interactive";
    if (text === undefined && kind === "text") {
      // The content does not matter: any answer to the message counts.
      if (parentId === messageId) this.#missing.length = 0;
      return;
    }
    if (kindOf(messageType) !== kind) return;
    // Without a parent it went to the chat, because the message could not be answered.
    if (parentId !== messageId && parentId !== "" && this.#threadId === "") return;
    const content = parsedObject(body?.content ?? "");
    const at = this.#missing.indexOf(
      isFile(content, this.#request) ? (file?.key ?? "") : markOf(content),
    );
    if (at >= 0) this.#missing.splice(at, 1);
  }
}

/** How many letters and digits of two answers are compared. */
const markLength = 60;

/** The fields that hold texts in contents as they are sent and as they are listed, cards included. */
const textNames = new Set(["text", "title", "content"]);

/** The texts in the content of any kind of message; the settings of a card hold no text that it shows. */
function textsIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return Object.entries(objectOf(value) ?? {}).flatMap(([name, inner]) => {
    if (typeof inner !== "string") return name === "config" ? [] : textsIn(inner);
    return textNames.has(name) ? [inner] : [];
  });
}

/**
 * The beginning of the text of a content, without its marks and the targets of its links: the platform
 * lists Markdown in a form of its own.
 */
function markOf(content: Record<string, unknown> | undefined): string {
  const said = textsIn(content)
    .join("")
    .replaceAll(/\]\([^()\s]*\)/g, "]");
  const letters = said.replaceAll(/[^\p{L}\p{N}]/gu, "");
  return (letters === "" ? said.replaceAll(/\s/g, "") : letters).slice(0, markLength);
}

function marksOf({ text, card, file }: FindReplyRequest): string[] {
  if (file !== undefined) return [file.key];
  if (card !== undefined) return [markOf(card)];
  return contentsOf(text ?? "").map(({ content }) => markOf(parsedObject(content)));
}

/** Cards, files, and everything that a text may have become. */
function kindOf(messageType: string | undefined): "interactive" | "file" | "text" {
  return messageType === "interactive" || messageType === "file" ? messageType : "text";
}

function isFile(content: Record<string, unknown> | undefined, { file }: FindReplyRequest): boolean {
  return (
    file !== undefined &&
    (content?.["file_key"] === file.key || content?.["file_name"] === file.name)
  );
}

/** A slash, also a full-width one, at the beginning of a text or of a part of a post. */
const order = /"(?:text|title)":\s*"(?:\s|\\[nrt])*[/\uFF0F]/;
