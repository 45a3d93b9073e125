import { newTurn, type LiveStep, type Transition } from "@larkline/agent";
import { cutHistory, type Saved, type TurnLog } from "@larkline/agent/drive";
import type { ControlEntry, QueuedMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import type { EngineError } from "@larkline/protocol/error";
import { isTerminal, type EngineEvent, type EventRecord } from "@larkline/protocol/event";
import type { TurnState } from "@larkline/protocol/turn";
import type { House } from "./house.ts";

// What is kept of a run: the turn with its conversation and its entries, and the events for its readers.

/** The log of one turn in the memory of this process; its conversation is in the store of the engine. */
export class MemoryLog implements TurnLog {
  /** For the readers of the run. */
  readonly events: RunLog;
  live: LiveStep | undefined;
  readonly #house: House;
  readonly #head: QueuedMessage;
  readonly #signal: AbortSignal;
  readonly #approvals = new Map<string, Approval>();
  #turn: TurnState | undefined;
  #history: Message[] = [];
  #entries: ControlEntry[] = [];
  /** Those of approvals that expire, and of a step that was put off. */
  readonly #timers = new Set<() => void>();

  /** `signal`: of the run; one that is cancelled waits for no readers. */
  constructor(
    house: House,
    head: QueuedMessage,
    signal: AbortSignal,
    recordOf: (event: EngineEvent) => EventRecord,
  ) {
    this.#house = house;
    this.#head = head;
    this.#signal = signal;
    this.events = new RunLog(recordOf);
  }

  /** Whether a decision was taken over. */
  get hasBegun(): boolean {
    return this.#turn !== undefined;
  }

  get turn(): TurnState {
    return this.#turn ?? newTurn(this.#head, this.#house.clock.now());
  }

  get history(): readonly Message[] {
    return this.#history;
  }

  /** Those that the turn waits for. */
  get approvals(): ReadonlyMap<string, Approval> {
    return this.#approvals;
  }

  async readHistory(): Promise<void> {
    this.#history = [...(await this.#house.store.get(this.#head.message.session))];
  }

  async take({ turn, history, events, asked = [], context }: Transition): Promise<void> {
    const { store } = this.#house;
    const { session } = turn.message;
    this.#turn = turn;
    for (const approval of asked) this.#ask(approval);
    for (const event of events) this.events.push(event);
    this.#history.push(...history);
    if (history.length > 0) await store.append(session, ...history);
    if (context === undefined) return;
    this.#history = cutHistory(this.#history, context);
    await store.set(session, this.#history);
  }

  #ask(approval: Approval): void {
    this.#approvals.set(approval.id, approval);
    this.#after(approval.expiresAtMs, () => this.settle(approval, "expired", []));
  }

  /** Ends an approval. One that has ended stays as it is. */
  settle(
    { id: approvalId, argumentsHash, turnId }: Approval,
    state: Decision["state"],
    decisions: Decision["decisions"],
  ): void {
    if (!this.#approvals.delete(approvalId)) return;
    this.addEntry({ type: "decision", turnId, approvalId, argumentsHash, state, decisions });
  }

  async publish(event: EngineEvent): Promise<void> {
    this.events.push(event);
    await this.events.room(this.#signal);
  }

  save(): Saved {
    return { state: "running", control: this.#taken() };
  }

  addEntry(entry: ControlEntry): void {
    this.#entries.push(entry);
    this.events.wake();
  }

  #taken(): ControlEntry[] {
    return this.#entries.splice(0);
  }

  /** Waits for entries; without any where a step that was put off is due. */
  async entries(): Promise<ControlEntry[]> {
    const { putOff } = this.turn.requests;
    const { clock } = this.#house;
    if (putOff !== undefined) this.#after(putOff.atMs, () => this.events.wake());
    const isDue = (): boolean => putOff !== undefined && putOff.atMs <= clock.now();
    while (this.#entries.length === 0 && !isDue()) await this.events.change();
    return this.#taken();
  }

  #after(atMs: number, act: () => void): void {
    const { clock } = this.#house;
    this.#timers.add(clock.after(Math.max(0, atMs - clock.now()), act));
  }

  /** Nothing follows but this event. */
  end(last: EngineEvent): void {
    for (const stop of this.#timers) stop();
    this.events.end(last);
  }
}

type Decision = Extract<ControlEntry, { type: "decision" }>;

/** Records that a reader may be behind before the run waits for it. */
const maxBehind = 256;

/** The events of a run, for any number of readers: each of them sees all of it, from the beginning. */
export class RunLog {
  readonly #recordOf: (event: EngineEvent) => EventRecord;
  readonly #records: EventRecord[] = [];
  readonly #readers = new Set<{ at: number }>();
  #wakers: (() => void)[] = [];
  #hasEndRecord = false;
  #hasEnded = false;

  constructor(recordOf: (event: EngineEvent) => EventRecord) {
    this.#recordOf = recordOf;
  }

  /** The last event. */
  get last(): EngineEvent | undefined {
    return this.#records.at(-1)?.event;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Whether anything follows. */
  get hasReaders(): boolean {
    return this.#readers.size > 0;
  }

  /** Adds an event; events after the end are dropped. */
  push(event: EngineEvent): void {
    if (this.#hasEnded || this.#hasEndRecord) return;
    this.#hasEndRecord = isTerminal(event);
    this.#records.push(this.#recordOf(event));
    this.wake();
  }

  /** Nothing follows but this event. */
  end(last: EngineEvent): void {
    this.#records.push(this.#recordOf(last));
    this.#hasEnded = true;
    this.wake();
  }

  /** Everything, until the end. */
  async *read(): AsyncGenerator<EventRecord> {
    const reader = { at: 0 };
    this.#readers.add(reader);
    try {
      for (;;) {
        const record = this.#records[reader.at];
        if (record !== undefined) {
          reader.at += 1;
          this.wake();
          yield record;
        } else if (this.#hasEnded) return;
        else await this.change();
      }
    } finally {
      this.#readers.delete(reader);
      this.wake();
    }
  }

  /** Waits while a reader is far behind. */
  async room(signal: AbortSignal): Promise<void> {
    const isFull = (): boolean =>
      [...this.#readers].some(({ at }) => this.#records.length - at > maxBehind);
    while (isFull() && !signal.aborted) await this.change();
  }

  /** Lets everything that waits look again. */
  wake(): void {
    const wakers = this.#wakers;
    this.#wakers = [];
    for (const wake of wakers) wake();
  }

  /** Resolves when something has happened. */
  async change(): Promise<void> {
    await new Promise<void>((resolve) => this.#wakers.push(resolve));
  }
}

const noTotals = {
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCacheReadTokens: 0,
  totalCacheCreationTokens: 0,
  totalCostUsd: 0,
  turnCount: 0,
};

/** The end of a run that has done nothing. */
export function endedBefore({ code, message, suggestion, retryable }: EngineError): EngineEvent {
  return { type: "error", code, message, suggestion, retryable, ...noTotals };
}
