import { jsonParserOf, TurnJob } from "@larkline/protocol";
import { createBus, type Bus, type PubSubConnection } from "./bus.ts";

/**
 * For those who cannot add jobs themselves, such as runners in other languages: every worker that
 * hears of a wake-up adds its job, which is the same one. What nobody hears is found by the sweeper.
 */
export type WakeBus = Bus<TurnJob>;

const parse = jsonParserOf(TurnJob);

export function createWakeBus(options: { connection: PubSubConnection; channel?: string }): WakeBus {
  return createBus({ connection: options.connection, channel: options.channel ?? "{larkline}:wake", parse });
}
