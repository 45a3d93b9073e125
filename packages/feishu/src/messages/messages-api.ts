import { createHash } from "node:crypto";
import { parserOf } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import { pathId, type ApiCaller, type CallOptions, type ApiRequest } from "../transport/api-call.ts";
import { isKind, FeishuError } from "../transport/error.ts";

/** What to send: a text in one of our formats, or the content of one message as the platform takes it. */
export type MessageBody =
  | { text: string; format?: TextFormat }
  /** `content` is JSON text, of an `interactive` message a whole card. */
  | { messageType: "interactive" | "image" | "file" | "text" | "post"; content: string };

interface ReplyTarget {
  messageId: string;
  /** The chat of the message, for its limit; without it only the limits of the API are kept. */
  chatId?: string;
  /** Opens or continues a thread below the message; a plain reply where the chat has no threads. */
  inThread: boolean;
  /** Idempotency key, at most 50 characters: one message per uuid within one hour. */
  uuid: string;
}

interface SendTarget {
  receiveIdType: "chat_id" | "open_id" | "union_id" | "user_id" | "email";
  receiveId: string;
  /** As in a reply: idempotency key, at most 50 characters. */
  uuid: string;
}

/** An answer to a message. */
type ReplyRequest = ReplyTarget & MessageBody;

/** A message to a chat or a person. */
type SendRequest = SendTarget & MessageBody;

/** The message that the platform made; of a split text the first one. */
export interface SentMessage {
  messageId: string;
}

/** A message as the platform keeps it. Absent ids are empty. */
export interface FetchedMessage {
  messageId: string;
  messageType: string;
  /** JSON text; empty of a recalled message. */
  content: string;
  senderId: string;
  senderType: "user" | "app" | "unknown";
  mentions: { key: string; openId: string; name: string }[];
  /** Epoch ms; 0 when the platform does not say. */
  createdAtMs: number;
  deleted: boolean;
  /** The forwarding message that holds this one. */
  upperMessageId: string;
  threadId: string;
  rootId: string;
  parentId: string;
  chatId: string;
}

/** Messages and reactions. Every method rejects with a FeishuError only. */
export class MessagesApi {
  readonly #caller: ApiCaller;

  constructor(caller: ApiCaller) {
    this.#caller = caller;
  }

  /**
   * Answers a message. `uuid` makes the platform drop repeats for one hour. A text over the
   * platform's limits is sent as several messages in order; the first one's id is returned.
   */
  async reply(request: ReplyRequest, options?: CallOptions): Promise<SentMessage> {
    return await inOrder(request, async (part) => {
      try {
        return await this.#replyOnce(part, request, options);
      } catch (error) {
        // The group has no threads, or has them no more: send a plain reply.
        if (!request.inThread || !isKind(error, "no_threads")) throw error;
        return await this.#replyOnce(part, { ...request, inThread: false }, options);
      }
    });
  }

