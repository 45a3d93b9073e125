import { scriptClockOffset, scriptsBeside } from "@larkline/protocol/lua";
import type { RedisConnection } from "./connection.ts";

export { moveScriptClock, runScript } from "@larkline/protocol/lua";

/** Reads lua/<name>.lua. */
export const script = scriptsBeside(import.meta.url);

/** The time as scripts see it that are called over this connection, epoch ms with a fraction. */
export async function scriptTime(redis: RedisConnection): Promise<number> {
  const [seconds, microseconds] = await redis.time();
  return Number(seconds) * 1_000 + Number(microseconds) / 1_000 + scriptClockOffset(redis);
}
