import {
  turnIdOf,
  type ControlEntry,
  type InboundMessage,
  type Message,
  type QueuedMessage,
  type SessionKey,
  type TurnState,
} from "@larkline/protocol";
import type {
  Claim,
  FencedWrite,
  OpenCall,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionSummary,
  StaleSession,
} from "./session-store.ts";

/** One attempt of a call. */
export interface LedgerEntry extends OpenCall {
  state: "open" | "started" | "done";
}

/** One conversation as the in-memory adapter holds it: the transitions of the gate, without clock and without copies. */
export class MemorySession {
  readonly key: SessionKey;
  state: SessionSummary["state"] = "idle";
  gen = 0;
  /** Generation of the wake-up that the running (or suspended) worker came with. */
  runningGen = 0;
  epoch = 0;
  lastSeq = 0;
  /** The message `tries` belongs to. */
  headSeq = 0;
  tries = 0;
  owner = "";
  touchedAtMs = 0;
  /** When it last finished a turn; 0: never. */
  finishedAtMs = 0;
  /** The end of a turn after which it was last looked after. */
  tendedAtMs = 0;
  /** Number of the first message of `history`. */
  historyBase = 0;
  /** Who has written, and in what kind of chat. */
  readonly people = new Map<string, InboundMessage["chatType"]>();
  turn: TurnState | undefined;
  inbox: QueuedMessage[] = [];
  control: ControlEntry[] = [];
  readonly ledger = new Map<string, LedgerEntry>();
  readonly history: Message[] = [];
  /** Numbers of messages that have become part of the running turn. */
  readonly #joined = new Set<number>();
  settings: SessionSettings = {};
  /** Where in `history` the context begins, and what stands for everything before. */
  #contextStart = 0;
  #contextSummary: Message | undefined;

  constructor(key: SessionKey) {
    this.key = key;
  }

  wake(nowMs: number): number {
    this.state = "queued";
    this.touchedAtMs = nowMs;
    this.gen += 1;
    return this.gen;
  }

  /** Generation to add (again) so that a wake-up lost between store and queue is healed. */
  lostWake(): number | undefined {
    return this.state === "queued" ? this.gen : undefined;
  }

  enqueue(message: InboundMessage): number {
    this.lastSeq += 1;
    this.inbox.push({ seq: this.lastSeq, message });
    if (!this.people.has(message.sender.id)) this.people.set(message.sender.id, message.chatType);
    return this.lastSeq;
  }

  isHeldBy(epoch: string): boolean {
    return this.epoch > 0 && String(this.epoch) === epoch;
  }

  isRunningTurn(turnId: string): boolean {
    const head = this.inbox[0];
    return this.state !== "idle" && head !== undefined && turnIdOf(this.key, head.seq) === turnId;
  }

  isMoving(): boolean {
    return this.state === "queued" || this.state === "running";
  }

  claim(gen: number, owner: string): Claim | undefined {
    if (this.state === "idle") return undefined;
    if (this.state !== "queued" && this.runningGen !== gen) return undefined;
    const head = this.inbox[0];
    this.#countTry(head?.seq ?? 0);
    this.state = "running";
    this.runningGen = gen;
    this.owner = owner;
    this.epoch += 1;
    return {
      session: this.key,
      gen,
      epoch: String(this.epoch),
      ...(this.turn && { turn: this.turn }),
      ...(head && { head }),
      tries: this.tries,
      control: this.control,
      history: this.#context(),
      settings: this.settings,
    };
  }

  #context(): Message[] {
    const since = this.history.slice(this.#contextStart);
    return this.#contextSummary ? [this.#contextSummary, ...since] : since;
  }

  /** How many messages of the history belong to the context. */
  get inContext(): number {
    return this.history.length - this.#contextStart;
  }

  /** Counts what `history` holds by now: add the write's own messages first. */
  setContext({ keep, summary }: NonNullable<FencedWrite["context"]>): void {
    this.#contextStart = Math.max(0, this.history.length - keep);
    this.#contextSummary = summary;
  }

  /** Only messages before the context. */
  dropOldest(count: number): void {
    this.history.splice(0, count);
    this.historyBase += count;
    this.#contextStart -= count;
  }

  dropSummary(): void {
    this.#contextSummary = undefined;
  }

