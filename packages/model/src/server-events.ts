/** One event of a `text/event-stream`. */
export interface ServerEvent {
  /** Empty when the server did not name it. */
  event: string;
  data: string;
}

/** Longer than any event of a vendor: the last one of a Responses stream repeats the whole answer. */
const maxEventChars = 16_000_000;

/** A body as `httpFetch` or a `fetch` of the platform gives it. */
type Body = AsyncIterable<Uint8Array>;

/**
 * Reads the events of a response. `alive` is called for every piece of the body, so that pings and comments, which
 * are no events, count as signs of life. Throws when the body breaks off, or when one event is larger than 16
 * million characters. Comments and unknown fields are skipped.
 */
export async function* serverEvents(response: Response, alive: () => void): AsyncGenerator<ServerEvent> {
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let rest = "";
  let searched = 0;
  let next = new PendingEvent();
  for await (const piece of response.body as Body) {
    alive();
    rest += decoder.decode(piece, { stream: true });
    let start = 0;
    for (let end = rest.indexOf("\n", searched); end !== -1; end = rest.indexOf("\n", start)) {
      const complete = next.take(rest.slice(start, end));
      start = end + 1;
      if (complete === undefined) continue;
      next = new PendingEvent();
      yield complete;
    }
    rest = rest.slice(start);
    searched = rest.length;
    if (rest.length + next.chars > maxEventChars) throw new RangeError("An event of the stream is too large.");
  }
  // Some servers leave out the empty line behind the last event.
  next.take(rest);
  const last = next.take("");
  if (last !== undefined) yield last;
}

class PendingEvent {
  #event = "";
  readonly #data: string[] = [];
  chars = 0;

  /** The event, when this line ends it. */
  take(given: string): ServerEvent | undefined {
    const line = given.endsWith("\r") ? given.slice(0, -1) : given;
    if (line === "") return this.#data.length === 0 ? undefined : { event: this.#event, data: this.#data.join("\n") };
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "event") this.#event = value;
    if (name !== "data") return undefined;
    this.#data.push(value);
    this.chars += value.length;
    return undefined;
  }
}
