import type { Transition, TurnEnvironment } from "@larkline/agent";
import {
  type Approval,
  type ControlEntry,
  type EngineEvent,
  type EventOf,
  type Message,
  type TurnState,
  splitAtOpenMark,
  withoutImageMarks,
  type SessionKey,
} from "@larkline/protocol";
import type {
  CommitRequest,
  CommitResult,
  EventLog,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionStore,
} from "@larkline/store";
import { openCallsOf, waitsForPeopleOnly } from "./tools.ts";

/** Where a turn's writes go and what proves that they may. */
export interface ProgressOptions {
  store: Pick<SessionStore, "save" | "commit" | "emit">;
  session: string;
  epoch: string;
  turn: TurnState;
  history: readonly Message[];
  published?: PublishedEvents | undefined;
  /** What its next writes put in place of what cannot be read. */
  replaced?: Pick<Unsaved, "context" | "settings">;
  /** Called when another worker has taken the session over, or Redis refuses. */
  onLost: () => void;
  /** Told of questions to people once they are stored. */
  onAsked: (approvals: readonly Approval[]) => void;
}

/** What was decided and goes with the next write. */
interface Unsaved {
  history: Message[];
  approvals: Approval[];
  absorbed: { seq: number; runId: string }[];
  context?: CommitRequest["context"];
  settings?: SessionSettings;
}

/** How a commit ends a turn. */
export type Ending = Pick<CommitRequest, "seq" | "more" | "outbox">;

/** The state of a running turn: decisions are taken here, and written together with what came with them. */
export class TurnProgress {
  readonly #options: ProgressOptions;
  readonly #events: EventWriter;
  #turn: TurnState;
  #history: Message[];
  #unsaved: Unsaved = { history: [], approvals: [], absorbed: [] };
  /** Control entries decided on but not yet acknowledged. */
  #consumed = 0;
  #settings: SessionSettings | undefined;

  constructor(options: ProgressOptions) {
    this.#options = options;
    this.#turn = options.turn;
    this.#history = [...options.history];
    const { store, session, epoch, turn, published = new Set(), onLost } = options;
    this.#events = new EventWriter({ store, session, epoch, runId: turn.turnId, published, onLost });
    Object.assign(this.#unsaved, options.replaced);
  }

  get turn(): TurnState {
    return this.#turn;
  }

  /** What the model gets to see. */
  get history(): Message[] {
    return this.#history;
  }

  /** The choices that this turn has made for the session, if any. */
  get settings(): SessionSettings | undefined {
    return this.#settings;
  }

  /** Publishes what happens between writes. */
  publish(event: EngineEvent): void {
    this.#events.push(event);
  }

  /** Makes a decision ours: it is stored with the next write. */
  take({ turn, history, events, context, settings, absorbed = [], approvals = [] }: Transition): void {
    this.#turn = turn;
    this.#history.push(...history);
    this.#unsaved.history.push(...history);
    this.#unsaved.absorbed.push(...absorbed);
    this.#unsaved.approvals.push(...approvals);
    const cut = this.#unsaved.context;
    // A cut counts the messages up to its write, which come in the same write as these.
    if (cut !== undefined) this.#unsaved.context = { ...cut, keep: cut.keep + history.length };
    if (context !== undefined) {
      const kept = context.keep === 0 ? [] : this.#history.slice(-context.keep);
      this.#history = context.summary === undefined ? kept : [context.summary, ...kept];
      this.#unsaved.context = context;
    }
    if (settings !== undefined) this.#settings = this.#unsaved.settings = settings;
    for (const event of events) this.#events.push(event);
  }

  /** These control entries are dealt with by the decision that follows. */
  heard(control: readonly ControlEntry[]): void {
    this.#consumed += control.length;
  }

  /** `hold`: go on running while the open calls are worked on. */
  async save(how: SaveRequest["mode"] | "hold"): Promise<SaveResult> {
    const mode = how === "hold" ? "continue" : how;
    const { store, session, epoch } = this.#options;
    const { history, context, absorbed, approvals } = this.#unsaved;
    const result = await store.save({
      session,
      epoch,
      history,
      events: await this.#takenEvents(),
      consumed: this.#consumed,
      turn: this.#turn,
      open: how === "suspend" || how === "hold" ? openCallsOf(this.#turn) : [],
      mode,
      ...(this.#turn.putOff === undefined ? {} : { wakeAtMs: this.#turn.putOff.atMs }),
      ...(context === undefined ? {} : { context }),
      ...(approvals.length === 0 ? {} : { approvals }),
      ...(mode === "suspend" && waitsForPeopleOnly(this.#turn) ? { waits: this.#turn.message.sender.id } : {}),
      ...(absorbed.length === 0 ? {} : { absorbed: absorbed.map(({ seq }) => seq) }),
    });
    const { settings } = this.#unsaved;
    this.#unsaved = { history: [], approvals: [], absorbed: [], ...(settings === undefined ? {} : { settings }) };
    this.#consumed = 0;
    if (result.state !== "fenced" && approvals.length > 0) this.#options.onAsked(approvals);
    return result;
  }

  async commit(ending: Ending): Promise<CommitResult> {
    const { store, session, epoch } = this.#options;
    const { history, context, settings } = this.#unsaved;
    return await store.commit({
      ...ending,
      session,
      epoch,
      history,
      events: await this.#takenEvents(),
      consumed: this.#consumed,
      ...(context === undefined ? {} : { context }),
      ...(settings === undefined ? {} : { settings }),
    });
  }

  /** With the ends of the runs of messages that have joined this one. */
  async #takenEvents(): Promise<{ runId: string; event: EngineEvent }[]> {
    const events = await this.#events.take();
    const takenBy = this.#turn.turnId;
    return [...events, ...this.#unsaved.absorbed.map(({ runId }) => ({ runId, event: joinedEvent(takenBy) }))];
  }
}

/** The end of the run of a message that has become part of another one. */
function joinedEvent(takenBy: string): EventOf<"done"> {
  const reason = "joined";
  return {
    type: "done",
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCacheReadTokens: 0,
    totalCacheCreationTokens: 0,
    totalCostUsd: 0,
    turnCount: 0,
    reason,
    final: "",
    takenBy,
  };
}

/** A decision that waits for the facts of the moment. */
export type Decision = (environment: TurnEnvironment) => Transition;

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

interface EventWriterOptions {
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
