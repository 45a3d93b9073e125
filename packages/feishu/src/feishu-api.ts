import { createHash } from "node:crypto";
import { parserOf } from "@larkline/protocol";
import { systemClock, systemRandom, type Clock, type Random } from "@larkline/protocol/clock";
import { Type, type Static } from "@larkline/protocol/type";
import type { RateGovernor, TokenSource } from "@larkline/store/platform";
import { ChatHistory } from "./messages/chat-history.ts";
import { FilesApi } from "./messages/files-api.ts";
import { CommentsApi } from "./objects/comments.ts";
import { subscribeApp, type OwnSubscription } from "./objects/subscriptions.ts";
import { TasksApi } from "./objects/tasks.ts";
import {
  ApiCaller,
  maxListed,
  pathId,
  type CallOptions,
  type CallWatch,
  type RetryPolicy,
  type ApiRequest,
} from "./transport/api-call.ts";
import { FeishuError, isKind } from "./transport/error.ts";
import {
  baseUrlOf,
  MonthlyQuota,
  RateLimiter,
  type FeishuDomain,
} from "./transport/rate-limiter.ts";
import { noLogger, type FeishuLogger } from "./transport/sdk.ts";
import { contentsOf, type TextFormat } from "./messages/outgoing-text.ts";

// The calls of the platform, one method each: about people and chats in `FeishuApi` itself, about messages and cards in
// the classes below it. Files and the history of chats have chapters of their own.

export interface FeishuApiOptions {
  appId: string;
  appSecret: string;
  domain: FeishuDomain;
  /** Shares the access token among processes. */
  tokenCache: TokenSource;
  logger?: FeishuLogger;
  /** Deadline of one HTTP request in ms, 10 s by default. */
  timeoutMs?: number;
  retry?: Partial<RetryPolicy>;
  /** Keeps all processes together within the platform's limits; without it every call leaves at once. */
  governor?: RateGovernor;
  /** Calls a month that the tenant's plan includes; null (default) when they are not limited. */
  monthlyCalls?: number | null;
  /** Telemetry of every call. */
  watch?: CallWatch | undefined;
  clock?: Clock;
  random?: Random;
}

/** What kind of chat this is. */
export interface ChatFacts {
  /** Absent when the bot is not a member: the platform then returns only the name. */
  mode?: "p2p" | "group" | "topic";
  /** For a normal group: whether its messages open threads. */
  groupMessageType?: "chat" | "thread";
  name: string;
  /** The chat has members of other tenants. */
  external: boolean;
  /** The chat still exists. */
  active: boolean;
  /** No bot but this one is a member. False when the platform does not say. */
  onlyBot: boolean;
}

/**
 * One app's calls to the platform. Every method rejects with a FeishuError only. The constructor opens no
 * connection; it throws on a malformed domain.
 */
export class FeishuApi {
  readonly appId: string;
  /** The origin of the Open API, without a slash at the end. */
  readonly baseUrl: string;
  readonly messages: MessagesApi;
  readonly cards: CardsApi;
  readonly files: FilesApi;
  readonly history: ChatHistory;
  readonly comments: CommentsApi;
  readonly tasks: TasksApi;
  readonly #caller: ApiCaller;
  readonly quota: MonthlyQuota;

