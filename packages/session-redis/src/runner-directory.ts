import { createHash } from "node:crypto";
import type { ToolAnnouncement } from "@larkline/protocol";
import type { AnnounceResult, AvailableTool, LivingRunner, RunnerDirectory, RunnerInstance } from "@larkline/session";
import type { Redis } from "ioredis";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { defineScript, type Script } from "./script.ts";

export interface RedisRunnerDirectoryOptions {
  redis: RedisConnection;
  namespace?: string;
}

interface StoredInstance extends LivingRunner {
  /** Tool name -> digest of all that must agree between runners offering it. */
  digests: Record<string, string>;
}

const purge = `
local t = redis.call('TIME')
local nowMs = t[1] * 1000 + math.floor(t[2] / 1000)
local function living()
  local out = {}
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local one = cjson.decode(all[i + 1])
    if one.expiresAtMs > nowMs then out[all[i]] = one else redis.call('HDEL', KEYS[1], all[i]) end
  end
  return out
end
`;

// -> '' announced | name of the tool and runner in conflict
export const announceLua = `${purge}
-- KEYS instances | ARGV field runner json ttlMs channel
local mine = cjson.decode(ARGV[3])
local others = living()
for field, other in pairs(others) do
  if field ~= ARGV[1] then
    for name, digest in pairs(mine.digests) do
      local theirs = other.digests[name]
      if theirs and (other.runner ~= ARGV[2] or theirs ~= digest) then return name .. '|' .. other.runner end
    end
  end
end
local before = redis.call('HGET', KEYS[1], ARGV[1]) or ''
mine.expiresAtMs = nowMs + tonumber(ARGV[4])
-- The tools are stored as the client wrote them: cjson cannot tell [] from {}.
local stored = string.gsub(ARGV[3], '"expiresAtMs":0', function() return '"expiresAtMs":' .. string.format('%.0f', mine.expiresAtMs) end, 1)
redis.call('HSET', KEYS[1], ARGV[1], stored)
local same = string.gsub(before, '"expiresAtMs":%d+', '"expiresAtMs":0', 1) == ARGV[3]
if not same then redis.call('PUBLISH', ARGV[5], ARGV[1]) end
return ''`;

// -> how many living instances of the runner are left
export const withdrawLua = `${purge}
-- KEYS instances | ARGV field runner channel
redis.call('HDEL', KEYS[1], ARGV[1])
local left = 0
for _, other in pairs(living()) do if other.runner == ARGV[2] then left = left + 1 end end
redis.call('PUBLISH', ARGV[3], ARGV[1])
return left`;

function digestOf({ spec, effect, requiresApproval, limits = {} }: ToolAnnouncement): string {
  return createHash("sha256")
    .update(JSON.stringify([spec.inputSchema, effect, requiresApproval, limits]))
    .digest("base64url");
}

/** The runner directory on Redis: one hash of instances, each with its expiry. */
export function createRedisRunnerDirectory(options: RedisRunnerDirectoryOptions): RunnerDirectory {
  return new RedisRunnerDirectory(options);
}

class RedisRunnerDirectory implements RunnerDirectory {
  readonly #redis: RedisConnection;
  readonly #instances: string;
  readonly #channel: string;
  readonly #announce: Script;
  readonly #withdraw: Script;

  constructor(options: RedisRunnerDirectoryOptions) {
    const keys = createKeyspace(options.namespace ?? defaultNamespace);
    this.#redis = options.redis;
    this.#instances = keys.global("runners");
    this.#channel = keys.global("runners-changed");
    this.#announce = defineScript(options.redis, "directory_announce", announceLua);
    this.#withdraw = defineScript(options.redis, "directory_withdraw", withdrawLua);
  }

  async announce(instance: RunnerInstance, ttlMs: number): Promise<AnnounceResult> {
    const digests = Object.fromEntries(instance.tools.map((tool) => [tool.spec.name, digestOf(tool)]));
    // expiresAtMs first: the script fills in the first one it finds.
    const stored: StoredInstance = { expiresAtMs: 0, digests, ...instance };
    const field = `${instance.runner}/${instance.instance}`;
    const conflict = String(
      await this.#announce([this.#instances], [field, instance.runner, JSON.stringify(stored), ttlMs, this.#channel]),
    );
    if (conflict === "") return { ok: true };
    const [tool = "", runner] = conflict.split("|");
    const problem =
      runner === instance.runner
        ? `another instance of runner '${runner}' offers tool '${tool}' with a different schema, effect, approval rule or limits`
        : `runner '${runner}' already offers a tool named '${tool}'`;
    return { ok: false, conflict: problem, tool };
  }

  async withdraw(runner: string, instance: string): Promise<{ last: boolean }> {
    const left = await this.#withdraw([this.#instances], [`${runner}/${instance}`, runner, this.#channel]);
    return { last: Number(left) === 0 };
  }

  async runners(): Promise<LivingRunner[]> {
    const nowMs = Date.now();
    const stored = Object.values(await this.#redis.hgetall(this.#instances)).map(
      (text) => JSON.parse(text) as StoredInstance, // written by announce
    );
    return stored
      .filter(({ expiresAtMs }) => expiresAtMs > nowMs)
      .map(({ runner, instance, tools, expiresAtMs }) => ({ runner, instance, tools, expiresAtMs }));
  }

  async tools(): Promise<ReadonlyMap<string, AvailableTool>> {
    const tools = new Map<string, AvailableTool>();
    for (const { runner, tools: announcements } of await this.runners()) {
      for (const announcement of announcements) tools.set(announcement.spec.name, { runner, announcement });
    }
    return tools;
  }

  async watch(listener: () => void, signal: AbortSignal): Promise<void> {
    const subscriber = (this.#redis as Redis).duplicate();
    subscriber.on("error", () => undefined); // ioredis reconnects and subscribes again by itself
    subscriber.on("message", listener);
    subscriber.on("ready", listener);
    signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
    await subscriber.subscribe(this.#channel);
    if (signal.aborted) subscriber.disconnect();
  }
}
