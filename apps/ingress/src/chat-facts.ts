import type { LookupCache } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { withDeadline } from "./deadline.ts";

/** What a chat is, as far as the place of a conversation depends on it. */
export interface ChatFacts {
  /** Whether every conversation of this group is a topic. False when the platform does not say in time. */
  isTopical(chatId: string): Promise<boolean>;
  /** The chat has changed: ask again next time. */
  forget(chatId: string): Promise<void>;
}

export interface ChatFactsDeps {
  app: string;
  lookups: LookupCache;
  /** Asks the platform. */
  chat: (chatId: string) => Promise<{ mode?: string; groupMessageType?: string }>;
  logger: Logger;
}

/** A message must be acknowledged in time, whatever the platform takes to answer. */
const askDeadlineMs = 800;
const keptMs = 24 * 3_600_000;
/** A chat that the platform says nothing about is not asked for with every message. */
const unknownKeptMs = 60_000;

export function createChatFacts({ app, lookups, chat, logger }: ChatFactsDeps): ChatFacts {
  const keyOf = (chatId: string): string => `topical:${app}:${chatId}`;

  const ask = async (chatId: string): Promise<boolean> => {
    const { mode, groupMessageType } = await chat(chatId);
    const topical = mode === "topic" || groupMessageType === "thread";
    await lookups.set(keyOf(chatId), topical ? "yes" : "no", mode === undefined ? unknownKeptMs : keptMs);
    return topical;
  };

  /** Messages that come meanwhile share one question: later ones must not overtake earlier ones. */
  const asking = new Map<string, Promise<boolean>>();
  const askOnce = (chatId: string): Promise<boolean> => {
    const known = asking.get(chatId);
    if (known !== undefined) return known;
    const question = withDeadline(ask(chatId), askDeadlineMs)
      .catch(async (error: unknown) => {
        logger.warn({ error, chatId }, "kind of chat unknown, taken for an ordinary group");
        await lookups.set(keyOf(chatId), "no", unknownKeptMs);
        return false;
      })
      .finally(() => asking.delete(chatId));
    asking.set(chatId, question);
    return question;
  };

  return {
    async isTopical(chatId) {
      const known = await lookups.get(keyOf(chatId));
      return known === undefined ? await askOnce(chatId) : known === "yes";
    },
    forget: async (chatId) => await lookups.delete(keyOf(chatId)),
  };
}
