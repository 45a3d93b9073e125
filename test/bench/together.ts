import { setTimeout as delay } from "node:timers/promises";
import { createClient } from "@larkline/sdk";
import type { MemoryOwner } from "@larkline/protocol";
import { MemoryStore } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import { startRedis, type ModelScript } from "@larkline/testkit";
import { startProcesses } from "../system/system.ts";
import {
  larkline,
  median,
  plainText,
  spread,
  startSubject,
  warmUp,
  type Running,
  type Spread,
} from "./measure.ts";
import type { BenchVendors, Before, Trip } from "./vendors.ts";
import { measureFollows, type FollowNumbers } from "./views.ts";

// The marks of agents that work together and remember, each beside what it is compared with in the same run.

/** Bytes in Redis. */
export interface SizeNumbers {
  /** The largest checkpoint of a turn. */
  checkpoint: Record<"tool" | "helpers" | "team", number>;
  /** A helper's session that has ended, with its share of what its root knows; its events, which expire after a day. */
  child: { rest: number; events: number };
  /** The same of a conversation with one tool call. */
  root: { rest: number; events: number };
}

export interface TogetherNumbers {
  /** The end of a model's stream to the next request of the same turn, idle, ms. */
  handOver: Spread;
  toolCall: Spread;
  /** The end of the asker's stream to the request of the helper, and the helper's to the asker's next, idle, ms. */
  helperBegin: Spread;
  helperEnd: Spread;
  /** Turns a second with 32 in flight. */
  perSecond: Record<"tool" | "helper", number>;
  sizes: SizeNumbers;
  /** The look-up before the first step with 200 memories, ms, and its scripts; beside a bare round trip. */
  recall: Spread;
  /** The same after ten minutes, or after one of them has changed. */
  firstRecall: Spread;
  ping: Spread;
  recallScripts: number;
  /** Of a memory of 200 characters in Redis, bytes; its text alone. */
  memoryBytes: number;
  textBytes: number;
  follows: FollowNumbers[];
}

export interface TogetherWork {
  /** Turns with a hand-over, and as many with a call. */
  turns: number;
  warm: number;
  finds: number;
  /** Events of the run that is followed. */
  events: number;
}

export async function measureTogether(
  vendors: BenchVendors,
  work: TogetherWork,
): Promise<TogetherNumbers> {
  const plain = plainText.agents.default;
  const agents = {
    default: { ...plain, handoffs: ["expert"], helpers: [{ agent: "helper", as: "ask_helper" }] },
    expert: { ...plain, instructions: "You are the expert." },
    helper: { ...plain, instructions: "You are the helper." },
  };
  const options = { ...larkline.options, config: { ...plainText, agents } };
  const running = await startSubject(vendors, { name: "Larkline, with three agents", options });
  const trips: Record<Before, Trip[]> = { tool: [], "hand-over": [], helper: [], nothing: [] };
  const rates = { tool: [] as number[], helper: [] as number[] };
  try {
    await warmUp(running, work.warm);
    for (const before of ["hand-over", "helper"] as const) {
      await oneByOne(running, before, work.warm / 10);
    }
    // In turns, so that noise hits all alike.
    for (let left = work.turns; left > 0; left -= 20) {
      for (const before of ["tool", "hand-over", "helper"] as const) {
        trips[before].push(...(await oneByOne(running, before, Math.min(20, left))));
      }
    }
    for (let round = 0; round < 3; round += 1) {
      for (const before of ["tool", "helper"] as const) {
        rates[before].push(await turnsPerSecond(running, before, 2 * work.turns));
      }
    }
  } finally {
    await running.close();
  }
  return {
    handOver: gaps(trips["hand-over"], 0),
    toolCall: gaps(trips.tool, 0),
    helperBegin: gaps(trips.helper, 0),
    helperEnd: gaps(trips.helper, 1),
    perSecond: { tool: median(rates.tool), helper: median(rates.helper) },
    sizes: await measureSizes(),
    ...(await measureRecall(work.finds)),
    follows: await measureFollows(work.events),
  };
}

async function oneByOne(running: Running, before: Before, messages: number): Promise<Trip[]> {
  return (await running.load({ inFlight: 1, messages: Math.ceil(messages), perChat: 1, before }))
    .trips;
}

