import { endOrphan, type FeishuApi } from "@larkline/feishu";
import { turnIdOf, sharedNow } from "@larkline/protocol";
import type { CardLedger, CardReply, SessionStore } from "@larkline/store";

export interface CardSweepDeps {
  ledger: CardLedger;
  store: Pick<SessionStore, "summary">;
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  /** How long nobody may have written before somebody looks. */
  untouchedMs: number;
  /** Breaks the sweep off; what it did not end is found again. */
  signal: AbortSignal;
  onHealed: (what: "card", count: number) => void;
}

const batch = 50;

/** A card is somebody's as long as its turn is the one being answered, or messages of its session are unsent. */
async function isOrphan(store: CardSweepDeps["store"], { session, replyId }: CardReply): Promise<boolean> {
  const { state, head, setAside, unsent } = await store.summary(session);
  const open = [...(state === "idle" || head === undefined ? [] : [head]), ...setAside.map((turn) => turn.head)];
  const isRunning = open.some(({ seq }) => turnIdOf(session, seq) === replyId);
  return !isRunning && unsent === 0;
}

/**
 * Ends cards whose turn is gone without a trace (a failover lost its last writes): they would claim
 * to be generating for ever. Everything else that is found is left for another while.
 */
export async function sweepCards({ ledger, store, apis, untouchedMs, signal, onHealed }: CardSweepDeps): Promise<void> {
  for (const { session, replyId } of await ledger.untouched(sharedNow() - untouchedMs, batch)) {
    if (signal.aborted) return;
    await ledger.touch(session, replyId);
    const reply = await ledger.load(session, replyId);
    const api = reply === undefined ? undefined : apis.get(reply.app);
    if (reply === undefined || api === undefined || !(await isOrphan(store, reply))) continue;
    await endOrphan(api, reply, signal);
    await ledger.forget(session, replyId);
    onHealed("card", 1);
  }
}
