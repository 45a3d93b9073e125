import {
  deadline,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import { HttpTransport } from "../transport/api-call.ts";
import { HttpRejection } from "../transport/error.ts";
import { baseUrlOf, type FeishuDomain } from "../transport/rate-limiter.ts";
import {
  EventSocket,
  noLogger,
  type FeishuLogger,
  type HttpInstance,
  type RawSocket,
} from "../transport/sdk.ts";
import { parseEnvelope, type Envelope } from "./inbound-message.ts";

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
  clock?: Clock;
  random?: Random;
}

/** How often we check the SDK's state: it does not report a lost connection. */
const checkMs = 100;
const handshakeTimeoutMs = 10_000;
/**
 * Every peer must answer pings of the WebSocket protocol (RFC 6455). The SDK's watchdog is not enough: each ping of
 * the platform's own protocol restarts it, so it never fires where those pings come more often than it waits.
 */
const socketPingMs = 5_000;
/** A connection without a frame for so long counts as dead. */
const socketSilenceMs = 15_000;
/** After a connection that lived this long the back-off starts again. */
const stableMs = 30_000;

/** Events of one app over the platform's WebSocket, which needs no public address. Reconnects until it is closed. */
export class LongConnection {
  readonly #options: LongConnectionOptions;
  readonly #baseUrl: string;
  readonly #logger: FeishuLogger;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #backOff: { min: number; max: number };
  #transport: HttpTransport;
  readonly #handlers = new RunningHandlers();
  #state: LongConnectionState = "idle";
  #socket: EventSocket | undefined;
  #cancelTimer: (() => void) | undefined;
  #failures = 0;
  #everConnected = false;
  #connectedAtMs = 0;
  #refusalCode = 0;
  #closed: Promise<void> | undefined;

  constructor(options: LongConnectionOptions) {
    this.#options = options;
    this.#baseUrl = baseUrlOf(options.domain);
    this.#logger = options.logger ?? noLogger;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#backOff = options.backOffMs ?? { min: 1_000, max: 60_000 };
    this.#transport = openTransport(this.#clock);
  }

  /** Connects, and keeps trying until `close`. Throws when the app id is malformed. */
  start(): void {
    const { appId } = this.#options;
    if (!/^cli_[0-9a-fA-F]{16}$/.test(appId)) {
      throw new Error(
        `FEISHU_APP_ID must be cli_ and 16 hexadecimal digits, got "${appId.slice(0, 40)}"`,
      );
    }
    if (
      this.#socket === undefined &&
      this.#cancelTimer === undefined &&
      this.#closed === undefined
    ) {
      this.#connect();
    }
  }

  /** `failed`: refused for a reason that only an operator can change; the connection is still retried. */
  state(): LongConnectionState {
    return this.#state;
  }

  /** Waits for running handlers, sends their acknowledgements, disconnects. */
  close(): Promise<void> {
    this.#closed ??= this.#shutDown();
    return this.#closed;
  }

  async #shutDown(): Promise<void> {
    if (this.#state !== "connected") this.#discard();
    this.#cancelTimer?.();
    await this.#handlers.drained(this.#clock, this.#options.drainMs ?? 5_000);
    // Yield: the SDK sends an acknowledgement right after its handler.
    await new Promise((resolve) => setImmediate(resolve));
    this.#socket?.close();
    this.#socket = undefined;
    this.#transport.close();
    this.#enter("idle");
  }

