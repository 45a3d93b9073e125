import type { Clock } from "@larkline/protocol/clock";
import type { MessageStore, SimMessage } from "./message-store.ts";

/** Waits for what bots answer to a message. */
interface ReplyWatch {
  waitForReply(messageId: string, wait: { timeoutMs: number }): Promise<SimMessage>;
  waitForCard(messageId: string, wait: { timeoutMs: number }): Promise<SimMessage>;
  waitUntil(
    messageId: string,
    predicate: (message: SimMessage) => boolean,
    wait: { timeoutMs: number },
  ): Promise<SimMessage>;
  close(): void;
}

interface Waiter {
  /** Looks at the messages as they are now and settles the wait when it has what it waits for. */
  look: () => void;
  fail: (error: Error) => void;
}

export function createReplyWatch(
  clock: Clock,
  messages: MessageStore,
  notifier: Pick<Notifier<{ message: SimMessage }>, "on">,
): ReplyWatch {
  const waiters = new Map<string, Set<Waiter>>();
  notifier.on("message", ({ senderType, messageId, parentId }) => {
    if (senderType !== "app") return;
    for (const id of [messageId, parentId ?? ""]) {
      for (const waiter of waiters.get(id) ?? []) waiter.look();
    }
  });

  const wait = (wanted: Wanted, timeoutMs: number): Promise<SimMessage> =>
    new Promise((resolve, reject) => {
      const { messageId } = wanted;
      const settle = (): void => {
        cancelTimeout();
        waiters.get(messageId)?.delete(waiter);
        if (waiters.get(messageId)?.size === 0) waiters.delete(messageId);
      };
      const waiter: Waiter = {
        look() {
          const found = wanted.find(messages.repliesTo(messageId).filter(isFromBot));
          if (found === undefined) return;
          settle();
          resolve(found);
        },
        fail(error) {
          settle();
          reject(error);
        },
      };
      const cancelTimeout = clock.after(timeoutMs, () =>
        waiter.fail(new Error(`No ${wanted.what} to ${messageId} within ${timeoutMs} ms`)),
      );
      const waiting = waiters.get(messageId);
      if (waiting === undefined) waiters.set(messageId, new Set([waiter]));
      else waiting.add(waiter);
      waiter.look();
    });

  return {
    waitForReply: (messageId, { timeoutMs }) =>
      wait({ messageId, what: "reply", find: (replies) => replies.at(0) }, timeoutMs),
    waitForCard: (messageId, { timeoutMs }) =>
      wait({ messageId, what: "finished card as a reply", find: lastFinishedCard }, timeoutMs),
    waitUntil(messageId, predicate, { timeoutMs }) {
      const itself = (): SimMessage[] => [messages.get(messageId) ?? []].flat().filter(isFromBot);
      const find = (replies: readonly SimMessage[]) => [...itself(), ...replies].find(predicate);
      return wait({ messageId, what: "awaited reply", find }, timeoutMs);
    },
    close() {
      const error = new Error("The simulator closed before a reply came");
      for (const waiter of [...waiters.values()].flatMap((set) => [...set])) waiter.fail(error);
    },
  };
}

interface Wanted {
  messageId: string;
  what: string;
  find: (replies: readonly SimMessage[]) => SimMessage | undefined;
}

function isFromBot(message: SimMessage): boolean {
  return message.senderType === "app";
}

function lastFinishedCard(replies: readonly SimMessage[]): SimMessage | undefined {
  const cards = replies.filter((reply) => reply.card !== undefined);
  return cards.some((reply) => reply.card?.streaming === true) ? undefined : cards.at(-1);
}

type Listener<Value> = (value: Value) => void;

/** Typed listeners by event name. A listener that throws is the listener's bug and reaches the caller. */
export interface Notifier<Events> {
  on<Name extends keyof Events>(name: Name, listener: Listener<Events[Name]>): () => void;
  emit<Name extends keyof Events>(name: Name, value: Events[Name]): void;
}

export function createNotifier<Events>(): Notifier<Events> {
  const listeners: { [Name in keyof Events]?: Set<Listener<Events[Name]>> } = {};
  return {
    on(name, listener) {
      const set = (listeners[name] ??= new Set());
      set.add(listener);
      return () => void set.delete(listener);
    },
    emit(name, value) {
      for (const listener of listeners[name] ?? []) listener(value);
    },
  };
}
