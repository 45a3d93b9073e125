import type { InboundMessage, SessionKey } from "@larkline/protocol";
import type { AppendResult, SessionStore } from "@larkline/store";
import type { Observation } from "@larkline/process/telemetry";
import { withDeadline } from "./deadline.ts";
import { tellAppended } from "./message-watch.ts";

/** Adds wake-up jobs. Waking a session that is awake already is harmless. */
export interface TurnWaker {
  wake(session: SessionKey, gen: number): Promise<void>;
}

/** Tells every worker that a turn is to stop. */
export interface CancelPublisher {
  publish(cancel: { session: SessionKey; turnId?: string }): Promise<void>;
}

export interface InboxDeps {
  store: Pick<SessionStore, "append" | "cancel">;
  turns: TurnWaker;
  cancels: CancelPublisher;
  observation: Observation;
  /** How long storing or waking may take. */
  deadlineMs: number;
}

/** The one way into a session: append, then wake; the caller acknowledges after that. */
export interface Inbox {
  /** Rejects when the message could not be stored, or not in time. */
  append(message: InboundMessage, options?: { maxWaiting?: number }): Promise<AppendResult>;
  /** Adds the wake-up that an append or a cancel asked for; rejects when it could not be added. */
  wake(session: SessionKey, wakeGen: number | undefined): Promise<void>;
  /** Stops a run wherever it is. */
  cancel(session: SessionKey, turnId: string, reason: string): Promise<void>;
}

export function createInbox({ store, turns, cancels, observation, deadlineMs }: InboxDeps): Inbox {
  const wake = async (session: SessionKey, wakeGen: number | undefined) => {
    if (wakeGen !== undefined) await withDeadline(turns.wake(session, wakeGen), deadlineMs);
  };
  return {
    append: async (message, options) => {
      const appended = await withDeadline(store.append(message, options), deadlineMs);
      if (appended.result === "accepted") tellAppended(observation, message, appended);
      return appended;
    },
    wake,
    async cancel(session, turnId, reason) {
      const { wakeGen } = await withDeadline(store.cancel(session, { turnId, reason }), deadlineMs);
      await wake(session, wakeGen);
      await withDeadline(cancels.publish({ session, turnId }), deadlineMs);
    },
  };
}
