import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { write } from "../system/answers.ts";
import { decide, openQuestions, untilAsked } from "../system/approvals.ts";
import { answerTo } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { residentMb, spread, type Spread } from "./measure.ts";

/** What it costs that many people are waited for. */
export interface WaitingNumbers {
  sessions: number;
  /** Jobs of all queues that are active or waiting meanwhile. */
  jobs: number;
  /** Memory of the worker before, and while all wait. */
  workerMb: { before: number; waiting: number };
  /** Redis memory per waiting session, bytes. */
  redisBytes: number;
  /** Turns a second that others get meanwhile, and got before. */
  othersPerSecond: { before: number; waiting: number };
  /** From a click to the turn's answer meanwhile. */
  resumedMs: Spread;
}

const tools = ["recording-tools.ts", "approval-tools.ts"]
  .map((name) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url)))
  .join(",");
const chatsAtOnce = 64;
const clicks = 100;

function redisCli({ redis }: ProcessSystem, ...args: string[]): string {
  return execFileSync("redis-cli", ["-p", String(redis.port), ...args]).toString();
}

function usedBytes(system: ProcessSystem): number {
  return Number(/used_memory:(\d+)/.exec(redisCli(system, "info", "memory"))?.[1] ?? 0);
}

/** Jobs that are in work or due, over all queues. */
function jobsOf(system: ProcessSystem): number {
  const queues = redisCli(system, "--scan", "--pattern", "*:meta").trim().split("\n");
  const lengths = queues.flatMap((meta) =>
    ["active", "wait"].map((list) => Number(redisCli(system, "llen", meta.replace(/meta$/, list)))),
  );
  return lengths.reduce((sum, length) => sum + length, 0);
}

async function inLanes(count: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let index = next++; index < count; index = next++) await work(index);
  };
  await Promise.all(Array.from({ length: chatsAtOnce }, lane));
}

async function othersPerSecond(system: ProcessSystem, turns: number): Promise<number> {
  const startMs = performance.now();
  await inLanes(turns, async (index) => {
    const person = system.person(`other ${index}`);
    await answerTo(
      system,
      await write(system, person, `p\ncall note_pure {"key":"p${index}"}`),
      120_000,
    );
  });
  return (turns * 1_000) / (performance.now() - startMs);
}

/** Leaves many sessions waiting for a person, and measures what they hold. */
export async function measureWaiting(sessions: number): Promise<WaitingNumbers> {
  const system = await startProcesses({
    env: { LOG_LEVEL: "error", RUNNER_TOOLS: tools },
    config: {
      agents: { default: { reply: "text" } },
      feishu: { rateLimits: false },
      approvals: { learnAfter: 0 },
    },
  });
  try {
    const workerMb = (): number => residentMb(system.workers[0]?.pid ?? 0);
    await othersPerSecond(system, 1_000); // every process runs compiled code from then on
    const before = {
      rate: await othersPerSecond(system, 500),
      mb: workerMb(),
      bytes: usedBytes(system),
    };
    const people = Array.from({ length: sessions }, (_, index) =>
      system.person(`waiting ${index}`),
    );
    const asked = new Map<number, Awaited<ReturnType<typeof write>>>();
    await inLanes(sessions, async (index) => {
      const person = people[index];
      if (person === undefined) return;
      const message = await write(system, person, `a\ncall ask_pure {"key":"a${index}"}`);
      await untilAsked(system, person.chatId);
      if (index < clicks) asked.set(index, message);
    });
    const bytes = usedBytes(system);
    const waiting = {
      mb: workerMb(),
      jobs: jobsOf(system),
      rate: await othersPerSecond(system, 500),
    };
    const resumed: number[] = [];
    for (const [index, message] of asked) {
      const person = people[index];
      const [card] = openQuestions(system, person?.chatId ?? "");
      if (card === undefined || person === undefined) throw new Error("nothing is asked");
      const clickMs = performance.now();
      await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } });
      await answerTo(system, message, 120_000);
      resumed.push(performance.now() - clickMs);
    }
    return {
      sessions,
      jobs: waiting.jobs,
      workerMb: { before: before.mb, waiting: waiting.mb },
      redisBytes: (bytes - before.bytes) / sessions,
      othersPerSecond: { before: before.rate, waiting: waiting.rate },
      resumedMs: spread(resumed),
    };
  } finally {
    await system.close();
  }
}
