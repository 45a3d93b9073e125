import { connect } from "node:net";
import { parserOf } from "@larkline/protocol";
import {
  deadline,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import { Type, type Static, type TSchema } from "@larkline/protocol/type";
import type { TokenSource } from "@larkline/store/platform";
import { subscribeApp, type OwnSubscription } from "../objects/subscriptions.ts";
import { ApiCaller, maxListed, withCallContext } from "../transport/api-call.ts";
import { FeishuError, feishuErrorOf } from "../transport/error.ts";
import { baseUrlOf, type FeishuDomain } from "../transport/rate-limiter.ts";
import { noLogger } from "../transport/sdk.ts";
import type { ManifestText } from "./app-manifest.ts";

export interface AppInspectorOptions {
  appId: string;
  appSecret: string;
  domain: FeishuDomain;
  /** Deadline of one HTTP request in ms, 4 s by default. */
  timeoutMs?: number;
  /** Default: that of the machine. */
  clock?: Clock;
  random?: Random;
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

/** A command of the panel that clients show after a slash. */
export interface PanelEntry {
  /** Without the slash. */
  name: string;
  description: ManifestText;
}

/** How the panel differs from the commands that a bot has: names of commands. */
export interface PanelDrift {
  missing: readonly string[];
  /** Their descriptions are others. */
  changed: readonly string[];
  /** The bot does not know them. */
  unknown: readonly string[];
}

/**
 * Looks at an app from outside, for setup and diagnosis, and registers its commands. Every method rejects with a FeishuError only. The
 * constructor throws on a malformed domain.
 */
export class AppInspector {
  readonly #options: AppInspectorOptions;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #caller: ApiCaller;

  constructor(options: AppInspectorOptions) {
    const {
      appId,
      appSecret,
      timeoutMs = 4_000,
      clock = systemClock,
      random = systemRandom,
    } = options;
    // One process looks for a moment: the caller's own memory of its token is enough.
    const tokenCache: TokenSource = { get: async (_name, fetch) => (await fetch()).value };
    const baseUrl = baseUrlOf(options.domain);
    const retry = { attempts: 1, minDelayMs: 0, maxDelayMs: 0 };
    this.#options = options;
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    const own = { logger: noLogger, clock, random };
    this.#caller = new ApiCaller({
      appId,
      appSecret,
      baseUrl,
      tokenCache,
      timeoutMs,
      retry,
      ...own,
    });
  }

  async bot(signal?: AbortSignal): Promise<InspectedBot> {
    const { bot } = await this.#read(
      { api: "bot.info", url: "/open-apis/bot/v3/info", schema: Bot },
      signal,
    );
    const status = botStatuses[bot.activate_status ?? -1] ?? "unknown";
    return { openId: bot.open_id, name: bot.app_name ?? "", status };
  }

  /** The scopes that are granted: to the app itself, or those of people, for whom it may ask. */
  async grantedScopes(
    of: "tenant" | "user" = "tenant",
    signal?: AbortSignal,
  ): Promise<ReadonlySet<string>> {
    const url = "/open-apis/application/v6/scopes";
    const { data } = await this.#read(
      { api: "application.scope.list", url, schema: Scopes },
      signal,
    );
    const own = data.scopes.filter(
      ({ grant_status: status, scope_type: type = of }) => status === granted && type === of,
    );
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
    const found = await this.#read(
      { api: "application.version.get", url: versionUrl, schema: Version },
      signal,
    );
    const events = found.data.app_version.event_infos?.map(({ event_type: type }) => type);
    return { published: true, events, callbacks };
  }

  /** Needs `application:app_slash_command:read`; otherwise rejects with kind `app_setup`. */
  async panelDrift(wanted: readonly PanelEntry[], signal?: AbortSignal): Promise<PanelDrift> {
    return driftOf(wanted, await this.#panel(signal));
  }

  /**
   * Makes the panel show exactly these commands, and returns what was different. Clients show it after about five
   * minutes. Needs both scopes of `application:app_slash_command`. Stops at the first refusal; the next call does
   * the rest.
   */
  async setPanel(wanted: readonly PanelEntry[], signal?: AbortSignal): Promise<PanelDrift> {
    const found = await this.#panel(signal);
    const drift = driftOf(wanted, found);
    const byName = new Map(found.map(({ command, command_id: id }) => [command, id]));
    const idUrl = (name: string): string =>
      `${panelUrl}/${encodeURIComponent(byName.get(name) ?? "")}`;
    // First those that go: the platform takes 100 commands at most.
    for (const name of drift.unknown) {
      await this.#write({ method: "DELETE", url: idUrl(name) }, signal);
    }
    for (const entry of wanted) {
      const { name } = entry;
      if (drift.missing.includes(name)) {
        await this.#write(
          { method: "POST", url: panelUrl, data: { command: name, ...describedOf(entry) } },
          signal,
        );
      } else if (drift.changed.includes(name)) {
        await this.#write({ method: "PATCH", url: idUrl(name), data: describedOf(entry) }, signal);
      }
    }
    return drift;
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
    await reach(parsed.value.data.URL, {
      timeoutMs: this.#timeoutMs,
      signal: AbortSignal.any(signals),
    });
  }

  /** The platform's clock: epoch ms, exact to a second. Every answer carries it, also the refusal of a call without a token. */
  async serverTimeMs(signal?: AbortSignal): Promise<number> {
    const { closing, baseUrl } = this.#caller;
    const others = signal === undefined ? [closing] : [closing, signal];
    try {
      const response = await fetch(`${baseUrl}/open-apis/bot/v3/info`, {
        signal: deadline(this.#clock, this.#timeoutMs, ...others),
      });
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

  async #panel(signal?: AbortSignal): Promise<Static<typeof Panel>["data"]["items"]> {
    const { data } = await this.#read(
      { api: "application.slash_command.list", url: panelUrl, schema: Panel },
      signal,
    );
    return data.items;
  }

  /** The list shows the result of a write whose answer was lost, so that it is not repeated here. */
  async #write(
    request: { method: "POST" | "PATCH" | "DELETE"; url: string; data?: object },
    signal?: AbortSignal,
  ): Promise<void> {
    const api = "application.slash_command.write";
    const parse = parserOf(Written);
    await this.#caller.call(
      { api, once: true, run: (client, options) => client.request(request, options), parse },
      { signal },
    );
  }

  /** Subscribes the app itself to events, as its processes do when they start. */
  async subscribe(to: OwnSubscription, signal?: AbortSignal): Promise<void> {
    await subscribeApp(this.#caller, to, { signal });
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
      { maxItems: maxListed },
    ),
  }),
});
const Application = Type.Object({
  data: Type.Object({
    app: Type.Object({
      online_version_id: Type.Optional(Type.String()),
      callback_info: Type.Optional(
        Type.Object({
          subscribed_callbacks: Type.Optional(Type.Array(Type.String(), { maxItems: maxListed })),
        }),
      ),
    }),
  }),
});
const Version = Type.Object({
  data: Type.Object({
    app_version: Type.Object({
      event_infos: Type.Optional(
        Type.Array(Type.Object({ event_type: Type.String() }), { maxItems: maxListed }),
      ),
    }),
  }),
});
const Endpoint = Type.Object({ data: Type.Object({ URL: Type.String({ minLength: 1 }) }) });

