import { createHash } from "node:crypto";
import { createConnection, type Socket } from "node:net";
import { bytesOf, ValueReader, type Command } from "./resp.ts";
import { time } from "./time.ts";

// Redis has no other clock than the machine's. Scripts, and commands that have to do with time, are given one of ours in
// its place.

const nowKey = "simulation:now";
/** ZSET: keys that expire, by when. A key that has got another time since, or none, is left alone then. */
const dueKey = "simulation:due";

/**
 * Before every script: `TIME` is the one of the simulation, as are the ids of entries of streams. What expires after some
 * time expires at a time of the simulation, which is later than all times of the machine.
 */
const clockLua = `local server = redis
local function nowMs()
  return tonumber(server.call('GET', '${nowKey}'))
end
local function withOurId(...)
  local given = { ... }
  for at, value in ipairs(given) do
    if value == '*' then
      given[at] = server.call('GET', '${nowKey}') .. '-*'
      break
    end
  end
  return unpack(given)
end
-- What the command answers that gives a key its time; it may have refused.
local function expiring(key, at, answer)
  if answer and answer ~= 0 then server.call('ZADD', '${dueKey}', at, key) end
  return answer
end
local function after(ms)
  return string.format('%d', nowMs() + ms)
end
local unitMs = { EX = 1000, PX = 1, EXPIRE = 1000, PEXPIRE = 1 }
local redis = setmetatable({ call = function(command, ...)
  local name = string.upper(command)
  local given = { ... }
  if name == 'TIME' then
    local ms = nowMs()
    return { string.format('%d', math.floor(ms / 1000)), string.format('%d', ms % 1000 * 1000) }
  end
  if name == 'XADD' then return server.call(command, withOurId(...)) end
  if name == 'PTTL' then
    local atMs = server.call('PEXPIRETIME', ...)
    return atMs < 0 and atMs or math.max(0, atMs - nowMs())
  end
  if name == 'SET' then
    for at = 3, #given do
      local unit = unitMs[string.upper(given[at])]
      if unit then
        given[at] = 'PXAT'
        given[at + 1] = after(given[at + 1] * unit)
        return expiring(given[1], given[at + 1], server.call(command, unpack(given)))
      end
    end
  end
  if unitMs[name] then
    given[2] = after(given[2] * unitMs[name])
    name = 'PEXPIREAT'
  end
  if name == 'PEXPIREAT' then return expiring(given[1], given[2], server.call(name, unpack(given))) end
  return server.call(command, ...)
end }, { __index = server })
`;

/** A command as a script would call it. */
const commandLua = `${clockLua}return redis.call(unpack(ARGV))`;

/** Sets the clock, and drops what has expired by then. */
const advanceLua = `redis.call('SET', KEYS[1], ARGV[1])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1])) do
  local atMs = redis.call('PEXPIRETIME', key)
  redis.call('ZREM', KEYS[2], key)
  if atMs > tonumber(ARGV[1]) then redis.call('ZADD', KEYS[2], string.format('%d', atMs), key)
  elseif atMs >= 0 then redis.call('DEL', key) end
end`;

/** By the digest of a script as clients know it: the one that Redis has in its place. */
const digests = new Map<string, string>();

function digestOf(text: string): string {
  return createHash("sha1").update(text).digest("hex");
}

function withClock(text: Buffer): string {
  const lua = text.toString();
  // A first line with flags stays the first one.
  const flags = /^#!.*\n/.exec(lua)?.[0] ?? "";
  const changed = `${flags}${clockLua}${lua.slice(flags.length)}`;
  digests.set(digestOf(lua), digestOf(changed));
  return changed;
}

/** The command in the clock of the simulation. */
export function inOurTime(command: Command): (Buffer | string)[] {
  const [name = Buffer.alloc(0), first = Buffer.alloc(0), ...rest] = command;
  switch (name.toString("latin1").toLowerCase()) {
    case "eval":
      return ["EVAL", withClock(first), ...rest];
    case "evalsha":
      return ["EVALSHA", digests.get(first.toString("latin1")) ?? first, ...rest];
    case "script":
      return scriptInOurTime(first, rest);
    case "set":
      return rest.length > 1 ? asScript(command) : command;
    case "time":
    case "pttl":
    case "expire":
    case "pexpire":
    case "pexpireat":
      return asScript(command);
    case "scan":
      // In one go: how many keys Redis gives at once depends on where it keeps them, which is its own chance.
      return [name, first, ...rest.slice(0, -1), "1000000"];
    default:
      return command;
  }
}

function asScript(command: Command): (Buffer | string)[] {
  return ["EVAL", commandLua, "0", ...command];
}

function scriptInOurTime(order: Buffer, rest: readonly Buffer[]): (Buffer | string)[] {
  const isLoad = order.toString("latin1").toLowerCase() === "load";
  const given = rest.map((part) =>
    isLoad ? withClock(part) : (digests.get(part.toString("latin1")) ?? part),
  );
  return ["SCRIPT", order, ...given];
}

/** The simulation's own connection to Redis. */
export class RedisClock {
  readonly #socket: Socket;
  readonly #answered: ((answer: string) => void)[] = [];

  constructor(port: number) {
    this.#socket = createConnection(port, "127.0.0.1").setNoDelay(true);
    const reader = new ValueReader();
    this.#socket.on("data", (bytes: Buffer) => {
      for (const value of reader.push(bytes)) this.#answered.shift()?.(value.toString());
    });
  }

  async ask(...command: string[]): Promise<string> {
    this.#socket.write(bytesOf(command));
    const answer = await new Promise<string>((resolve) => void this.#answered.push(resolve));
    if (answer.startsWith("-")) throw new Error(`Redis answers the simulation: ${answer}`);
    return answer;
  }

  /** Redis is empty, knows no script and has the time of the simulation. */
  async begin(): Promise<void> {
    await this.ask("FLUSHALL");
    await this.ask("SCRIPT", "FLUSH");
    await this.set();
  }

  /** Redis has the time that the simulation has after `ms`. */
  async set(ms = 0): Promise<void> {
    await this.ask(
      "EVAL",
      advanceLua,
      "2",
      nowKey,
      dueKey,
      String(Math.floor(time.epochNow() + ms)),
    );
  }

  close(): void {
    this.#socket.destroy();
  }
}
