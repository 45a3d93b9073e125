import { createHash } from "node:crypto";
import { scriptTimeAt, type Script, runScript, script } from "./lua.ts";
import {
  announcementMac,
  readAnnouncement,
  type RunnerAnnouncement,
  awayMs,
} from "@larkline/protocol/runner";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import type { Redis } from "ioredis";
import { mastersOf, type RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

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
  /** Where programs of models run; absent: the runner has no tool for such. */
  sandbox?: RunnerAnnouncement["sandbox"];
}

/** An instance as it is stored, also for a while after its last announcement. Times are the store's clock, epoch ms. */
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
export type AnnounceResult =
  | { ok: true; isCurrent: boolean }
  | { ok: false; conflict: string; tool: string };

/**
 * Whom names of tools belong to, by name or by prefix that ends in `*`: a name counts before a prefix, a longer prefix
 * before a shorter one.
 */
export type ToolOwners = ReadonlyMap<string, string>;

/** A name that a living runner offers although it belongs to another one: that runner's tool is not offered. */
export interface ToolClash {
  tool: string;
  owner: string;
  runner: string;
}

/** A tool that models are offered. */
export interface AvailableTool {
  runner: string;
  announcement: ToolAnnouncement;
  /** The runner has no living instance: calls wait in its queue, and it is forgotten after so many ms. */
  awayForMs?: number;
  /** Epoch ms since when the oldest of the runner's living instances is there. */
  livingSinceMs?: number;
}

export interface RunnersView {
  living: LivingRunner[];
  away: AwayRunner[];
  tools: Map<string, AvailableTool>;
  clashes: ToolClash[];
}

/** What a directory answers at `nowMs`, made from all instances that it stores. */
function viewOfRunners(
  stored: readonly AnnouncedInstance[],
  nowMs: number,
  owners: ToolOwners,
): RunnersView {
  const living: LivingRunner[] = [];
  const away: AwayRunner[] = [];
  for (const instances of Map.groupBy(stored, ({ runner }) => runner).values()) {
    const alive = instances.filter(({ expiresAtMs }) => expiresAtMs > nowMs);
    const generation = currentGeneration(alive);
    living.push(...alive.map((each) => ({ ...each, isCurrent: each.generation === generation })));
    if (alive.length === 0) away.push(...awayRunner(instances, nowMs));
  }
  return { living, away, ...offeredTools({ living, away }, nowMs, owners) };
}

/** Reads what workers alone have written. */
function ownersIn(text: string): ToolOwners {
  return new Map(Object.entries(JSON.parse(text) as Record<string, string>));
}

/** The runner that a tool belongs to. */
function ownerOf(owners: ToolOwners, tool: string): string | undefined {
  let owner = owners.get(tool);
  for (let length = tool.length; owner === undefined && length >= 0; length -= 1) {
    owner = owners.get(`${tool.slice(0, length)}*`);
  }
  return owner;
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
  return new Map(
    inOrder.flatMap(({ tools }) => tools.map((tool) => [tool.spec.name, tool] as const)),
  );
}

function offeredTools(
  { living, away }: Pick<RunnersView, "living" | "away">,
  nowMs: number,
  owners: ToolOwners,
): Pick<RunnersView, "tools" | "clashes"> {
  const tools = new Map<string, AvailableTool>();
  const clashes: ToolClash[] = [];
  const current = living
    .filter(({ isCurrent }) => isCurrent)
    .toSorted((a, b) => a.beganAtMs - b.beganAtMs);
  for (const [runner, instances] of Map.groupBy(current, (each) => each.runner)) {
    const its = living.filter((each) => each.runner === runner);
    const livingSinceMs = Math.min(...its.map(({ beganAtMs }) => beganAtMs));
    for (const [name, announcement] of toolsOf(instances)) {
      const owner = ownerOf(owners, name) ?? tools.get(name)?.runner ?? runner;
      if (owner === runner) tools.set(name, { runner, announcement, livingSinceMs });
      else clashes.push({ tool: name, owner, runner });
    }
  }
  for (const { runner, tools: announcements, untilMs } of away.toSorted(
    (a, b) => b.sinceMs - a.sinceMs,
  )) {
    for (const announcement of announcements) {
      const { name } = announcement.spec;
      const isTaken = tools.has(name) || (ownerOf(owners, name) ?? runner) !== runner;
      if (!isTaken) tools.set(name, { runner, announcement, awayForMs: untilMs - nowMs });
    }
  }
  return { tools, clashes };
}

interface RunnerDirectoryOptions extends StoreOptions {
  /** The key of the runner that announces itself here: announcements are signed with it. */
  runnerKey?: string;
  /**
   * The keys of all runners. With them announcements that are not signed by their runner are left out: workers believe
   * what a tool is said to be, such as that it needs no approval.
   */
  runnerKeys?: { of(runner: string): string };
  /**
   * What the configuration says about owners. With it this directory writes down whom every tool belongs to: a name
   * that the configuration does not have belongs to the first runner that offers it, until that runner is forgotten.
   */
  owners?: ToolOwners;
}

