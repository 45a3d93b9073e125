import type { LongConnection } from "@larkline/feishu";

/** A bot, as far as readiness goes. */
export interface CheckedBot {
  name: string;
  /** Absent: its events come by webhook. */
  connection: Pick<LongConnection, "state"> | undefined;
}

/** For so long a new process is held back until its bots are connected: what cannot work is found by a roll-out. */
const startMs = 30_000;

/** What `/ready` calls the long connection of a bot. */
function checkName(bot: string): string {
  return bot === "default" ? "longConnection" : `longConnection.${bot}`;
}

/**
 * Whether the long connections are there, by bot. One that is lost later, or never comes, is no reason to withhold the
 * process from those who write to another bot.
 */
export function createConnectionCheck(
  bots: readonly CheckedBot[],
  now: () => number = () => performance.now(),
): () => Record<string, boolean | "lost"> {
  const startedMs = now();
  const seen = new Set<string>();
  const isUp = ({ connection }: CheckedBot) => connection?.state() === "connected";
  return () => {
    for (const bot of bots) if (isUp(bot)) seen.add(bot.name);
    const isServing = bots.some((bot) => bot.connection === undefined || isUp(bot));
    const stateOf = (bot: CheckedBot): boolean | "lost" => {
      if (isUp(bot)) return true;
      const isStarting = !seen.has(bot.name) && now() - startedMs < startMs;
      return isServing && !isStarting ? "lost" : false;
    };
    const connected = bots.filter(({ connection }) => connection !== undefined);
    return Object.fromEntries(connected.map((bot) => [checkName(bot.name), stateOf(bot)]));
  };
}
