import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { FaultAction } from "@larkline/simulator";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { metricOf } from "../system/answers.ts";
import type { AppProcess } from "../system/app-process.ts";
import type { ProcessSystem } from "../system/system.ts";
import type { AnswerWatch } from "./answer-watch.ts";
import { groupOf, restartRedis, type Kind } from "./attacks.ts";
import type { ModelWeather } from "./model-weather.ts";
import type { createRandom } from "./random.ts";

/** What disasters happen to. */
export interface DisasterScene {
  system: ProcessSystem;
  watch: AnswerWatch;
  weather: ModelWeather;
  random: ReturnType<typeof createRandom>;
  /** How long a stopped process sleeps: longer than its beat is good for. */
  freezeMs: number;
  /** Fills the disk of Redis, and gives the room back; absent where no disk could be made for it. */
  disk: { fill(): Promise<void>; clear(): Promise<void> } | undefined;
  /** Processes that end as part of a disaster: only the disaster starts others in their place. */
  expected: WeakSet<AppProcess>;
}

export const disasterNames = [
  "kill_worker",
  "kill_runner",
  "kill_ingress",
  "freeze",
  "dropped_connections",
  "redis_restart",
  "feishu_outage",
  "feishu_faults",
  "model_errors",
  "late_events",
  "half_open",
  "dead_lines",
  "wrong_clock",
  "redis_full",
  "disk_full",
] as const;
export type DisasterName = (typeof disasterNames)[number];

/** What a disaster leaves behind for the count. */
export interface Damage {
  /** What was hit: the kind of a process. */
  what?: string;
  /** When nothing was broken any more, if not only now. */
  overMs?: number;
  /** What the processes that are gone had healed. */
  healed?: number;
}

const kinds: readonly Kind[] = ["agent-worker", "tool-runner", "ingress"];

/** What a worker has healed so far; 0 when it cannot be asked. */
export async function healedBy(url: string): Promise<number> {
  return await metricOf({ url }, "larkline_healed_total").catch(() => 0);
}

/** SIGKILL; another process is started in its place, and until then the others do its work. */
async function kill(
  { system, random, expected }: DisasterScene,
  kind: Kind,
  env: Record<string, string> = {},
): Promise<Damage> {
  const group = groupOf(system, kind);
  const at = random.below(group.length);
  const victim = group[at];
  if (victim === undefined) return {};
  const healed = kind === "agent-worker" ? await healedBy(victim.url) : 0;
  expected.add(victim);
  await victim.kill();
  const overMs = performance.now();
  group[at] = await startAgain(system, kind, env);
  return { healed, overMs };
}

/** Another process; one more where a message that kills workers ends it before it is ready. */
export async function startAgain(
  system: ProcessSystem,
  kind: Kind,
  env: Record<string, string> = {},
): Promise<AppProcess> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await system.start(kind, env);
    } catch (error) {
      if (kind !== "agent-worker" || tries === 5) throw error;
    }
  }
}

/** A machine that stalls: the process is paused, and later continues where it was. */
async function freeze({ system, random, freezeMs }: DisasterScene): Promise<Damage> {
  const what = random.pick(kinds);
  const victim = random.pick(groupOf(system, what));
  victim.signal("SIGSTOP");
  await delay(freezeMs);
  victim.signal("SIGCONT");
  return { what };
}

/** A network that cuts about half of all connections to Redis at once. */
async function dropConnections({ system, random }: DisasterScene): Promise<Damage> {
  const redis = connectRedis(system.redis.url);
  try {
    const own = Number(await redis.call("CLIENT", "ID"));
    const list = String(await redis.call("CLIENT", "LIST"));
    const ids = [...list.matchAll(/^id=(\d+)/gm)]
      .map(([, id]) => Number(id))
      .filter((id) => id !== own);
    for (const id of ids) {
      if (random.below(2) === 0) await redis.call("CLIENT", "KILL", "ID", String(id));
    }
  } finally {
    await closeRedis(redis);
  }
  return {};
}

/** Everything of Feishu's API is away, for seconds. */
async function feishuOutage({ system, random }: DisasterScene): Promise<Damage> {
  const action: FaultAction = random.pick([
    { kind: "respond", status: 503 } as const,
    { kind: "drop" } as const,
    { kind: "hang" } as const,
  ]);
  const end = system.feishu.faults.add({ action });
  await delay(2_000 + random.below(3_000));
  end();
  return {};
}

const apiFaults: readonly FaultAction[] = [
  { kind: "respond", status: 503 },
  { kind: "drop" },
  { kind: "lose_response" },
  { kind: "delay", delayMs: 700 },
];

/** The next calls to some part of Feishu's API fail, applied or not. */
async function feishuFaults({ system, random }: DisasterScene): Promise<Damage> {
  const path = random.pick([
    /\/messages/,
    /\/cardkit\/v1\/cards$/,
    /\/content$/,
    /\/cards\/[^/]+$/,
    /\/cardkit\//,
  ]);
  system.feishu.faults.add({ match: { path }, times: 5, action: random.pick(apiFaults) });
  return {};
}

