import {
  turnIdOf,
  type ControlEntry,
  type InboundMessage,
  type Message,
  type QueuedMessage,
  type SessionKey,
  type TurnState,
} from "@larkline/protocol";
import {
  maxExcuses,
  type Claim,
  type ExcuseResult,
  type FencedWrite,
  type OpenCall,
  type SaveRequest,
  type SaveResult,
  type SessionSettings,
  type SessionSummary,
  type StaleSession,
} from "./session-store.ts";

/** One attempt of a call. */
export interface LedgerEntry extends OpenCall {
  state: "open" | "started" | "done";
}

/** A turn that waits for people while those of others run. */
interface SetAside {
  head: QueuedMessage;
  turn: TurnState | undefined;
  joined: Set<number>;
  tries: number;
  deaths: { together: number; alone: number };
  /** What has come for it since. */
  control: ControlEntry[];
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
  /** The newest message that came while others were before it. */
  lastBehind = 0;
  /** The message `tries` belongs to. */
  headSeq = 0;
  tries = 0;
  deaths = { together: 0, alone: 0 };
  owner = "";
  /** No other turn runs beside the claimed one. */
  isAlone = false;
  /** The worker that lost the session, until it is known whether it died. */
  lostBy: string | undefined;
  /** The run that was counted last. */
  #counted: { epoch: number; seq: number; hasDied: boolean; isAlone: boolean } | undefined;
  /** How many runs of a message were excused. */
  #excused = { seq: 0, times: 0 };
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
  #joined = new Set<number>();
  /** The person whose turn is at the head and waits for people only. */
  waits: string | undefined;
  /** Oldest first. */
  setAside: SetAside[] = [];
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

  isAtHead(turnId: string): boolean {
    const head = this.inbox[0];
    return this.state !== "idle" && head !== undefined && turnIdOf(this.key, head.seq) === turnId;
  }

  isRunningTurn(turnId: string): boolean {
    return this.isAtHead(turnId) || this.asideOf(turnId) !== undefined;
  }

  /** The turn set aside that a turn's id, or that of a message that has joined one, stands for. */
  asideOf(turnId: string | undefined): SetAside | undefined {
    const seq = Number(turnId?.slice(turnId.lastIndexOf("-") + 1));
    return this.setAside.find(({ head, joined }) => head.seq === seq || joined.has(seq));
  }

  /** Whether the person's message comes before the turn at the head, which waits for people. */
  passesHead({ chatType, sender }: InboundMessage): boolean {
    return chatType === "group" && this.waits !== undefined && this.waits !== sender.id && !this.#isBlocked(sender.id);
  }

  /** The message of this person's that is being answered, if their turn is set aside. */
  asideOfPerson(person: string): QueuedMessage | undefined {
    return this.setAside.find(({ head }) => head.message.sender.id === person)?.head;
  }