  constructor(options: FeishuApiOptions) {
    const {
      appId,
      appSecret,
      tokenCache,
      governor,
      watch,
      timeoutMs = 10_000,
      logger = noLogger,
      clock = systemClock,
      random = systemRandom,
    } = options;
    const baseUrl = baseUrlOf(options.domain);
    this.baseUrl = baseUrl;
    const isOnlyBot = async (chatId: string): Promise<boolean> => (await this.chat(chatId)).onlyBot;
    const limiter =
      governor === undefined
        ? undefined
        : new RateLimiter({ governor, app: appId, isOnlyBot, clock });
    const { retry } = options;
    this.appId = appId;
    const limits = { timeoutMs, retry, limiter };
    this.#caller = new ApiCaller({
      appId,
      appSecret,
      baseUrl,
      tokenCache,
      logger,
      watch,
      clock,
      random,
      ...limits,
    });
    this.quota = new MonthlyQuota(limiter, options.monthlyCalls ?? null, clock);
    this.messages = new MessagesApi(this.#caller);
    this.cards = new CardsApi(this.#caller, this.messages);
    this.files = new FilesApi(this.#caller);
    this.history = new ChatHistory(this.#caller);
    this.comments = new CommentsApi(this.#caller);
    this.tasks = new TasksApi(this.#caller);
  }

  /** The token with which the bot acts. `refused`: digest of one that the platform has refused, another one is fetched. */
  async botToken(refused?: string): Promise<string> {
    return await this.#caller.token(refused);
  }

  /** Subscribes the app itself to events. Subscribing twice is the same as once. */
  async subscribe(to: OwnSubscription, options?: CallOptions): Promise<void> {
    await subscribeApp(this.#caller, to, options);
  }

  /** Who the bot is; its open_id is what mentions carry. */
  async botInfo(signal?: AbortSignal): Promise<{ openId: string; name: string }> {
    const { bot } = await this.#caller.call(
      {
        api: "bot.info",
        run: (client, options) =>
          client.request({ method: "GET", url: "/open-apis/bot/v3/info" }, options),
        parse: parseBot,
      },
      { signal },
    );
    return { openId: bot.open_id, name: bot.app_name ?? "" };
  }

  async chat(chatId: string, options?: CallOptions): Promise<ChatFacts> {
    const api = "im.chat.get";
    const path = { chat_id: pathId(api, chatId) };
    const { data } = await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.im.v1.chat.get({ path }, sdkOptions),
        parse: parseChat,
      },
      options,
    );
    const { chat_mode: mode, group_message_type: type } = data;
    return {
      ...(mode === "p2p" || mode === "group" || mode === "topic" ? { mode } : {}),
      ...(type === "chat" || type === "thread" ? { groupMessageType: type } : {}),
      name: data.name ?? "",
      external: data.external ?? false,
      active: (data.chat_status ?? "normal") === "normal",
      onlyBot: mode === "p2p" || data.bot_count === "1",
    };
  }

  /**
   * Names by open_id; people whose name the app may not see are missing. The batch call needs a right of its own
   * that many apps lack, so people whom it does not name are asked for one by one.
   */
  async userNames(
    openIds: readonly string[],
    options?: CallOptions,
  ): Promise<ReadonlyMap<string, string>> {
    const names = new Map<string, string>();
    const wanted = [...new Set(openIds)].map((openId) => pathId("contact.user.basicBatch", openId));
    for (let at = 0; at < wanted.length; at += maxBatch) {
      const batch = wanted.slice(at, at + maxBatch);
      const found = await unlessRefused(
        this.#namesOfBatch(batch, options),
        new Map<string, string>(),
      );
      for (const openId of batch) {
        const name = found.get(openId) ?? (await unlessRefused(this.#nameOf(openId, options), ""));
        if (name !== "") names.set(openId, name);
      }
    }
    return names;
  }

  async #namesOfBatch(
    openIds: readonly string[],
    options?: CallOptions,
  ): Promise<Map<string, string>> {
    const request = {
      method: "POST",
      url: "/open-apis/contact/v3/users/basic_batch",
      params: { user_id_type: "open_id" },
      data: { user_ids: openIds },
    };
    const { data } = await this.#caller.call(
      {
        api: "contact.user.basicBatch",
        run: (client, sdkOptions) => client.request(request, sdkOptions),
        parse: parseNames,
      },
      options,
    );
    const named = (data.users ?? []).filter(({ name = "" }) => name !== "");
    return new Map(named.map(({ user_id: openId = "", name = "" }) => [openId, name]));
  }

  async #nameOf(openId: string, options?: CallOptions): Promise<string> {
    const api = "contact.user.get";
    const payload = {
      path: { user_id: pathId(api, openId) },
      params: { user_id_type: "open_id" as const },
    };
    const { data } = await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.contact.v3.user.get(payload, sdkOptions),
        parse: parseUser,
      },
      options,
    );
    return data.user?.name ?? "";
  }

  /**
   * Ids of all user groups that the person belongs to, as far as the app's contact range reaches ("Query the user
   * groups of a user"). Rejects when the platform does not say.
   */
  async groupsOf(openId: string, options?: CallOptions): Promise<string[]> {
    const groups = new Set<string>();
    for (const type of groupTypes) {
      for await (const page of this.#groupPages({ member_id: openId, group_type: type }, options)) {
        for (const group of page) groups.add(group);
      }
    }
    return [...groups];
  }

  async *#groupPages(
    params: { member_id: string; group_type: number },
    callOptions?: CallOptions,
  ): AsyncIterable<string[]> {
    const api = "contact.group.memberBelong";
    let pageToken = "";
    for (let page = 0; page < maxPages; page += 1) {
      const token = pageToken === "" ? {} : { page_token: pageToken };
      const payload = {
        params: { ...params, member_id_type: "open_id" as const, page_size: pageSize, ...token },
      };
      const { data } = await this.#caller.call(
        {
          api,
          run: (client, options) => client.contact.v3.group.memberBelong(payload, options),
          parse: parseGroups,
        },
        callOptions,
      );
      yield data.group_list ?? [];
      pageToken = data.page_token ?? "";
      if (data.has_more !== true || pageToken === "") return;
    }
    const reason = "more groups than can be read";
    throw new FeishuError({ api, kind: "bad_request", code: 0, httpStatus: 200, reason });
  }

  /** Aborts what is running and ends all connections. */
  close(): void {
    this.#caller.close();
  }
}

