import { createHash } from "node:crypto";
import { type ToolAnnouncement, announcementMac, readAnnouncement, type RunnerAnnouncement } from "@larkline/protocol";
import type { Redis } from "ioredis";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { time } from "./lua-fragments.ts";
import { defineScript, type Script } from "./script.ts";

/** One process of a runner, as it announces itself. */
export interface RunnerInstance {
  runner: string;
  instance: string;
  /**
   * Names what this build of the runner offers, such as a digest of its tools. Instances of one generation
   * share the runner's calls; of several generations the one that began last gets them. Default: `""`.
   */
  generation?: string;
  tools: ToolAnnouncement[];
  /** Which clocks it finds to differ, in English; absent: none. */
  clock?: string | undefined;
}

/** An instance as it is stored, also for a while after it was last heard of. Times are the store's clock, epoch ms. */
export interface AnnouncedInstance extends RunnerInstance {
  generation: string;
  /** When this instance began to announce this generation. */
  beganAtMs: number;
  /** When it counts as gone, unless it announces itself again before. */
  expiresAtMs: number;
}

/** One that lives. */
export interface LivingRunner extends AnnouncedInstance {
  /** Its generation is the one whose tools are offered; other instances take no calls any more. */
  isCurrent: boolean;
}

/** A runner without a living instance whose tools are still offered. */
export interface AwayRunner {
  runner: string;
  tools: ToolAnnouncement[];
  /** Epoch ms when its last instance went. */
  sinceMs: number;
  /** Epoch ms when its tools are no longer offered. */
  untilMs: number;
}

/**
 * `isCurrent`: see {@link LivingRunner}. Refused: `tool` is the first that is refused, `conflict` says why, for people.
 */
export type AnnounceResult = { ok: true; isCurrent: boolean } | { ok: false; conflict: string; tool: string };

/** A tool that models are offered. */
export interface AvailableTool {
  runner: string;
  announcement: ToolAnnouncement;
  /** The runner has no living instance: calls wait in its queue, and it is forgotten after so many ms. */
  awayForMs?: number;
  /** Epoch ms since when the oldest of the runner's living instances is there. */
  livingSinceMs?: number;
}

/** How long the tools of a runner are offered after its last instance went, ms: longer than a deployment takes. */
export const awayMs = 600_000;

/** Which runners are alive and what they offer. All times are of the store's clock. */
export interface RunnerDirectory {
  /**
   * Announces or renews an instance for `ttlMs`. Refused when a living instance of another runner offers a tool
   * of the same name, or one of the same generation offers it with another schema, effect, approval rule or
   * limits; `conflict` says which. A runner that is away keeps its tools' names from no living one.
   */
  announce(instance: RunnerInstance, ttlMs: number): Promise<AnnounceResult>;
  /** Takes an instance out. Returns whether it was the runner's last; its tools stay offered for {@link awayMs}. */
  withdraw(runner: string, instance: string): Promise<{ last: boolean }>;
  /** Forgets a runner that is away: its tools are offered no longer. Tells whether it was; living instances stay. */
  forget(runner: string): Promise<{ forgotten: boolean; living: number }>;
  /** Tools by name: those of living runners, then those of runners that are away. */
  tools(): Promise<ReadonlyMap<string, AvailableTool>>;
  /** Living instances, those of superseded generations included. */
  runners(): Promise<LivingRunner[]>;
  /** Runners without a living instance whose tools are still offered. */
  away(): Promise<AwayRunner[]>;
  /**
   * Calls `listener` after every announce of something new and every withdraw, until `signal`
   * aborts; also when changes may have been missed. Resolves when watching has begun.
   */
  watch(listener: () => void, signal: AbortSignal): Promise<void>;
}

/**
 * What a directory answers at `nowMs`, made from all instances that it stores. `owners` names the runner that had a
 * tool before: it keeps the name as long as it lives, whatever another runner writes into its own announcement.
 */
