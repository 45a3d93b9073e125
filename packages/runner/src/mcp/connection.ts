import type * as McpSdk from "@modelcontextprotocol/client";
import type {
  Client,
  ClientOptions,
  ElicitRequest,
  ElicitResult,
  Tool,
  Transport,
  JSONRPCMessage,
} from "@modelcontextprotocol/client";
import {
  pause,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import type { RiskLevel, ToolEffect } from "@larkline/protocol/tool";

/** One server of the configuration. */
export interface McpServer {
  /** Part of the names of its tools: letters, digits, `_` and `-`. */
  readonly name: string;
  readonly transport: McpTransport;
  policyOf(hints: McpToolHints): McpToolPolicy;
  readonly connectTimeoutMs: number;
  /** The server speaks an older revision: it may ask people inside calls that may be repeated. */
  readonly elicitation: boolean;
}

/** How a server is reached. Each `open` starts a server of its own. */
export type McpTransport =
  | { kind: "stdio"; open(): Promise<StdioChannel> }
  | { kind: "http"; url: URL; headers: Readonly<Record<string, string>>; fetch: typeof fetch };

/** A running MCP server on the other end of two pipes, wherever it runs. */
export interface StdioChannel {
  readonly stdin: NodeJS.WritableStream;
  readonly stdout: NodeJS.ReadableStream;
  /** Resolves when it has ended, with a reason for people. */
  readonly ended: Promise<string>;
  /** Idempotent. */
  close(): Promise<void>;
}

/** What a server says of a tool itself: untrusted hints. */
export interface McpToolHints {
  readonly name: string;
  readonly readOnly: boolean;
  readonly idempotent: boolean;
}

/** What the deployment says of one tool, whatever its server claims. */
export interface McpToolPolicy {
  readonly effect: ToolEffect;
  readonly requiresApproval: boolean;
  readonly timeoutMs: number;
  readonly risk: RiskLevel;
  /** Not mounted. */
  readonly hidden: boolean;
}

/** What happens to a mounted server, for logs and metrics. */
export type McpEvent =
  | { type: "connected"; server: string; tools: number }
  | { type: "disconnected"; server: string; reason: string; retryInMs: number }
  | { type: "tool_refused"; server: string; tool: string; reason: string };

/** Starts to connect, and retries without limit. */
export function connectMcp(options: ConnectionOptions): McpConnection {
  return new ReconnectingConnection(options);
}

export interface ConnectionOptions {
  server: McpServer;
  /** The tools of the server, after every connect and whenever it says that they have changed. */
  onTools(tools: readonly Tool[], client: Client): void;
  onEvent(event: McpEvent): void;
  clock?: Clock | undefined;
  random?: Random | undefined;
}

/** A client of one server that is connected again whenever it was lost. */
interface McpConnection {
  /** The connected client, waiting for it if need be. Rejects when `signal` aborts. */
  client(signal: AbortSignal): Promise<Client>;
  /** Connects anew, because the server does not know the session of this client any more. */
  renew(client: Client): Promise<void>;
  close(): Promise<void>;
}

const firstRetryMs = 500;

const longestRetryMs = 30_000;

/** Most tools of one server, and pages of their list: a list that never ends must not either. */
const maxTools = 1_000;
const maxListPages = 64;

class ReconnectingConnection implements McpConnection {
  readonly #options: ConnectionOptions;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #closing = new AbortController();
  readonly #work: Promise<void>;
  #client: Client | undefined;
  #changed = Promise.withResolvers<void>();

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#work = this.#keepConnected();
  }

  async client(signal: AbortSignal): Promise<Client> {
    const aborted = Promise.withResolvers<never>();
    const abort = (): void => aborted.reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    aborted.promise.catch(() => undefined); // there may be no caller waiting for it
    try {
      for (;;) {
        signal.throwIfAborted();
        this.#closing.signal.throwIfAborted();
        if (this.#client !== undefined) return this.#client;
        await Promise.race([this.#changed.promise, aborted.promise]);
      }
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  async renew(client: Client): Promise<void> {
    if (client !== this.#client) return; // another call has noticed it before
    this.#client = undefined;
    await client.close().catch(() => undefined); // it is gone either way
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error("the runner is stopping"));
    this.#announceChange();
    await this.#work;
  }

  #announceChange(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  async #keepConnected(): Promise<void> {
    const { server, onEvent } = this.#options;
    let retryMs = firstRetryMs;
    while (!this.#closing.signal.aborted) {
      const startedMs = this.#clock.monotonic();
      const reason = await this.#serve();
      if (this.#closing.signal.aborted) return;
      // A connection that held for a while starts the back-off anew.
      if (this.#clock.monotonic() - startedMs > longestRetryMs) retryMs = firstRetryMs;
      const retryInMs = withJitter(retryMs, this.#random);
      onEvent({ type: "disconnected", server: server.name, reason, retryInMs });
      await pause(this.#clock, retryInMs, this.#closing.signal);
      retryMs = Math.min(retryMs * 2, longestRetryMs);
    }
  }

  /** Connects, and resolves with the reason when the connection has ended or never came about. */
  async #serve(): Promise<string> {
    const { server, onEvent } = this.#options;
    const sdk = await loadSdk();
    const lost = Promise.withResolvers<string>();
    const client = new sdk.Client(ourName, {
      versionNegotiation: { mode: "auto" },
      jsonSchemaValidator: uncheckedResults,
      listMaxPages: maxListPages,
      listChanged: {
        tools: { onChanged: (error, tools) => this.#listed(client, { error, tools }) },
      },
      ...(server.elicitation ? { capabilities: formsAlone } : {}),
    });
    // Of the calls that share this connection it is not known which one asks.
    if (server.elicitation) {
      client.setRequestHandler("elicitation/create", () => {
        throw new sdk.ProtocolError(sdk.ProtocolErrorCode.InvalidRequest, texts.mayNotAsk);
      });
    }
    let lastError = "the connection was closed";
    Object.assign(client, {
      onclose: () => lost.resolve(lastError),
      onerror: (error: Error) => {
        lastError = error.message;
      },
    });
    const stop = (): void => lost.resolve("stopped");
    this.#closing.signal.addEventListener("abort", stop, { once: true });
    try {
      await client.connect(await transportOf(server, sdk, this.#clock), {
        timeout: server.connectTimeoutMs,
        signal: this.#closing.signal,
      });
      const { tools } = await client.listTools(undefined, { timeout: server.connectTimeoutMs });
      this.#listed(client, { error: null, tools });
      onEvent({ type: "connected", server: server.name, tools: tools.length });
      this.#client = client;
      this.#announceChange();
      return await lost.promise;
    } catch (error) {
      return messageOf(error);
    } finally {
      this.#client = undefined;
      this.#closing.signal.removeEventListener("abort", stop);
      await client.close().catch(() => undefined); // it is gone either way
    }
  }

  #listed(
    client: Client,
    { error, tools }: { error: Error | null; tools: readonly Tool[] | null },
  ): void {
    if (error !== null || tools === null) return;
    const { server, onEvent, onTools } = this.#options;
    const [more] = tools.slice(maxTools);
    if (more !== undefined) {
      const reason = `the server has ${tools.length} tools: this and those after it are left out, at most ${maxTools} are used`;
      onEvent({ type: "tool_refused", server: server.name, tool: more.name, reason });
    }
    onTools(tools.slice(0, maxTools), client);
  }
}

const ourName = { name: "larkline", version: "1" };

/** What servers may ask people. Addresses to visit are not shown. */
const formsAlone = { elicitation: { form: {} } };

const texts = {
  mayNotAsk:
    "nobody was asked: people are asked only inside calls that may be repeated (effect pure or idempotent)",
};

/** A connection for one call of a server of an older revision: whatever the server asks on it belongs to this call. */
export async function connectForCall(
  server: McpServer,
  { ask, signal, clock = systemClock }: CallConnectionOptions,
): Promise<CallConnection> {
  const sdk = await loadSdk();
  const client = new sdk.Client(ourName, {
    capabilities: formsAlone,
    jsonSchemaValidator: uncheckedResults,
  });
  client.setRequestHandler("elicitation/create", ask);
  const transport = await transportOf(server, sdk, clock);
  const close = async (): Promise<void> => {
    // The server may forget the session at once; one that does not listen forgets it in its own time.
    if (transport instanceof sdk.StreamableHTTPClientTransport) {
      const ended = new AbortController();
      const terminated = transport.terminateSession().catch(() => undefined); // many servers know no end of sessions
      await Promise.race([terminated, pause(clock, goodbyeMs, ended.signal)]);
      ended.abort();
    }
    await client.close().catch(() => undefined); // it is gone either way
    await transport.close().catch(() => undefined);
  };
  try {
    await client.connect(transport, { timeout: server.connectTimeoutMs, signal });
    return { client, close };
  } catch (error) {
    await close();
    throw error;
  }
}

const goodbyeMs = 1_000;

interface CallConnectionOptions {
  /** Answers what the server asks. */
  ask: (request: ElicitRequest) => ElicitResult;
  signal: AbortSignal;
  clock?: Clock | undefined;
}

interface CallConnection {
  readonly client: Client;
  close(): Promise<void>;
}

type Sdk = typeof McpSdk;

/** The SDK takes an eighth of the start of a runner, and most runners mount no server. */
export async function loadSdk(): Promise<Sdk> {
  return await import("@modelcontextprotocol/client");
}

async function transportOf({ transport }: McpServer, sdk: Sdk, clock: Clock): Promise<Transport> {
  if (transport.kind === "stdio") return new ChannelTransport(await transport.open(), sdk, clock);
  return new sdk.StreamableHTTPClientTransport(transport.url, {
    fetch: boundedFetch(transport.fetch),
    requestInit: { headers: { ...transport.headers } },
    // Credentials in headers must not follow a redirect to another host.
    redirectPolicy: "same-origin",
  });
}

/** A schema of a stranger is never run here: a pattern in it could block this process without end. */
const uncheckedResults: NonNullable<ClientOptions["jsonSchemaValidator"]> = {
  // Results are not checked against a schema.
  getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
};

/** Half of the wait is random, so that runners do not come back all at once. */
function withJitter(ms: number, random: Random): number {
  return Math.round(ms / 2 + (random.fraction() * ms) / 2);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Longest message of a server, in bytes, over pipes and over HTTP: images in results are the largest. */
export const maxMessageBytes = 16 * 1_048_576;

/** What a server that does not read leaves to wait here, in bytes. */
const maxUnreadBytes = 16 * 1_048_576;

/** More would keep this process from its other work. */
const maxMessagesPerSecond = 2_000;

const newline = 0x0a;

/**
 * MCP over the pipes of a channel: one JSON message a line. What is no message is reported and
 * skipped, as servers print to stdout by mistake; an endless line, a flood of lines and a server that
 * does not read what it is sent close the channel.
 */
class ChannelTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: Transport["onmessage"];
  readonly #channel: StdioChannel;
  readonly #clock: Clock;
  readonly #sdk: Sdk;
  readonly #lines = new LineBuffer();
  #closed = false;
  #unreadBytes = 0;
  #second = { startedMs: 0, messages: 0 };

  constructor(channel: StdioChannel, sdk: Sdk, clock: Clock) {
    this.#channel = channel;
    this.#clock = clock;
    this.#sdk = sdk;
  }

  start(): Promise<void> {
    const { stdin, stdout, ended } = this.#channel;
    stdin.on("error", (error) => this.onerror?.(error));
    stdout.on("error", (error) => this.onerror?.(error));
    stdout.on("data", (chunk: Buffer) => this.#read(chunk));
    void ended.then(() => this.#ended());
    return Promise.resolve();
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if (this.#closed) throw new Error("the server has ended");
    const text = this.#sdk.serializeMessage(message);
    const bytes = Buffer.byteLength(text);
    this.#unreadBytes += bytes;
    if (this.#unreadBytes > maxUnreadBytes) {
      this.#giveUp(new Error("the server does not read what it is sent"));
    }
    await new Promise<void>((resolve, reject) => {
      this.#channel.stdin.write(text, (error) => (error ? reject(error) : resolve()));
    });
    this.#unreadBytes -= bytes;
  }

  async close(): Promise<void> {
    await this.#channel.close();
    this.#ended();
  }

  #ended(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.onclose?.();
  }

  #read(chunk: Buffer): void {
    let lines: string[] = [];
    try {
      lines = this.#lines.take(chunk);
    } catch (error) {
      this.#giveUp(error);
    }
    for (const line of lines) {
      if (this.#closed) return;
      if (this.#isFlood()) {
        return this.#giveUp(new Error(`more than ${maxMessagesPerSecond} messages in a second`));
      }
      try {
        this.onmessage?.(this.#sdk.deserializeMessage(line));
      } catch (error) {
        this.#refuse(error);
      }
    }
  }

  #isFlood(): boolean {
    const nowMs = this.#clock.monotonic();
    if (nowMs - this.#second.startedMs > 1_000) this.#second = { startedMs: nowMs, messages: 0 };
    this.#second.messages += 1;
    return this.#second.messages > maxMessagesPerSecond;
  }

  /** At once: nothing more is read, whenever the server is really gone. */
  #giveUp(error: unknown): void {
    this.#refuse(error);
    this.#ended();
    void this.#channel.close();
  }

  #refuse(error: unknown): void {
    this.onerror?.(error instanceof Error ? error : new Error(String(error)));
  }
}

/** Cuts a byte stream into lines; throws when one exceeds the limit. */
class LineBuffer {
  #chunks: Buffer[] = [];
  #bytes = 0;

  take(chunk: Buffer): string[] {
    const lines: string[] = [];
    let rest = chunk;
    for (let end = rest.indexOf(newline); end !== -1; end = rest.indexOf(newline)) {
      lines.push(Buffer.concat([...this.#chunks, rest.subarray(0, end)]).toString("utf8"));
      this.#chunks = [];
      this.#bytes = 0;
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) this.#chunks.push(rest);
    this.#bytes += rest.length;
    if (this.#bytes > maxMessageBytes) {
      throw new Error(`a message exceeds ${maxMessageBytes} bytes`);
    }
    return lines.filter((line) => line.trim() !== "");
  }
}

/** The same fetch, for servers that are not trusted with the memory of this process: an answer without end is broken off. */
export function boundedFetch(fetchAny: typeof fetch): typeof fetch {
  return async (input, init) => {
    const response = await fetchAny(input, init);
    const { body, status, statusText, headers } = response;
    if (body === null) return response;
    const isStream = headers.get("content-type")?.startsWith("text/event-stream") === true;
    return new Response(body.pipeThrough(bounded(isStream)), { status, statusText, headers });
  };
}

/** Breaks off where a message grows too long: of a stream of events each one counts for itself. */
function bounded(isStream: boolean): TransformStream<Uint8Array, Uint8Array> {
  let bytes = 0;
  return new TransformStream({
    transform: (chunk, controller) => {
      bytes = isStream ? openBytes(Buffer.from(chunk), bytes) : bytes + chunk.byteLength;
      if (bytes > maxMessageBytes) {
        controller.error(new Error(`a message exceeds ${maxMessageBytes} bytes`));
      } else controller.enqueue(chunk);
    },
  });
}

/** How much of a message a chunk leaves open. */
function openBytes(chunk: Buffer, before: number): number {
  const ends = blankLines.map((blank) => chunk.lastIndexOf(blank)).filter((at) => at !== -1);
  return ends.length === 0 ? before + chunk.length : chunk.length - Math.max(...ends);
}

const blankLines = ["\n\n", "\n\r\n"];