/** `GET /open-apis/bot/v3/info` answers outside `data`. */
const parseBot = parserOf(
  Type.Object({
    bot: Type.Object({
      open_id: Type.String({ minLength: 1 }),
      app_name: Type.Optional(Type.String()),
    }),
  }),
);

const text = Type.Optional(Type.String());

const parseChat = parserOf(
  Type.Object({
    data: Type.Object({
      chat_mode: text,
      group_message_type: text,
      name: text,
      chat_status: text,
      external: Type.Optional(Type.Boolean()),
      bot_count: text,
    }),
  }),
);

/** "Get basic information of users": the most ids in one call. */
const maxBatch = 10;

const parseNames = parserOf(
  Type.Object({
    data: Type.Object({
      users: Type.Optional(
        Type.Array(Type.Object({ user_id: text, name: text }), { maxItems: maxListed }),
      ),
    }),
  }),
);

const parseUser = parserOf(
  Type.Object({ data: Type.Object({ user: Type.Optional(Type.Object({ name: text })) }) }),
);

/** Resolves to `otherwise` when the platform refuses for good: the right is missing, or the person is not visible. */
async function unlessRefused<T>(answer: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof FeishuError && !error.retryable && error.kind !== "cancelled") {
      return otherwise;
    }
    throw error;
  }
}

/** Groups with members of their own, and groups that follow a rule. The platform's default is not documented. */
const groupTypes = [1, 2];
/** The most groups in one answer of the platform. */
const pageSize = 1_000;
const maxPages = 20;

const parseGroups = parserOf(
  Type.Object({
    data: Type.Object({
      group_list: Type.Optional(Type.Array(Type.String(), { maxItems: maxListed })),
      page_token: text,
      has_more: Type.Optional(Type.Boolean()),
    }),
  }),
);

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
  /** Where it is: of a message to a person their chat with the bot. Absent where the platform does not say it. */
  chatId?: string;
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

  async #replyOnce(part: Part, target: ReplyTarget, options?: CallOptions): Promise<SentMessage> {
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
    return sentOf(sent);
  }

  /** Sends to a chat or a person, otherwise like `reply`. */
  async send(request: SendRequest, options?: CallOptions): Promise<SentMessage> {
    const { receiveIdType, receiveId } = request;
    return await inOrder(request, async (part) => {
      const payload = {
        params: { receive_id_type: receiveIdType },
        data: {
          receive_id: receiveId,
          msg_type: part.messageType,
          content: part.content,
          uuid: part.uuid,
        },
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
      return sentOf(sent);
    });
  }

  /** The message and, of a forwarded bundle, the messages in it. Empty when the platform shows nothing. */
  async fetch(messageId: string, options?: CallOptions): Promise<FetchedMessage[]> {
    const api = "im.message.get";
    const params = {
      user_id_type: "open_id" as const,
      // As readers see them, cards of the second form only say that a client is too old.
      card_msg_content_type: "user_card_content" as const,
    };
    const payload = { path: { message_id: pathId(api, messageId) }, params };
    const { data } = await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.im.v1.message.get(payload, sdkOptions),
        parse: parseItems,
      },
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
      {
        api,
        run: (client, sdkOptions) => client.im.v1.messageReaction.create(payload, sdkOptions),
        parse: parseAdded,
      },
      options,
    );
    return added.data.reaction_id;
  }

  /** Recalls one of the app's own messages. */
  async recall(messageId: string, options?: CallOptions): Promise<void> {
    const api = "im.message.delete";
    const path = { message_id: pathId(api, messageId) };
    await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.im.v1.message.delete({ path }, sdkOptions),
        parse: parseDone,
      },
      options,
    );
  }

  /** Takes one of the app's own reactions back. */
  async removeReaction(
    messageId: string,
    reactionId: string,
    options?: CallOptions,
  ): Promise<void> {
    const api = "im.reaction.delete";
    const path = { message_id: pathId(api, messageId), reaction_id: pathId(api, reactionId) };
    await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.im.v1.messageReaction.delete({ path }, sdkOptions),
        parse: parseDone,
      },
      options,
    );
  }
}