export function viewOfRunners(
  stored: readonly AnnouncedInstance[],
  nowMs: number,
  owners: ReadonlyMap<string, string> = new Map(),
): RunnersView {
  const living: LivingRunner[] = [];
  const away: AwayRunner[] = [];
  for (const instances of Map.groupBy(stored, ({ runner }) => runner).values()) {
    const alive = instances.filter(({ expiresAtMs }) => expiresAtMs > nowMs);
    const generation = currentGeneration(alive);
    living.push(...alive.map((each) => ({ ...each, isCurrent: each.generation === generation })));
    if (alive.length === 0) away.push(...awayRunner(instances, nowMs));
  }
  return { living, away, tools: offeredTools({ living, away }, nowMs, owners) };
}

export interface RunnersView {
  living: LivingRunner[];
  away: AwayRunner[];
  tools: Map<string, AvailableTool>;
}

/** The generation whose oldest instance began last: a new build wins, however long an old one takes to stop. */
function currentGeneration(instances: readonly AnnouncedInstance[]): string | undefined {
  const began = new Map<string, number>();
  for (const { generation, beganAtMs } of instances) {
    began.set(generation, Math.min(beganAtMs, began.get(generation) ?? Number.POSITIVE_INFINITY));
  }
  const [latest] = [...began].sort(([a, aMs], [b, bMs]) => bMs - aMs || (a < b ? 1 : -1));
  return latest?.[0];
}

function awayRunner(instances: readonly AnnouncedInstance[], nowMs: number): AwayRunner[] {
  const recent = instances.filter(({ expiresAtMs }) => expiresAtMs > nowMs - awayMs);
  const generation = currentGeneration(recent);
  const its = recent.filter((each) => each.generation === generation);
  const [first] = its;
  if (first === undefined) return [];
  const tools = [...toolsOf(its).values()];
  const sinceMs = Math.max(...its.map(({ expiresAtMs }) => expiresAtMs));
  return [{ runner: first.runner, tools, sinceMs, untilMs: sinceMs + awayMs }];
}

/** By name; where descriptions or deadlines differ, those of the instance that began last. */
function toolsOf(instances: readonly AnnouncedInstance[]): Map<string, ToolAnnouncement> {
  const inOrder = instances.toSorted((a, b) => a.beganAtMs - b.beganAtMs);
  return new Map(inOrder.flatMap(({ tools }) => tools.map((tool) => [tool.spec.name, tool] as const)));
}

function offeredTools(
  { living, away }: Omit<RunnersView, "tools">,
  nowMs: number,
  owners: ReadonlyMap<string, string>,
): Map<string, AvailableTool> {
  const tools = new Map<string, AvailableTool>();
  const current = living.filter(({ isCurrent }) => isCurrent).toSorted((a, b) => a.beganAtMs - b.beganAtMs);
  for (const [runner, instances] of Map.groupBy(current, (each) => each.runner)) {
    const its = living.filter((each) => each.runner === runner);
    const livingSinceMs = Math.min(...its.map(({ beganAtMs }) => beganAtMs));
    for (const [name, announcement] of toolsOf(instances)) {
      if (tools.has(name) && owners.get(name) !== runner) continue;
      tools.set(name, { runner, announcement, livingSinceMs });
    }
  }
  for (const { runner, tools: announcements, untilMs } of away.toSorted((a, b) => b.sinceMs - a.sinceMs)) {
    for (const announcement of announcements) {
      const { name } = announcement.spec;
      if (!tools.has(name)) tools.set(name, { runner, announcement, awayForMs: untilMs - nowMs });
    }
  }
  return tools;
}

export interface RedisRunnerDirectoryOptions {
  redis: RedisConnection;
  namespace?: string;
  /** Of the runner that announces itself here: announcements are signed with it. */
  runnerKey?: string;
  /**
   * The key of a runner. With it announcements that are not signed by their runner are left out: workers believe
   * what a tool is said to be, such as that it needs no approval.
   */
  keyOf?: (runner: string) => string;
}

