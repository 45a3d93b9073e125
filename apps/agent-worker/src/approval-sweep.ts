import { sharedNow } from "@larkline/protocol";
import type { TurnQueue } from "@larkline/queue";
import type { ApprovalStore } from "@larkline/store";
import { eachOf } from "./each-of.ts";
import type { WorkCards } from "./turn-approvals.ts";

const batch = 200;
/** Approvals whose cards are worked on at a time. */
const cardsAtOnce = 10;

export interface ExpirySweepDeps {
  approvals: Pick<ApprovalStore, "dueExpiries" | "settle">;
  turns: Pick<TurnQueue, "wake">;
  onHealed: (what: "expiry", count: number) => void;
}

/** Ends approvals that nobody has decided in time; whoever waits for one hears of it at once. */
export async function sweepExpiries({ approvals, turns, onHealed }: ExpirySweepDeps): Promise<void> {
  await eachOf(await approvals.dueExpiries(sharedNow(), batch), async ({ session, approvalId }) => {
    const settled = await approvals.settle(session, approvalId, "expired");
    if (settled.result !== "settled" && settled.result !== "closed") return;
    if (settled.wakeGen !== undefined) await turns.wake(session, settled.wakeGen);
    if (settled.result === "settled") onHealed("expiry", 1);
  });
}

export interface ApprovalCardSweepDeps {
  approvals: Pick<ApprovalStore, "dueCards">;
  workCards: WorkCards;
  /** Breaks the sweep off; what it did not get to is found again. */
  signal: AbortSignal;
}

/** Works on cards that do not show the state of their approval: unsent ones, stale copies, those of workers that died. */
export async function sweepApprovalCards(deps: ApprovalCardSweepDeps): Promise<void> {
  const { approvals, workCards, signal } = deps;
  const due = await approvals.dueCards(sharedNow(), batch);
  const work = async (): Promise<void> => {
    for (let next = due.shift(); next !== undefined && !signal.aborted; next = due.shift()) {
      await workCards(next.session, next.approvalId);
    }
  };
  await Promise.all(Array.from({ length: cardsAtOnce }, work));
}