const announce = script("announce");
const withdraw = script("withdraw");
const forgetRunner = script("forget-runner");
const readRunners = script("read-runners");
const ownTools = script("own-tools");

function digestOf({
  spec,
  effect,
  requiresApproval,
  limits = {},
  identity,
}: ToolAnnouncement): string {
  return createHash("sha256")
    .update(
      JSON.stringify([
        spec.inputSchema,
        effect,
        requiresApproval,
        limits,
        ...(identity ? [identity] : []),
      ]),
    )
    .digest("base64url");
}

/** Which runners are alive and what they offer. All times are of the store's clock. */
export class RunnerDirectory {
  readonly #redis: RedisConnection;
  readonly #names: string;
  readonly #owners: string;
  readonly #base: string;
  readonly #presences: string;
  readonly #presenceChannels: string;
  readonly #channel: string;
  readonly #runnerKey: string | undefined;
  readonly #runnerKeys: RunnerDirectoryOptions["runnerKeys"];
  readonly #configured: ToolOwners | undefined;
  /** Of the last view, by text. */
  #offers: ReadonlyMap<string, ToolAnnouncement[]> = new Map();
  /** When the instances that announce themselves here began to announce their generation. */
  readonly #began = new Map<string, { generation: string; beganAtMs: number }>();

  constructor(options: RunnerDirectoryOptions) {
    const keys = createKeyspace(options.namespace);
    this.#redis = options.redis;
    this.#names = keys.runnerNames;
    this.#owners = keys.toolOwners;
    this.#base = keys.runnerOf("");
    this.#presences = keys.aliveOf("");
    this.#presenceChannels = keys.presenceOf("");
    this.#channel = keys.runnersChanged;
    this.#runnerKey = options.runnerKey;
    this.#runnerKeys = options.runnerKeys;
    this.#configured = options.owners;
  }