// Each runner has a hash of its own, and a set names the runners. Instances that are gone stay for a while: their
// tools are offered until then.
const readLiving = `${time}
local nowMs = now()
local function living(key, forget)
  local out = {}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ok, one = pcall(cjson.decode, all[i + 1])
    if not ok or type(one) ~= 'table' or type(one.expiresAtMs) ~= 'number' then one = {expiresAtMs = 0} end
    if one.expiresAtMs > nowMs then out[all[i]] = one
    elseif forget and one.expiresAtMs <= nowMs - ${awayMs} then redis.call('HDEL', key, all[i]) end
  end
  return out
end
local function at(text, field, ms)
  local value = '"' .. field .. '":' .. string.format('%.0f', ms)
  return (string.gsub(text, '"' .. field .. '":%d+', function() return value end, 1))
end
`;

// -> 'current' | 'superseded' | name of the tool and runner in conflict
export const announceLua = `${readLiving}
-- KEYS instances names | ARGV instance runner json ttlMs channel base
local mine = cjson.decode(ARGV[3])
local generation = mine.generation
local siblings = living(KEYS[1], true)
local known = siblings[ARGV[1]]
siblings[ARGV[1]] = nil
-- What this instance offers already it keeps, whatever others have written since.
local function conflict(others, runner)
  for _, other in pairs(others) do
    for name, digest in pairs(mine.digests) do
      local theirs = type(other.digests) == 'table' and other.digests[name]
      local same = runner == ARGV[2] and (other.generation ~= generation or theirs == digest)
      local kept = known and known.digests[name] == digest
      if theirs and not same and not kept then return name .. '|' .. runner end
    end
  end
end
local clash = conflict(siblings, ARGV[2])
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if not clash and name ~= ARGV[2] then clash = conflict(living(ARGV[6] .. name), name) end
end
if clash then return clash end
local before = redis.call('HGET', KEYS[1], ARGV[1])
local earlier = before and cjson.decode(before)
local beganAtMs = nowMs
if earlier and earlier.generation == generation then beganAtMs = earlier.beganAtMs end
redis.call('HSET', KEYS[1], ARGV[1], at(at(ARGV[3], 'expiresAtMs', nowMs + tonumber(ARGV[4])), 'beganAtMs', beganAtMs))
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[4]) + ${awayMs})
redis.call('SADD', KEYS[2], ARGV[2])
local same = known and at(at(before, 'expiresAtMs', 0), 'beganAtMs', 0) == ARGV[3]
if not same then redis.call('PUBLISH', ARGV[5], ARGV[2]) end
local began = {[generation] = beganAtMs}
for _, other in pairs(siblings) do
  local its = other.generation or ''
  began[its] = math.min(began[its] or math.huge, other.beganAtMs or 0)
end
for its, ms in pairs(began) do
  if ms > began[generation] or (ms == began[generation] and its > generation) then return 'superseded' end
end
return 'current'`;

// -> how many living instances of the runner are left
export const withdrawLua = `${readLiving}
-- KEYS instances | ARGV instance runner channel
local mine = redis.call('HGET', KEYS[1], ARGV[1])
if mine then redis.call('HSET', KEYS[1], ARGV[1], at(mine, 'expiresAtMs', nowMs)) end
local left = 0
for _ in pairs(living(KEYS[1])) do left = left + 1 end
redis.call('PUBLISH', ARGV[3], ARGV[2])
return left`;

// -> {1 if it was away, how many live}
const forgetLua = `${readLiving}
-- KEYS instances names | ARGV runner channel
local left = 0
for _ in pairs(living(KEYS[1])) do left = left + 1 end
if left > 0 then return {0, left} end
redis.call('SREM', KEYS[2], ARGV[1])
local forgotten = redis.call('UNLINK', KEYS[1])
redis.call('PUBLISH', ARGV[2], ARGV[1])
return {forgotten, 0}`;

