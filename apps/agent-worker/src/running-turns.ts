import type { SessionKey } from "@larkline/protocol";

/** Why a running turn's model call was broken off. */
export type AbortReason = "cancel" | "shutdown" | "fenced";

interface Running {
  turnId: string;
  controller: AbortController;
}

/** The turns this process runs right now, so that a cancel reaches the model call at once. */
export class RunningTurns {
  readonly #bySession = new Map<SessionKey, Running>();

  add(session: SessionKey, turnId: string): AbortController {
    const controller = new AbortController();
    this.#bySession.set(session, { turnId, controller });
    return controller;
  }

  remove(session: SessionKey, controller: AbortController): void {
    if (this.#bySession.get(session)?.controller === controller) this.#bySession.delete(session);
  }

  cancel(session: SessionKey, turnId: string | undefined): void {
    const running = this.#bySession.get(session);
    if (running === undefined || (turnId !== undefined && turnId !== running.turnId)) return;
    running.controller.abort("cancel" satisfies AbortReason);
  }

  get size(): number {
    return this.#bySession.size;
  }
}
