import type { RedisConnection } from "./connection.ts";

/** Runs one Lua script; loaded once per connection and called by its hash. */
export type Script = (keys: string[], args: (string | number)[]) => Promise<unknown>;

type Command = (...values: (string | number)[]) => Promise<unknown>;

/** Registers a script under `name` on a connection. */
export function defineScript(redis: RedisConnection, name: string, lua: string): Script {
  redis.defineCommand(name, { lua });
  // defineCommand adds a method that the static type cannot know.
  const command = Reflect.get(redis, name) as Command;
  return async (keys, args) => await command.call(redis, keys.length, ...keys, ...args);
}
