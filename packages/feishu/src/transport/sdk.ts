import { createRequire } from "node:module";
import type * as Sdk from "@larksuiteoapi/node-sdk";
import type {
  EventDispatcher,
  HttpInstance,
  HttpRequestOptions,
  Logger as SdkLogger,
} from "@larksuiteoapi/node-sdk";

// The only importer of the Feishu SDK, whose type file is 17.7 MB. We use its typed methods and its
// WebSocket client; its token cache, its dispatcher, its HTTP client and its log lines are replaced.

const require = createRequire(import.meta.url);
let sdk: typeof Sdk | undefined;

/**
 * The SDK, loaded with the first client: it is one script of 6 MB, which a deployment without a bot does not need.
 * `import` would keep its text twice and look for its exports: 20 MB and 30 ms more.
 */
function loadSdk(): typeof Sdk {
  return (sdk ??= require("@larksuiteoapi/node-sdk") as typeof Sdk); // as the package says
}

export type Client = Sdk.Client;
export type { HttpInstance, HttpRequestOptions };

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

export interface SdkOptions {
  appId: string;
  appSecret: string;
  /** Without a trailing slash. */
  baseUrl: string;
  /** Carries the SDK's requests. */
  http: HttpInstance;
  logger: FeishuLogger;
}

/** The SDK's client, without its token cache: that would override our token, and it never drops a refused one. */
export function openClient({ appId, appSecret, baseUrl, http, logger }: SdkOptions): Client {
  return new (loadSdk().Client)({
    appId,
    appSecret,
    domain: baseUrl,
    httpInstance: http,
    disableTokenCache: true,
    ...loggingTo(logger),
  });
}

/** The headers that make the SDK use our token. */
export function tokenHeaders(token: string): Record<string, string> {
  return { ...loadSdk().withTenantToken(token).headers };
}

/** Options of a call; the SDK's methods take them as their last argument. */
export type RequestOptions = ReturnType<typeof Sdk.withUserAccessToken>;

/** The options that make the SDK act as the person whose token it is, with these headers. */
export function asPerson(token: string, headers: Record<string, string>): RequestOptions {
  return { ...loadSdk().withUserAccessToken(token), headers };
}

/** The WebSocket below the SDK's client, as far as we need it. */
export interface RawSocket {
  ping(): void;
  terminate(): void;
  on(event: "message" | "ping" | "pong", listener: () => void): void;
}

export interface EventSocketOptions extends SdkOptions {
  handshakeTimeoutMs: number;
  pingTimeoutSeconds: number;
  /** Gets the event as it arrived. The platform gets its acknowledgement when the promise resolves. */
  onEvent: (data: unknown) => Promise<unknown>;
  onReady: () => void;
  onError: () => void;
}

/** One attempt at a long connection. It never reconnects: the SDK waits up to 30 s before a second attempt. */
export class EventSocket {
  readonly #client: Sdk.WSClient;
  readonly #dispatcher: EventDispatcher;

  constructor(options: EventSocketOptions) {
    const { appId, appSecret, baseUrl, http, logger, handshakeTimeoutMs, pingTimeoutSeconds } =
      options;
    this.#client = new (loadSdk().WSClient)({
      appId,
      appSecret,
      domain: baseUrl,
      autoReconnect: false,
      handshakeTimeoutMs,
      wsConfig: { pingTimeout: pingTimeoutSeconds },
      httpInstance: http,
      onReady: options.onReady,
      onError: options.onError,
      ...loggingTo(logger),
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
    const { wsConfig } = this.#client as unknown as {
      wsConfig?: { getWSInstance?(): RawSocket | null };
    };
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
function loggingTo(logger: FeishuLogger): { logger: SdkLogger; loggerLevel: Sdk.LoggerLevel } {
  const debug = (...parts: unknown[]): void => {
    const text = parts.flat(3).map(harmless).filter(Boolean).join(" ").slice(0, maxLineLength);
    if (text !== "") logger.debug({ source: "feishu-sdk" }, text);
  };
  return {
    logger: { error: debug, warn: debug, info: debug, debug, trace: () => undefined },
    loggerLevel: loadSdk().LoggerLevel.warn,
  };
}

const maxLineLength = 300;

/** Strings without addresses, errors by name and code. */
function harmless(part: unknown): string {
  if (typeof part === "string") return part.replaceAll(/\b(?:https?|wss?):\/\/\S+/g, "<url>");
  if (!(part instanceof Error)) return "";
  const code: unknown = "code" in part ? part.code : undefined;
  return typeof code === "string" || typeof code === "number" ? `${part.name} ${code}` : part.name;
}
