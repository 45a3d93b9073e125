import { WSClient, type EventDispatcher, type HttpInstance } from "@larksuiteoapi/node-sdk";
import { baseUrlOf, type FeishuDomain } from "./domain.ts";
import { parseEnvelope, type Envelope } from "./envelope.ts";
import { createHttpTransport, HttpRejection, type HttpTransport } from "./http-transport.ts";
import { noLogger, sdkLogger, type FeishuLogger } from "./logger.ts";

export type LongConnectionState = "idle" | "connecting" | "connected" | "reconnecting" | "failed";

export interface LongConnectionOptions {
  appId: string;
  appSecret: string;
  domain: FeishuDomain;
  /**
   * Called for every event and callback. The platform gets its acknowledgement only after the
   * promise settles (it waits 3 s); a rejection makes it deliver again. The value, if any, is the
   * answer to a card click.
   */
  onEvent: (envelope: Envelope) => Promise<unknown>;
  onState?: (state: LongConnectionState) => void;
  logger?: FeishuLogger;
  /** Waits between failed attempts in ms: the first one, and the longest. 1 s and 60 s by default. */
  backOffMs?: { min: number; max: number };
  /** A connection without a frame this long after a ping counts as dead; in seconds, 10 by default. */
  pingTimeoutSeconds?: number;
  /** How long `close` waits for running handlers, in ms; 5 s by default. */
  drainMs?: number;
}

/** Events over the platform's WebSocket: no public address needed. */
export interface LongConnection {
  /** Connects, and keeps trying until `close`. Throws when the app id cannot be one. */
  start(): void;
  /** `failed`: refused for a reason that only an operator can change; it is tried again all the same. */
  state(): LongConnectionState;
  /** Waits for running handlers, sends their acknowledgements, disconnects. */
  close(): Promise<void>;
}

/** How often the SDK's state is looked at: it reports no lost connection by itself. */
const watchMs = 100;
const handshakeTimeoutMs = 10_000;
/**
 * Every peer must answer pings of the WebSocket itself (RFC 6455), however seldom the platform wants its own. The
 * SDK's watchdog does not do for that: where the platform wants pings more often than it waits, each one restarts it.
 */
const socketPingMs = 5_000;
/** A connection that says nothing for so long has died without a word. */
const socketSilenceMs = 15_000;
/** A connection that lived this long makes the next failure a first one. */
const stableMs = 30_000;

/**
 * The SDK destructures `data` before it looks at `code`: without it a refused app would be retried
 * silently for ever.
 */
function endpointInstance(instance: HttpInstance, onRefusal: (rejection: HttpRejection) => void): HttpInstance {
  return {
    ...instance,
    request: async <R>(options: Parameters<HttpInstance["request"]>[0]): Promise<R> => {
      try {
        return await instance.request(options);
      } catch (error) {
        if (!(error instanceof HttpRejection) || error.code === 0) throw error;
        onRefusal(error);
        return { code: error.code, msg: `code ${error.code}`, data: {} } as R; // the answer the SDK expects here
      }
    },
  };
}

/** The WebSocket below the SDK, as far as we need it. */
interface Socket {
  ping(): void;
  terminate(): void;
  on(event: "message" | "ping" | "pong", listener: () => void): void;
}

/** The SDK keeps its socket to itself; undefined where a version has it elsewhere. */
function socketOf(client: WSClient): Socket | undefined {
  const { wsConfig } = client as unknown as { wsConfig?: { getWSInstance?(): Socket | null } };
  return wsConfig?.getWSInstance?.() ?? undefined;
}

/** Whether anything comes over a socket. Asks for a sign of life, whatever the platform says. */
class Liveness {
  readonly #socket: Socket;
  #heardMs = performance.now();
  #pingedMs = performance.now();

