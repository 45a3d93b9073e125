import { turnIdOf, type CancelReason, type InboundMessage, type SessionKey } from "@larkline/protocol";
import type { LookupCache, SessionStore } from "@larkline/session";
import { withDeadline } from "./deadline.ts";
import type { Inbox } from "./inbox.ts";

export type StopResult =
  /** The run was told to stop, now or by an earlier delivery of the same order. `message`: what it answers. */
  | { result: "stopping"; message?: InboundMessage }
  /** Nothing runs, or not that turn any more. */
  | { result: "nothing" }
  /** It is another person's turn. */
  | { result: "not_allowed"; message: InboundMessage };

export interface StopRequest {
  session: SessionKey;
  /** Who asks; in a group only the person whose message is being answered may stop it. */
  by: string;
  /** Only this turn; otherwise whichever runs. */
  turnId?: string;
  /** Names the order where it may be delivered again: a repetition must not stop what started since. */
  orderId?: string;
  reason: CancelReason;
}

/** Stops what a session is doing, for those who may. */
export type TurnStopper = (request: StopRequest) => Promise<StopResult>;

export interface TurnStopperDeps {
  app: string;
  store: Pick<SessionStore, "summary">;
  inbox: Pick<Inbox, "cancel">;
  lookups: Pick<LookupCache, "get" | "set">;
  deadlineMs: number;
}

/** Longer than events are redelivered ("Event subscription overview": 7 hours). */
const rememberedMs = 24 * 3_600_000;

/** Whether one person may stop the run that answers this message. */
export function mayStop({ chatType, sender }: InboundMessage, by: string): boolean {
  return chatType === "p2p" || sender.id === by;
}

export function createTurnStopper({ app, store, inbox, lookups, deadlineMs }: TurnStopperDeps): TurnStopper {
  const aimedBefore = async (orderId: string | undefined): Promise<string | undefined> =>
    orderId === undefined ? undefined : await withDeadline(lookups.get(`stop:${app}:${orderId}`), deadlineMs);

  return async ({ session, by, turnId, orderId, reason }) => {
    const before = await aimedBefore(orderId);
    const { state, head } = await withDeadline(store.summary(session), deadlineMs);
    const running = state === "idle" || head === undefined ? undefined : turnIdOf(session, head.seq);
    if (before !== undefined && before !== running) return { result: "stopping" };
    if (running === undefined || head === undefined) return { result: "nothing" };
    if (turnId !== undefined && turnId !== running) return { result: "nothing" };
    const { message } = head;
    if (!mayStop(message, by)) return { result: "not_allowed", message };
    if (orderId !== undefined && before === undefined) {
      await withDeadline(lookups.set(`stop:${app}:${orderId}`, running, rememberedMs), deadlineMs);
    }
    await inbox.cancel(session, running, reason);
    return { result: "stopping", message };
  };
}