  async #replyOnce(part: Part, target: ReplyTarget, options?: CallOptions): Promise<string> {
    const api = "im.message.reply";
    const payload = {
      path: { message_id: pathId(api, target.messageId) },
      data: {
        msg_type: part.messageType,
        content: part.content,
        uuid: part.uuid,
        ...(target.inThread ? { reply_in_thread: true } : {}),
      },
    };
    const sent = await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.im.v1.message.reply(payload, sdkOptions),
        parse: parseSent,
        limits: { chatId: target.chatId },
      },
      options,
    );
    return sent.data.message_id;
  }

  /** Sends to a chat or a person, otherwise like `reply`. */
  async send(request: SendRequest, options?: CallOptions): Promise<SentMessage> {
    const { receiveIdType, receiveId } = request;
    return await inOrder(request, async (part) => {
      const payload = {
        params: { receive_id_type: receiveIdType },
        data: { receive_id: receiveId, msg_type: part.messageType, content: part.content, uuid: part.uuid },
      };
      const sent = await this.#caller.call(
        {
          api: "im.message.create",
          run: (client, sdkOptions) => client.im.v1.message.create(payload, sdkOptions),
          parse: parseSent,
          limits: receiveIdType === "chat_id" ? { chatId: receiveId } : { userId: receiveId },
        },
        options,
      );
      return sent.data.message_id;
    });
  }

  /** The message and, of a forwarded bundle, the messages in it. Empty when the platform shows nothing. */
  async fetch(messageId: string, options?: CallOptions): Promise<FetchedMessage[]> {
    const api = "im.message.get";
    const payload = { path: { message_id: pathId(api, messageId) }, params: { user_id_type: "open_id" as const } };
    const { data } = await this.#caller.call(
      { api, run: (client, sdkOptions) => client.im.v1.message.get(payload, sdkOptions), parse: parseItems },
      options,
    );
    return (data.items ?? []).map(fetchedMessage);
  }

  /** Puts an emoji of a type such as `Typing` or `DONE` below a message; resolves to the id of the reaction. */
  async addReaction(messageId: string, emoji: string, options?: CallOptions): Promise<string> {
    const api = "im.reaction.create";
    const payload = {
      path: { message_id: pathId(api, messageId) },
      data: { reaction_type: { emoji_type: emoji } },
    };
    const added = await this.#caller.call(
      { api, run: (client, sdkOptions) => client.im.v1.messageReaction.create(payload, sdkOptions), parse: parseAdded },
      options,
    );
    return added.data.reaction_id;
  }

  /** Takes one of the app's own reactions back. */
  async removeReaction(messageId: string, reactionId: string, options?: CallOptions): Promise<void> {
    const api = "im.reaction.delete";
    const path = { message_id: pathId(api, messageId), reaction_id: pathId(api, reactionId) };
    await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.im.v1.messageReaction.delete({ path }, sdkOptions),
        parse: parseRemoved,
      },
      options,
    );
  }
}

const parseSent = parserOf(Type.Object({ data: Type.Object({ message_id: Type.String({ minLength: 1 }) }) }));
const parseAdded = parserOf(Type.Object({ data: Type.Object({ reaction_id: Type.String({ minLength: 1 }) }) }));
const parseRemoved = parserOf(Type.Object({}));

interface Part {
  messageType: string;
  content: string;
  uuid: string;
}

/** Sends the parts of a body one after the other, so that the person reads them in order. */
async function inOrder(
  request: MessageBody & { uuid: string },
  sendOne: (part: Part) => Promise<string>,
): Promise<SentMessage> {
  let messageId = "";
  for (const [index, content] of partsOf(request).entries()) {
    // The first message carries the uuid itself.
    const uuid = index === 0 ? fitting(request.uuid) : derivedUuid(request.uuid, index);
    const sentId = await sendOne({ ...content, uuid });
    if (index === 0) messageId = sentId;
  }
  return { messageId };
}

function partsOf(body: MessageBody): Omit<Part, "uuid">[] {
  if ("text" in body) return contentsOf(body.text, body.format);
  return [{ messageType: body.messageType, content: body.content }];
}

/** How a text is shown: `auto` picks a post where the text holds Markdown that a text message shows raw. */
type TextFormat = "auto" | "text" | "post";

/** One message as the platform takes it. */
interface OutgoingContent {
  messageType: "text" | "post";
  /** JSON text. */
  content: string;
}

/**
 * The messages that show a text, in order: usually one. A post that would be too large becomes
 * text, and text that is too large several messages; nothing is left out.
 */
export function contentsOf(text: string, format: TextFormat = "auto"): OutgoingContent[] {
  const safe = withoutMentions(text);
  if (format === "post" || (format === "auto" && holdsMarkdown(text))) {
    const post = postContent(safe);
    if (bytesOf(post) <= maxPostBytes) return [post];
  }
  return splitText(safe).map(textContent);
}

/**
 * Limits of the `content` JSON in bytes ("Send message": text 150 KB, post 30 KB), with room for
 * what the platform counts beside the text.
 */
const maxTextBytes = 145_000;
const maxPostBytes = 28_000;