// -> {now, (runner, instances as JSON)...}: the time is that of the node that holds the keys.
const readLua = `${time}
-- KEYS names | ARGV base
local out = {string.format('%.0f', now())}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  for _, one in ipairs(redis.call('HVALS', ARGV[1] .. name)) do
    table.insert(out, name)
    table.insert(out, one)
  end
end
return out`;

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
  readonly #names: string;
  readonly #base: string;
  readonly #channel: string;
  readonly #runnerKey: string | undefined;
  readonly #keyOf: ((runner: string) => string) | undefined;
  readonly #announce: Script;
  readonly #withdraw: Script;
  readonly #forget: Script;
  readonly #read: Script;
  #owners: ReadonlyMap<string, string> = new Map();

  constructor(options: RedisRunnerDirectoryOptions) {
    const keys = createKeyspace(options.namespace ?? defaultNamespace);
    this.#redis = options.redis;
    this.#names = keys.global("runner-names");
    this.#base = keys.global("runners:");
    this.#channel = keys.global("runners-changed");
    this.#runnerKey = options.runnerKey;
    this.#keyOf = options.keyOf;
    this.#announce = defineScript(options.redis, "directory_announce", announceLua);
    this.#withdraw = defineScript(options.redis, "directory_withdraw", withdrawLua);
    this.#forget = defineScript(options.redis, "directory_forget", forgetLua);
    this.#read = defineScript(options.redis, "directory_read", readLua);
  }

  async announce(announced: RunnerInstance, ttlMs: number): Promise<AnnounceResult> {
    const { runner, instance, generation = "", tools, clock } = announced;
    const digests = Object.fromEntries(tools.map((tool) => [tool.spec.name, digestOf(tool)]));
    // The times come first: the script fills in the first ones that it finds.
    const facts = { expiresAtMs: 0, beganAtMs: 0, generation, digests, runner, instance, offer: JSON.stringify(tools) };
    const mac = this.#runnerKey === undefined ? "" : announcementMac(facts, this.#runnerKey);
    const stored: RunnerAnnouncement = { ...facts, mac, ...(clock === undefined ? {} : { clock }) };
    const keys = [`${this.#base}${runner}`, this.#names];
    const args = [instance, runner, JSON.stringify(stored), ttlMs, this.#channel, this.#base];
    const answer = String(await this.#announce(keys, args));
    if (answer === "current" || answer === "superseded") return { ok: true, isCurrent: answer === "current" };
    const [tool = "", other] = answer.split("|");
    const problem =
      other === runner
        ? `another instance of runner '${runner}' offers tool '${tool}' with a different schema, effect, approval rule or limits`
        : `runner '${other}' already offers a tool named '${tool}'`;
    return { ok: false, conflict: problem, tool };
  }

  async withdraw(runner: string, instance: string): Promise<{ last: boolean }> {
    const left = await this.#withdraw([`${this.#base}${runner}`], [instance, runner, this.#channel]);
    return { last: Number(left) === 0 };
  }

  async forget(runner: string): Promise<{ forgotten: boolean; living: number }> {
    const keys = [`${this.#base}${runner}`, this.#names];
    const [forgotten, living] = (await this.#forget(keys, [runner, this.#channel])) as [number, number];
    return { forgotten: forgotten > 0, living };
  }

  async tools(): Promise<ReadonlyMap<string, AvailableTool>> {
    return (await this.#view()).tools;
  }

  async runners(): Promise<LivingRunner[]> {
    return (await this.#view()).living;
  }

  async away(): Promise<AwayRunner[]> {
    return (await this.#view()).away;
  }

  async #view(): Promise<RunnersView> {
    const [nowMs, ...answered] = (await this.#read([this.#names], [this.#base])) as string[];
    const stored: AnnouncedInstance[] = [];
    for (let i = 0; i + 1 < answered.length; i += 2) {
      const runner = answered[i] ?? "";
      const read = readAnnouncement(answered[i + 1] ?? "", { runner, runnerKey: this.#keyOf?.(runner) });
      if (!read.ok) continue; // not an announcement of this runner
      const { instance, generation, beganAtMs, expiresAtMs, tools, clock } = read.value;
      const seen = clock === undefined ? {} : { clock };
      stored.push({ runner, instance, generation, beganAtMs, expiresAtMs, tools, ...seen });
    }
    const view = viewOfRunners(stored, Number(nowMs), this.#owners);
    this.#owners = new Map([...view.tools].map(([name, { runner }]) => [name, runner]));
    return view;
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