async function turnsPerSecond(running: Running, before: Before, messages: number): Promise<number> {
  const { trips, seconds } = await running.load({ inFlight: 32, messages, perChat: 5, before });
  return trips.length / seconds;
}

/** From the end of a step to the next request of the same trip; `step` counts from 0. */
function gaps(trips: readonly Trip[], step: number): Spread {
  const each = trips.map(({ messageId, modelMs }) => {
    const [before, after] = [modelMs[step], modelMs[step + 1]];
    if (before === undefined || after === undefined) {
      throw new Error(`the trip of ${messageId} ended too early`);
    }
    return after.in - before.out;
  });
  return spread(each);
}

const helpersOfTurn = 16;
const contributions = 12;
const words = "The cause was a certificate that had expired. ".repeat(5).slice(0, 200);

/** Helpers, members and a tool whose answers have 200 characters. */
const sizeScript: ModelScript = ({ system, messages }) => {
  const [asked = ""] = messages.flatMap(({ role, text: said }) =>
    role === "user" && said !== "" ? [said] : [],
  );
  const isAnswered = messages.at(-1)?.results.length !== 0;
  if (!system.startsWith("asker") || isAnswered) return { text: words, firstDelayMs: 50 };
  if (asked !== "helpers") return { calls: [{ name: "note_pure", arguments: { key: words } }] };
  const tasks = Array.from({ length: helpersOfTurn }, (_, at) => ({ task: `${at} ${words}` }));
  return { calls: tasks.map((task) => ({ name: "ask_helper", arguments: task })) };
};

async function measureSizes(): Promise<SizeNumbers> {
  const members = ["one", "two"];
  const config = {
    agents: {
      default: { instructions: "asker", helpers: [{ agent: "one", as: "ask_helper" }] },
      one: { instructions: "one" },
      two: { instructions: "two" },
    },
    teams: { team: { members, select: "round_robin", end: { messages: contributions } } },
  };
  const system = await startProcesses({ script: sizeScript, config, env: { LOG_LEVEL: "error" } });
  const redis = connectRedis(system.redis.url);
  try {
    const client = createClient({ url: system.ingresses[0]?.url ?? "" });
    const largest = async (name: keyof SizeNumbers["checkpoint"]): Promise<number> => {
      const ended = client
        .run(name, { session: name, agent: name === "team" ? "team" : "default" })
        .result();
      const over = ended.then(() => true);
      let most = 0;
      do {
        const keys = await redis.keys(`*:state:api.${name}`);
        const sizes = keys.map(async (key) => await redis.hstrlen(key, "turn"));
        most = Math.max(most, ...(await Promise.all(sizes)));
      } while (!(await Promise.race([over, delay(2, false)])));
      return most;
    };
    const checkpoint = {
      tool: await largest("tool"),
      helpers: await largest("helpers"),
      team: await largest("team"),
    };
    const share = (await bytesOf(redis, "*:children:api.helpers")) / helpersOfTurn;
    const held = async (session: string, count: number) => {
      const events = (await bytesOf(redis, `*:ev:${session}`)) / count;
      return { rest: (await bytesOf(redis, `*${session}`)) / count - events, events };
    };
    const child = await held("api.helpers~*", helpersOfTurn);
    return {
      checkpoint,
      child: { ...child, rest: child.rest + share },
      root: await held("api.tool", 1),
    };
  } finally {
    await closeRedis(redis);
    await system.close();
  }
}

const memories = 200;
const text = "Prefers trains to planes. ".repeat(8).slice(0, 200);

async function measureRecall(finds: number) {
  const server = await startRedis();
  const redis = connectRedis(server.url);
  try {
    const store = new MemoryStore({ redis, namespace: "bench" });
    const owner: MemoryOwner = { kind: "person", app: "cli_bench", tenant: "t", id: "ou_bench" };
    const of = { ...owner, id: "ou_size" };
    await store.remember(of, { call: "c", text, by: of.id });
    const memoryBytes = await bytesOf(redis, "*");
    for (let at = 0; at < memories; at += 1) {
      await store.remember(owner, {
        call: `c${at}`,
        text: `${text.slice(0, 190)}${at}`,
        by: owner.id,
      });
    }
    const find = async () =>
      await store.find(owner, [owner], "do I prefer trains or planes when I go to Berlin?");
    await timed(find, finds / 10);
    const before = await scripts(redis);
    await find();
    const recallScripts = (await scripts(redis)) - before;
    const [recall, ping] = [
      await timed(find, finds),
      await timed(async () => await redis.ping(), finds),
    ];
    const [kept = ""] = await redis.keys("*:look-up");
    const firstRecall = await timed(find, finds, async () => await redis.del(kept));
    return {
      recall,
      firstRecall,
      ping,
      recallScripts,
      memoryBytes,
      textBytes: Buffer.byteLength(text),
    };
  } finally {
    await closeRedis(redis);
    await server.stop();
  }
}

