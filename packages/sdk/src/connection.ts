/** Where a deployment is, and who asks. */
export interface ConnectionOptions {
  /** Of the ingress, such as `https://bot.example.com`. */
  url: string;
  /** `API_TOKEN` of the deployment, or the caller's own key; a function is asked before each request. */
  token?: string | (() => string | Promise<string>);
  /** In place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How long requests are repeated while there is no contact, ms; default 60,000. */
  retryForMs?: number;
}

/** A request that the server has refused: nothing was started. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly status: number;
  /** A word for programs, where the server says one. */
  readonly code: string;

  constructor(status: number, message: string, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** There was no contact with the server for `retryForMs`. The run may continue: `client.attach` finds it again. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

export interface RequestDetails {
  method?: "GET" | "POST" | "DELETE";
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

const firstPauseMs = 200;
const longestPauseMs = 5_000;
/** The server says something every 15 s; a connection that is silent for longer is taken for broken. */
const silenceMs = 45_000;
/** How long the server may take to answer a request, at most. */
const answerMs = 30_000;

/** Requests to one deployment. What fails on the way is repeated; what the server refuses is an error. */
export class Connection {
  readonly #url: string;
  readonly #options: ConnectionOptions;
  readonly #retryForMs: number;

  constructor(options: ConnectionOptions) {
    this.#url = options.url.replace(/\/+$/, "");
    this.#options = options;
    this.#retryForMs = options.retryForMs ?? 60_000;
  }

  /**
   * The JSON answer of a request that may be made twice. Throws a {@link RequestError} when it is refused, a
   * {@link ConnectionError} when there is no contact for too long.
   */
  async json(path: string, details: RequestDetails = {}): Promise<unknown> {
    const retry = new Retry(this.#retryForMs);
    for (;;) {
      const outcome = await this.#attempt(path, details, async (response) => await response.text());
      if (outcome.body !== undefined) return jsonOf(outcome.body);
      await retry.pause(outcome, details.signal);
    }
  }

  /**
   * The events of a stream, in order, each once: a connection that breaks or ends is opened again after the last `id`.
   * Ends with the event `end`, or when the server has no more. `path` has its query; the position is added to it.
   * `after`: where to begin; empty: at the beginning. The `id` of an event is the position after it.
   */
  async *events(path: string, signal: AbortSignal, after = ""): AsyncGenerator<ServerEvent> {
    let lastId = after;
    const retry = new Retry(this.#retryForMs);
    for (;;) {
      const outcome = await this.#attempt(lastId === "" ? path : `${path}&after=${lastId}`, {
        headers: { accept: "text/event-stream" },
        signal,
      });
      if (outcome.response?.status === 204) return;
      if (outcome.response?.ok === true && outcome.response.body !== null) {
        retry.noteContact();
        const reader = new EventStreamReader(outcome.response.body);
        for await (const event of reader.events()) {
          retry.reset();
          if (event.id !== "") lastId = event.id;
          yield { ...event, id: lastId };
          if (event.name === "end") return;
        }
        retry.noteContact();
      }
      await retry.pause(outcome, signal);
    }
  }

  /** `read` belongs to the answer: it has to end in time, too. */
  async #attempt(
    path: string,
    { method = "GET", body, headers = {}, signal }: RequestDetails,
    read?: (response: Response) => Promise<string>,
  ): Promise<Outcome> {
    const { token, fetch = globalThis.fetch } = this.#options;
    const shown = typeof token === "function" ? await token() : token;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), Math.min(answerMs, this.#retryForMs));
    try {
      const response = await fetch(`${this.#url}${path}`, {
        method,
        headers: {
          ...(shown === undefined ? {} : { authorization: `Bearer ${shown}` }),
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: signal === undefined ? late.signal : AbortSignal.any([signal, late.signal]),
      });
      if (response.ok && read !== undefined) return { response, body: await read(response) };
      if (!response.ok && !repeatable.has(response.status)) throw await refusalOf(response);
      return { response };
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof RequestError) throw error;
      return { failure: error };
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Absent where nothing was said. */
function jsonOf(body: string): unknown {
  if (body === "") return undefined;
  try {
    return JSON.parse(body);
  } catch {
    throw new RequestError(200, "the answer is not of a Larkline deployment: it is no JSON");
  }
}

interface Outcome {
  response?: Response;
  /** What was read of it. */
  body?: string;
  failure?: unknown;
}

/** The server, or a proxy before it, may take the request a moment later. */
const repeatable = new Set([408, 425, 429, 502, 503, 504]);

async function refusalOf(response: Response): Promise<RequestError> {
  const text = await response.text().catch(() => "");
  try {
    const { error, code } = JSON.parse(text) as { error?: unknown; code?: unknown }; // only looked at below
    const word = typeof code === "string" ? code : "";
    if (typeof error === "string") return new RequestError(response.status, error, word);
  } catch {
    // No JSON: the page of a proxy, say.
  }
  return new RequestError(response.status, `status ${response.status}`);
}

/** Pauses between attempts, longer and longer, until there was no contact for too long. */
class Retry {
  readonly #forMs: number;
  #sinceMs = performance.now();
  #pauseMs = firstPauseMs;

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** The server is there, though it may have closed the connection without saying anything. */
  noteContact(): void {
    this.#sinceMs = performance.now();
  }

  /** Something has come: the next attempt follows soon. */
  reset(): void {
    this.noteContact();
    this.#pauseMs = firstPauseMs;
  }

  async pause({ response, failure }: Outcome, signal?: AbortSignal): Promise<void> {
    const silentMs = performance.now() - this.#sinceMs;
    if (silentMs >= this.#forMs) {
      // It was there all the time and took nothing, which is certain; of other states it is not.
      if (response?.status === 429) throw await refusalOf(response);
      const why = response === undefined ? "no answer" : `status ${response.status}`;
      throw new ConnectionError(`no contact for ${Math.round(silentMs / 1_000)} s: ${why}`, {
        cause: failure,
      });
    }
    const asked = Number(response?.headers.get("retry-after") ?? 0) * 1_000;
    const ms = Math.min(
      Math.max(this.#pauseMs, asked > 0 ? asked : 0),
      longestPauseMs,
      this.#forMs,
    );
    this.#pauseMs = Math.min(this.#pauseMs * 2, longestPauseMs);
    await response?.body?.cancel().catch(() => undefined);
    await delay(ms * (0.5 + Math.random() / 2), signal);
  }
}

/** Rejects as soon as `signal` aborts. */
async function delay(ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error); // an error, unless the caller aborts with another reason
    };
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** One server-sent event. */
export interface ServerEvent {
  /** Of its `id:` line; empty when it has none. */
  id: string;
  /** Of its `event:` line; `message` when it has none. */
  name: string;
  data: string;
}

/** More than the server ever sends as one event. */
const maxEventLength = 16 * 1_048_576;

/** Reads server-sent events (WHATWG HTML, section 9.2) from the body of a response. */
class EventStreamReader {
  readonly #body: ReadableStream<Uint8Array>;

  constructor(body: ReadableStream<Uint8Array>) {
    this.#body = body;
  }

  /** Ends when the body ends, breaks, or says nothing for {@link silenceMs}: the caller opens it again. Rejects never. */
  async *events(): AsyncGenerator<ServerEvent> {
    const reader = this.#body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    try {
      for (;;) {
        const bytes = await this.#next(reader);
        if (bytes === undefined) return;
        text += decoder.decode(bytes, { stream: true });
        // A `\r` at the end may be half of a line break.
        const blocks = text.replaceAll(/\r\n|\r(?!$)/g, "\n").split("\n\n");
        text = blocks.pop() ?? "";
        if (text.length > maxEventLength) return;
        for (const block of blocks) {
          const event = eventOf(block);
          if (event !== undefined) yield event;
        }
      }
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }

  async #next(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<Uint8Array | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silence = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), silenceMs);
    });
    try {
      return await Promise.race([reader.read().then(({ value }) => value), silence]);
    } catch {
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Undefined for a block without data, such as a comment. */
function eventOf(block: string): ServerEvent | undefined {
  const event: ServerEvent = { id: "", name: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "data") data.push(value);
    else if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
  }
  return data.length === 0 ? undefined : { ...event, data: data.join("\n") };
}
