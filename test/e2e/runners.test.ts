import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { runApp, type AppProcess } from "../system/app-process.ts";
import { waitForAnswer } from "../system/answer.ts";
import { metricOf, write } from "../system/answers.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";

const holding = {
  RUNNER_NAME: "second",
  RUNNER_TOOLS: fileURLToPath(new URL("../fixtures/holding-tools.ts", import.meta.url)),
  RUNNER_CONCURRENCY: "1",
  // Longer than a test needs to release a call that its runner waits for.
  RUNNER_DRAIN_MS: "60000",
};
const clashing = fileURLToPath(new URL("../fixtures/clashing-tool.ts", import.meta.url));

let system: ProcessSystem;
beforeAll(async () => {
  const limits = { toolWaitMs: 10_000 };
  system = await startProcesses({ config: { approvals: { unknownOutcome: "tell" }, limits } });
});
afterAll(async () => await system.close());

async function startHolding(env: Record<string, string> = {}): Promise<AppProcess> {
  const runner = await system.start("tool-runner", { ...holding, ...env });
  await untilTools((names) => names.includes("hold_pure"));
  return runner;
}

/** Waits until the model is offered tools of which the fact holds. */
async function untilTools(fact: (names: string[]) => boolean): Promise<void> {
  const person = system.person("Tom");
  await vi.waitFor(
    async () => {
      await system.ask(person, "which tools");
      expect(system.model.requests.at(-1)?.tools.map(({ name }) => name)).toSatisfy(fact);
    },
    // Every look is a turn.
    { timeout: 60_000, interval: 250 },
  );
}

/** Waits until no instance of the second runner counts as living any more. */
async function untilWithdrawn(): Promise<void> {
  const redis = new Redis(system.redis.url);
  try {
    await vi.waitFor(
      async () => {
        const [seconds, micros] = await redis.time();
        const nowMs = Number(seconds) * 1_000 + Number(micros) / 1_000;
        const instances = (await redis.hvals("{larkline}:runners:second")).map(
          (text) => JSON.parse(text) as { expiresAtMs: number },
        );
        expect(instances.filter(({ expiresAtMs }) => expiresAtMs > nowMs)).toEqual([]);
      },
      { timeout: 60_000, interval: 20 },
    );
  } finally {
    redis.disconnect();
  }
}

/** Waits until the queue of a runner holds second attempts. */
async function untilHandedOutAnew(runner: string, count: number): Promise<void> {
  const redis = new Redis(system.redis.url);
  try {
    const jobs = async () => (await redis.keys(`*tools-${runner}:*.2`)).length;
    await vi.waitFor(async () => expect(await jobs()).toBe(count), {
      timeout: 60_000,
      interval: 50,
    });
  } finally {
    redis.disconnect();
  }
}

/** All that stands on the cards of a chat. */
function shownIn(chatId: string): string {
  return JSON.stringify(system.feishu.messages(chatId).map(({ card }) => card));
}

async function untilRecorded(line: string, times = 1): Promise<void> {
  const count = async () => (await system.recorded()).filter((one) => one === line).length;
  await vi.waitFor(async () => expect(await count()).toBe(times), {
    timeout: 60_000,
    interval: 20,
  });
}

/** A runner counts a call once it has handed in the outcome: the answer may be there by then. */
async function untilCounted(
  runner: AppProcess,
  fact: (count: number) => boolean,
  labels?: string,
): Promise<void> {
  const calls = async () => await metricOf(runner, "larkline_tool_calls_total", labels);
  await vi.waitFor(async () => expect(await calls()).toSatisfy(fact), {
    timeout: 60_000,
    interval: 50,
  });
}

function call(tool: string, key: string): string {
  return `call ${tool} ${JSON.stringify({ key })}`;
}

