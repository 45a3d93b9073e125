import type { AbortReason } from "@larkline/agent/drive";
import type { SessionKey, ControlEntry } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import type { DeliverResult } from "@larkline/store";

interface Running {
  /** The ids of the turn, and of messages that have joined it. */
  turnIds: string[];
  controller: AbortController;
}

/** How long a cancel is kept for a turn that has not started yet. */
const earlyMs = 10_000;
const maxEarly = 10_000;

/** The turns this process runs right now, so that a cancel reaches the model call at once. */
export class RunningTurns {
  readonly #clock: Clock;
  readonly #bySession = new Map<SessionKey, Running>();
  /** Cancels of turns that do not run here, or not yet, by turn, with the time when they came. */
  readonly #early = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(session: SessionKey, turnId: string): AbortController {
    const controller = new AbortController();
    const running = { turnIds: [], controller };
    this.#bySession.set(session, running);
    this.#name(running, turnId);
    return controller;
  }

  /** A message has become part of a turn: its cancel is one of the turn. */
  join(session: SessionKey, controller: AbortController, turnId: string): void {
    const running = this.#bySession.get(session);
    if (running?.controller === controller) this.#name(running, turnId);
  }

  #name({ turnIds, controller }: Running, turnId: string): void {
    turnIds.push(turnId);
    const cancelledAtMs = this.#early.get(turnId);
    this.#early.delete(turnId);
    if (cancelledAtMs !== undefined && this.#clock.monotonic() - cancelledAtMs < earlyMs) {
      controller.abort("cancel" satisfies AbortReason);
    }
  }

  /** The ids of the turn that runs in a session, and of messages that have joined it. */
  idsOf(session: SessionKey): readonly string[] {
    return this.#bySession.get(session)?.turnIds ?? [];
  }

  /** The ids of all turns that run. */
  names(): string[] {
    return [...this.#bySession.values()].flatMap(({ turnIds }) => turnIds);
  }

  remove(session: SessionKey, controller: AbortController): void {
    if (this.#bySession.get(session)?.controller === controller) this.#bySession.delete(session);
  }

  cancel(session: SessionKey, turnId: string | undefined): void {
    const running = this.#bySession.get(session);
    if (running !== undefined && (turnId === undefined || running.turnIds.includes(turnId))) {
      running.controller.abort("cancel" satisfies AbortReason);
    } else if (turnId !== undefined) this.#remember(turnId);
  }

  #remember(turnId: string): void {
    const nowMs = this.#clock.monotonic();
    for (const [oldest, atMs] of this.#early) {
      if (nowMs - atMs < earlyMs && this.#early.size < maxEarly) break;
      this.#early.delete(oldest);
    }
    this.#early.set(turnId, nowMs);
  }

  get size(): number {
    return this.#bySession.size;
  }
}

/**
 * How a hold ended. `answered`: the turn continues. Otherwise it asks the store and is suspended, unless entries are
 * unread there: `late`, the time is over; `crowded`, no slot is free; `missed`, others have added entries, too;
 * `stopped`, the turn was cancelled, fenced, or its process stops; `dropped`, the calls could not be handed out, or
 * people are asked.
 */
export type HoldEnd = "answered" | "late" | "crowded" | "missed" | "stopped" | "dropped";

type HeldTurn = Pick<TurnState, "calls" | "message">;

/** Whether a slot may be kept for the calls of a turn: people take longer than any hold, and so do runners that are away. */
export function mayHold({ calls }: HeldTurn): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return open.length > 0 && open.every(isQuick);
}

function isQuick({ state, runnerIsAway, helper }: CallState): boolean {
  return state === "running" && runnerIsAway !== true && helper === undefined;
}

interface TurnHoldsOptions {
  clock: Clock;
  /** How long a turn keeps its slot while its calls run, ms; 0: not at all. */
  holdMs: number;
  /** Jobs that this process runs at once. */
  slots: number;
  onEnd: (end: HoldEnd) => void;
}