  /**
   * Announces or renews an instance for `ttlMs`. Refused when a tool belongs to another runner, or has no owner while a
   * living instance of another runner offers it, or when an instance of the same generation offers it with another
   * schema, effect, approval rule or limits; `conflict` says which.
   */
  async announce(announced: RunnerInstance, ttlMs: number): Promise<AnnounceResult> {
    const { runner, instance, generation = "", tools, clock, sandbox } = announced;
    const digests = Object.fromEntries(tools.map((tool) => [tool.spec.name, digestOf(tool)]));
    const nowMs = await this.#now();
    const beganAtMs = this.#beganAt(`${runner} ${instance}`, generation, nowMs);
    const offer = JSON.stringify(tools);
    const facts = {
      expiresAtMs: nowMs + ttlMs,
      beganAtMs,
      generation,
      digests,
      runner,
      instance,
      offer,
    };
    const mac = this.#runnerKey === undefined ? "" : announcementMac(facts, this.#runnerKey);
    const forPeople = {
      ...(clock === undefined ? {} : { clock }),
      ...(sandbox === undefined ? {} : { sandbox }),
    };
    const stored: RunnerAnnouncement = { ...facts, mac, ...forPeople };
    const values = {
      instance,
      runner,
      json: JSON.stringify(stored),
      ttlMs,
      channel: this.#channel,
      base: this.#base,
    };
    const answer = String(await runScript(this.#redis, announce, this.#keysOf(runner), values));
    if (answer === "current" || answer === "superseded") {
      return { ok: true, isCurrent: answer === "current" };
    }
    const [tool = "", other] = answer.split("|");
    const problem =
      other === runner
        ? `another instance of runner '${runner}' offers tool '${tool}' with a different schema, effect, approval rule or limits`
        : `a tool named '${tool}' belongs to runner '${other}'`;
    return { ok: false, conflict: problem, tool };
  }

  /** Epoch ms of the store's clock. */
  async #now(): Promise<number> {
    const [server = this.#redis as Redis] = mastersOf(this.#redis);
    const [seconds, micros] = await server.time();
    return Math.floor(scriptTimeAt(this.#redis, Number(seconds) * 1_000 + Number(micros) / 1_000));
  }

  #beganAt(instance: string, generation: string, nowMs: number): number {
    const known = this.#began.get(instance);
    if (known?.generation === generation) return known.beganAtMs;
    this.#began.set(instance, { generation, beganAtMs: nowMs });
    return nowMs;
  }

  /** Takes an instance out. Returns whether it was the runner's last; its tools stay offered for {@link awayMs}. */
  async withdraw(runner: string, instance: string): Promise<{ last: boolean }> {
    const values = { instance, runner, channel: this.#channel };
    const left = await runScript(this.#redis, withdraw, this.#keysOf(runner), values);
    this.#began.delete(`${runner} ${instance}`);
    return { last: Number(left) === 0 };
  }

  /**
   * Forgets a runner that is away: its tools are offered no longer, and their names are free. Returns whether it was
   * known; living instances stay.
   */
  async forget(runner: string): Promise<{ forgotten: boolean; living: number }> {
    const values = { runner, channel: this.#channel };
    const reply = await runScript(this.#redis, forgetRunner, this.#keysOf(runner), values);
    const [forgotten, living] = reply as [number, number]; // shape fixed by the script
    return { forgotten: forgotten > 0, living };
  }

  /** Everything, as of one moment. */
  async view(): Promise<RunnersView> {
    return await this.#view();
  }

  /** Tools by name: those of living runners, then those of runners that are away. */
  async tools(): Promise<ReadonlyMap<string, AvailableTool>> {
    return (await this.#view()).tools;
  }

  /** All runners that have announced tools and are not forgotten yet, whether they live or not. */
  async names(): Promise<string[]> {
    return await this.#redis.smembers(this.#names);
  }

  /** Living instances, those of superseded generations included. */
  async runners(): Promise<LivingRunner[]> {
    return (await this.#view()).living;
  }

  /** Runners without a living instance whose tools are still offered. */
  async away(): Promise<AwayRunner[]> {
    return (await this.#view()).away;
  }

  async #view(): Promise<RunnersView> {
    const keys = { names: this.#names, owners: this.#owners };
    const places = {
      base: this.#base,
      presences: this.#presences,
      channels: this.#presenceChannels,
    };
    const reply = await runScript(this.#redis, readRunners, keys, places);
    const [now, owned = "{}", ...answered] = reply as string[]; // shape fixed by the script
    const stored: AnnouncedInstance[] = [];
    const offers = new Map<string, ToolAnnouncement[]>();
    for (let i = 0; i + 2 < answered.length; i += 3) {
      const runner = answered[i] ?? "";
      const isGone = Number(answered[i + 2]) === 1;
      const read = readAnnouncement(answered[i + 1] ?? "", {
        runner,
        runnerKey: this.#runnerKeys?.of(runner),
        known: this.#offers,
      });
      if (!read.ok) continue; // not an announcement of this runner
      offers.set(read.value.offer, [...read.value.tools]);
      const { instance, generation, beganAtMs, tools, clock, sandbox } = read.value;
      const expiresAtMs = isGone
        ? Math.min(read.value.expiresAtMs, Number(now))
        : read.value.expiresAtMs;
      const seen = {
        ...(clock === undefined ? {} : { clock }),
        ...(sandbox === undefined ? {} : { sandbox }),
      };
      stored.push({ runner, instance, generation, beganAtMs, expiresAtMs, tools, ...seen });
    }
    this.#offers = offers;
    const owners = ownersIn(owned);
    const view = viewOfRunners(stored, Number(now), owners);
    if (this.#configured === undefined) return view;
    const settled = await this.#settleOwners(this.#configured, owners, view);
    return settled === owners ? view : viewOfRunners(stored, Number(now), settled);
  }

  /** Writes down what is new about owners; returns those that hold now. */
  async #settleOwners(
    configured: ToolOwners,
    owners: ToolOwners,
    { living, tools }: RunnersView,
  ): Promise<ToolOwners> {
    const offered = new Set([
      ...tools.keys(),
      ...living.flatMap((each) => each.tools.map(({ spec }) => spec.name)),
    ]);
    const names = [...owners.keys(), ...offered].filter((name) => !name.endsWith("*"));
    const wanted = new Map(configured);
    for (const name of names) {
      const owner = ownerOf(configured, name);
      if (owner !== undefined) wanted.set(name, owner);
    }
    const assigned = [...wanted].filter(([name, runner]) => owners.get(name) !== runner);
    const dropped = [...owners.keys()].filter(
      (name) => name.endsWith("*") && !configured.has(name),
    );
    const claimed = [...tools].flatMap(([name, { runner }]) =>
      owners.has(name) || wanted.has(name) ? [] : [[name, runner] as const],
    );
    if (assigned.length + dropped.length + claimed.length === 0) return owners;
    const values = {
      assigned: JSON.stringify(Object.fromEntries(assigned)),
      claimed: JSON.stringify(Object.fromEntries(claimed)),
      dropped: JSON.stringify(dropped),
    };
    const reply = await runScript(this.#redis, ownTools, { owners: this.#owners }, values);
    return ownersIn(String(reply));
  }

  #keysOf(runner: string): { instances: string; names: string; owners: string } {
    return { instances: `${this.#base}${runner}`, names: this.#names, owners: this.#owners };
  }

  /**
   * Calls `listener` after every announce of something new and every withdraw, until `signal`
   * aborts; also when changes may have been missed. Resolves when watching has begun.
   */
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

/** A script as a runner in another language calls it. */
export type PublishedScript = Pick<Script, "keys" | "arguments" | "lua">;

function published(name: string): PublishedScript {
  const { keys, arguments: names, lua } = script(name);
  return { keys, arguments: names, lua };
}

/** The scripts of the tool protocol, by name. */
export function runnerScripts(): Record<string, PublishedScript> {
  return {
    announce: published("announce"),
    withdraw: published("withdraw"),
    hand_in: published("hand-in"),
  };
}
