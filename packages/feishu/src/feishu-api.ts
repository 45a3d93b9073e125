import { parserOf } from "@larkline/protocol";
import type { RateGovernor, TokenCache } from "@larkline/store";
import { Client } from "@larksuiteoapi/node-sdk";
import { Type } from "typebox";
import {
  createApiCaller,
  defaultRetryPolicy,
  type ApiCaller,
  type CallOptions,
  type RetryPolicy,
} from "./api-caller.ts";
import { findCard, type FindCardRequest } from "./approval-search.ts";
import { createCardApi, type CardApi } from "./cardkit-api.ts";
import { listMessages, type ListedFacts } from "./chat-history.ts";
import { fetchChat, fetchUserNames, type ChatFacts } from "./chat-lookup.ts";
import { baseUrlOf, type FeishuDomain } from "./domain.ts";
import { fetchGroups } from "./group-lookup.ts";
import { createHttpTransport } from "./http-transport.ts";
import { noLogger, sdkLogger, type FeishuLogger } from "./logger.ts";
import { createMediaApi, type MediaApi } from "./media-api.ts";
import { fetchMessage, type FetchedMessage } from "./message-lookup.ts";
import { createMessageSender, type ReplyRequest, type SendRequest, type SentMessage } from "./message-sender.ts";
import { createQuota, type MonthlyQuota } from "./quota.ts";
import { createRateGate } from "./rate-gate.ts";
import { addReaction, removeReaction } from "./reaction-api.ts";
import { findReply, type FindReplyRequest } from "./reply-search.ts";
import { createTokenProvider } from "./token-provider.ts";
import type { CallWatch } from "./watch.ts";

export interface FeishuApiOptions {
  appId: string;
  appSecret: string;
  domain: FeishuDomain;
  /** Shares the access token among processes. */
  tokenCache: TokenCache;
  logger?: FeishuLogger;
  /** Deadline of one HTTP request in ms, 10 s by default. */
  timeoutMs?: number;
  retry?: Partial<RetryPolicy>;
  /** Keeps all processes together within the platform's limits; without it every call leaves at once. */
  governor?: RateGovernor;
  /** Calls a month that the tenant's plan includes; null (default) when nobody counts them. */
  monthlyCalls?: number | null;
  /** Told of every call. */
  watch?: CallWatch | undefined;
}

/** One app's calls to the platform. Every method rejects with a FeishuError only. */
export interface FeishuApi extends MediaApi {
  readonly appId: string;
  /** Who the bot is; its open_id is what mentions carry. */
  botInfo(signal?: AbortSignal): Promise<{ openId: string; name: string }>;
  /**
   * Answers a message. `uuid` makes the platform drop repeats for one hour. A text over the
   * platform's limits is sent as several messages in order; the first one's id is returned.
   */
  reply(request: ReplyRequest, options?: CallOptions): Promise<SentMessage>;
  /** Sends to a chat or person, otherwise like `reply`. */
  send(request: SendRequest, options?: CallOptions): Promise<SentMessage>;
  /**
   * The app's own answer to a message, if the chat's history since `sinceMs` shows one. Needs the
   * right to read the chat's history.
   */
  findReply?(request: FindReplyRequest, options?: CallOptions): Promise<string | undefined>;
  /** The message that shows a card of the app's own; needs the same right. */
  findCard?(request: FindCardRequest, options?: CallOptions): Promise<string | undefined>;
  /** What a chat holds since `sinceMs`, without content; needs the same right. */
  listMessages?(request: { chatId: string; sinceMs: number }, options?: CallOptions): Promise<ListedFacts[]>;
  readonly cards: CardApi;
  /** The message, and of a forwarded bundle the messages in it. */
  message(messageId: string, options?: CallOptions): Promise<FetchedMessage[]>;
  chat(chatId: string, options?: CallOptions): Promise<ChatFacts>;
  /**
   * Ids of all user groups that the person belongs to, as far as the app's contact range reaches. Rejects
   * when the platform does not say.
   */
  groupsOf(openId: string, options?: CallOptions): Promise<string[]>;
  /** Names by open_id; people whose name the app may not see are missing. */
  userNames(openIds: readonly string[], options?: CallOptions): Promise<ReadonlyMap<string, string>>;
  /** Resolves to the id of the reaction. `emoji` is a type such as `Typing` or `DONE`. */
  addReaction(messageId: string, emoji: string, options?: CallOptions): Promise<string>;
  removeReaction(messageId: string, reactionId: string, options?: CallOptions): Promise<void>;
  /** Calls of this month, a few seconds old at most; 0 without a governor. */
  quota(): Promise<MonthlyQuota>;
  /** Aborts what is running and ends all connections. */
  close(): void;
}

/** `GET /open-apis/bot/v3/info` answers outside `data`. */
const parseBot = parserOf(
  Type.Object({
    bot: Type.Object({ open_id: Type.String({ minLength: 1 }), app_name: Type.Optional(Type.String()) }),
  }),
);

async function botInfo(caller: ApiCaller, signal?: AbortSignal): Promise<{ openId: string; name: string }> {
  const { bot } = await caller.call(
    {
      api: "bot.info",
      run: (client, options) => client.request({ method: "GET", url: "/open-apis/bot/v3/info" }, options),
      parse: parseBot,
    },
    { signal },
  );
  return { openId: bot.open_id, name: bot.app_name ?? "" };
}

/** Connects nothing by itself. Throws on a malformed domain. */
export function createFeishuApi(options: FeishuApiOptions): FeishuApi {
  const { appId, appSecret, tokenCache } = options;
  const baseUrl = baseUrlOf(options.domain);
  const transport = createHttpTransport({ timeoutMs: options.timeoutMs ?? 10_000 });
  const closing = new AbortController();
  const client = new Client({
    appId,
    appSecret,
    domain: baseUrl,
    httpInstance: transport.instance,
    // Otherwise the SDK overrides our token with one from its own cache.
    disableTokenCache: true,
    ...sdkLogger(options.logger ?? noLogger),
  });
  const tokens = createTokenProvider({ client, appId, appSecret, baseUrl, tokenCache });
  const retry = { ...defaultRetryPolicy, ...options.retry };
  const gate = createRateGate(options.governor, appId, async (chatId) => (await fetchChat(caller, chatId)).onlyBot);
  const caller: ApiCaller = createApiCaller({
    client,
    tokens,
    retry,
    gate,
    watch: options.watch,
    closing: closing.signal,
  });
  const sender = createMessageSender(caller);
  return {
    appId,
    botInfo: (signal) => botInfo(caller, signal),
    reply: sender.reply,
    send: sender.send,
    findReply: (request, call) => findReply({ caller, appId }, request, call),
    findCard: (request, call) => findCard({ caller, appId }, request, call),
    listMessages: (request, call) => listMessages(caller, request, call),
    cards: createCardApi(caller, sender),
    ...createMediaApi(caller),
    message: (messageId, call) => fetchMessage(caller, messageId, call),
    chat: (chatId, call) => fetchChat(caller, chatId, call),
    groupsOf: (openId, call) => fetchGroups(caller, openId, call),
    userNames: (openIds, call) => fetchUserNames(caller, openIds, call),
    addReaction: (messageId, emoji, call) => addReaction(caller, { messageId, emoji }, call),
    removeReaction: (messageId, reactionId, call) => removeReaction(caller, { messageId, reactionId }, call),
    quota: createQuota(gate, options.monthlyCalls ?? null),
    close: () => {
      closing.abort();
      transport.close();
    },
  };
}