const panelUrl = "/open-apis/application/v7/app_slash_commands";
const Panel = Type.Object({
  data: Type.Object({
    items: Type.Array(
      Type.Object({
        command_id: Type.String({ minLength: 1 }),
        command: Type.String(),
        description: Type.Optional(
          Type.Object({
            default_value: Type.Optional(Type.String()),
            i18n: Type.Optional(Type.Record(Type.String(), Type.String())),
          }),
        ),
      }),
      { maxItems: maxListed },
    ),
  }),
});
const Written = Type.Object({ code: Type.Optional(Type.Integer()) });

function describedOf({ description: { zh, en } }: PanelEntry) {
  return { description: { default_value: en, i18n: { zh_cn: zh, en_us: en } } };
}

function driftOf(
  wanted: readonly PanelEntry[],
  found: Static<typeof Panel>["data"]["items"],
): PanelDrift {
  const byName = new Map(found.map((entry) => [entry.command, entry.description]));
  const names = new Set(wanted.map(({ name }) => name));
  const isChanged = ({ name, description: { zh, en } }: PanelEntry): boolean => {
    const { default_value: value, i18n = {} } = byName.get(name) ?? {};
    return byName.has(name) && (value !== en || i18n["zh_cn"] !== zh || i18n["en_us"] !== en);
  };
  return {
    missing: wanted.filter(({ name }) => !byName.has(name)).map(({ name }) => name),
    changed: wanted.filter(isChanged).map(({ name }) => name),
    unknown: [...byName.keys()].filter((name) => !names.has(name)),
  };
}

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
async function reach(
  address: string,
  { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
) {
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
    socket.once("error", () =>
      reject(unreachable("ws.endpoint", `${url.hostname}:${port} cannot be reached`)),
    );
  });
}
