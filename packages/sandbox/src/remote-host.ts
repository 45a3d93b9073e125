import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type Clock, systemClock } from "@larkline/protocol";
import {
  beginPath,
  defaultBodyBytes,
  heldRunsPath,
  lineOf,
  parseBody,
  type RemoteLine,
  requestIdHeader,
  resultLine,
  runsPath,
} from "./remote-protocol.ts";
import type { Sandbox, SandboxRequest, SandboxStatus } from "./sandbox.ts";

/** What happened to one request; `requestId` is the client's. */
export type SandboxHostEvent =
  | { event: "run_started"; requestId: string; runtime: string }
  | { event: "run_ended"; requestId: string; status: SandboxStatus; wallMs: number }
  /** The client went away, or the host is closing: the program was killed. */
  | { event: "run_abandoned"; requestId: string }
  | { event: "run_refused"; requestId: string; httpStatus: number; reason: string }
  /** The sandbox broke its contract: a defect. */
  | { event: "run_failed"; requestId: string; error: unknown };

export interface SandboxHostOptions {
  sandbox: Sandbox;
  host: string;
  /** 0 takes any free port. */
  port: number;
  /** What clients must send as bearer token. */
  token: string;
  /** Runs at once, waiting ones included; more are turned away with 503. */
  maxConcurrent: number;
  onEvent?(event: SandboxHostEvent): void;
  /** Largest body of a request. Default 32 MiB. */
  bodyBytes?: number;
  /** Time between two heartbeats, ms. Default 5000. */
  beatMs?: number;
  /** Time that a client has to say that a run which has its place may begin, ms. Default 60,000. */
  confirmMs?: number;
  /** Time that runs get to end when the host closes, ms. Default 8000. */
  drainMs?: number;
  clock?: Clock;
}

export interface SandboxHost {
  /** The port in use. */
  port: number;
  running(): number;
  /** Takes no more runs, lets those under way end for `drainMs`, then kills them. Idempotent; leaves the sandbox open. */
  close(): Promise<void>;
}

const rememberedIds = 10_000;

class Refusal extends Error {
  readonly httpStatus: number;

  constructor(httpStatus: number, reason: string) {
    super(reason);
    this.httpStatus = httpStatus;
  }
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Compares in constant time, whatever the lengths. */
function checkToken(request: IncomingMessage, expected: Buffer): void {
  const [, token = ""] = /^Bearer (.+)$/i.exec(request.headers.authorization ?? "") ?? [];
  if (!timingSafeEqual(digest(token), expected)) throw new Refusal(401, "a bearer token is needed");
}

/** What is asked for: a run, one that waits for its confirmation, or to begin that. */
type Route = { kind: "run" | "held" } | { kind: "begin"; requestId: string };

const [beforeId = "", afterId = ""] = beginPath(" ").split(" ");

function routeOf(request: IncomingMessage): Route {
  const [path = ""] = (request.url ?? "").split("?");
  const isBegin = path.startsWith(beforeId) && path.endsWith(afterId) && path.length > beforeId.length + afterId.length;
  if (!isBegin && path !== runsPath && path !== heldRunsPath) throw new Refusal(404, `${runsPath} is served here`);
  if (request.method !== "POST") throw new Refusal(405, "only POST");
  if (isBegin) return { kind: "begin", requestId: path.slice(beforeId.length, -afterId.length) };
  return { kind: path === runsPath ? "run" : "held" };
}

async function readBody(request: IncomingMessage, maxBytes: number): Promise<string> {
  const tooLarge = new Refusal(413, `the request is larger than ${maxBytes} bytes`);
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    const bytes = Buffer.from(chunk as Uint8Array); // no encoding is set, so these are bytes
    size += bytes.length;
    if (size > maxBytes) throw tooLarge;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString();
}

function requestIdOf(request: IncomingMessage): string {
  const value = request.headers[requestIdHeader];
  const id = typeof value === "string" ? value : "";
  if (!/^[\w.-]{8,128}$/.test(id)) {
    throw new Refusal(400, `${requestIdHeader} must be 8 to 128 letters, digits, '_', '.' or '-'`);
  }
  return id;
}

function refuse(response: ServerResponse, error: unknown): void {
  const refusal = error instanceof Refusal ? error : new Refusal(400, "the request cannot be read");
  if (response.headersSent) return void response.destroy();
  // What remains of the body is not read: the connection ends here.
  response.writeHead(refusal.httpStatus, { "content-type": "text/plain; charset=utf-8", connection: "close" });
  response.end(`${refusal.message}\n`);
}

class Host {
  readonly #options: SandboxHostOptions;
  readonly #token: Buffer;
  readonly #clock: Clock;
  readonly #ids = new Set<string>();
  readonly #running = new Map<AbortController, Promise<void>>();
  /** Lets runs begin that have their place, and those that have begun. */
  readonly #held = new Map<string, () => void>();
  #closing = false;

  constructor(options: SandboxHostOptions) {
    this.#options = options;
    this.#token = digest(options.token);
    this.#clock = options.clock ?? systemClock;
  }

  running(): number {
    return this.#running.size;
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const route = routeOf(request);
      checkToken(request, this.#token);
      if (route.kind === "begin") return this.#begin(route.requestId, response);
      const requestId = requestIdOf(request);
      this.#takeId(requestId);
      const place = new AbortController();
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#running.set(place, promise);
      try {
        await this.#serve(requestId, { request, response, place, isHeld: route.kind === "held" });
      } finally {
        this.#running.delete(place);
        resolve();
      }
    } catch (error) {
      const requestId = String(request.headers[requestIdHeader] ?? "").slice(0, 128);
      const httpStatus = error instanceof Refusal ? error.httpStatus : 400;
      const reason = error instanceof Refusal ? error.message : "the request broke off";
      this.#options.onEvent?.({ event: "run_refused", requestId, httpStatus, reason });
      refuse(response, error);
    }
  }