  #isBlocked(person: string): boolean {
    return this.asideOfPerson(person) !== undefined;
  }

  #firstFree(): QueuedMessage | undefined {
    const rest = this.waits === undefined ? this.inbox : this.inbox.slice(1);
    return rest.find(
      ({ message: { chatType, sender } }) =>
        chatType === "group" && sender.id !== this.waits && !this.#isBlocked(sender.id),
    );
  }

  #bringForward(free: QueuedMessage): void {
    this.inbox = [free, ...this.inbox.filter((each) => each !== free)];
  }

  #asideWithNews(): SetAside | undefined {
    return this.setAside.find(({ control }) => control.length > 0);
  }

  /** Whether others have something to do while the turn at the head waits. */
  get hasOthers(): boolean {
    return this.#asideWithNews() !== undefined || this.#firstFree() !== undefined;
  }

  #putAside(): void {
    const head = this.inbox.shift();
    if (head === undefined) return;
    const { turn, tries, deaths } = this;
    this.setAside.push({ head, turn, joined: this.#joined, tries, deaths, control: [] });
    this.setAside.sort((a, b) => a.head.seq - b.head.seq);
    this.#forgetTurn();
  }

  #forgetTurn(): void {
    this.turn = undefined;
    this.#joined = new Set();
    this.waits = undefined;
    this.startHead(0);
  }

  #bringBack(aside: SetAside): void {
    this.setAside = this.setAside.filter((each) => each !== aside);
    this.#forgetTurn();
    this.inbox.unshift(aside.head);
    this.control.push(...aside.control);
    const { turn, tries, deaths, joined } = aside;
    Object.assign(this, { turn, headSeq: aside.head.seq, tries, deaths });
    this.#joined = joined;
  }

  /** No other turn has anything to do: the oldest one waits at the head again. */
  #waitAtHead(): void {
    const [oldest] = this.setAside;
    if (oldest !== undefined) this.#bringBack(oldest);
    this.waits ??= this.inbox[0]?.message.sender.id;
    this.state = "suspended";
  }

  /** Whether the message at the head is to be run, whatever else there is. */
  #keepsHead(): boolean {
    const hasNews = this.control.length > 0;
    if (this.waits !== undefined) return hasNews;
    // With news: a cancel of a message that has not begun.
    return this.setAside.length === 0 || this.hasBegun() || (hasNews && this.#firstFree() === this.inbox[0]);
  }

  /** Puts at the head what is to be run now; false when everything that there is waits for people. */
  choose(): boolean {
    if (this.#keepsHead()) return true;
    const free = this.#firstFree();
    const back = this.#asideWithNews();
    if (back === undefined && free === undefined) {
      if (this.waits === undefined) this.#waitAtHead();
      this.state = "suspended";
      return false;
    }
    if (this.waits !== undefined) this.#putAside();
    if (back !== undefined) this.#bringBack(back);
    else if (free !== undefined) this.#bringForward(free);
    return true;
  }

  /** After a turn has ended: what comes next. */
  afterEnd(): "idle" | "next" | "requeue" {
    if (this.setAside.length > 0) {
      const free = this.#firstFree();
      if (this.#asideWithNews() !== undefined) return "requeue";
      if (free === undefined) {
        this.#waitAtHead();
        return "idle";
      }
      this.#bringForward(free);
    }
    if (this.inbox.length > 0) return "next";
    this.state = "idle";
    return "idle";
  }

  isMoving(): boolean {
    return this.state === "queued" || this.state === "running";
  }

  /** Whether there is something to claim for this wake-up. */
  isFor(gen: number): boolean {
    return this.state === "queued" || (this.state !== "idle" && this.runningGen === gen);
  }

  /** The same, with the turn that is to be run at the head. */
  hasWorkFor(gen: number): boolean {
    return this.isFor(gen) && (this.state !== "queued" || this.choose());
  }

  /** The worker whose end is to be judged before the next claim. */
  get judged(): string | undefined {
    if (this.headSeq !== (this.inbox[0]?.seq ?? 0)) return undefined;
    return this.state === "running" ? this.owner : this.lostBy;
  }

  /** Counts the end of a run that did not end the turn. From then on the session waits for a claim. */
  countLost(hasDied: boolean): void {
    this.#counted = { epoch: this.epoch, seq: this.headSeq, hasDied, isAlone: this.isAlone };
    this.tries += 1;
    if (hasDied) this.deaths[this.isAlone ? "alone" : "together"] += 1;
    this.lostBy = undefined;
    this.state = "queued";
  }

  /** See {@link SessionStore.excuse}. */
  excuse(epoch: string): ExcuseResult {
    const { headSeq: seq } = this;
    const isHeld = this.isHeldBy(epoch);
    const counted = this.#counted;
    const isCounted = counted !== undefined && String(counted.epoch) === epoch && counted.seq === seq;
    const isLost = isHeld && (this.state === "running" || (this.state === "queued" && this.lostBy !== undefined));
    if (isCounted || isLost) {
      const times = this.#excused.seq === seq ? this.#excused.times : 0;
      if (times >= maxExcuses) return { excused: false };
      this.#excused = { seq, times: times + 1 };
    }
    if (isCounted) this.#takeBack(counted);
    if (isLost) {
      this.state = "queued";
      this.lostBy = undefined;
    }
    return isHeld && this.state === "queued" ? { excused: true, wakeGen: this.gen } : { excused: true };
  }

  #takeBack({ hasDied, isAlone }: { hasDied: boolean; isAlone: boolean }): void {
    this.#counted = undefined;
    this.tries -= 1;
    if (hasDied) this.deaths[isAlone ? "alone" : "together"] -= 1;
  }

  /** What a process must have to go on: of the checkpoint, the message and the unread entries. */
  needs(): string[] {
    const entries = [this.turn, this.inbox[0]?.message, ...this.control];
    return [...new Set(entries.flatMap((entry) => entry?.needs ?? []))];
  }

  claim(gen: number, owner: string, alone: boolean): Claim {
    const head = this.inbox[0];
    if (this.headSeq !== (head?.seq ?? 0)) this.startHead(head?.seq ?? 0);
    this.state = "running";
    this.waits = undefined;
    this.isAlone = alone;
    this.runningGen = gen;
    this.owner = owner;
    this.epoch += 1;
    return {
      session: this.key,
      gen,
      epoch: String(this.epoch),
      ...(this.turn && { turn: this.turn }),
      ...(head && { head }),
      mayHaveWaited: head !== undefined && head.seq <= this.lastBehind,
      tries: this.tries,
      deaths: this.deaths,
      othersWait: this.setAside.length > 0,
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

  startHead(seq: number): void {
    this.headSeq = seq;
    this.tries = 0;
    this.deaths = { together: 0, alone: 0 };
    this.lostBy = undefined;
  }

  save(request: Pick<SaveRequest, "turn" | "absorbed" | "mode" | "wakeAtMs" | "waits">, nowMs: number): SaveResult {
    this.turn = request.turn;
    for (const seq of request.absorbed ?? []) this.#takeIn(seq);
    if (request.mode === "handoff") {
      this.handOff();
      return { state: "suspended" };
    }
    if (request.mode === "suspend" && this.control.length === 0) {
      this.waits = request.waits;
      if (this.waits !== undefined && this.hasOthers) return { state: "suspended", wakeGen: this.wake(nowMs) };
      this.state = "suspended";
      this.wakeAtMs = request.wakeAtMs ?? this.wakeAtMs;
      return { state: "suspended" };
    }
    return { state: "running", control: this.control };
  }

  handOff(): void {
    this.state = "queued";
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

  /** When it asked to be woken. */
  wakeAtMs: number | undefined;

  /** Its calls that are past their deadline, and itself when its time has come. */
  dueCalls(nowMs: number): { session: SessionKey; callId: string; deadlineMs: number }[] {
    const { wakeAtMs = Number.POSITIVE_INFINITY } = this;
    const isDue = wakeAtMs <= nowMs;
    return [...this.ledger.values()]
      .filter(({ state, deadlineMs }) => state !== "done" && deadlineMs <= nowMs)
      .map(({ callId, deadlineMs }) => ({ session: this.key, callId, deadlineMs }))
      .concat(isDue ? [{ session: this.key, callId: "", deadlineMs: wakeAtMs }] : []);
  }

  /** Whether somebody has begun to work on the message at the head. */
  hasBegun(): boolean {
    const head = this.inbox[0];
    if (head === undefined || this.state === "idle") return false;
    return (
      this.state !== "queued" ||
      this.turn !== undefined ||
      (this.headSeq === head.seq && (this.tries > 0 || this.lostBy !== undefined))
    );
  }

  /** Ends the turn that has begun and forgets the context; whoever held the session is fenced. */
  reset(nowMs: number): { ended: QueuedMessage | undefined; wakeGen: number | undefined } {
    const ended = this.hasBegun() ? this.inbox[0] : undefined;
    this.setAside = [];
    this.waits = undefined;
    this.epoch += 1;
    this.setContext({ keep: 0 });
    this.startHead(0);
    if (ended !== undefined) this.finishHead();
    this.turn = undefined;
    this.settings = {};
    this.control = [];
    this.state = "idle";
    return { ended, wakeGen: this.inbox.length > 0 ? this.wake(nowMs) : undefined };
  }

  summary(unsent: number, eventSeq: number): SessionSummary {
    const head = this.inbox[0];
    return structuredClone({
      state: this.state,
      gen: this.gen,
      epoch: String(this.epoch),
      waiting: this.inbox.length + this.setAside.length,
      messages: this.history.length,
      inContext: this.inContext,
      unsent,
      eventSeq,
      ...(head && { head }),
      ...(this.turn && { turn: this.turn }),
      setAside: this.setAside.map(({ head: waiting, turn }) => ({ head: waiting, ...(turn && { turn }) })),
      settings: this.settings,
    });
  }

  /** A wake-up in place of the one that died. */
  heal(deadGen: number, nowMs: number): number | undefined {
    if (this.state === "queued") {
      this.touchedAtMs = nowMs;
      return this.gen;
    }
    if (this.state === "running") {
      if (this.runningGen !== deadGen) return undefined;
      this.lostBy = this.owner;
      return this.wake(nowMs);
    }
    const hasWork = this.control.length > 0 || (this.state === "idle" && this.inbox.length > 0);
    return hasWork ? this.wake(nowMs) : undefined;
  }
}
