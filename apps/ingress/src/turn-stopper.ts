import { turnIdOf, type CancelReason, type InboundMessage, type SessionKey } from "@larkline/protocol";
import type { LookupCache, SessionStore } from "@larkline/store";
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
  /** Who asks; only the person whose message is being answered may stop it. */
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

/** Whether one person may stop the run that answers this message; cards of direct chats can be forwarded, too. */
export function mayStop({ sender }: InboundMessage, by: string): boolean {
  return sender.id === by;
}

/** Stands for the run of an order that found none to stop. */
const noRun = "none";

export function createTurnStopper({ app, store, inbox, lookups, deadlineMs }: TurnStopperDeps): TurnStopper {
  const keyOf = (orderId: string): string => `stop:${app}:${orderId}`;

  /** Before anything is done: whoever gets the same order again aims at the same run. */
  const aim = async ({ orderId }: StopRequest, at: string): Promise<void> => {
    if (orderId !== undefined) await withDeadline(lookups.set(keyOf(orderId), at, rememberedMs), deadlineMs);
  };

  const decide = async (request: StopRequest, wanted: string | undefined): Promise<StopResult> => {
    const { session, by, reason } = request;
    const { state, head: first, setAside } = await withDeadline(store.summary(session), deadlineMs);
    const turns = [...(first === undefined ? [] : [first]), ...setAside.map((turn) => turn.head)];
    // Of several turns that wait it is one's own that one stops.
    const meant = turns.find(({ seq, message }) =>
      wanted === undefined ? mayStop(message, by) : turnIdOf(session, seq) === wanted,
    );
    const head = meant ?? first;
    const running = state === "idle" || head === undefined ? noRun : turnIdOf(session, head.seq);
    const isAllowed = head !== undefined && mayStop(head.message, by);
    if (wanted === undefined) await aim(request, isAllowed ? running : noRun);
    if (head === undefined || running === noRun) return { result: "nothing" };
    if (wanted !== undefined && wanted !== running) return { result: "nothing" };
    if (!isAllowed) return { result: "not_allowed", message: head.message };
    await inbox.cancel(session, running, reason);
    return { result: "stopping", message: head.message };
  };

  return async (request) => {
    const { orderId, turnId } = request;
    const before = orderId === undefined ? undefined : await withDeadline(lookups.get(keyOf(orderId)), deadlineMs);
    const result = await decide(request, before ?? turnId);
    // The run that this order stopped has ended since.
    const wasObeyed = result.result === "nothing" && before !== undefined && before !== noRun;
    return wasObeyed ? { result: "stopping" } : result;
  };
}
