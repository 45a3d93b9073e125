import { splitAtOpenMark, withoutImageMarks, type EngineEvent, type SessionKey } from "@larkline/protocol";
import type { EventLog, SessionStore } from "@larkline/store";

/** Keys of events that a run may have once only. */
export type PublishedEvents = ReadonlySet<string>;

/** What an event is the only one of in its run; undefined for those that may come again. */
function keyOf(event: EngineEvent): string | undefined {
  switch (event.type) {
    case "turn_start":
    case "turn_end":
      return `${event.type} ${event.turnNumber}`;
    case "tool_result":
      return `${event.type} ${event.id}`;
    case "slash_command":
      return event.type;
    default:
      return undefined;
  }
}

const pageSize = 500;
/** Events of a session that are looked at, newest first: more than a model step publishes. */
const maxLooked = 10_000;

/**
 * What is in the log of a run whose worker died: it may have published more than it saved. Called by the worker that
 * holds the session, so that nothing is added meanwhile.
 */
export async function publishedBefore(
  { store, log }: { store: Pick<SessionStore, "summary">; log: Pick<EventLog, "read"> },
  session: SessionKey,
  runId: string,
): Promise<PublishedEvents> {
  const found = new Set<string>();
  const { eventSeq } = await store.summary(session);
  const first = Math.max(0, eventSeq - maxLooked);
  for (let after = eventSeq; after > first && !found.has("turn_start 1");) {
    after = Math.max(first, after - pageSize);
    for (const record of await log.read(session, after, pageSize)) {
      const key = record.runId === runId ? keyOf(record.event) : undefined;
      if (key !== undefined) found.add(key);
    }
  }
  return found;
}

export interface EventWriterOptions {
  store: Pick<SessionStore, "emit">;
  session: SessionKey;
  epoch: string;
  runId: string;
  /** What a worker before this one has published of the run: nothing of it is published again. */
  published?: PublishedEvents;
  /** Called when another worker has taken the session over, or Redis refuses. */
  onLost: () => void;
}

type RunEvent = { runId: string; event: EngineEvent };

// The first deltas of an answer go out after this time, so that an answer that is complete by then
// costs no write of its own; later ones are collected for longer. Other events can wait for those:
// the write that goes with a step is rarely far.
const firstDeltaDelayMs = 15;
const laterDeltaDelayMs = 50;
const otherDelayMs = 150;

/**
 * Publishes the events of a run while it generates, a few times a second at most. What is still
 * collected when the turn saves goes along with that write. Followers get text without images, so
 * the names of stored ones stand in for them; the results of tools are published as they are.
 */
export class EventWriter {
  readonly #options: EventWriterOptions;
  #pending: RunEvent[] = [];
  #timer: NodeJS.Timeout | undefined;
  #timerDelayMs = 0;
  #writing: Promise<void> = Promise.resolve();
  #written = false;
  /** End of the text so far that may become the mark of an image. */
  #openText = "";

  constructor(options: EventWriterOptions) {
    this.#options = options;
  }

  push(event: EngineEvent): void {
    if (event.type !== "text_delta") {
      // The text that the held end belongs to is over; one that begins anew voids it.
      this.#endText();
      return this.#push(withoutImages(event));
    }
    const { shown, open } = splitAtOpenMark(this.#openText + event.text);
    this.#openText = open;
    if (shown !== "") this.#push({ type: "text_delta", text: shown });
  }

  #endText(): void {
    const text = withoutImageMarks(this.#openText);
    this.#openText = "";
    if (text !== "") this.#push({ type: "text_delta", text });
  }

  #push(event: EngineEvent): void {
    const key = keyOf(event);
    if (key !== undefined && this.#options.published?.has(key) === true) return;
    const last = this.#pending.at(-1)?.event;
    if (last !== undefined && isDelta(last) && last.type === event.type && isDelta(event)) last.text += event.text;
    else this.#pending.push({ runId: this.#options.runId, event: isDelta(event) ? { ...event } : event });
    this.#flushIn(delayOf(event, this.#written));
  }

  #flushIn(delayMs: number): void {
    if (this.#timer !== undefined && this.#timerDelayMs <= delayMs) return;
    clearTimeout(this.#timer);
    this.#timerDelayMs = delayMs;
    this.#timer = setTimeout(() => this.#flush(), delayMs);
  }

  /** Everything not yet published, for the caller to write; waits for a write that is under way. */
  async take(): Promise<RunEvent[]> {
    this.#endText();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#writing;
    const taken = this.#pending;
    this.#pending = [];
    return taken;
  }

  #flush(): void {
    this.#timer = undefined;
    this.#writing = this.#writing.then(async () => await this.#write());
  }

  async #write(): Promise<void> {
    const events = this.#pending;
    if (events.length === 0) return;
    this.#pending = [];
    this.#written ||= events.some(({ event }) => isDelta(event));
    const { store, session, epoch, onLost } = this.#options;
    try {
      if (!(await store.emit({ session, epoch, events }))) onLost();
    } catch {
      this.#pending = [...events, ...this.#pending]; // they go with the next write
    }
  }
}

function withoutImages(event: EngineEvent): EngineEvent {
  if (event.type === "text") return { ...event, text: withoutImageMarks(event.text) };
  return event.type === "done" ? { ...event, final: withoutImageMarks(event.final) } : event;
}

function delayOf(event: EngineEvent, written: boolean): number {
  if (!isDelta(event)) return otherDelayMs;
  return written ? laterDeltaDelayMs : firstDeltaDelayMs;
}

function isDelta(event: EngineEvent): event is Extract<EngineEvent, { type: "text_delta" | "thinking_delta" }> {
  return event.type === "text_delta" || event.type === "thinking_delta";
}
