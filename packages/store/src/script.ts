import type { RedisConnection } from "./connection.ts";

/** Runs one Lua script; loaded once per connection and called by its hash. */
export type Script = (keys: string[], args: (string | number)[]) => Promise<unknown>;

type Command = (...values: (string | number)[]) => Promise<unknown>;

/** The last argument of every script: ms by which its clock is off. Production has one clock, that of Redis. */
const clockArgument = "local clockOffsetMs = tonumber(table.remove(ARGV))\n";
/** What scripts that are called without that argument begin with. */
export const serverClock = "local clockOffsetMs = 0\n";

const offsets = new WeakMap<RedisConnection, number>();

/** Moves the clock of all scripts that are called over this connection. For tests, which own the time then. */
export function moveScriptClock(redis: RedisConnection, offsetMs: number): void {
  offsets.set(redis, offsetMs);
}

/** The time as scripts see it that are called over this connection, epoch ms with a fraction. */
export async function scriptTime(redis: RedisConnection): Promise<number> {
  const [seconds, microseconds] = await redis.time();
  return Number(seconds) * 1_000 + Number(microseconds) / 1_000 + (offsets.get(redis) ?? 0);
}

/** Registers a script under `name` on a connection. */
export function defineScript(redis: RedisConnection, name: string, lua: string): Script {
  redis.defineCommand(name, { lua: `${clockArgument}${lua}` });
  // defineCommand adds a method that the static type cannot know.
  const command = Reflect.get(redis, name) as Command;
  return async (keys, args) => await command.call(redis, keys.length, ...keys, ...args, offsets.get(redis) ?? 0);
}