describe("a second runner", () => {
  it("makes its tools available while everything runs, and calls wait for it while it is away", async () => {
    const person = system.person("Ann");
    await system.release("quick");
    expect(await system.ask(person, `early\n${call("hold_pure", "quick")}`)).toMatch(
      /^\[early\] failed:tool_not_found/,
    );
    const runner = await startHolding();
    expect(await system.ask(person, `now\n${call("hold_pure", "quick")}`)).toBe(
      "[now] ok:released",
    );
    expect(await runner.stop()).toBe(0);
    await untilTools((names) => names.includes("hold_pure") && names.includes("note_pure"));
    const late = await write(system, person, `late\n${call("hold_pure", "quick")}`);
    await vi.waitFor(() => expect(shownIn(late.chatId)).toContain("its runner is away"), {
      timeout: 60_000,
      interval: 50,
    });
    const successor = await startHolding();
    expect((await waitForAnswer(system.feishu, late.messageId, { timeoutMs: 60_000 })).text).toBe(
      "[late] ok:released",
    );
    await successor.kill();
    const killed = await write(system, person, `killed\n${call("hold_pure", "quick")}`);
    const third = await startHolding();
    expect((await waitForAnswer(system.feishu, killed.messageId, { timeoutMs: 60_000 })).text).toBe(
      "[killed] ok:released",
    );
    expect(await third.stop()).toBe(0);
  });

  it("is forgotten at once when an operator says so", async () => {
    await untilTools((names) => names.includes("hold_pure"));
    await untilWithdrawn(); // the one that was killed counts as living for some seconds
    const { env } = system;
    const admin = { file: "apps/cli/src/main.ts", args: ["runner", "remove", "second"] };
    const { code, output } = await runApp(admin, env);
    expect({ code, output: output.trim() }).toEqual({
      code: 0,
      output: expect.stringContaining("second"),
    });
    await untilTools((names) => !names.includes("hold_pure") && names.includes("note_pure"));
    const text = `gone\n${call("hold_pure", "quick")}`;
    expect(await system.ask(system.person("Ann"), text)).toMatch(/^\[gone\] failed:tool_not_found/);
    expect((await runApp({ ...admin, args: ["runner", "remove", "recording"] }, env)).code).toBe(1);
  });

  it("lets its running call end when it is stopped, and the one that waits in its queue waits for its successor", async () => {
    const runner = await startHolding();
    const text = ["stopped", call("hold_once", "running"), call("hold_once", "waiting")].join("\n");
    const written = await write(system, system.person("Bob"), text);
    await untilRecorded("once running");
    const stopped = runner.stop();
    await untilWithdrawn();
    await system.release("running");
    expect(await stopped).toBe(0);
    expect(await system.recorded()).not.toContain("once waiting");
    const successor = await startHolding();
    await untilRecorded("once waiting");
    await system.release("waiting");
    const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(answer.text).toBe("[stopped] ok:released ok:released");
    expect(await successor.stop()).toBe(0);
  });

  it("shares its calls with another instance of it", async () => {
    const pair = [await startHolding(), await startHolding()];
    const text = ["shared", call("hold_pure", "left"), call("hold_pure", "right")].join("\n");
    const written = await write(system, system.person("Dan"), text);
    // Each instance runs one call at a time, and neither ends before both have begun.
    await untilRecorded("pure left");
    await untilRecorded("pure right");
    await system.release("left");
    await system.release("right");
    const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(answer.text).toBe("[shared] ok:released ok:released");
    for (const runner of pair) await untilCounted(runner, (count) => count > 0);
    for (const runner of pair) expect(await runner.stop()).toBe(0);
  });
});

it("a runner that offers the tool of another living one is refused in one line", async () => {
  const own = { ...keysFor("tool-runner", "third"), RUNNER_NAME: "third", RUNNER_TOOLS: clashing };
  const env = { ...system.env, PORT: String(await freePort()), ...own };
  const { code, output } = await runApp({ file: "apps/tool-runner/src/main.ts" }, env);
  expect(code).toBe(1);
  expect(output.trim().split("\n")).toEqual([
    expect.stringMatching(
      /^The tools are refused: a tool named 'note_once' belongs to runner 'recording'\./,
    ),
  ]);
  expect(await system.ask(system.person("Eve"), 'still\ncall note_once {"key":"still"}')).toContain(
    "ok:",
  );
});

