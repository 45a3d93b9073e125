import { MemoryStore, type MemoryOwner } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import { startRedis } from "@larkline/testkit";
import { larkline, plainText, spread, startSubject, warmUp, type Running, type Spread } from "./measure.ts";
import type { BenchVendors, Before } from "./vendors.ts";
import { measureFollows, type FollowNumbers } from "./views.ts";

// The marks of agents that work together and remember, each beside what it is compared with in the same run.

export interface TogetherNumbers {
  /** The end of a model's stream to the next request of the same turn, idle, ms. */
  handOver: Spread;
  toolCall: Spread;
  /** The look-up before the first step with 200 memories, ms, and its scripts; beside a bare round trip. */
  recall: Spread;
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

export async function measureTogether(vendors: BenchVendors, work: TogetherWork): Promise<TogetherNumbers> {
  const agents = {
    default: { ...plainText.agents.default, handoffs: ["expert"] },
    expert: { ...plainText.agents.default, instructions: "You are the expert." },
  };
  const options = { ...larkline.options, config: { ...plainText, agents } };
  const running = await startSubject(vendors, { name: "Larkline, with two agents", options });
  const steps: Record<"tool" | "hand-over", number[]> = { tool: [], "hand-over": [] };
  try {
    await warmUp(running, work.warm);
    await gaps(running, "hand-over", work.warm / 10);
    // In turns, so that noise hits both alike.
    for (let left = work.turns; left > 0; left -= 20) {
      for (const before of ["tool", "hand-over"] as const) {
        steps[before].push(...(await gaps(running, before, Math.min(20, left))));
      }
    }
  } finally {
    await running.close();
  }
  const memory = await measureRecall(work.finds);
  const follows = await measureFollows(work.events);
  return { handOver: spread(steps["hand-over"]), toolCall: spread(steps.tool), ...memory, follows };
}

/** From the end of the first step to the next request, one turn after the other. */
async function gaps(running: Running, before: Before, messages: number): Promise<number[]> {
  const { trips } = await running.load({ inFlight: 1, messages: Math.ceil(messages), perChat: 1, before });
  return trips.map(({ messageId, modelMs: [first, second] }) => {
    if (first === undefined || second === undefined) throw new Error(`the turn of ${messageId} had no second step`);
    return second.in - first.out;
  });
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
    const memoryBytes = await bytesOf(redis);
    for (let at = 0; at < memories; at += 1) {
      await store.remember(owner, { call: `c${at}`, text: `${text.slice(0, 190)}${at}`, by: owner.id });
    }
    const find = async () => await store.find(owner, [owner], "do I prefer trains or planes when I go to Berlin?");
    await timed(find, finds / 10);
    const before = await scripts(redis);
    await find();
    const recallScripts = (await scripts(redis)) - before;
    const [recall, ping] = [await timed(find, finds), await timed(async () => await redis.ping(), finds)];
    return { recall, ping, recallScripts, memoryBytes, textBytes: Buffer.byteLength(text) };
  } finally {
    await closeRedis(redis);
    await server.stop();
  }
}

async function timed(work: () => Promise<unknown>, count: number): Promise<Spread> {
  const times: number[] = [];
  for (let at = 0; at < count; at += 1) {
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

/** What all keys hold. */
async function bytesOf(redis: RedisConnection): Promise<number> {
  const keys = await redis.keys("*");
  const sizes = keys.map(async (key) => Number(await redis.call("MEMORY", "USAGE", key, "SAMPLES", "0")));
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

function both({ p50, p99 }: Spread): string {
  return `${p50.toFixed(2)} / ${p99.toFixed(2)} ms`;
}

export function togetherTable(numbers: TogetherNumbers): string {
  const { handOver, toolCall, recall, ping, recallScripts, memoryBytes, textBytes, follows } = numbers;
  const rows = [
    [
      "hand-over: end of the step to the next agent's request",
      both(handOver),
      `a tool call instead: ${both(toolCall)}`,
      "p50 1.5 ms",
    ],
    [
      `recall with ${memories} memories (${recallScripts} script)`,
      both(recall),
      `a bare round trip: ${both(ping)}`,
      "p50 1 ms",
    ],
    ["a memory of 200 characters", `${memoryBytes} B`, `its text alone: ${textBytes} B`, "1 KB"],
    ...follows.map(({ followers, ms }) => [
      `event stored to event in the loop of the SDK, ${followers} ${followers === 1 ? "follower" : "followers"}`,
      both(ms),
      followers === 1 ? `a bare round trip: ${both(ping)}` : `one follower: ${both(follows[0]?.ms ?? ms)}`,
      "p50 10 ms",
    ]),
  ];
  const all = [["mark", "p50 / p99", "beside it", "limit"], ["---", "---", "---", "---"], ...rows];
  return all.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}
