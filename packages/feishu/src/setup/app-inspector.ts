import { connect } from "node:net";
import { parserOf, systemClock } from "@larkline/protocol";
import type { TokenSource } from "@larkline/store/platform";
import { Type, type Static, type TSchema } from "typebox";
import { ApiCaller, withCallContext } from "../transport/api-call.ts";
import { FeishuError, feishuErrorOf } from "../transport/error.ts";
import { baseUrlOf, type FeishuDomain } from "../transport/rate-limiter.ts";
import { noLogger } from "../transport/sdk.ts";

export interface AppInspectorOptions {
  appId: string;
  appSecret: string;
  domain: FeishuDomain;
  /** Deadline of one HTTP request in ms, 4 s by default. */
  timeoutMs?: number;
}

/** The bot as the platform knows it. */
export interface InspectedBot {
  openId: string;
  name: string;
  /** Only an `enabled` bot receives events; the others name what an administrator has to do. */
  status: "enabled" | "not_enabled" | "disabled" | "pending" | "expired" | "unknown";
}

/** What the app's published version is subscribed to. */
export interface InspectedSubscriptions {
  /** A version of the app is in use. */
  published: boolean;
  /** Absent: the platform does not say. */
  events: readonly string[] | undefined;
  callbacks: readonly string[] | undefined;
}

/**
 * Looks at an app from outside, for setup and diagnosis. Every method rejects with a FeishuError only. The
 * constructor throws on a malformed domain.
 */
export class AppInspector {
  readonly #options: AppInspectorOptions;
  readonly #timeoutMs: number;
  readonly #caller: ApiCaller;

  constructor(options: AppInspectorOptions) {
    const { appId, appSecret, timeoutMs = 4_000 } = options;
    // One process looks for a moment: the caller's own memory of its token is enough.
    const tokenCache: TokenSource = { get: async (_name, fetch) => (await fetch()).value };
    const baseUrl = baseUrlOf(options.domain);
    const retry = { attempts: 1, minDelayMs: 0, maxDelayMs: 0 };
    this.#options = options;
    this.#timeoutMs = timeoutMs;
    const own = { logger: noLogger, clock: systemClock };
    this.#caller = new ApiCaller({ appId, appSecret, baseUrl, tokenCache, timeoutMs, retry, ...own });
  }

  async bot(signal?: AbortSignal): Promise<InspectedBot> {
    const { bot } = await this.#read({ api: "bot.info", url: "/open-apis/bot/v3/info", schema: Bot }, signal);
    const status = botStatuses[bot.activate_status ?? -1] ?? "unknown";
    return { openId: bot.open_id, name: bot.app_name ?? "", status };
  }

  /** The scopes that are granted. */
  async grantedScopes(signal?: AbortSignal): Promise<ReadonlySet<string>> {
    const url = "/open-apis/application/v6/scopes";
    const { data } = await this.#read({ api: "application.scope.list", url, schema: Scopes }, signal);
    const own = data.scopes.filter((one) => one.grant_status === granted && one.scope_type !== "user");
    return new Set(own.map(({ scope_name: name }) => name));
  }

  /** Needs `application:application:self_manage`; otherwise rejects with kind `app_setup`. */
  async subscriptions(signal?: AbortSignal): Promise<InspectedSubscriptions> {
    const application = `/open-apis/application/v6/applications/${encodeURIComponent(this.#options.appId)}`;
    const url = `${application}?lang=zh_cn`;
    const { data } = await this.#read({ api: "application.get", url, schema: Application }, signal);
    const { online_version_id: version = "", callback_info: info } = data.app;
    const callbacks = info?.subscribed_callbacks;
    if (version === "") return { published: false, events: undefined, callbacks };
    const versionUrl = `${application}/app_versions/${encodeURIComponent(version)}?lang=zh_cn`;
    const found = await this.#read({ api: "application.version.get", url: versionUrl, schema: Version }, signal);
    const events = found.data.app_version.event_infos?.map(({ event_type: type }) => type);
    return { published: true, events, callbacks };
  }

