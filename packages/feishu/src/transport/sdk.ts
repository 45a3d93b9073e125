import { createRequire } from "node:module";
import type * as Sdk from "@larksuiteoapi/node-sdk";
import type {
  EventDispatcher,
  HttpInstance,
  HttpRequestOptions,
  Logger as SdkLogger,
  WSClient,
} from "@larksuiteoapi/node-sdk";

// The only importer of the Feishu SDK, whose type file is 17.7 MB. We use its types and its WebSocket client; its
// token cache, its dispatcher, its HTTP client and its log lines are replaced.

export type { HttpInstance, HttpRequestOptions };

const require = createRequire(import.meta.url);

/**
 * The SDK is one script of 6 MB, which costs 60 MB of memory and a quarter of a second: only a process with a long
 * connection loads it.
 */
export function loadSdk(): typeof Sdk {
  return require("@larksuiteoapi/node-sdk") as typeof Sdk; // as the package says
}

type WriteLine = (fields: Record<string, unknown>, text: string) => void;

/** What this package needs of a logger; pino and `@larkline/process/telemetry` have this shape. */
export interface FeishuLogger {
  debug: WriteLine;
  info: WriteLine;
  warn: WriteLine;
  error: WriteLine;
}

/** Drops every line. */
export const noLogger: FeishuLogger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

export interface ClientOptions {
  /** Without a trailing slash. */
  baseUrl: string;
  /** Carries the requests. */
  http: HttpInstance;
}

export interface SentOptions {
  headers: Record<string, string>;
}

/** A method with the payload of one of the SDK's. Resolves to the body of the answer, unchecked. */
type Method<M extends (...args: never[]) => unknown> = (
  payload?: Parameters<M>[0],
  options?: SentOptions,
) => Promise<unknown>;

interface AnyRequest {
  method: string;
  url: string;
  params?: object | undefined;
  data?: object | undefined;
}

interface AnyPayload {
  path?: Record<string, string>;
  params?: object;
  data?: object;
}

/** The methods of the SDK's client that we call, with its names and its payloads. */
export type Client = ReturnType<typeof openClient>;

/** Makes a client that sends what the SDK's would send, with the headers of `options`. */
export function openClient({ baseUrl, http }: ClientOptions) {
  const request = async (
    { method, url, params = {}, data = {} }: AnyRequest,
    options?: SentOptions,
  ): Promise<unknown> =>
    await http.request({
      method,
      url: `${baseUrl}${url}`,
      params,
      data,
      headers: { "User-Agent": "larkline", ...options?.headers },
    });
  const method =
    <M extends (...args: never[]) => unknown>(verb: string, path: string): Method<M> =>
    async (payload, options) => {
      const { path: values = {}, params, data } = (payload ?? {}) as AnyPayload; // every payload of the SDK is one
      const url = `/open-apis${path.replaceAll(/:(\w+)/g, (_, name: string) => values[name] ?? "")}`;
      return await request({ method: verb, url, params, data }, options);
    };
  return {
    request,
    auth: {
      v3: {
        tenantAccessToken: { internal: method<Auth["internal"]>("POST", "/auth/v3/tenant_access_token/internal") },
      },
    },
    contact: {
      v3: {
        group: { memberBelong: method<Contact["group"]["memberBelong"]>("GET", "/contact/v3/group/member_belong") },
        user: { get: method<Contact["user"]["get"]>("GET", "/contact/v3/users/:user_id") },
      },
    },
    im: {
      v1: {
        chat: { get: method<Im["chat"]["get"]>("GET", "/im/v1/chats/:chat_id") },
        message: {
          create: method<Im["message"]["create"]>("POST", "/im/v1/messages"),
          get: method<Im["message"]["get"]>("GET", "/im/v1/messages/:message_id"),
          list: method<Im["message"]["list"]>("GET", "/im/v1/messages"),
          patch: method<Im["message"]["patch"]>("PATCH", "/im/v1/messages/:message_id"),
          reply: method<Im["message"]["reply"]>("POST", "/im/v1/messages/:message_id/reply"),
        },
        messageReaction: {
          create: method<Im["messageReaction"]["create"]>("POST", "/im/v1/messages/:message_id/reactions"),
          delete: method<Im["messageReaction"]["delete"]>(
            "DELETE",
            "/im/v1/messages/:message_id/reactions/:reaction_id",
          ),
        },
      },
    },
    cardkit: {
      v1: {
        card: {
          batchUpdate: method<CardKit["card"]["batchUpdate"]>("POST", "/cardkit/v1/cards/:card_id/batch_update"),
          create: method<CardKit["card"]["create"]>("POST", "/cardkit/v1/cards"),
          settings: method<CardKit["card"]["settings"]>("PATCH", "/cardkit/v1/cards/:card_id/settings"),
          update: method<CardKit["card"]["update"]>("PUT", "/cardkit/v1/cards/:card_id"),
        },
        cardElement: {
          content: method<CardKit["cardElement"]["content"]>(
            "PUT",
            "/cardkit/v1/cards/:card_id/elements/:element_id/content",
          ),
        },
      },
    },
  };
}