  isInUse(): boolean {
    return this.state !== "idle" || this.inbox.length > 0 || this.control.length > 0;
  }

  #countTry(seq: number): void {
    if (this.headSeq !== seq) this.startHead(seq);
    else if (this.state === "running") this.tries += 1;
  }

  startHead(seq: number): void {
    this.headSeq = seq;
    this.tries = 0;
  }

  save(request: Pick<SaveRequest, "turn" | "absorbed" | "mode">): SaveResult {
    this.turn = request.turn;
    for (const seq of request.absorbed ?? []) this.#takeIn(seq);
    if (request.mode === "handoff") {
      this.state = "queued";
      return { state: "suspended" };
    }
    if (request.mode === "suspend" && this.control.length === 0) {
      this.state = "suspended";
      return { state: "suspended" };
    }
    return { state: "running", control: this.control };
  }

  #takeIn(joining: number): void {
    const place = this.inbox.findIndex(({ seq }) => seq === joining);
    if (place < 1) return;
    this.inbox.splice(place, 1);
    this.#joined.add(joining);
  }

  /** Whether a cancel of that message is for the running turn. */
  isAnswering(seq: number): boolean {
    return this.inbox[0]?.seq === seq || this.#joined.has(seq);
  }

  /** Undefined when it was opened before. */
  openCall(call: OpenCall): LedgerEntry | undefined {
    if (this.ledger.has(call.callId)) return undefined;
    const entry: LedgerEntry = { ...call, state: "open" };
    this.ledger.set(call.callId, entry);
    return entry;
  }

  /** Removes the finished head and all that belonged to its turn. */
  finishHead(): void {
    this.inbox.shift();
    this.turn = undefined;
    this.#joined.clear();
    this.control = [];
    this.ledger.clear();
  }

  /** What a sweeper sees of it. */
  asStale(): StaleSession {
    const { key, state, gen, runningGen, owner } = this;
    return { session: key, state, gen: state === "running" ? runningGen : gen, owner };
  }

  /** Its calls that are past their deadline. */
  dueCalls(nowMs: number): { session: SessionKey; callId: string; deadlineMs: number }[] {
    return [...this.ledger.values()]
      .filter(({ state, deadlineMs }) => state !== "done" && deadlineMs <= nowMs)
      .map(({ callId, deadlineMs }) => ({ session: this.key, callId, deadlineMs }));
  }

  /** Whether somebody has begun to work on the message at the head. */
  hasBegun(): boolean {
    const head = this.inbox[0];
    if (head === undefined || this.state === "idle") return false;
    return this.state !== "queued" || this.turn !== undefined || (this.headSeq === head.seq && this.tries > 0);
  }

  /** Ends the turn that has begun and forgets the context; whoever held the session is fenced. */
  reset(nowMs: number): { ended: QueuedMessage | undefined; wakeGen: number | undefined } {
    const ended = this.hasBegun() ? this.inbox[0] : undefined;
    this.epoch += 1;
    this.setContext({ keep: 0 });
    this.startHead(0);
    if (ended !== undefined) this.finishHead();
    this.turn = undefined;
    this.control = [];
    this.state = "idle";
    return { ended, wakeGen: this.inbox.length > 0 ? this.wake(nowMs) : undefined };
  }

  summary(unsent: number): SessionSummary {
    const head = this.inbox[0];
    return structuredClone({
      state: this.state,
      gen: this.gen,
      epoch: String(this.epoch),
      waiting: this.inbox.length,
      messages: this.history.length,
      inContext: this.inContext,
      unsent,
      ...(head && { head }),
      ...(this.turn && { turn: this.turn }),
      settings: this.settings,
    });
  }

  /** A wake-up in place of the one that died; a worker that died with its job counts as a try. */
  heal(deadGen: number, nowMs: number): number | undefined {
    if (this.state === "queued") {
      this.touchedAtMs = nowMs;
      return this.gen;
    }
    if (this.state === "running") {
      if (this.runningGen !== deadGen) return undefined;
      this.tries += 1;
      return this.wake(nowMs);
    }
    const hasWork = this.control.length > 0 || (this.state === "idle" && this.inbox.length > 0);
    return hasWork ? this.wake(nowMs) : undefined;
  }
}
