import type { ControlEntry, SessionKey, TurnState } from "@larkline/protocol";
import type { DeliverResult } from "@larkline/store";
import type { Services } from "./services.ts";

/**
 * How a hold ended. `answered`: the turn goes on. Otherwise it asks the gate and is suspended, unless something is unread
 * there: `late`, the time is over; `crowded`, no slot is free; `missed`, others have added entries, too; `stopped`, the
 * turn was cancelled, fenced, or its process stops; `dropped`, the calls could not be handed out, or people are asked.
 */
export type HoldEnd = "answered" | "late" | "crowded" | "missed" | "stopped" | "dropped";

type HeldTurn = Pick<TurnState, "calls" | "message">;

/** Whether a slot may be kept for the calls of a turn: people take longer than any hold, and so do runners that are away. */
export function mayHold({ calls }: HeldTurn): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return open.length > 0 && open.every(({ state, runnerIsAway }) => state === "running" && runnerIsAway !== true);
}

interface TurnHoldsOptions {
  /** How long a turn keeps its slot while its calls run, ms; 0: not at all. */
  holdMs: number;
  /** Jobs that this process runs at once. */
  slots: number;
  onEnd: (end: HoldEnd) => void;
}

/**
 * Turns that keep claim and slot for a moment while their calls run, since most calls are quick and a suspended turn needs
 * another job and another claim. A hold is nothing but patience: whatever it misses, the gate has, and a turn whose hold
 * is over asks it. So outcomes only count here while the time is not over, and without a gap before them.
 */
export class TurnHolds {
  readonly #options: TurnHoldsOptions;
  /** The oldest first. */
  readonly #open = new Map<SessionKey, Hold>();
  #jobs = 0;
  /** A job has to be alone in this process: until the others have ended, nothing is held. */
  #mustEmpty = false;

  constructor(options: TurnHoldsOptions) {
    this.#options = options;
  }

  /** A job takes a slot. Where that was the last one, the oldest hold gives way to jobs that may wait. */
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
    const { holdMs, onEnd } = this.#options;
    const { session } = turn.message;
    if (holdMs === 0 || this.#mustEmpty || this.#isCrowded() || signal.aborted || !mayHold(turn)) return undefined;
    const hold = new Hold(holdMs, signal, (end) => {
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

/** The patience of one turn with the calls of one step. */
export class Hold {
  readonly #untilMs: number;
  readonly #timer: NodeJS.Timeout;
  readonly #signal: AbortSignal;
  readonly #onEnd: (end: HoldEnd) => void;
  #entries: ControlEntry[] = [];
  /** Entries of the session that are not acknowledged, as far as they came here. */
  #known = 0;
  #waiting: (() => void) | undefined;
  #isOver = false;

  constructor(holdMs: number, signal: AbortSignal, onEnd: (end: HoldEnd) => void) {
    this.#untilMs = performance.now() + holdMs;
    this.#timer = setTimeout(() => this.end("late"), holdMs);
    this.#signal = signal;
    this.#onEnd = onEnd;
    signal.addEventListener("abort", this.#stop, { once: true });
  }

  /** The entries that have come, in order, once there are any; undefined when the hold is over. */
  async next(): Promise<ControlEntry[] | undefined> {
    if (!this.#isOver && this.#entries.length === 0) {
      await new Promise<void>((resolve) => (this.#waiting = resolve));
    }
    // A process that stood still has perhaps been replaced: what came late is read from the gate, which knows.
    if (performance.now() >= this.#untilMs) this.end("late");
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
    clearTimeout(this.#timer);
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

/** Something was added to a session: its turn is told at once where it waits in its slot, or else by a wake-up. */
export async function wakeAfter(
  { turns, turnHolds }: Services,
  session: SessionKey,
  delivered: DeliverResult,
): Promise<void> {
  turnHolds.delivered(session, delivered);
  const { wakeGen } = delivered;
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
}
