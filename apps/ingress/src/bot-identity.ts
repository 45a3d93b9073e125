import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "@larkline/process/telemetry";

export interface BotIdentityDeps {
  /** Asks the platform who the bot is. */
  botInfo: (signal: AbortSignal) => Promise<{ openId: string; name: string }>;
  logger: Logger;
  /** Pause after a failure in ms, doubled up to the maximum; 500 and 30000 by default. */
  backOffMs?: { min: number; max: number };
}

/** Who the bot is, asked for in the background until the platform answers. */
export interface BotIdentity {
  /** The bot's open_id; empty while it is unknown. */
  openId(): string;
  /** Like {@link BotIdentity.openId}, but waits a while for the answer first. */
  within(ms: number): Promise<string>;
  close(): void;
}

export function createBotIdentity({ botInfo, logger, backOffMs }: BotIdentityDeps): BotIdentity {
  const { min, max } = backOffMs ?? { min: 500, max: 30_000 };
  const closing = new AbortController();
  const known = Promise.withResolvers<string>();
  let openId = "";

  const ask = async () => {
    for (let waitMs = min; !closing.signal.aborted; waitMs = Math.min(waitMs * 2, max)) {
      try {
        const bot = await botInfo(closing.signal);
        openId = bot.openId;
        known.resolve(openId);
        logger.info({ botOpenId: openId, botName: bot.name }, "the bot knows itself");
        return;
      } catch (error) {
        if (closing.signal.aborted) return;
        logger.warn({ error, retryInMs: waitMs }, "the bot's own open_id is unknown: group messages have to wait");
        await sleep(waitMs, undefined, { signal: closing.signal }).catch(() => undefined);
      }
    }
  };
  void ask();

  return {
    openId: () => openId,
    async within(ms) {
      const patience = new AbortController();
      const signal = AbortSignal.any([patience.signal, closing.signal]);
      const late = sleep(ms, openId, { signal }).catch(() => openId);
      try {
        return await Promise.race([known.promise, late.then(() => openId)]);
      } finally {
        patience.abort();
      }
    },
    close: () => closing.abort(),
  };
}