const Sent = Type.Object({
  data: Type.Object({
    message_id: Type.String({ minLength: 1 }),
    chat_id: Type.Optional(Type.String()),
  }),
});
const parseSent = parserOf(Sent);
const parseAdded = parserOf(
  Type.Object({ data: Type.Object({ reaction_id: Type.String({ minLength: 1 }) }) }),
);

interface Part {
  messageType: string;
  content: string;
  uuid: string;
}

/** Sends the parts of a body one after the other, so that the person reads them in order. */
async function inOrder(
  request: MessageBody & { uuid: string },
  sendOne: (part: Part) => Promise<SentMessage>,
): Promise<SentMessage> {
  let first: SentMessage = { messageId: "" };
  for (const [index, content] of partsOf(request).entries()) {
    // The first message carries the uuid itself.
    const uuid = index === 0 ? fitting(request.uuid) : derivedUuid(request.uuid, index);
    const sent = await sendOne({ ...content, uuid });
    if (index === 0) first = sent;
  }
  return first;
}

function sentOf({ data }: Static<typeof Sent>): SentMessage {
  const { message_id: messageId, chat_id: chatId = "" } = data;
  return chatId === "" ? { messageId } : { messageId, chatId };
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
  return uuid.length <= maxUuidLength
    ? uuid
    : createHash("sha256").update(uuid).digest("hex").slice(0, maxUuidLength);
}

/** The uuid of a further message of the same reply: another one, always the same for the same input. */
export function derivedUuid(uuid: string, suffix: string | number): string {
  return fitting(`${uuid}.${suffix}`);
}

/** Where a message goes that answers no message: to a chat, or to a person whose chat is not known. */
export function receiverOf(id: string): {
  receiveIdType: "chat_id" | "open_id";
  receiveId: string;
} {
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
  mentions: Type.Optional(
    Type.Array(Type.Object({ key: OptionalText, id: OptionalText, name: OptionalText }), {
      maxItems: maxListed,
    }),
  ),
});

const parseItems = parserOf(
  Type.Object({
    data: Type.Object({ items: Type.Optional(Type.Array(Item, { maxItems: maxListed })) }),
  }),
);

/** Most APIs give ms, some seconds. */
function epochMs(digits: string | undefined): number {
  const value = Number(digits ?? 0);
  if (!Number.isFinite(value)) return 0;
  return value < 100_000_000_000 ? value * 1_000 : value;
}

