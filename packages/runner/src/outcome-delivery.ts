import { setTimeout as delay } from "node:timers/promises";
import type { ToolJob, ToolOutcome } from "@larkline/protocol";
import type { TurnQueue } from "@larkline/queue";
import type { SessionStore } from "@larkline/session";

export interface OutcomeDeliveryDeps {
  store: Pick<SessionStore, "deliver">;
  turns: Pick<TurnQueue, "wake">;
  onRetry: (error: unknown) => void;
  /** Waits between tries, in ms. */
  backoffMs?: readonly number[];
}

/**
 * Answers a call and wakes its session; only then the job is done. Of a call that is answered
 * already the outcome is dropped, but a lost wake-up is added again. A result that cannot be stored
 * would turn a `once` call into an unknown one, so it is tried for a while before this rejects.
 */
export type DeliverOutcome = (job: Pick<ToolJob, "session" | "callId">, outcome: ToolOutcome) => Promise<void>;

const defaultBackoffMs = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000] as const;

export function createOutcomeDelivery(deps: OutcomeDeliveryDeps): DeliverOutcome {
  const { store, turns, onRetry, backoffMs = defaultBackoffMs } = deps;
  return async ({ session, callId }, outcome) => {
    for (const waitMs of [...backoffMs, undefined]) {
      try {
        const { wakeGen } = await store.deliver(session, callId, outcome);
        if (wakeGen !== undefined) await turns.wake(session, wakeGen);
        return;
      } catch (error) {
        if (waitMs === undefined) throw error;
        onRetry(error);
        await delay(waitMs);
      }
    }
  };
}