/** Events of messages that were answered long ago come again, as new events. */
async function lateEvents({ system, random, watch }: DisasterScene): Promise<Damage> {
  const known = watch.all().filter(({ answeredMs }) => answeredMs !== undefined);
  for (let count = 0; count < 3 && known.length > 0; count += 1) {
    void system.feishu.redeliver(random.pick(known).messageId, {
      freshEventId: random.below(2) === 0,
    });
  }
  return {};
}

const directions = ["toServer", "toClient", "both"] as const;

/** Connections of one process whose other side is gone without a word, for one direction or both; new ones work. */
async function halfOpen({ system, random }: DisasterScene): Promise<Damage> {
  const what = random.pick(kinds);
  const lines = system.linesOf(random.pick(groupOf(system, what)));
  for (const line of lines) if (random.below(2) === 0) line.swallow(random.pick(directions));
  return { what };
}

/** A network that takes everything of one process and gives nothing, new connections included, for some seconds. */
async function deadLines({ system, random }: DisasterScene): Promise<Damage> {
  const what = random.pick(kinds);
  const lines = system.linesOf(random.pick(groupOf(system, what)));
  for (const line of lines) line.swallow("both", { andNew: true });
  await delay(3_000 + random.below(9_000));
  for (const line of lines) line.restore();
  return { what };
}

const wrongClock = fileURLToPath(new URL("../fixtures/wrong-clock.mjs", import.meta.url));
const offsetsMs = [10_000, -10_000, 3_600_000, -3_600_000];

/** A machine with a wrong clock takes the place of one that dies. */
async function startWithWrongClock(scene: DisasterScene): Promise<Damage> {
  const what = scene.random.pick(kinds);
  const NODE_OPTIONS = `${scene.system.env["NODE_OPTIONS"] ?? ""} --import=${wrongClock}`.trim();
  const env = { NODE_OPTIONS, CLOCK_AHEAD_MS: String(scene.random.pick(offsetsMs)) };
  return { ...(await kill(scene, what, env)), what };
}

/** Redis has no memory left, and refuses whatever needs some, for seconds. */
async function fillRedis({ system, random }: DisasterScene): Promise<Damage> {
  const redis = connectRedis(system.redis.url);
  try {
    await redis.call("CONFIG", "SET", "maxmemory", "1mb");
    await delay(1_000 + random.below(4_000));
  } finally {
    await redis.call("CONFIG", "SET", "maxmemory", "0");
    await closeRedis(redis);
  }
  return {};
}

/** The disk under Redis is full, so that it refuses to write, for seconds. Then its file is written anew. */
async function fillDisk({ system, disk, random }: DisasterScene): Promise<Damage> {
  if (disk === undefined) return { what: "left out" };
  await disk.fill();
  await delay(2_000 + random.below(3_000));
  await disk.clear();
  const overMs = performance.now();
  await rewriteAppendOnlyFile(system.redis.url);
  return { overMs };
}

/**
 * What docs/operations.md asks of operators after a full disk: a rewrite that began meanwhile may have left a file that
 * Redis cannot load (github.com/redis/redis/pull/14372), until the next one replaces it.
 */
async function rewriteAppendOnlyFile(url: string): Promise<void> {
  const redis = connectRedis(url);
  const untilInfo = async (...lines: readonly string[]): Promise<void> => {
    for (;;) {
      const info = String(await redis.call("INFO", "persistence"));
      if (lines.every((line) => info.includes(line))) return;
      await delay(50);
    }
  };
  try {
    await untilInfo(
      "aof_last_write_status:ok",
      "aof_rewrite_in_progress:0",
      "aof_rewrite_scheduled:0",
    );
    await redis.call("BGREWRITEAOF").catch(() => undefined); // Redis has just begun one by itself
    await untilInfo(
      "aof_last_bgrewrite_status:ok",
      "aof_rewrite_in_progress:0",
      "aof_rewrite_scheduled:0",
    );
  } finally {
    await closeRedis(redis);
  }
}

/** Resolves once the harm is over: what is slow from then on is recovery. */
export const disasters: Readonly<Record<DisasterName, (scene: DisasterScene) => Promise<Damage>>> =
  {
    kill_worker: async (scene) => await kill(scene, "agent-worker"),
    kill_runner: async (scene) => await kill(scene, "tool-runner"),
    kill_ingress: async (scene) => await kill(scene, "ingress"),
    freeze,
    dropped_connections: dropConnections,
    redis_restart: async ({ system, random }) => {
      await restartRedis(system, random);
      return {};
    },
    feishu_outage: feishuOutage,
    feishu_faults: feishuFaults,
    model_errors: async ({ weather }) => {
      weather.worsen(4);
      return {};
    },
    late_events: lateEvents,
    half_open: halfOpen,
    dead_lines: deadLines,
    wrong_clock: startWithWrongClock,
    redis_full: fillRedis,
    disk_full: fillDisk,
  };
