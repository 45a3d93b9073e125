import type { MessageStore, SimMessage } from "./message-store.ts";
import type { Notifier } from "./notifier.ts";

/** Waits for the bot's answer to a message. */
export interface ReplyWatch {
  waitForReply(messageId: string, wait: { timeoutMs: number }): Promise<SimMessage>;
  close(): void;
}

interface Waiter {
  resolve: (message: SimMessage) => void;
  reject: (error: Error) => void;
  timer: NodeJS.Timeout;
}

export function createReplyWatch(
  messages: MessageStore,
  notifier: Pick<Notifier<{ message: SimMessage }>, "on">,
): ReplyWatch {
  const waiters = new Map<string, Set<Waiter>>();
  notifier.on("message", (message) => {
    if (message.senderType !== "app" || message.parentId === undefined) return;
    for (const waiter of waiters.get(message.parentId) ?? []) {
      clearTimeout(waiter.timer);
      waiter.resolve(message);
    }
    waiters.delete(message.parentId);
  });
  return {
    waitForReply(messageId, { timeoutMs }) {
      const existing = messages.repliesTo(messageId).find((message) => message.senderType === "app");
      if (existing !== undefined) return Promise.resolve(existing);
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          waiters.get(messageId)?.delete(waiter);
          reject(new Error(`No reply to ${messageId} within ${timeoutMs} ms`));
        }, timeoutMs);
        const waiter: Waiter = { resolve, reject, timer };
        const waiting = waiters.get(messageId);
        if (waiting === undefined) waiters.set(messageId, new Set([waiter]));
        else waiting.add(waiter);
      });
    },
    close() {
      for (const waiter of [...waiters.values()].flatMap((set) => [...set])) {
        clearTimeout(waiter.timer);
        waiter.reject(new Error("The simulator closed before a reply came"));
      }
      waiters.clear();
    },
  };
}