async function timed(
  work: () => Promise<unknown>,
  count: number,
  before?: () => Promise<unknown>,
): Promise<Spread> {
  const times: number[] = [];
  for (let at = 0; at < count; at += 1) {
    await before?.();
    const startedMs = performance.now();
    await work();
    times.push(performance.now() - startedMs);
  }
  return spread(times);
}

/** Scripts that were called so far. */
async function scripts(redis: RedisConnection): Promise<number> {
  const stats = await redis.info("commandstats");
  const calls = [...stats.matchAll(/^cmdstat_(?:eval|evalsha):calls=(\d+)/gm)];
  return calls.reduce((sum, [, count]) => sum + Number(count), 0);
}

/** What the keys hold. */
async function bytesOf(redis: RedisConnection, pattern: string): Promise<number> {
  const keys = await redis.keys(pattern);
  const sizes = keys.map(async (key) =>
    Number(await redis.call("MEMORY", "USAGE", key, "SAMPLES", "0")),
  );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1_024).toFixed(1)} KB`;
}

function withEvents({ rest, events }: SizeNumbers["child"]): string {
  return `${kilobytes(rest)}, on its first day events of ${kilobytes(events)}`;
}

function both({ p50, p99 }: Spread): string {
  return `${p50.toFixed(2)} / ${p99.toFixed(2)} ms`;
}

export function togetherTable(numbers: TogetherNumbers): string {
  const { handOver, toolCall, helperBegin, helperEnd, perSecond, sizes } = numbers;
  const { recall, firstRecall, ping, recallScripts, memoryBytes, textBytes, follows } = numbers;
  const { checkpoint, child, root } = sizes;
  const trip = `a tool's round trip: ${both(toolCall)}`;
  const oneCall = `a turn with one tool call: ${kilobytes(checkpoint.tool)}`;
  const rows = [
    ["hand-over: end of the step to the next agent's request", both(handOver), trip, "p50 1.5 ms"],
    [
      "helper: end of the asker's step to the helper's request",
      both(helperBegin),
      trip,
      "p50 5 ms",
    ],
    ["helper: its last byte to the asker's next request", both(helperEnd), trip, "p50 5 ms"],
    [
      "turns per second with one helper call, 32 in flight",
      `${perSecond.helper.toFixed(0)} (${(perSecond.helper / perSecond.tool).toFixed(2)})`,
      `with one tool call: ${perSecond.tool.toFixed(0)}`,
      "0.5",
    ],
    [
      `checkpoint of a turn with ${helpersOfTurn} helpers`,
      kilobytes(checkpoint.helpers),
      oneCall,
      "64 KB",
    ],
    [
      `checkpoint of a turn with ${contributions} contributions`,
      kilobytes(checkpoint.team),
      oneCall,
      "64 KB",
    ],
    [
      "a helper's session at rest",
      withEvents(child),
      `a conversation with one tool call: ${withEvents(root)}`,
      "6 KB",
    ],
    [
      `recall with ${memories} memories (${recallScripts} script)`,
      both(recall),
      `a bare round trip: ${both(ping)}`,
      "p50 1 ms",
    ],
    [
      "the same, the first after ten minutes or a change",
      both(firstRecall),
      `a bare round trip: ${both(ping)}`,
      "",
    ],
    ["a memory of 200 characters", `${memoryBytes} B`, `its text alone: ${textBytes} B`, "1 KB"],
    ...follows.map(({ followers, ms }) => [
      `event stored to event in the loop of the SDK, ${followers} ${followers === 1 ? "follower" : "followers"}`,
      both(ms),
      followers === 1
        ? `a bare round trip: ${both(ping)}`
        : `one follower: ${both(follows[0]?.ms ?? ms)}`,
      "p50 10 ms",
    ]),
  ];
  const all = [["mark", "p50 / p99", "beside it", "limit"], ["---", "---", "---", "---"], ...rows];
  return all.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}
