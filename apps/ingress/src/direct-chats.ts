import { sharedNow } from "@larkline/protocol";
import type { LookupCache } from "@larkline/store";

/** Which chat with the bot is whose: a press on the menu names nobody's. */
export interface DirectChats {
  remember(openId: string, chatId: string): Promise<void>;
  /** The person's chat, as far as it is known. */
  of(openId: string): Promise<string | undefined>;
}

export interface DirectChatsDeps {
  app: string;
  lookups: Pick<LookupCache, "get" | "set">;
  /** Epoch ms. */
  now?: () => number;
}

const rememberedMs = 30 * 24 * 3_600_000;
/** Every message names its chat: to store that once a day is enough. */
const freshMs = 24 * 3_600_000;
const maxFresh = 10_000;

export function createDirectChats({ app, lookups, now = sharedNow }: DirectChatsDeps): DirectChats {
  const keyOf = (openId: string): string => `direct:${app}:${openId}`;
  /** What this process has stored, longest ago first. */
  const fresh = new Map<string, { chatId: string; untilMs: number }>();

  return {
    remember: async (openId, chatId) => {
      const known = fresh.get(openId);
      if (known?.chatId === chatId && known.untilMs > now()) return;
      await lookups.set(keyOf(openId), chatId, rememberedMs);
      fresh.delete(openId);
      fresh.set(openId, { chatId, untilMs: now() + freshMs });
      const [oldest] = fresh.keys();
      if (fresh.size > maxFresh && oldest !== undefined) fresh.delete(oldest);
    },
    of: async (openId) => await lookups.get(keyOf(openId)),
  };
}