const markdown = [
  /^ {0,3}(?:```|~~~)/m,
  /^ {0,3}#{1,6} \S/m,
  /\*\*\S[^*\n]*\*\*/,
  /`[^`\n]+`/,
  /~~\S[^~\n]*~~/,
  /\[[^[\]\n]*\]\(https?:/,
  /^ {0,6}[-*+] \S/m,
  /^ {0,6}\d{1,9}\. \S/m,
  /^ {0,3}> ?\S/m,
  /^ {0,3}\|.*\|[ \t]*$/m,
  /^ {0,3}(?:-{3,}|\*{3,})[ \t]*$/m,
];

/** Whether the text holds Markdown that a plain text message would show as raw characters. */
export function holdsMarkdown(text: string): boolean {
  return markdown.some((pattern) => pattern.test(text));
}

/**
 * Text and post messages both read `<at user_id="all">` as a mention. The platform documents no
 * escape, so an invisible character after the bracket (also of its HTML entities) breaks the tag:
 * the reader sees the same text, and no person is notified.
 */
export function withoutMentions(text: string): string {
  return text.replaceAll(/(?:<|&lt;?|&#0*60;?|&#x0*3c;?)(?=[\s\p{Cc}\p{Cf}/]*a[\p{Cc}\p{Cf}]*t)/giu, "$&\u200B");
}

function textContent(text: string): OutgoingContent {
  return { messageType: "text", content: JSON.stringify({ text }) };
}

/** `md` has to be alone in its paragraph; the locale wrapper is required ("Message content"). */
function postContent(text: string): OutgoingContent {
  return { messageType: "post", content: JSON.stringify({ zh_cn: { title: "", content: [[{ tag: "md", text }]] } }) };
}

function bytesOf(content: OutgoingContent): number {
  return Buffer.byteLength(content.content);
}

/** Where to cut so that the head stays within `maxLength`: after a paragraph, a line, a space, or anywhere. */
function cutAt(text: string, maxLength: number): number {
  for (const separator of ["\n\n", "\n", " "]) {
    const at = text.lastIndexOf(separator, maxLength - separator.length);
    if (at > maxLength / 2) return at + separator.length;
  }
  const code = text.charCodeAt(maxLength - 1);
  const splitsPair = code >= 0xd800 && code <= 0xdbff;
  return splitsPair && maxLength > 1 ? maxLength - 1 : maxLength;
}

/** Where to cut the text so that its head fits; found by proportion, as bytes per character vary. */
function headLength(text: string, maxBytes: number): number {
  let length = text.length;
  let bytes = bytesOf(textContent(text));
  if (bytes <= maxBytes) return length;
  while (bytes > maxBytes && length > 2) {
    length = Math.max(2, Math.floor((length * maxBytes) / bytes) - 1);
    bytes = bytesOf(textContent(text.slice(0, length)));
  }
  return cutAt(text, length);
}

/** Pieces of the text whose concatenation is the text, each fitting into one text message. */
export function splitText(text: string, maxBytes = maxTextBytes): string[] {
  const pieces: string[] = [];
  let rest = text;
  do {
    const length = headLength(rest, maxBytes);
    pieces.push(rest.slice(0, length));
    rest = rest.slice(length);
  } while (rest !== "");
  return pieces;
}

/** The platform drops a repeated `uuid` for one hour ("Send message"); ten minutes are kept in reserve. */
export const uuidProtectionMs = 50 * 60_000;

/** Clocks differ: the platform may date a message so much earlier than our record of it. */
export const clockSkewMs = 120_000;

/** Longest `uuid` of a send ("Send message"). */
const maxUuidLength = 50;

function fitting(uuid: string): string {
  return uuid.length <= maxUuidLength ? uuid : createHash("sha256").update(uuid).digest("hex").slice(0, maxUuidLength);
}

/** The uuid of a further message of the same reply: another one, always the same for the same input. */
export function derivedUuid(uuid: string, suffix: string | number): string {
  return fitting(`${uuid}.${suffix}`);
}

/** Where a message goes that answers no message: to a chat, or to a person whose chat is not known. */
export function receiverOf(id: string): { receiveIdType: "chat_id" | "open_id"; receiveId: string } {
  return { receiveIdType: id.startsWith("ou_") ? "open_id" : "chat_id", receiveId: id };
}

const OptionalText = Type.Optional(Type.String());

const Item = Type.Object({
  message_id: Type.String(),
  msg_type: OptionalText,
  root_id: OptionalText,
  parent_id: OptionalText,
  thread_id: OptionalText,
  upper_message_id: OptionalText,
  chat_id: OptionalText,
  create_time: OptionalText,
  deleted: Type.Optional(Type.Boolean()),
  sender: Type.Optional(Type.Object({ id: OptionalText, sender_type: OptionalText })),
  body: Type.Optional(Type.Object({ content: OptionalText })),
  mentions: Type.Optional(Type.Array(Type.Object({ key: OptionalText, id: OptionalText, name: OptionalText }))),
});

const parseItems = parserOf(Type.Object({ data: Type.Object({ items: Type.Optional(Type.Array(Item)) }) }));

/** Most APIs give ms, some seconds. */
function epochMs(digits: string | undefined): number {
  const value = Number(digits ?? 0);
  if (!Number.isFinite(value)) return 0;
  return value < 100_000_000_000 ? value * 1_000 : value;
}

function senderOf(item: Static<typeof Item>): Pick<FetchedMessage, "senderId" | "senderType"> {
  const type = item.sender?.sender_type;
  return { senderId: item.sender?.id ?? "", senderType: type === "user" || type === "app" ? type : "unknown" };
}

function linksOf(item: Static<typeof Item>) {
  return {
    upperMessageId: item.upper_message_id ?? "",
    threadId: item.thread_id ?? "",
    rootId: item.root_id ?? "",
    parentId: item.parent_id ?? "",
    chatId: item.chat_id ?? "",
  };
}

function fetchedMessage(item: Static<typeof Item>): FetchedMessage {
  const mentions = item.mentions ?? [];
  return {
    messageId: item.message_id,
    messageType: item.msg_type ?? "",
    content: item.body?.content ?? "",
    ...senderOf(item),
    mentions: mentions.map(({ key = "", id = "", name = "" }) => ({ key, openId: id, name })),
    createdAtMs: epochMs(item.create_time),
    deleted: item.deleted ?? false,
    ...linksOf(item),
  };
}

/** An operation on a card entity. */
interface CardOperation {
  cardId: string;
  /** 1 to 2147483647, higher than that of every earlier operation of any kind. */
  sequence: number;
  /** Idempotency key, 1 to 64 characters. */
  uuid: string;
}

/** New text of a text element. */
interface CardContentRequest extends CardOperation {
  elementId: string;
  /** The whole text, 1 to 100,000 characters. Clients type only the new part when the shown text is its beginning. */
  content: string;
}

/** Several changes at once, as "Batch update a card" describes them. */
interface CardBatchRequest extends CardOperation {
  actions: readonly { action: string; params: Record<string, unknown> }[];
}

/** For example `{ config: { streaming_mode: false, summary: { content } } }`. */
interface CardSettingsRequest extends CardOperation {
  settings: Record<string, unknown>;
}

/** A whole new card. */
interface CardUpdateRequest extends CardOperation {
  card: Record<string, unknown>;
}

type CardReplyRequest = Omit<Extract<ReplyRequest, { text: string }>, "text" | "format"> & { cardId: string };
type CardSendRequest = Omit<Extract<SendRequest, { text: string }>, "text" | "format"> & { cardId: string };

/**
 * Calls about cards. Every method rejects with a FeishuError only. A call that is `uncertain` may have been
 * executed: `sequence_behind` or `applied_before` at the next attempt mean that it was.
 */
export class CardsApi {
  readonly #caller: ApiCaller;
  readonly #messages: MessagesApi;

  constructor(caller: ApiCaller, messages: MessagesApi) {
    this.#caller = caller;
    this.#messages = messages;
  }

  /** Makes a card entity (JSON 2.0) that can be sent once within 14 days; resolves to its id. */
  async create(card: Record<string, unknown>, options?: CallOptions): Promise<string> {
    const api = "cardkit.card.create";
    const data = { type: "card_json", data: JSON.stringify(card) };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.create({ data }, sdkOptions);
    return (await this.#caller.call({ api, run, parse: parseCreated }, options)).data.card_id;
  }

  /** Answers a message with a card entity; `card_gone` when the platform does not know the card, or it was sent. */
  async sendReply({ cardId, ...request }: CardReplyRequest, options?: CallOptions): Promise<SentMessage> {
    return await this.#messages.reply({ ...request, ...contentOf(cardId) }, options).catch(unknownIsGone);
  }

  /** Sends a card entity to a chat or a person, otherwise like `sendReply`. */
  async sendTo({ cardId, ...request }: CardSendRequest, options?: CallOptions): Promise<SentMessage> {
    return await this.#messages.send({ ...request, ...contentOf(cardId) }, options).catch(unknownIsGone);
  }

  /** Sets the text of one element. */
  async content(request: CardContentRequest, options?: CallOptions): Promise<void> {
    const { cardId, elementId, content, sequence, uuid } = request;
    const api = "cardkit.cardElement.content";
    const path = { card_id: pathId(api, cardId), element_id: pathId(api, elementId) };
    const data = { content, sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.cardElement.content({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async batch({ cardId, actions, sequence, uuid }: CardBatchRequest, options?: CallOptions): Promise<void> {
    const api = "cardkit.card.batchUpdate";
    const path = { card_id: pathId(api, cardId) };
    const data = { actions: JSON.stringify(actions), sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.batchUpdate({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async settings({ cardId, settings, sequence, uuid }: CardSettingsRequest, options?: CallOptions): Promise<void> {
    const api = "cardkit.card.settings";
    const path = { card_id: pathId(api, cardId) };
    const data = { settings: JSON.stringify(settings), sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.settings({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async update({ cardId, card, sequence, uuid }: CardUpdateRequest, options?: CallOptions): Promise<void> {
    const api = "cardkit.card.update";
    const path = { card_id: pathId(api, cardId) };
    const data = { card: { type: "card_json" as const, data: JSON.stringify(card) }, sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.update({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  /** Replaces the card of a message that is no card entity; both cards need `update_multi`. */
  async patchMessage(
    { messageId, card }: { messageId: string; card: Record<string, unknown> },
    options?: CallOptions,
  ): Promise<void> {
    const api = "im.message.patch";
    const payload = { path: { message_id: pathId(api, messageId) }, data: { content: JSON.stringify(card) } };
    const run: Run = (client, sdkOptions) => client.im.v1.message.patch(payload, sdkOptions);
    await this.#caller.call({ api, limits: { messageId }, run, parse: parseDone }, options);
  }

  /**
   * Replaces the card that was clicked, by the token of the click: within 30 minutes, at most twice,
   * and only after the callback was answered. Tried once: a repeat would use the token up.
   */
  async delayedUpdate(
    { token, card }: { token: string; card: Record<string, unknown> },
    options?: CallOptions,
  ): Promise<void> {
    const api = "interactive.card.update";
    const request = { method: "POST", url: "/open-apis/interactive/v1/card/update", data: { token, card } };
    const run: Run = (client, sdkOptions) => client.request(request, sdkOptions);
    await this.#caller.call({ api, run, parse: parseDone, once: true }, options);
  }
}

type Run = ApiRequest<unknown>["run"];

const parseCreated = parserOf(Type.Object({ data: Type.Object({ card_id: Type.String({ minLength: 1 }) }) }));
const parseDone = parserOf(Type.Object({}));

/** The content of a message that shows a card entity. */
function contentOf(cardId: string): { messageType: "interactive"; content: string } {
  return { messageType: "interactive", content: JSON.stringify({ type: "card", data: { card_id: cardId } }) };
}

/** The platform knows a new card within moments; a card that stays unknown is gone, or was sent before. */
function unknownIsGone(error: unknown): never {
  if (error instanceof FeishuError && error.kind === "retry" && [230099, 11310].includes(error.code)) {
    throw new FeishuError({ ...error, kind: "card_gone", reason: "card unknown" });
  }
  throw error;
}