  /**
   * Asks for a long connection and checks that its server can be reached, but opens none: the platform
   * would send it some of the events that are meant for ingress.
   */
  async longConnection(signal?: AbortSignal): Promise<void> {
    const { closing, baseUrl, http } = this.#caller;
    const { appId, appSecret } = this.#options;
    const signals = signal === undefined ? [closing] : [closing, signal];
    let body: unknown;
    try {
      body = await http.instance.request({
        method: "POST",
        url: `${baseUrl}/callback/ws/endpoint`,
        data: { AppID: appId, AppSecret: appSecret },
        ...withCallContext({ locale: "zh" }, { signals }),
      });
    } catch (error) {
      throw feishuErrorOf("ws.endpoint", error);
    }
    const parsed = parserOf(Endpoint)(body);
    if (!parsed.ok || !URL.canParse(parsed.value.data.URL)) {
      throw unreachable("ws.endpoint", "answer without an address");
    }
    await reach(parsed.value.data.URL, { timeoutMs: this.#timeoutMs, signal: AbortSignal.any(signals) });
  }

  /** The platform's clock: epoch ms, exact to a second. Every answer carries it, also the refusal of a call without a token. */
  async serverTimeMs(signal?: AbortSignal): Promise<number> {
    const { closing, baseUrl } = this.#caller;
    const signals = [closing, AbortSignal.timeout(this.#timeoutMs), ...(signal === undefined ? [] : [signal])];
    try {
      const response = await fetch(`${baseUrl}/open-apis/bot/v3/info`, { signal: AbortSignal.any(signals) });
      await response.body?.cancel();
      const time = Date.parse(response.headers.get("date") ?? "");
      if (!Number.isNaN(time)) return time;
    } catch {
      throw unreachable("time", "no answer");
    }
    throw unreachable("time", "answer without a date");
  }

  close(): void {
    this.#caller.close();
  }

  async #read<Schema extends TSchema>(
    { api, url, schema }: { api: string; url: string; schema: Schema },
    signal?: AbortSignal,
  ): Promise<Static<Schema>> {
    const parse = parserOf(schema);
    return await this.#caller.call(
      { api, run: (client, options) => client.request({ method: "GET", url }, options), parse },
      { signal },
    );
  }
}

const Bot = Type.Object({
  bot: Type.Object({
    open_id: Type.String({ minLength: 1 }),
    app_name: Type.Optional(Type.String()),
    activate_status: Type.Optional(Type.Integer()),
  }),
});
const Scopes = Type.Object({
  data: Type.Object({
    scopes: Type.Array(
      Type.Object({
        scope_name: Type.String(),
        /** `tenant` or `user`: a scope of people's own tokens is of no use to the app. */
        scope_type: Type.Optional(Type.String()),
        grant_status: Type.Integer(),
      }),
    ),
  }),
});
const Application = Type.Object({
  data: Type.Object({
    app: Type.Object({
      online_version_id: Type.Optional(Type.String()),
      callback_info: Type.Optional(Type.Object({ subscribed_callbacks: Type.Optional(Type.Array(Type.String())) })),
    }),
  }),
});
const Version = Type.Object({
  data: Type.Object({
    app_version: Type.Object({
      event_infos: Type.Optional(Type.Array(Type.Object({ event_type: Type.String() }))),
    }),
  }),
});
const Endpoint = Type.Object({ data: Type.Object({ URL: Type.String({ minLength: 1 }) }) });

/** `activate_status` of "Obtain bot information". */
const botStatuses: Partial<Record<number, InspectedBot["status"]>> = {
  0: "not_enabled",
  1: "disabled",
  2: "enabled",
  3: "pending",
  4: "pending",
  5: "expired",
  6: "expired",
};

const granted = 1;

function unreachable(api: string, reason: string): FeishuError {
  return new FeishuError({ api, kind: "unavailable", code: 0, httpStatus: 0, reason });
}

/** Resolves when a server accepts TCP connections at the address. */
async function reach(address: string, { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal }) {
  const url = new URL(address);
  const port = Number(url.port) || (url.protocol === "wss:" ? 443 : 80);
  const host = url.hostname.replaceAll(/[[\]]/g, "");
  await new Promise<void>((resolve, reject) => {
    const socket = connect({ host, port, signal });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error("no answer")));
    socket.once("connect", () => {
      socket.destroy();
      resolve();
    });
    socket.once("error", () => reject(unreachable("ws.endpoint", `${url.hostname}:${port} cannot be reached`)));
  });
}