  async close(): Promise<void> {
    this.#closing = true;
    const idle = Promise.all(this.#running.values());
    const cancelTimer = this.#clock.after(this.#options.drainMs ?? 8_000, () => {
      for (const place of this.#running.keys()) place.abort();
    });
    await idle;
    cancelTimer();
  }

  /** Takes each id once: something between that repeats a request must not repeat a run. */
  #takeId(requestId: string): void {
    if (this.#closing) throw new Refusal(503, "this host is closing");
    if (this.#ids.has(requestId)) throw new Refusal(409, "this run was already sent");
    if (this.#running.size >= this.#options.maxConcurrent) {
      throw new Refusal(503, `${this.#running.size} programs run and wait here already`);
    }
    this.#ids.add(requestId);
    const [oldest = ""] = this.#ids;
    if (this.#ids.size > rememberedIds) this.#ids.delete(oldest);
  }

  #begin(requestId: string, response: ServerResponse): void {
    const begin = this.#held.get(requestId);
    if (begin === undefined) throw new Refusal(404, "no such run has a place here");
    begin();
    response.writeHead(204).end();
  }

  async #serve(requestId: string, { request, response, place, isHeld }: ServedRequest): Promise<void> {
    const { bodyBytes = defaultBodyBytes, beatMs = 5_000, onEvent } = this.#options;
    response.on("close", () => place.abort());
    const parsed = parseBody(await readBody(request, bodyBytes));
    if (!parsed.ok) throw new Refusal(400, parsed.error);
    const say = (line: RemoteLine): void => void (response.destroyed ? undefined : response.write(lineOf(line)));
    response.writeHead(200, {
      "content-type": "application/x-ndjson",
      "cache-control": "no-store",
      // A proxy that collects the answer would make the host look dead.
      "x-accel-buffering": "no",
      [requestIdHeader]: requestId,
    });
    say({ type: "accepted" });
    onEvent?.({ event: "run_started", requestId, runtime: parsed.value.program.runtime });
    const stopBeating = this.#clock.every(beatMs, () => say({ type: "beat" }));
    try {
      const { signal } = place;
      const held = isHeld ? { begin: async () => await this.#mayBegin(requestId, say, signal) } : {};
      await this.#run(requestId, { run: { ...parsed.value, ...held }, response, say, signal });
    } finally {
      stopBeating();
      this.#held.delete(requestId);
    }
  }

  /** Announces to the client that its run has a place; resolves to whether the client confirms in time that it may begin. */
  async #mayBegin(requestId: string, say: RunningRequest["say"], signal: AbortSignal): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const no = (): void => resolve(false);
    const cancelTimer = this.#clock.after(this.#options.confirmMs ?? 60_000, no);
    signal.addEventListener("abort", no, { once: true });
    if (signal.aborted) no();
    this.#held.set(requestId, () => resolve(true));
    say({ type: "place" });
    return await promise.finally(() => {
      cancelTimer();
      signal.removeEventListener("abort", no);
    });
  }

  async #run(requestId: string, work: RunningRequest): Promise<void> {
    const { run, response, say, signal } = work;
    const { sandbox, onEvent } = this.#options;
    try {
      const result = await sandbox.run({
        ...run,
        signal,
        onProgress: (fraction, detail) => say({ type: "progress", fraction, detail }),
        onOutput: (stream, text) => say({ type: "output", stream, text }),
      });
      // Cancelled here, not by the program's own end: the client must not take this for a result.
      if (signal.aborted) return this.#abandon(requestId, response);
      response.end(lineOf(resultLine(result)));
      onEvent?.({ event: "run_ended", requestId, status: result.status, wallMs: result.wallMs });
    } catch (error) {
      response.destroy();
      onEvent?.({ event: "run_failed", requestId, error });
    }
  }

  #abandon(requestId: string, response: ServerResponse): void {
    response.destroy();
    this.#options.onEvent?.({ event: "run_abandoned", requestId });
  }
}

interface ServedRequest {
  request: IncomingMessage;
  response: ServerResponse;
  place: AbortController;
  /** It begins when the client says so. */
  isHeld: boolean;
}

interface RunningRequest {
  run: Omit<SandboxRequest, "signal">;
  response: ServerResponse;
  say(line: RemoteLine): void;
  signal: AbortSignal;
}

/**
 * Serves a sandbox to `createRemoteSandbox` on other machines. Plain HTTP with a bearer token: put TLS
 * or a private network in front. Rejects when the port is taken (`EADDRINUSE`).
 */
export async function serveSandbox(options: SandboxHostOptions): Promise<SandboxHost> {
  const host = new Host(options);
  const server = createServer({ headersTimeout: 10_000, requestTimeout: 60_000 }, (request, response) => {
    void host.handle(request, response);
  });
  server.maxConnections = options.maxConcurrent * 2 + 16;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(options.port, options.host, () => {
      server.off("error", reject).on("error", () => {});
      resolve();
    });
  });
  const address = server.address();
  let closed: Promise<void> | undefined;
  return {
    port: typeof address === "object" && address !== null ? address.port : options.port,
    running: () => host.running(),
    close: () =>
      (closed ??= (async () => {
        const ended = new Promise<void>((resolve) => server.close(() => resolve()));
        server.closeIdleConnections();
        await host.close();
        server.closeAllConnections();
        await ended;
      })()),
  };
}
