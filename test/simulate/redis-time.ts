import { createHash } from "node:crypto";
import { createConnection, type Socket } from "node:net";
import { bytesOf, ValueReader, type Command } from "./resp.ts";
import { time } from "./time.ts";

// Redis has no other clock than the machine's. Scripts are given one of ours in its place, and what expires by itself
// expires by ours.

const nowKey = "simulation:now";

/** Before every script: `TIME` is the one of the simulation, as are the ids of entries of streams. */
const clockLua = `local server = redis
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
local redis = setmetatable({ call = function(command, ...)
  if command == 'TIME' or command == 'time' then
    local ms = tonumber(server.call('GET', '${nowKey}'))
    return { string.format('%d', math.floor(ms / 1000)), string.format('%d', ms % 1000 * 1000) }
  end
  if command == 'XADD' then return server.call(command, withOurId(...)) end
  return server.call(command, ...)
end }, { __index = server })
`;

const timeLua = `${clockLua}return redis.call('TIME')`;

/** Sets the clock, and ages what expires by as much as it was moved. */
const advanceLua = `redis.call('SET', KEYS[1], ARGV[1])
if tonumber(ARGV[2]) > 0 then
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local left = redis.call('PTTL', key)
    if left >= 0 then redis.call('PEXPIRE', key, math.max(0, left - ARGV[2])) end
  end
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
    case "time":
      return ["EVAL", timeLua, "0"];
    default:
      return command;
  }
}

function scriptInOurTime(order: Buffer, rest: readonly Buffer[]): (Buffer | string)[] {
  const isLoad = order.toString("latin1").toLowerCase() === "load";
  const given = rest.map((part) => (isLoad ? withClock(part) : (digests.get(part.toString("latin1")) ?? part)));
  return ["SCRIPT", order, ...given];
}

/** How far the clock of Redis is behind before its keys are aged. */
const ageEveryMs = 200;

/** The simulation's own connection to Redis. */
export class RedisClock {
  readonly #socket: Socket;
  readonly #answered: ((answer: string) => void)[] = [];
  #agedMs = 0;

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
    this.#agedMs = 0;
    await this.set();
  }

  /** Redis has the time that the simulation has after `ms`. */
  async set(ms = 0): Promise<void> {
    const behindMs = Math.floor(time.now() + ms - this.#agedMs);
    const agingMs = behindMs >= ageEveryMs ? behindMs : 0;
    this.#agedMs += agingMs;
    await this.ask("EVAL", advanceLua, "1", nowKey, String(Math.floor(time.epochNow() + ms)), String(agingMs));
  }

  close(): void {
    this.#socket.destroy();
  }
}
