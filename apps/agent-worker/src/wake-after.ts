import type { TurnQueue } from "@larkline/queue";
import type { DeliverResult } from "@larkline/store";
import type { TurnHolds } from "./turn-holds.ts";

/** A turn hears of a delivery: by the wake-up that it asks for, or at once where it waits in its slot. */
export async function wakeAfter(
  { turns, holds }: { turns: Pick<TurnQueue, "wake">; holds?: Pick<TurnHolds, "delivered"> },
  session: string,
  delivered: DeliverResult,
): Promise<void> {
  holds?.delivered(session, delivered);
  const { wakeGen } = delivered;
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
}
