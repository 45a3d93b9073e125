import {
  isTerminal,
  splitAtOpenMark,
  withoutImageMarks,
  type EngineEvent,
  type NewEvent,
  type PersonMessage,
  type SessionKey,
} from "@larkline/protocol";
import type { Services } from "./services.ts";

interface EventedRun {
  session: SessionKey;
  epoch: string;
  runId: string;
  /** The agent that answers when the run begins or continues. */
  agent: string;
  /** What a worker before this one has published of the run: nothing of it is published again. */
  published: PublishedEvents;
  /** Of a helper. */
  parentRunId?: string | undefined;
}

// The first deltas of an answer go out after this time, so that an answer that is complete by then
// costs no write of its own; later ones are collected for longer. Other events can wait for those:
// the write that goes with a step is rarely far.
const firstDeltaDelayMs = 15;
const laterDeltaDelayMs = 50;
const otherDelayMs = 150;

/**
 * Publishes the events of a run while it generates, a few times a second at most. What is still
 * collected when the turn saves goes along with that write. Followers get text without images, so
 * the names of stored ones take their place; the results of tools are published as they are.
 */
export class EventWriter {
  readonly #services: Services;
  readonly #run: EventedRun;
  readonly #onLost: () => void;
  #agent: string;
  #pending: NewEvent[] = [];
  #cancelTimer: (() => void) | undefined;
  #timerDelayMs = 0;
  #writing: Promise<void> = Promise.resolve();
  #written = false;
  /** Batches are numbered: one whose write was not confirmed is written once more, and published once. */
  #batches = 0;
  #unconfirmed: { number: number; events: NewEvent[] } | undefined;
  #person: PersonMessage | undefined;
  /** End of the text so far that may become the mark of an image. */
  #openText = "";

  /** `onLost` is called when another worker has taken the session over. */
  constructor(services: Services, run: EventedRun, onLost: () => void) {
    this.#services = services;
    this.#run = run;
    this.#onLost = onLost;
    this.#agent = run.agent;
  }

  /** What the person said goes with the next event. */
  tellWith(person: PersonMessage): void {
    this.#person = person;
  }

  push(event: EngineEvent): void {
    if (event.type !== "text_delta") {
      // The text that the held end belongs to is over; one that begins anew voids it.
      this.#endText();
      return this.#push(this.#complete(event));
    }
    // No mark of an image begins or continues in it.
    if (this.#openText === "" && !event.text.includes("!")) {
      return event.text === "" ? undefined : this.#push(event);
    }
    const { shown, open } = splitAtOpenMark(this.#openText + event.text);
    this.#openText = open;
    if (shown !== "") this.#push({ type: "text_delta", text: shown });
  }

  #complete(event: EngineEvent): EngineEvent {
    const shown = withoutImages(event);
    return isTerminal(shown) ? { ...shown, agent: this.#agent } : shown;
  }

  #endText(): void {
    const text = withoutImageMarks(this.#openText);
    this.#openText = "";
    if (text !== "") this.#push({ type: "text_delta", text });
  }

  #push(event: EngineEvent): void {
    const key = keyOf(event);
    if (key !== undefined && this.#run.published.has(key)) return;
    const last = this.#pending.at(-1)?.event;
    if (last !== undefined && isDelta(last) && last.type === event.type && isDelta(event)) {
      last.text += event.text;
    } else this.#pending.push(this.#recordOf(isDelta(event) ? { ...event } : event));
    if (event.type === "agent_changed") this.#agent = event.to;
    this.#flushIn(delayOf(event, this.#written));
  }

  #recordOf(event: EngineEvent): NewEvent {
    const person = this.#person;
    this.#person = undefined;
    const { runId, parentRunId } = this.#run;
    const record: NewEvent = { runId, agent: this.#agent, atMs: this.#services.clock.now(), event };
    if (parentRunId !== undefined) record.parentRunId = parentRunId;
    return person === undefined ? record : { ...record, person };
  }

  #flushIn(delayMs: number): void {
    if (this.#cancelTimer !== undefined && this.#timerDelayMs <= delayMs) return;
    this.#cancelTimer?.();
    this.#timerDelayMs = delayMs;
    this.#cancelTimer = this.#services.clock.after(delayMs, () => this.#flush());
  }

  /**
   * Everything not yet published, for the caller to write; waits for a write that is under way. Rejects where it stays
   * unknown whether the last batch was published.
   */
  async take(): Promise<NewEvent[]> {
    this.#endText();
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    await this.#writing;
    await this.#publishUnconfirmed();
    const taken = this.#pending;
    this.#pending = [];
    return taken;
  }

  #flush(): void {
    this.#cancelTimer = undefined;
    this.#writing = this.#writing.then(async () => await this.#write());
  }

  async #write(): Promise<void> {
    try {
      await this.#publishUnconfirmed();
      const events = this.#pending;
      const last = events.at(-1)?.event;
      // The end of a run is stored with its state, and with the totals that follow it.
      if (last === undefined || isTerminal(last)) return;
      this.#pending = [];
      this.#written ||= events.some(({ event }) => isDelta(event));
      this.#batches += 1;
      this.#unconfirmed = { number: this.#batches, events };
      await this.#publishUnconfirmed();
    } catch {
      // The batch goes with the next write.
    }
  }

  async #publishUnconfirmed(): Promise<void> {
    if (this.#unconfirmed === undefined) return;
    const { session, epoch } = this.#run;
    const isOurs = await this.#services.store.emit({ session, epoch, ...this.#unconfirmed });
    this.#unconfirmed = undefined;
    if (!isOurs) this.#onLost();
  }
}

function withoutImages(event: EngineEvent): EngineEvent {
  if (event.type === "text") return { ...event, text: withoutImageMarks(event.text) };
  if (event.type !== "done") return event;
  const reply = event.reply === undefined ? {} : { reply: withoutImageMarks(event.reply) };
  return { ...event, final: withoutImageMarks(event.final), ...reply };
}

function delayOf(event: EngineEvent, written: boolean): number {
  if (!isDelta(event)) return otherDelayMs;
  return written ? laterDeltaDelayMs : firstDeltaDelayMs;
}

function isDelta(
  event: EngineEvent,
): event is Extract<EngineEvent, { type: "text_delta" | "thinking_delta" }> {
  return event.type === "text_delta" || event.type === "thinking_delta";
}

/** Keys of events that a run may have once only. */
export type PublishedEvents = ReadonlySet<string>;

/** What an event is the only one of in its run; undefined for those that may come again. */
function keyOf(event: EngineEvent): string | undefined {
  switch (event.type) {
    case "turn_start":
    case "turn_end":
      return `${event.type} ${event.turnNumber}`;
    case "tool_result":
    case "tool_summary":
      return `${event.type} ${event.id}`;
    case "slash_command":
    case "session_info":
      return event.type;
    case "memory_query":
      return event.automatic ? event.type : undefined;
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
  { store, eventLog }: Services,
  session: SessionKey,
  runId: string,
): Promise<PublishedEvents> {
  const found = new Set<string>();
  const { eventSeq } = await store.summary(session);
  const first = Math.max(0, eventSeq - maxLooked);
  for (let after = eventSeq; after > first && !found.has("turn_start 1");) {
    after = Math.max(first, after - pageSize);
    for (const record of await eventLog.read(session, after, pageSize)) {
      const key = record.runId === runId ? keyOf(record.event) : undefined;
      if (key !== undefined) found.add(key);
    }
  }
  return found;
}