  constructor(socket: Socket) {
    this.#socket = socket;
    for (const event of ["message", "ping", "pong"] as const) {
      socket.on(event, () => (this.#heardMs = performance.now()));
    }
  }

  /** To be called often. Ends the socket when it is dead. */
  check(): void {
    const nowMs = performance.now();
    if (nowMs - this.#heardMs > socketSilenceMs) return this.#socket.terminate();
    if (nowMs - this.#pingedMs < socketPingMs) return;
    this.#pingedMs = nowMs;
    this.#socket.ping();
  }
}

/** Runs the handlers and remembers which are still running. */
class Inflight {
  readonly #running = new Set<Promise<unknown>>();

  async run(work: () => Promise<unknown>): Promise<unknown> {
    const promise = work();
    this.#running.add(promise);
    try {
      return await promise;
    } finally {
      this.#running.delete(promise);
    }
  }

  /** Until nothing runs, or the time is over. */
  async drained(timeoutMs: number): Promise<void> {
    const deadline = AbortSignal.timeout(timeoutMs);
    while (this.#running.size > 0 && !deadline.aborted) {
      const over = new Promise((resolve) => deadline.addEventListener("abort", resolve, { once: true }));
      await Promise.race([Promise.allSettled(this.#running), over]);
    }
  }
}

/** Server-side troubles; every other refusal needs an operator ("WebSocket endpoint" codes). */
const passingCodes: ReadonlySet<number> = new Set([1, 1000040343, 1000040350]);

/** For asking where to connect. */
function openTransport(): HttpTransport {
  return createHttpTransport({ timeoutMs: 10_000, maxConnections: 1 });
}

class Supervisor implements LongConnection {
  readonly #options: LongConnectionOptions;
  readonly #baseUrl: string;
  readonly #logger: FeishuLogger;
  readonly #backOff: { min: number; max: number };
  #transport: HttpTransport;
  readonly #inflight = new Inflight();
  #state: LongConnectionState = "idle";
  #client: WSClient | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #everConnected = false;
  #connectedAtMs = 0;
  #refusalCode = 0;
  #closed: Promise<void> | undefined;

  constructor(options: LongConnectionOptions) {
    this.#options = options;
    this.#baseUrl = baseUrlOf(options.domain);
    this.#logger = options.logger ?? noLogger;
    this.#backOff = options.backOffMs ?? { min: 1_000, max: 60_000 };
    this.#transport = openTransport();
  }

  start(): void {
    const { appId } = this.#options;
    if (!/^cli_[0-9a-fA-F]{16}$/.test(appId)) {
      throw new Error(`FEISHU_APP_ID must be cli_ and 16 hexadecimal digits, got "${appId.slice(0, 40)}"`);
    }
    if (this.#client === undefined && this.#timer === undefined && this.#closed === undefined) this.#connect();
  }

  state(): LongConnectionState {
    return this.#state;
  }

  close(): Promise<void> {
    this.#closed ??= this.#shutDown();
    return this.#closed;
  }

  async #shutDown(): Promise<void> {
    if (this.#state !== "connected") this.#discard();
    clearTimeout(this.#timer);
    await this.#inflight.drained(this.#options.drainMs ?? 5_000);
    // The SDK sends an acknowledgement right after its handler; let it.
    await new Promise((resolve) => setImmediate(resolve));
    this.#client?.close();
    this.#client = undefined;
    this.#transport.close();
    this.#enter("idle");
  }

  #enter(state: LongConnectionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#options.onState?.(state);
  }

  /** One client per attempt: the SDK's own reconnecting waits up to 30 s before a second try. */
  #connect(): void {
    this.#enter(this.#everConnected ? "reconnecting" : "connecting");
    this.#refusalCode = 0;
    // What has swallowed the WebSocket has swallowed kept connections as well.
    this.#transport.close();
    this.#transport = openTransport();
    const client = new WSClient({
      appId: this.#options.appId,
      appSecret: this.#options.appSecret,
      domain: this.#baseUrl,
      autoReconnect: false,
      handshakeTimeoutMs,
      wsConfig: { pingTimeout: this.#options.pingTimeoutSeconds ?? 10 },
      httpInstance: endpointInstance(this.#transport.instance, (rejection) => {
        this.#refusalCode = rejection.code;
      }),
      onReady: () => this.#onReady(client),
      onError: () => this.#onLost(client),
      ...sdkLogger(this.#logger),
    });
    this.#client = client;
    // The SDK calls nothing but `invoke` of its dispatcher; its own one flattens the envelope.
    const dispatcher = { invoke: (data: unknown) => this.#onEvent(data) } as unknown as EventDispatcher;
    void client.start({ eventDispatcher: dispatcher });
  }

  #onReady(client: WSClient): void {
    if (client !== this.#client) return;
    this.#everConnected = true;
    this.#connectedAtMs = Date.now();
    this.#enter("connected");
    this.#logger.info({ appId: this.#options.appId }, "long connection established");
    const socket = socketOf(client);
    if (socket === undefined) {
      this.#logger.warn({ appId: this.#options.appId }, "the SDK does not show its socket: a dead one is found late");
    }
    this.#watch(client, socket && new Liveness(socket));
  }

  #watch(client: WSClient, liveness: Liveness | undefined): void {
    this.#timer = setTimeout(() => {
      if (client !== this.#client) return;
      if (client.getConnectionStatus().state !== "connected") return this.#onLost(client);
      liveness?.check();
      this.#watch(client, liveness);
    }, watchMs);
  }

  #discard(): void {
    this.#client?.close({ force: true });
    this.#client = undefined;
  }

  #onLost(client: WSClient): void {
    if (client !== this.#client) return;
    const wasStable = this.#state === "connected" && Date.now() - this.#connectedAtMs > stableMs;
    // After a lost connection the first new try is immediate; a server that drops everybody needs the back-off.
    if (wasStable) this.#failures = 0;
    const waitMs = this.#failures === 0 && this.#state === "connected" ? 0 : this.#nextWaitMs();
    this.#failures += 1;
    this.#discard();
    if (this.#closed !== undefined) return;
    const refused = this.#refusalCode !== 0 && !passingCodes.has(this.#refusalCode);
    this.#enter(refused ? "failed" : this.#everConnected ? "reconnecting" : "connecting");
    this.#report(refused, waitMs);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#connect();
    }, waitMs);
  }

  #nextWaitMs(): number {
    const { min, max } = this.#backOff;
    return Math.min(max, min * 2 ** Math.min(this.#failures, 16)) * (0.75 + Math.random() / 4);
  }

  #report(refused: boolean, waitMs: number): void {
    const facts = { appId: this.#options.appId, code: this.#refusalCode, retryInMs: Math.round(waitMs) };
    if (refused) this.#logger.error(facts, "long connection refused: check app id, secret and event subscription mode");
    else this.#logger.warn(facts, "long connection lost or not established");
  }

  async #onEvent(data: unknown): Promise<unknown> {
    const parsed = parseEnvelope(data);
    if (!parsed.ok) {
      // A redelivery would be as unreadable: acknowledge it and say so.
      this.#logger.error({ reason: parsed.error }, "unreadable event from the long connection");
      return undefined;
    }
    try {
      return await this.#inflight.run(() => this.#options.onEvent(parsed.value));
    } catch (error) {
      const { eventId, type } = parsed.value;
      this.#logger.warn({ eventId, type, err: error }, "event not taken, the platform will deliver it again");
      // The SDK logs the text of what it is thrown.
      throw new Error("event not taken", { cause: error });
    }
  }
}

/** A supervised long connection of one app. */
export function createLongConnection(options: LongConnectionOptions): LongConnection {
  return new Supervisor(options);
}
