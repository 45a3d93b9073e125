import type { TurnQueue } from "@larkline/queue";
import type { DeliverResult } from "@larkline/store";

/** Adds the wake-up that a delivery asks for. */
export async function wakeAfter(
  turns: Pick<TurnQueue, "wake">,
  session: string,
  { wakeGen }: DeliverResult,
): Promise<void> {
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
}
