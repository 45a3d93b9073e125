import { parserOf, systemClock, type Clock } from "@larkline/protocol";
import type { RateGovernor, TokenSource } from "@larkline/store";
import { Type } from "typebox";
import { CardsApi, MessagesApi } from "./messages/messages-api.ts";
import { ChatHistory } from "./messages/chat-history.ts";
import { FilesApi } from "./messages/files-api.ts";
import { ApiCaller, pathId, type CallOptions, type CallWatch, type RetryPolicy } from "./transport/api-call.ts";
import { FeishuError } from "./transport/error.ts";
import { baseUrlOf, MonthlyQuota, RateLimiter, type FeishuDomain } from "./transport/rate-limiter.ts";
import { noLogger, type FeishuLogger } from "./transport/sdk.ts";

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
}

/** What kind of chat this is. */
export interface ChatFacts {
  /** Absent when the bot is not a member: the platform then tells only the name. */
  mode?: "p2p" | "group" | "topic";
  /** Of a normal group: whether its messages open threads. */
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
  readonly messages: MessagesApi;
  readonly cards: CardsApi;
  readonly files: FilesApi;
  readonly history: ChatHistory;
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
    } = options;
    const baseUrl = baseUrlOf(options.domain);
    const isOnlyBot = async (chatId: string): Promise<boolean> => (await this.chat(chatId)).onlyBot;
    const limiter = governor === undefined ? undefined : new RateLimiter({ governor, app: appId, isOnlyBot, clock });
    const { retry } = options;
    this.appId = appId;
    const limits = { timeoutMs, retry, limiter };
    this.#caller = new ApiCaller({ appId, appSecret, baseUrl, tokenCache, logger, watch, clock, ...limits });
    this.quota = new MonthlyQuota(limiter, options.monthlyCalls ?? null, clock);
    this.messages = new MessagesApi(this.#caller);
    this.cards = new CardsApi(this.#caller, this.messages);
    this.files = new FilesApi(this.#caller);
    this.history = new ChatHistory(this.#caller);
  }

  /** Who the bot is; its open_id is what mentions carry. */
  async botInfo(signal?: AbortSignal): Promise<{ openId: string; name: string }> {
    const { bot } = await this.#caller.call(
      {
        api: "bot.info",
        run: (client, options) => client.request({ method: "GET", url: "/open-apis/bot/v3/info" }, options),
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
      { api, run: (client, sdkOptions) => client.im.v1.chat.get({ path }, sdkOptions), parse: parseChat },
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
  async userNames(openIds: readonly string[], options?: CallOptions): Promise<ReadonlyMap<string, string>> {
    const names = new Map<string, string>();
    const wanted = [...new Set(openIds)].map((openId) => pathId("contact.user.basicBatch", openId));
    for (let at = 0; at < wanted.length; at += maxBatch) {
      const batch = wanted.slice(at, at + maxBatch);
      const found = await unlessRefused(this.#namesOfBatch(batch, options), new Map<string, string>());
      for (const openId of batch) {
        const name = found.get(openId) ?? (await unlessRefused(this.#nameOf(openId, options), ""));
        if (name !== "") names.set(openId, name);
      }
    }
    return names;
  }

  async #namesOfBatch(openIds: readonly string[], options?: CallOptions): Promise<Map<string, string>> {
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
    const payload = { path: { user_id: pathId(api, openId) }, params: { user_id_type: "open_id" as const } };
    const { data } = await this.#caller.call(
      { api, run: (client, sdkOptions) => client.contact.v3.user.get(payload, sdkOptions), parse: parseUser },
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
      const payload = { params: { ...params, member_id_type: "open_id" as const, page_size: pageSize, ...token } };
      const { data } = await this.#caller.call(
        { api, run: (client, options) => client.contact.v3.group.memberBelong(payload, options), parse: parseGroups },
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
    bot: Type.Object({ open_id: Type.String({ minLength: 1 }), app_name: Type.Optional(Type.String()) }),
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
    data: Type.Object({ users: Type.Optional(Type.Array(Type.Object({ user_id: text, name: text }))) }),
  }),
);

const parseUser = parserOf(Type.Object({ data: Type.Object({ user: Type.Optional(Type.Object({ name: text })) }) }));

/** Resolves to `otherwise` when the platform refuses for good: the right is missing, or the person is not visible. */
async function unlessRefused<T>(answer: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof FeishuError && !error.retryable && error.kind !== "cancelled") return otherwise;
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
      group_list: Type.Optional(Type.Array(Type.String())),
      page_token: text,
      has_more: Type.Optional(Type.Boolean()),
    }),
  }),
);