type Auth = Sdk.Client["auth"]["v3"]["tenantAccessToken"];
type CardKit = Sdk.Client["cardkit"]["v1"];
type Contact = Sdk.Client["contact"]["v3"];
type Im = Sdk.Client["im"]["v1"];

/** The headers that carry our token. */
export function tokenHeaders(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

/** The WebSocket below the SDK's client, as far as we need it. */
export interface RawSocket {
  ping(): void;
  terminate(): void;
  on(event: "message" | "ping" | "pong", listener: () => void): void;
}

export interface EventSocketOptions extends ClientOptions {
  appId: string;
  appSecret: string;
  logger: FeishuLogger;
  handshakeTimeoutMs: number;
  pingTimeoutSeconds: number;
  /** Gets the event as it arrived. The platform gets its acknowledgement when the promise resolves. */
  onEvent: (data: unknown) => Promise<unknown>;
  onReady: () => void;
  onError: () => void;
}

/** One attempt at a long connection. It never reconnects: the SDK waits up to 30 s before a second attempt. */
export class EventSocket {
  readonly #client: WSClient;
  readonly #dispatcher: EventDispatcher;

  constructor(options: EventSocketOptions) {
    const { appId, appSecret, baseUrl, http, logger, handshakeTimeoutMs, pingTimeoutSeconds } = options;
    const sdk = loadSdk();
    this.#client = new sdk.WSClient({
      appId,
      appSecret,
      domain: baseUrl,
      autoReconnect: false,
      handshakeTimeoutMs,
      wsConfig: { pingTimeout: pingTimeoutSeconds },
      httpInstance: http,
      onReady: options.onReady,
      onError: options.onError,
      logger: loggingTo(logger),
      loggerLevel: sdk.LoggerLevel.warn,
    });
    // The SDK calls only `invoke` of its dispatcher. Its own dispatcher flattens the envelope.
    this.#dispatcher = { invoke: options.onEvent } as unknown as EventDispatcher;
  }

  start(): void {
    void this.#client.start({ eventDispatcher: this.#dispatcher });
  }

  get isConnected(): boolean {
    return this.#client.getConnectionStatus().state === "connected";
  }

  /** Undefined where this version of the SDK does not show its socket. */
  get raw(): RawSocket | undefined {
    const { wsConfig } = this.#client as unknown as { wsConfig?: { getWSInstance?(): RawSocket | null } };
    return wsConfig?.getWSInstance?.() ?? undefined;
  }

  close(): void {
    this.#client.close();
  }

  /** Drops the connection without saying goodbye. */
  discard(): void {
    this.#client.close({ force: true });
  }
}

/**
 * The SDK hands its logger one array of anything, among it request bodies, secrets and whole HTTP errors.
 * Only what {@link harmless} lets through is logged, at debug level: our own code reports every failure with
 * its code.
 */
function loggingTo(logger: FeishuLogger): SdkLogger {
  const debug = (...parts: unknown[]): void => {
    const text = parts.flat(3).map(harmless).filter(Boolean).join(" ").slice(0, maxLineLength);
    if (text !== "") logger.debug({ source: "feishu-sdk" }, text);
  };
  return { error: debug, warn: debug, info: debug, debug, trace: () => undefined };
}

const maxLineLength = 300;

/** Strings without addresses, errors by name and code. */
function harmless(part: unknown): string {
  if (typeof part === "string") return part.replaceAll(/\b(?:https?|wss?):\/\/\S+/g, "<url>");
  if (!(part instanceof Error)) return "";
  const code: unknown = "code" in part ? part.code : undefined;
  return typeof code === "string" || typeof code === "number" ? `${part.name} ${code}` : part.name;
}