function senderOf(item: Static<typeof Item>): Pick<FetchedMessage, "senderId" | "senderType"> {
  const type = item.sender?.sender_type;
  return {
    senderId: item.sender?.id ?? "",
    senderType: type === "user" || type === "app" ? type : "unknown",
  };
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
export interface CardBatchRequest extends CardOperation {
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

type CardReplyRequest = Omit<Extract<ReplyRequest, { text: string }>, "text" | "format"> & {
  cardId: string;
};
type CardSendRequest = Omit<Extract<SendRequest, { text: string }>, "text" | "format"> & {
  cardId: string;
};

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
  async sendReply(
    { cardId, ...request }: CardReplyRequest,
    options?: CallOptions,
  ): Promise<SentMessage> {
    return await this.#messages
      .reply({ ...request, ...contentOf(cardId) }, options)
      .catch(unknownIsGone);
  }

  /** Sends a card entity to a chat or a person, otherwise like `sendReply`. */
  async sendTo(
    { cardId, ...request }: CardSendRequest,
    options?: CallOptions,
  ): Promise<SentMessage> {
    return await this.#messages
      .send({ ...request, ...contentOf(cardId) }, options)
      .catch(unknownIsGone);
  }

  /** The id of the card entity that a message of ours shows. */
  async idOf(messageId: string, options?: CallOptions): Promise<string> {
    const api = "cardkit.card.idConvert";
    const data = { message_id: messageId };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.idConvert({ data }, sdkOptions);
    return (await this.#caller.call({ api, run, parse: parseCreated }, options)).data.card_id;
  }

  /** Sets the text of one element. */
  async content(request: CardContentRequest, options?: CallOptions): Promise<void> {
    const { cardId, elementId, content, sequence, uuid } = request;
    const api = "cardkit.cardElement.content";
    const path = { card_id: pathId(api, cardId), element_id: pathId(api, elementId) };
    const data = { content, sequence, uuid };
    const run: Run = (client, sdkOptions) =>
      client.cardkit.v1.cardElement.content({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async batch(
    { cardId, actions, sequence, uuid }: CardBatchRequest,
    options?: CallOptions,
  ): Promise<void> {
    const api = "cardkit.card.batchUpdate";
    const path = { card_id: pathId(api, cardId) };
    const data = { actions: JSON.stringify(actions), sequence, uuid };
    const run: Run = (client, sdkOptions) =>
      client.cardkit.v1.card.batchUpdate({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async settings(
    { cardId, settings, sequence, uuid }: CardSettingsRequest,
    options?: CallOptions,
  ): Promise<void> {
    const api = "cardkit.card.settings";
    const path = { card_id: pathId(api, cardId) };
    const data = { settings: JSON.stringify(settings), sequence, uuid };
    const run: Run = (client, sdkOptions) =>
      client.cardkit.v1.card.settings({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async update(
    { cardId, card, sequence, uuid }: CardUpdateRequest,
    options?: CallOptions,
  ): Promise<void> {
    const api = "cardkit.card.update";
    const path = { card_id: pathId(api, cardId) };
    const data = {
      card: { type: "card_json" as const, data: JSON.stringify(card) },
      sequence,
      uuid,
    };
    const run: Run = (client, sdkOptions) =>
      client.cardkit.v1.card.update({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  /** Replaces the card of a message that is no card entity; both cards need `update_multi`. */
  async patchMessage(
    { messageId, card }: { messageId: string; card: Record<string, unknown> },
    options?: CallOptions,
  ): Promise<void> {
    const api = "im.message.patch";
    const payload = {
      path: { message_id: pathId(api, messageId) },
      data: { content: JSON.stringify(card) },
    };
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
    const request = {
      method: "POST",
      url: "/open-apis/interactive/v1/card/update",
      data: { token, card },
    };
    const run: Run = (client, sdkOptions) => client.request(request, sdkOptions);
    await this.#caller.call({ api, run, parse: parseDone, once: true }, options);
  }
}

type Run = ApiRequest<unknown>["run"];

const parseCreated = parserOf(
  Type.Object({ data: Type.Object({ card_id: Type.String({ minLength: 1 }) }) }),
);
const parseDone = parserOf(Type.Object({}));

/** The content of a message that shows a card entity. */
function contentOf(cardId: string): { messageType: "interactive"; content: string } {
  return {
    messageType: "interactive",
    content: JSON.stringify({ type: "card", data: { card_id: cardId } }),
  };
}

/** The platform knows a new card within moments; a card that stays unknown is gone, or was sent before. */
function unknownIsGone(error: unknown): never {
  if (
    error instanceof FeishuError &&
    error.kind === "retry" &&
    [230099, 11310].includes(error.code)
  ) {
    throw new FeishuError({ ...error, kind: "card_gone", reason: "card unknown" });
  }
  throw error;
}
