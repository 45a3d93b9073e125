import { toolsQueue } from "@larkline/protocol/runner";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import { Queue } from "bullmq";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { App } from "../system/app-process.ts";
import { write, type Written } from "../system/answers.ts";
import { decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { answerTo } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";
import type { ToolSet } from "../system/tool-modules.ts";

let system: System;

beforeAll(async () => {
  system = await startSystem({ runners: 0, config: { limits: { toolWaitMs: 1_500 } } });
});
afterAll(async () => await system.close());

async function startRunner(name: string, tools: readonly ToolSet[], concurrency = 4): Promise<App> {
  return await system.start("tool-runner", {
    RUNNER_NAME: name,
    RUNNER_TOOLS: await system.toolsOf(tools),
    RUNNER_CONCURRENCY: String(concurrency),
  });
}

/** Waits until the model is offered the tool. */
/** Forgets a runner that has stopped, so that calls wait for it no longer than for one that is there. */
async function forget(runner: string): Promise<void> {
  const redis = connectRedis(system.redis.url);
  try {
    const directory = new RunnerDirectory({ redis });
    expect(await directory.forget(runner)).toEqual({ forgotten: true, living: 0 });
  } finally {
    await closeRedis(redis);
  }
}

async function untilOffered(tool: string, isOffered = true): Promise<void> {
  const person = system.person("Tom");
  await vi.waitFor(
    async () => {
      await system.ask(person, "which tools");
      const names = system.model.requests.at(-1)?.tools.map(({ name }) => name) ?? [];
      expect(names.includes(tool)).toBe(isOffered);
    },
    { timeout: 60_000, interval: 250 }, // every look is a turn
  );
}

async function queueOf(runner: string, work: (queue: Queue) => Promise<void>): Promise<void> {
  const queue = new Queue(toolsQueue(runner), {
    connection: { url: system.redis.url },
    prefix: "{larkline}",
  });
  try {
    await work(queue);
  } finally {
    await queue.close();
  }
}

async function untilQueued(
  queue: Queue,
  state: "wait" | "active" | "prioritized",
  count: number,
): Promise<void> {
  await vi.waitUntil(async () => (await queue.getJobCounts(state))[state] === count, {
    timeout: 60_000,
    interval: 10,
  });
}

/** The runner of tools that wait; the last one that was started lives on. */
const waitingRunner = "waiting";

async function startWaiting(): Promise<App> {
  return await startRunner(waitingRunner, ["waiting"]);
}

describe("a call whose runner is missing", () => {
  let patient: Written;
  let late: Written;

  async function askFor(
    tool: string,
    key: string,
  ): Promise<{ written: Written; approve: () => Promise<unknown> }> {
    const person = system.person("Ann");
    const written = await write(system, person, `act\ncall ${tool} ${JSON.stringify({ key })}`);
    const card = await theQuestion(system, person.chatId);
    const approve = async () =>
      await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } });
    return { written, approve };
  }

  /** The runner stops while people are asked, so that calls are handed out when no runner could take them. */
  beforeAll(async () => {
    const runner = await startWaiting();
    await untilOffered("act_soon");
    const asked = [
      await askFor("act_soon", "late"),
      await askFor("act_patiently", "patient"),
    ] as const;
    expect(await runner.stop()).toBe(0);
    await forget(waitingRunner);
    await untilOffered("act_soon", false);
    for (const { approve } of asked) await approve();
    [late, patient] = [asked[0].written, asked[1].written];
    await queueOf(waitingRunner, async (queue) => await untilQueued(queue, "wait", 2));
  });

  it("gets an error at its deadline that says so", async () => {
    expect(await answerTo(system, late)).toContain(
      "failed:tool_not_found: the runner 'waiting' of this tool is not running, and the call was not answered in time. The call was not run.",
    );
    expect(await system.recorded()).toEqual([]);
  });

  it("is run when an instance starts, if its deadline is not over by then", async () => {
    await startWaiting();
    expect(await answerTo(system, patient)).toBe('[act] ok:{"key":"patient"}');
    await queueOf(waitingRunner, async (queue) => {
      await untilQueued(queue, "wait", 0);
      await untilQueued(queue, "active", 0);
    });
    expect(await system.recorded()).toEqual(["once patient"]);
  });
});

describe("a tool that takes one call at a time", () => {
  it("has never two running, whichever of two instances runs them", async () => {
    await startWaiting();
    await untilOffered("take_turns");
    const keys = Array.from({ length: 8 }, (_, index) => `turn${index}`);
    const half = (from: number): string =>
      [
        "turns",
        ...keys.slice(from, from + 4).map((key) => `call take_turns ${JSON.stringify({ key })}`),
      ].join("\n");
    const written = await Promise.all(
      [0, 4].map(async (from) => await write(system, system.person("Bob"), half(from))),
    );
    const answers = await Promise.all(written.map(async (each) => await answerTo(system, each)));
    expect(answers.join(" ").match(/ok:turn\d/g)).toHaveLength(keys.length);
    const lines = (await system.recorded()).filter((line) => / turn\d$/.test(line));
    const begun = lines
      .filter((line) => line.startsWith("begin"))
      .map((line) => line.slice("begin ".length));
    expect(begun.toSorted()).toEqual(keys);
    expect(lines).toEqual(begun.flatMap((key) => [`begin ${key}`, `end ${key}`]));
  });
});

describe("calls of background turns", () => {
  /** Resolves at the end of the run. */
  async function inBackground(session: string, message: string): Promise<string> {
    const response = await fetch(`${system.ingresses[0]?.url ?? ""}/chat`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ session_id: session, message, background: true }),
    });
    return await response.text();
  }

  it("come after those that a client waits for, although they were there first", async () => {
    const runner = await startRunner("single", ["holding", "recording"], 1);
    await untilOffered("hold_pure");
    const gate = await write(system, system.person("Cai"), 'gate\ncall hold_pure {"key":"gate"}');
    await vi.waitUntil(async () => (await system.recorded()).includes("pure gate"), {
      timeout: 60_000,
      interval: 10,
    });
    await queueOf("single", async (queue) => {
      const sessions = ["b1", "b2", "b3"];
      const background = sessions.map(
        async (session) =>
          await inBackground(session, `later\ncall note_pure ${JSON.stringify({ key: session })}`),
      );
      await untilQueued(queue, "prioritized", sessions.length);
      const waiting = await write(
        system,
        system.person("Dan"),
        'now\ncall note_pure {"key":"now"}',
      );
      await untilQueued(queue, "wait", 1);
      await system.release("gate");
      expect(await answerTo(system, gate)).toContain("ok:released");
      expect(await answerTo(system, waiting)).toContain("ok:");
      for (const stream of await Promise.all(background)) expect(stream).toContain('"type":"done"');
      const order = (await system.recorded()).filter((line) => /^pure (?:now|b\d)$/.test(line));
      expect(order[0]).toBe("pure now");
      expect(order.slice(1).toSorted()).toEqual(sessions.map((session) => `pure ${session}`));
    });
    expect(await runner.stop()).toBe(0);
  });
});