describe("a runner that is killed", () => {
  it("does not get its `once` call repeated, and the model reads that the outcome is unknown; a pure call runs again", async () => {
    const runner = await startHolding({ RUNNER_CONCURRENCY: "4" });
    const text = ["killed", call("hold_once", "charge"), call("hold_pure", "look")].join("\n");
    const written = await write(system, system.person("Fay"), text);
    await untilRecorded("once charge");
    await untilRecorded("pure look");
    await runner.kill();
    const successor = await system.start("tool-runner", { ...holding, RUNNER_CONCURRENCY: "4" });
    await untilRecorded("pure look", 2);
    await system.release("look");
    const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(answer.text).toMatch(/^\[killed\] failed:outcome unknown: [^]* ok:released$/);
    expect((await system.recorded()).filter((line) => line === "once charge")).toHaveLength(1);
    await untilCounted(successor, (count) => count === 1, 'outcome="unknown"');
    expect(await successor.stop()).toBe(0);
  });
});

/** As an operator does who removes a runner that is away. */
async function freeToolsOf(runner: string): Promise<void> {
  const redis = connectRedis(system.redis.url);
  expect(await new RunnerDirectory({ redis }).forget(runner)).toMatchObject({ forgotten: true });
  await closeRedis(redis);
}

describe("a call for a runner that was killed a moment before and still counts as living", () => {
  // Its deadline is that of a call for a living runner: 12 s, and the runner counts as gone after 8 s.
  const brief = { HOLD_TIMEOUT_MS: "2000" };

  it("is handed out anew at its deadline, and the runner that comes back runs it once", async () => {
    const runner = await startHolding(brief);
    await runner.kill();
    const text = ["early", call("hold_once", "early"), call("hold_pure", "early")].join("\n");
    const written = await write(system, system.person("Hal"), text);
    await untilHandedOutAnew("second", 2);
    await vi.waitFor(() => expect(shownIn(written.chatId)).toContain("its runner is away"), {
      timeout: 60_000,
      interval: 50,
    });
    await system.release("early");
    const successor = await startHolding();
    const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(answer.text).toBe("[early] ok:released ok:released");
    expect((await system.recorded()).filter((line) => line === "once early")).toHaveLength(1);
    expect(await successor.stop()).toBe(0);
  });

  it("is handed to the living runner that has taken over its tool, which an operator has freed", async () => {
    const patient = { HOLD_TIMEOUT_MS: "20000" };
    const runner = await startHolding(patient);
    await runner.kill();
    const written = await write(
      system,
      system.person("Ida"),
      `taken\n${call("hold_once", "taken")}`,
    );
    await untilWithdrawn();
    await system.release("taken");
    await freeToolsOf("second");
    const own = { ...keysFor("tool-runner", "standby"), RUNNER_NAME: "standby" };
    const standby = await system.start("tool-runner", { ...holding, ...patient, ...own });
    const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(answer.text).toBe("[taken] ok:released");
    expect((await system.recorded()).filter((line) => line === "once taken")).toHaveLength(1);
    expect(await standby.stop()).toBe(0);
    await freeToolsOf("standby");
  });
});

describe("a runner that stands still for longer than its locks live", () => {
  it("continues with its `once` call, whose own result counts", async () => {
    const runner = await startHolding({ RUNNER_CONCURRENCY: "2" });
    const redis = new Redis(system.redis.url);
    const locks = async () => (await redis.keys("*tools-second:*:lock")).length;
    const written = await write(
      system,
      system.person("Gus"),
      `frozen\n${call("hold_once", "frozen")}`,
    );
    await untilRecorded("once frozen");
    await vi.waitFor(async () => expect(await locks()).toBe(1), { timeout: 60_000, interval: 50 });
    runner.signal("SIGSTOP");
    await vi.waitFor(async () => expect(await locks()).toBe(0), { timeout: 60_000, interval: 50 });
    runner.signal("SIGCONT");
    // The queue has given it the job once more.
    await vi.waitFor(async () => expect(await locks()).toBe(1), { timeout: 60_000, interval: 50 });
    await system.release("frozen");
    const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(answer.text).toBe("[frozen] ok:released");
    expect((await system.recorded()).filter((line) => line === "once frozen")).toHaveLength(1);
    redis.disconnect();
    expect(await runner.stop()).toBe(0);
  });
});
