import {
  Client,
  StreamableHTTPClientTransport,
  type ClientOptions,
  type Tool,
  type Transport,
} from "@modelcontextprotocol/client";
import { boundedFetch } from "./bounded-fetch.ts";
import { ChannelTransport } from "./channel-transport.ts";
import type { McpEvent, McpServer } from "./server.ts";

const firstRetryMs = 500;
const longestRetryMs = 30_000;
/** Most tools of one server: a list that never ends must not either. */
const maxTools = 1_000;

/** A client of one server that is connected again whenever it was lost. */
export interface McpConnection {
  /** The connected client, waiting for it if need be. Rejects when `signal` aborts. */
  client(signal: AbortSignal): Promise<Client>;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  server: McpServer;
  /** The tools of the server, after every connect and whenever it says that they have changed. */
  onTools(tools: readonly Tool[], client: Client): void;
  onEvent(event: McpEvent): void;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function transportOf({ transport }: McpServer): Promise<Transport> {
  if (transport.kind === "stdio") return new ChannelTransport(await transport.open());
  return new StreamableHTTPClientTransport(transport.url, {
    fetch: boundedFetch(transport.fetch),
    requestInit: { headers: { ...transport.headers } },
    // Credentials in headers must not follow a redirect to somebody else.
    redirectPolicy: "same-origin",
  });
}

/** A schema of a stranger is never run here: a pattern in it could hold this process up for ever. */
const uncheckedResults: NonNullable<ClientOptions["jsonSchemaValidator"]> = {
  // Nobody reads a result by its schema.
  getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
};

/** Half of the wait is random, so that runners do not come back all at once. */
function withJitter(ms: number): number {
  return Math.round(ms / 2 + (Math.random() * ms) / 2);
}

class ReconnectingConnection implements McpConnection {
  readonly #options: ConnectionOptions;
  readonly #closing = new AbortController();
  readonly #work: Promise<void>;
  #client: Client | undefined;
  #changed = Promise.withResolvers<void>();

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#work = this.#keepConnected();
  }

  async client(signal: AbortSignal): Promise<Client> {
    const aborted = Promise.withResolvers<never>();
    const abort = (): void => aborted.reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    aborted.promise.catch(() => undefined); // nobody may be waiting when it comes
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
      const startedMs = performance.now();
      const reason = await this.#serve();
      if (this.#closing.signal.aborted) return;
      // A connection that held for a while starts the back-off anew.
      if (performance.now() - startedMs > longestRetryMs) retryMs = firstRetryMs;
      const retryInMs = withJitter(retryMs);
      onEvent({ type: "disconnected", server: server.name, reason, retryInMs });
      await this.#pause(retryInMs);
      retryMs = Math.min(retryMs * 2, longestRetryMs);
    }
  }

  /** Connects, and resolves with the reason when the connection has ended or never came about. */
  async #serve(): Promise<string> {
    const { server, onEvent } = this.#options;
    const lost = Promise.withResolvers<string>();
    const client = new Client(
      { name: "larkline", version: "1" },
      {
        versionNegotiation: { mode: "auto" },
        jsonSchemaValidator: uncheckedResults,
        listChanged: { tools: { onChanged: (error, tools) => this.#listed(client, { error, tools }) } },
      },
    );
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
      await client.connect(await transportOf(server), {
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

  #listed(client: Client, { error, tools }: { error: Error | null; tools: readonly Tool[] | null }): void {
    if (error === null && tools !== null) this.#options.onTools(tools.slice(0, maxTools), client);
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, ms);
      const { signal } = this.#closing;
      function done(): void {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      }
      signal.addEventListener("abort", done, { once: true });
    });
  }
}

/** Starts to connect, and goes on trying for as long as it takes. */
export function connectMcp(options: ConnectionOptions): McpConnection {
  return new ReconnectingConnection(options);
}
