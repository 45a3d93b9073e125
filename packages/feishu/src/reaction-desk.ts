import type { LookupCache } from "@larkline/store";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { FeishuLogger } from "./logger.ts";

/** What a reaction on a person's message says: it waits for its turn, or is being answered. */
export type ReactionPurpose = "queued" | "typing";

/** Emoji types of the platform ("Reaction emoji"). */
const emojiOf: Readonly<Record<ReactionPurpose, string>> = { queued: "OneSecond", typing: "Typing" };

/** Reactions as signs of life. Nothing here is worth failing for: what cannot be done is left out. */
export interface ReactionDesk {
  add(messageId: string, purpose: ReactionPurpose): Promise<void>;
  /** Takes back what any process added, or is about to add. */
  remove(messageId: string, purpose: ReactionPurpose): Promise<void>;
}

const keptMs = 24 * 3_600_000;
/** How much later than its removal an addition may come that was begun before. */
const lateMs = 60_000;

export function createReactionDesk(deps: { api: FeishuApi; lookups: LookupCache; logger: FeishuLogger }): ReactionDesk {
  const { api, lookups, logger } = deps;
  const keyOf = (messageId: string, purpose: ReactionPurpose): string =>
    `reaction:${api.appId}:${messageId}:${purpose}`;

  const quietly = async (work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof FeishuError)) logger.warn({ err: error }, "reaction not changed");
      else logger.debug({ api: error.api, kind: error.kind, code: error.code }, "reaction not changed");
    }
  };

  const takeBack = async (messageId: string, purpose: ReactionPurpose): Promise<void> => {
    const reactionId = await lookups.take(keyOf(messageId, purpose));
    if (reactionId !== undefined) await api.removeReaction(messageId, reactionId);
  };
  const overKeyOf = (messageId: string, purpose: ReactionPurpose): string => `${keyOf(messageId, purpose)}:over`;

  // Whoever adds notes that and then looks whether it is over; whoever removes does it the other way
  // round. So one of them sees the other, and one of them takes the note.
  return {
    add: async (messageId, purpose) =>
      await quietly(async () => {
        if ((await lookups.get(overKeyOf(messageId, purpose))) !== undefined) return;
        const reactionId = await api.addReaction(messageId, emojiOf[purpose], { lane: "frame" });
        await lookups.set(keyOf(messageId, purpose), reactionId, keptMs);
        if ((await lookups.get(overKeyOf(messageId, purpose))) !== undefined) await takeBack(messageId, purpose);
      }),
    remove: async (messageId, purpose) =>
      await quietly(async () => {
        await lookups.set(overKeyOf(messageId, purpose), "over", lateMs);
        await takeBack(messageId, purpose);
      }),
  };
}
