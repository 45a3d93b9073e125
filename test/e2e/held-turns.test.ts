import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { AppProcess } from "../system/app-process.ts";
import { waitForAnswer } from "../system/answer.ts";
import { answersTo, metricOf, write, type Written } from "../system/answers.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

const holding = {
  RUNNER_NAME: "second",
  RUNNER_TOOLS: fileURLToPath(new URL("../fixtures/holding-tools.ts", import.meta.url)),
  RUNNER_CONCURRENCY: "4",
};
/** Longer than any test takes: only what happens ends a hold. */
const patient = { WORKER_HOLD_MS: "60000" };
const patience = { timeout: 60_000, interval: 20 };

let system: ProcessSystem;
let redis: Redis;
let runner: AppProcess;
const workers: AppProcess[] = [];
beforeAll(async () => {
  system = await startProcesses({ workers: 0, config: { approvals: { unknownOutcome: "tell" } } });
  redis = new Redis(system.redis.url);
  runner = await system.start("tool-runner", holding);
});
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.stop();
});
afterAll(async () => {
  redis.disconnect();
  await system.close();
});

async function startWorker(env: Record<string, string> = patient): Promise<AppProcess> {
  const worker = await system.start("agent-worker", env);
  workers.push(worker);
  return worker;
}

async function held(worker: AppProcess, end: string): Promise<number> {
  return await metricOf(worker, "larkline_turn_holds_total", `end="${end}"`);
}

async function runs(worker: AppProcess, outcome: string): Promise<number> {
  return await metricOf(worker, "larkline_turn_runs_total", `outcome="${outcome}"`);
}

async function jobsDone(): Promise<number> {
  return await redis.zcard("{larkline}:turns:completed");
}

async function untilRecorded(line: string, times = 1): Promise<void> {
  const count = async () => (await system.recorded()).filter((one) => one === line).length;
  await vi.waitFor(async () => expect(await count()).toBe(times), patience);
}

async function answerTo({ messageId }: Written): Promise<string> {
  return (await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 })).text;
}

function call(tool: string, key: string): string {
  return `call ${tool} ${JSON.stringify({ key })}`;
}

describe("a turn keeps its slot while its calls run", () => {
  it("so that one with quick calls takes one claim and one job", async () => {
    const worker = await startWorker();
    const person = system.person("Ann");
    expect(await system.ask(person, "hello")).toBe("[hello]");
    await vi.waitFor(async () => expect(await jobsDone()).toBe(1), patience);
    expect(
      await system.ask(person, `both\n${call("note_once", "q1")}\n${call("note_pure", "q2")}`),
    ).toMatch(/^\[both\] ok:.*q1.* ok:.*q2/);
    await vi.waitFor(async () => expect(await jobsDone()).toBe(2), patience);
    expect(await runs(worker, "answered")).toBe(2);
    expect(await metricOf(worker, "larkline_turn_runs_total")).toBe(2);
    expect(await held(worker, "answered")).toBe(1);
  });

  it("and frees it for a call that takes longer, whose answer is found all the same", async () => {
    const worker = await startWorker({ WORKER_HOLD_MS: "100" });
    const written = await write(system, system.person("Bob"), `slow\n${call("hold_pure", "slow")}`);
    await vi.waitFor(async () => expect(await runs(worker, "suspended")).toBe(1), patience);
    expect(await held(worker, "late")).toBe(1);
    await system.release("slow");
    expect(await answerTo(written)).toBe("[slow] ok:released");
    expect(await held(worker, "answered")).toBe(0);
  });

  it("and a worker that is killed meanwhile loses nothing, and repeats no `once` call", async () => {
    const first = await startWorker();
    const written = await write(
      system,
      system.person("Tom"),
      `killed\n${call("hold_once", "killed")}`,
    );
    await untilRecorded("once killed");
    expect(await metricOf(first, "larkline_turn_runs_total")).toBe(0); // it is still at it
    const second = await startWorker();
    await first.kill();
    await system.release("killed");
    expect(await answerTo(written)).toBe("[killed] ok:released");
    await vi.waitFor(async () => expect(await runs(second, "answered")).toBe(1), patience);
    expect((await system.recorded()).filter((line) => line === "once killed")).toHaveLength(1);
    expect(answersTo(system, written)).toHaveLength(1);
    workers.splice(0, 1);
  });

  it("and a runner that is killed meanwhile is followed by another one, as without", async () => {
    const worker = await startWorker();
    const written = await write(
      system,
      system.person("Eve"),
      `gone\n${call("hold_pure", "gone")}\n${call("hold_once", "lost")}`,
    );
    await untilRecorded("pure gone");
    await untilRecorded("once lost");
    await runner.kill();
    runner = await system.start("tool-runner", holding);
    await untilRecorded("pure gone", 2);
    await system.release("gone");
    expect(await answerTo(written)).toMatch(/^\[gone\] ok:released failed:outcome unknown/);
    expect((await system.recorded()).filter((line) => line === "once lost")).toHaveLength(1);
    expect(await held(worker, "answered")).toBe(1);
  });

  it("but not where all slots are busy, and not longer than until the last one is taken", async () => {
    const worker = await startWorker({ ...patient, WORKER_CONCURRENCY: "1" });
    expect(await system.ask(system.person("Kim"), `only\n${call("note_pure", "only")}`)).toMatch(
      /^\[only\] ok:/,
    );
    expect(await runs(worker, "suspended")).toBe(1);
    expect(await metricOf(worker, "larkline_turn_holds_total")).toBe(0);
    await workers.pop()?.stop();

    const pair = await startWorker({ ...patient, WORKER_CONCURRENCY: "2" });
    const waiting = await write(
      system,
      system.person("Lee"),
      `waits\n${call("hold_pure", "waits")}`,
    );
    await untilRecorded("pure waits");
    expect(await runs(pair, "suspended")).toBe(0);
    expect(await system.ask(system.person("Mia"), "hello")).toBe("[hello]");
    await vi.waitFor(async () => expect(await runs(pair, "suspended")).toBe(1), patience);
    expect(await held(pair, "crowded")).toBe(1);
    await system.release("waits");
    expect(await answerTo(waiting)).toBe("[waits] ok:released");
  });
});
