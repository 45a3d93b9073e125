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
export class EventStreamReader {
  readonly #body: ReadableStream<Uint8Array>;
  readonly #silenceMs: number;

  constructor(body: ReadableStream<Uint8Array>, silenceMs: number) {
    this.#body = body;
    this.#silenceMs = silenceMs;
  }

  /** Ends when the body ends, breaks, or says nothing for `silenceMs`: the caller opens it again. Rejects never. */
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
      timer = setTimeout(() => resolve(undefined), this.#silenceMs);
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