/**
 * Turns that keep claim and slot for a moment while their calls run, because most calls are quick and a suspended turn
 * needs another job and another claim. A hold loses nothing: the store has every entry, and a turn asks it when its
 * hold is over. So an outcome counts here only in time, and only without a gap before it.
 */
export class TurnHolds {
  readonly #options: TurnHoldsOptions;
  /** The oldest first. */
  readonly #open = new Map<SessionKey, Hold>();
  #jobs = 0;
  /** A job has to run alone in this process: no turn keeps its slot until the others have ended. */
  #mustEmpty = false;

  constructor(options: TurnHoldsOptions) {
    this.#options = options;
  }

  /** A job takes a slot. If it was the last free one, the oldest hold ends, so that waiting jobs get a slot. */
  jobBegins(): void {
    this.#jobs += 1;
    if (this.#isCrowded()) this.#open.values().next().value?.end("crowded");
  }

  jobEnds(): void {
    this.#jobs -= 1;
    if (this.#jobs === 0) this.#mustEmpty = false;
  }

  /** A job has to be alone, now or when the others have ended: none of them waits here until then. */
  makeRoom(): void {
    this.#mustEmpty = true;
    for (const hold of this.#open.values()) hold.end("crowded");
  }

  /** Undefined when the turn cannot keep its slot. Open it before its calls are handed out; `signal` ends it. */
  open(turn: HeldTurn, signal: AbortSignal): Hold | undefined {
    const { clock, holdMs, onEnd } = this.#options;
    const { session } = turn.message;
    if (holdMs === 0 || this.#mustEmpty || this.#isCrowded() || signal.aborted || !mayHold(turn)) {
      return undefined;
    }
    const hold = new Hold(clock, holdMs, signal, (end) => {
      if (this.#open.get(session) === hold) this.#open.delete(session);
      onEnd(end);
    });
    this.#open.set(session, hold);
    return hold;
  }

  /** Something was added to a session: its turn may wait for it here. */
  delivered(session: SessionKey, { unread }: DeliverResult): void {
    if (unread !== undefined) this.#open.get(session)?.add(unread);
  }

  #isCrowded(): boolean {
    return this.#jobs >= this.#options.slots;
  }
}

/** One turn that waits in its slot for the calls of one step. */
export class Hold {
  readonly #clock: Clock;
  readonly #untilMs: number;
  readonly #cancelTimer: () => void;
  readonly #signal: AbortSignal;
  readonly #onEnd: (end: HoldEnd) => void;
  #entries: ControlEntry[] = [];
  /** Entries of the session that are not acknowledged, as far as they came here. */
  #known = 0;
  #waiting: (() => void) | undefined;
  #isOver = false;

  constructor(clock: Clock, holdMs: number, signal: AbortSignal, onEnd: (end: HoldEnd) => void) {
    this.#clock = clock;
    this.#untilMs = clock.monotonic() + holdMs;
    this.#cancelTimer = clock.after(holdMs, () => this.end("late"));
    this.#signal = signal;
    this.#onEnd = onEnd;
    signal.addEventListener("abort", this.#stop, { once: true });
  }

  /** The entries that have come, in order, once there are any; undefined when the hold is over. */
  async next(): Promise<ControlEntry[] | undefined> {
    if (!this.#isOver && this.#entries.length === 0) {
      await new Promise<void>((resolve) => (this.#waiting = resolve));
    }
    // A process that was frozen may have been replaced, so late entries are read from the store.
    if (this.#clock.monotonic() >= this.#untilMs) this.end("late");
    if (this.#isOver) return undefined;
    return this.#entries.splice(0);
  }

  add({ entry, count }: NonNullable<DeliverResult["unread"]>): void {
    this.#known += 1;
    if (count !== this.#known) return this.end("missed");
    this.#entries.push(entry);
    this.#wake();
  }

  /** Idempotent: the first reason counts. */
  end(end: HoldEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#signal.removeEventListener("abort", this.#stop);
    this.#onEnd(end);
    this.#wake();
  }

  readonly #stop = (): void => this.end("stopped");

  #wake(): void {
    this.#waiting?.();
    this.#waiting = undefined;
  }
}
