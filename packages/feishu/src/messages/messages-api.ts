import { createHash } from "node:crypto";
import { parserOf } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import { pathId, type ApiCaller, type CallOptions } from "../transport/api-call.ts";
import { isKind } from "../transport/error.ts";
import { contentsOf, type TextFormat } from "./outgoing-text.ts";

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
export type ReplyRequest = ReplyTarget & MessageBody;

/** A message to a chat or a person. */
export type SendRequest = SendTarget & MessageBody;

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

const text = Type.Optional(Type.String());

const Item = Type.Object({
  message_id: Type.String(),
  msg_type: text,
  root_id: text,
  parent_id: text,
  thread_id: text,
  upper_message_id: text,
  chat_id: text,
  create_time: text,
  deleted: Type.Optional(Type.Boolean()),
  sender: Type.Optional(Type.Object({ id: text, sender_type: text })),
  body: Type.Optional(Type.Object({ content: text })),
  mentions: Type.Optional(Type.Array(Type.Object({ key: text, id: text, name: text }))),
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
