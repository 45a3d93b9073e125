import { setTimeout as delay } from "node:timers/promises";
import { attemptIdOf, type ToolJob, type ToolOutcome } from "@larkline/protocol";
import type { TurnQueue } from "@larkline/queue";
import type { DeliverDetails, SessionStore } from "@larkline/session";

export interface OutcomeDeliveryDeps {
  store: Pick<SessionStore, "deliver">;
  turns: Pick<TurnQueue, "wake">;
  /** Name of this runner, for the audit log. */
  runner: string;
  onRetry: (error: unknown) => void;
  /** Waits between tries, in ms; the last one again and again. */
  backoffMs?: readonly number[];
}

/**
 * Answers a call and wakes its session; only then the job is done. Of a call that is answered
 * already the outcome is dropped, but a lost wake-up is added again. A result that cannot be stored
 * would turn a `once` call into an unknown one, so it is tried up to the call's deadline, and for some
 * seconds in any case, before this rejects.
 */
export type DeliverOutcome = (
  job: Pick<ToolJob, "session" | "callId" | "attempt" | "deadlineMs">,
  outcome: ToolOutcome,
  details?: Omit<DeliverDetails, "runner">,
) => Promise<void>;

const defaultBackoffMs = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000] as const;

/** The waits between tries, for as long as another try makes sense. */
function* waits(backoffMs: readonly number[], deadlineMs: number): Generator<number> {
  yield* backoffMs;
  const last = backoffMs.at(-1) ?? 0;
  while (Date.now() + last < deadlineMs) yield last;
}

export function createOutcomeDelivery(deps: OutcomeDeliveryDeps): DeliverOutcome {
  const { store, turns, runner, onRetry, backoffMs = defaultBackoffMs } = deps;
  return async ({ session, callId, attempt, deadlineMs }, outcome, given) => {
    const deliver = async (): Promise<void> => {
      const details = { ...given, runner };
      const { wakeGen } = await store.deliver(session, attemptIdOf({ callId, attempt }), outcome, details);
      if (wakeGen !== undefined) await turns.wake(session, wakeGen);
    };
    for (const waitMs of waits(backoffMs, deadlineMs)) {
      try {
        return await deliver();
      } catch (error) {
        onRetry(error);
        await delay(waitMs);
      }
    }
    await deliver();
  };
}
