import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import type { ReplyView } from "@larkline/protocol/reply-view";
import type { OutboxLease, OutboxRecord, OutboxTarget, SessionStore } from "@larkline/store";

// For tests: a turn as a worker holds it.

/** One turn of a session of its own. */
export interface Turn {
  session: string;
  replyId: string;
  messageId: string;
  target: OutboxTarget;
  uuid: string;
  /** Of the claim that was made last. */
  epoch: () => string;
  /** Another worker takes the session. */
  reclaim(): Promise<string>;
  /** The turn ends with this view; its outbox is the caller's. */
  commit(view: ReplyView, more?: Partial<OutboxRecord>): Promise<OutboxLease>;
}

export interface TurnFacts {
  store: SessionStore;
  now: () => number;
  session: string;
  sender: string;
  target: OutboxTarget;
}

function messageOf({ now, session, sender, target }: TurnFacts): InboundMessage {
  const { app, messageId } = target;
  return {
    v: 1,
    session,
    id: messageId,
    app,
    sender: { id: sender },
    chatType: "group",
    parts: [{ type: "text", text: "hi" }],
    createdAtMs: now(),
    reply: { channel: "feishu", ...target },
  };
}

/** A worker claims the session with its message. */
export async function beginTurn(facts: TurnFacts): Promise<Turn> {
  const { store, now, session, target } = facts;
  const { messageId } = target;
  const { wakeGen = 0, seq } = await store.append(messageOf(facts));
  const claim = async (): Promise<string> => {
    const claimed = await store.claim(session, wakeGen, "worker");
    if (claimed === undefined) throw new Error("nothing to claim");
    return claimed.epoch;
  };
  let epoch = await claim();
  const replyId = turnIdOf(session, seq);
  const uuid = `u-${messageId}`.slice(0, 50);
  const recordOf = (view: ReplyView): OutboxRecord => ({
    v: 1,
    id: replyId,
    uuid,
    session,
    target,
    text: view.answer,
    view,
    createdAtMs: now(),
    attempts: 0,
    uncertainSinceMs: 0,
  });
  return {
    session,
    replyId,
    messageId,
    target,
    uuid,
    epoch: () => epoch,
    reclaim: async () => (epoch = await claim()),
    commit: async (view, more = {}) => {
      const outbox = { ...recordOf(view), ...more };
      const write = { session, epoch, history: [], events: [], seq, more: false, outbox };
      const committed = await store.commit(write);
      if (!("deliver" in committed) || committed.deliver === undefined) {
        throw new Error("the outbox was not leased");
      }
      return committed.deliver;
    },
  };
}