  #enter(state: LongConnectionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#options.onState?.(state);
  }

  #connect(): void {
    this.#enter(this.#everConnected ? "reconnecting" : "connecting");
    this.#refusalCode = 0;
    // A failure of the network that ended the WebSocket has ended kept-alive connections as well.
    this.#transport.close();
    this.#transport = openTransport(this.#clock);
    const socket = new EventSocket({
      appId: this.#options.appId,
      appSecret: this.#options.appSecret,
      baseUrl: this.#baseUrl,
      handshakeTimeoutMs,
      pingTimeoutSeconds: this.#options.pingTimeoutSeconds ?? 10,
      http: endpointInstance(this.#transport.instance, (rejection) => {
        this.#refusalCode = rejection.code;
      }),
      logger: this.#logger,
      onEvent: (data) => this.#onEvent(data),
      onReady: () => this.#onReady(socket),
      onError: () => this.#onLost(socket),
    });
    this.#socket = socket;
    socket.start();
  }

  #onReady(socket: EventSocket): void {
    if (socket !== this.#socket) return;
    this.#everConnected = true;
    this.#connectedAtMs = this.#clock.monotonic();
    this.#enter("connected");
    this.#logger.info({ appId: this.#options.appId }, "long connection established");
    const { raw } = socket;
    if (raw === undefined) {
      this.#logger.warn(
        { appId: this.#options.appId },
        "the SDK does not show its socket: a dead one is found late",
      );
    }
    this.#checkLater(socket, raw && new Liveness(raw, this.#clock));
  }

  #checkLater(socket: EventSocket, liveness: Liveness | undefined): void {
    this.#cancelTimer = this.#clock.after(checkMs, () => {
      if (socket !== this.#socket) return;
      if (!socket.isConnected) return this.#onLost(socket);
      liveness?.check();
      this.#checkLater(socket, liveness);
    });
  }

  #discard(): void {
    this.#socket?.discard();
    this.#socket = undefined;
  }

  #onLost(socket: EventSocket): void {
    if (socket !== this.#socket) return;
    const wasStable =
      this.#state === "connected" && this.#clock.monotonic() - this.#connectedAtMs > stableMs;
    // The first attempt after a lost connection is immediate; a server that drops all connections needs the back-off.
    if (wasStable) this.#failures = 0;
    const waitMs = this.#failures === 0 && this.#state === "connected" ? 0 : this.#nextWaitMs();
    this.#failures += 1;
    this.#discard();
    if (this.#closed !== undefined) return;
    const refused = this.#refusalCode !== 0 && !passingCodes.has(this.#refusalCode);
    this.#enter(refused ? "failed" : this.#everConnected ? "reconnecting" : "connecting");
    this.#report(refused, waitMs);
    this.#cancelTimer = this.#clock.after(waitMs, () => {
      this.#cancelTimer = undefined;
      this.#connect();
    });
  }

  #nextWaitMs(): number {
    const { min, max } = this.#backOff;
    return (
      Math.min(max, min * 2 ** Math.min(this.#failures, 16)) * (0.75 + this.#random.fraction() / 4)
    );
  }

  #report(refused: boolean, waitMs: number): void {
    const facts = {
      appId: this.#options.appId,
      code: this.#refusalCode,
      retryInMs: Math.round(waitMs),
    };
    if (refused) {
      this.#logger.error(
        facts,
        "long connection refused: check app id, secret and event subscription mode",
      );
    } else this.#logger.warn(facts, "long connection lost or not established");
  }

  async #onEvent(data: unknown): Promise<unknown> {
    const parsed = parseEnvelope(data);
    if (!parsed.ok) {
      // A redelivery would be unreadable too, so it is acknowledged and logged.
      this.#logger.error({ reason: parsed.error }, "unreadable event from the long connection");
      return undefined;
    }
    try {
      return await this.#handlers.run(() => this.#options.onEvent(parsed.value));
    } catch (error) {
      const { eventId, type } = parsed.value;
      this.#logger.warn(
        { eventId, type, err: error },
        "event not taken, the platform will deliver it again",
      );
      // The SDK logs the message of this error, so it holds no content.
      throw new Error("event not taken", { cause: error });
    }
  }
}

/** Refusals because of a fault of the platform; every other one needs an operator ("WebSocket endpoint" codes). */
const passingCodes: ReadonlySet<number> = new Set([1, 1000040343, 1000040350]);

/** For the request that asks for the address to connect to. */
function openTransport(clock: Clock): HttpTransport {
  return new HttpTransport({ timeoutMs: 10_000, maxConnections: 1, clock });
}

/**
 * Gives the SDK an answer with `data` also for a refusal, and reports the refusal. The SDK destructures `data` before
 * it reads `code`: without `data` it would silently retry a refused app forever.
 */
function endpointInstance(
  instance: HttpInstance,
  onRefusal: (rejection: HttpRejection) => void,
): HttpInstance {
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

/** Finds a dead socket: pings it, and ends it when no frame of any kind arrives. */
class Liveness {
  readonly #socket: RawSocket;
  readonly #clock: Clock;
  #lastFrameMs: number;
  #pingedMs: number;

  constructor(socket: RawSocket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    this.#lastFrameMs = clock.monotonic();
    this.#pingedMs = this.#lastFrameMs;
    for (const event of ["message", "ping", "pong"] as const) {
      socket.on(event, () => (this.#lastFrameMs = this.#clock.monotonic()));
    }
  }

  /** Must be called often. Ends the socket when it is dead. */
  check(): void {
    const nowMs = this.#clock.monotonic();
    if (nowMs - this.#lastFrameMs > socketSilenceMs) return this.#socket.terminate();
    if (nowMs - this.#pingedMs < socketPingMs) return;
    this.#pingedMs = nowMs;
    this.#socket.ping();
  }
}

/** Runs the handlers and remembers which are still running. */
class RunningHandlers {
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

  /** Resolves when no handler runs any more, or after the timeout. */
  async drained(clock: Clock, timeoutMs: number): Promise<void> {
    const late = deadline(clock, timeoutMs);
    while (this.#running.size > 0 && !late.aborted) {
      const over = new Promise((resolve) =>
        late.addEventListener("abort", resolve, { once: true }),
      );
      await Promise.race([Promise.allSettled(this.#running), over]);
    }
  }
}
