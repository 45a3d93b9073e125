import { sharedNow } from "@larkline/protocol";
import type { OutboxSender } from "@larkline/feishu";
import type { DeadLetters, OutboxLease, SessionStore } from "@larkline/store";

type OutboxStore = Pick<SessionStore, "ackOutbox" | "leaseOutbox" | "retryOutbox">;

type Letters = Pick<DeadLetters, "bury">;

/** Sends what ingress has put into outboxes itself, in the background. */
export interface NoticeOutbox {
  deliver(lease: OutboxLease): void;
  /** Lets running sends finish, for a while. */
  close(): Promise<void>;
}

/**
 * Replies that are shown on cards are left to the workers, which can upload the images that answers
 * name: where one comes next, the outbox is given back and due at once, with all that stands behind it.
 */
export function createNoticeOutbox(
  store: OutboxStore,
  letters: Letters,
  senderOf: (store: OutboxStore, letters: Letters) => OutboxSender,
): NoticeOutbox {
  const unlessReply = async (lease: OutboxLease | undefined): Promise<OutboxLease | undefined> => {
    if (lease?.record.view === undefined) return lease;
    await store.retryOutbox(lease, sharedNow());
    return undefined;
  };
  const bury: Letters["bury"] = async (lease, reason) => await unlessReply(await letters.bury(lease, reason));
  const shared: OutboxStore = {
    ackOutbox: async (session, token) => await unlessReply(await store.ackOutbox(session, token)),
    leaseOutbox: async (session) => await unlessReply(await store.leaseOutbox(session)),
    retryOutbox: async (lease, retryAtMs) => await store.retryOutbox(lease, retryAtMs),
  };
  const sender = senderOf(shared, { bury });
  const send = async (lease: OutboxLease): Promise<void> => {
    const first = await unlessReply(lease);
    if (first !== undefined) await sender.deliver(first);
  };
  return {
    // What cannot be given back is free when its lease has expired.
    deliver: (lease) => void send(lease).catch(() => undefined),
    close: async () => await sender.close(),
  };
}
