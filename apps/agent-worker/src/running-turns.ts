import type { AbortReason } from "@larkline/agent/drive";
import type { Clock, SessionKey } from "@larkline/protocol";

interface Running {
  /** Of the turn, and of messages that have joined it. */
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

  /** Of the turn that runs in a session, and of messages that have joined it. */
  idsOf(session: SessionKey): readonly string[] {
    return this.#bySession.get(session)?.turnIds ?? [];
  }

  /** Of all turns that run. */
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
