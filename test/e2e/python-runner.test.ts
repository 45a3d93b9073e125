import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { toolsQueue } from "@larkline/protocol/runner";
import { Queue } from "bullmq";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { metricOf, write } from "../system/answers.ts";
import { answerTo } from "../system/sending.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";

const folder = fileURLToPath(new URL("../../infra/python-runner", import.meta.url));
const tools = fileURLToPath(new URL("../fixtures/python_tools.py", import.meta.url));
const runner = "python";

let system: ProcessSystem;
const children: ChildProcess[] = [];

beforeAll(async () => {
  const agents = {
    default: { instructions: "desk", helpers: [{ agent: "digger", as: "dig" }] },
    digger: { instructions: "digger" },
  };
  system = await startProcesses({
    runners: 0,
    config: { agents, approvals: { unknownOutcome: "tell" } },
  });
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});
afterAll(async () => await system.close());

/** Starts the runner as its Dockerfile does, and waits until it has announced its tools. */
async function startPython(
  file = tools,
  redisUrl = system.env["REDIS_URL"],
): Promise<ChildProcess> {
  const child = spawn("python3", ["-u", file], {
    env: {
      ...system.env,
      ...keysFor("tool-runner", runner),
      PATH: process.env["PATH"] ?? "",
      PYTHONPATH: folder,
      PYTHONDONTWRITEBYTECODE: "1",
      RUNNER_NAME: runner,
      REDIS_URL: redisUrl,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.push(child);
  let output = "";
  child.stderr?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await new Promise<void>((resolve, reject) => {
    child.stdout?.once("data", () => resolve());
    child.once("exit", (code) => reject(new Error(`it exited with ${code}: ${output}`)));
  });
  return child;
}

async function ask(text: string): Promise<string> {
  return await answerTo(system, await write(system, system.person("Ann"), text), 80_000);
}

describe("a runner that knows the protocol document alone", () => {
  it("leaves no secret where other processes of its user can read", async () => {
    const { pid } = await startPython();
    const shown =
      readFileSync(`/proc/${pid}/environ`, "utf8") + readFileSync(`/proc/${pid}/cmdline`, "utf8");
    expect(shown).toContain("python_tools.py");
    expect(shown).not.toContain(keysFor("tool-runner", runner)["RUNNER_KEY"]);
    expect(shown).not.toContain(system.env["REDIS_URL"]);
  });

  it("says in one sentence that Redis refuses it, or is not there", async () => {
    const url = new URL(system.env["REDIS_URL"] ?? "");
    url.username = "nobody";
    url.password = "geheim";
    await expect(startPython(tools, url.href)).rejects.toThrow(
      "it exited with 1: Redis refuses the user or password in REDIS_URL, or wants one: correct it.\n",
    );
    await expect(startPython(tools, "redis://:geheim@127.0.0.1:1")).rejects.toThrow(
      /^it exited with 1: Cannot start, is Redis at REDIS_URL running\? .*refused\n$/,
    );
  });

  it("offers its tools, runs calls and answers them at once", async () => {
    await startPython();
    await vi.waitUntil(async () => (await ask('t\ncall py_pure {"key":"p1"}')).includes("ok:"), {
      timeout: 60_000,
      interval: 50,
    });
    expect(await ask('both\ncall py_once {"key":"o1"}\ncall py_fail {}')).toContain(
      'ok:{"python":"o1"} failed:ValueError: no such thing: 东西',
    );
    for (const worker of system.workers) {
      expect(await metricOf(worker, "larkline_healed_total", 'what="wake"')).toBe(0);
    }
    expect(await system.recorded()).toContain("once o1");
  });

  it("shows how far a call is, and cancels it with its turn", async () => {
    await startPython();
    const ann = system.person("Ann");
    const asked = await write(system, ann, 't\ncall py_wait {"key":"w1"}');
    await vi.waitUntil(async () => (await system.recorded()).includes("waiting w1"), {
      timeout: 60_000,
      interval: 50,
    });
    await system.feishu.waitUntil(
      asked.messageId,
      ({ card }) => JSON.stringify(card?.json).includes("half of w1"),
      { timeoutMs: 60_000 },
    );
    await write(system, ann, "/stop");
    await vi.waitUntil(async () => (await system.recorded()).includes("cancelled w1"), {
      timeout: 20_000,
      interval: 50,
    });
  });

  it("answers calls of helpers, whose sessions are in the cell of their root", async () => {
    await startPython();
    await vi.waitUntil(async () => (await ask('t\ncall py_pure {"key":"p5"}')).includes("ok:"), {
      timeout: 60_000,
      interval: 50,
    });
    const tasks = ["h1", "h2"].map((key) =>
      JSON.stringify({ task: `${key}\ncall py_once {"key":"${key}"}` }),
    );
    const answer = await ask(["go", ...tasks.map((task) => `call dig ${task}`)].join("\n"));
    expect(answer).toBe('[go] ok:[h1] ok:{"python":"h1"} ok:[h2] ok:{"python":"h2"}');
  });

  it("the example computes what it says", async () => {
    await startPython(`${folder}/main.py`);
    await vi.waitUntil(
      async () =>
        (await ask('numbers\ncall describe_numbers {"numbers":[1,2,3,10]}')).includes(
          '"median":2.5',
        ),
      { timeout: 60_000, interval: 50 },
    );
  });

  it("refuses what no worker has signed, and continues", async () => {
    await startPython();
    await vi.waitUntil(async () => (await ask('t\ncall py_pure {"key":"p2"}')).includes("ok:"), {
      timeout: 60_000,
      interval: 50,
    });
    const queue = new Queue(toolsQueue(runner), {
      connection: { url: system.redis.url },
      prefix: "{larkline}",
    });
    const actor = { app: "x", userId: "ou_x", chatId: "oc_x" };
    const forged = {
      v: 1,
      session: "x.y",
      turnId: "x.y-1",
      callId: "c1",
      name: "py_once",
      effect: "once",
      attempt: 1,
    };
    await queue.add("py_once", {
      ...forged,
      arguments: '{"key":"forged"}',
      actor,
      envelope: "e30.AAAA",
      queuedAtMs: Date.now(),
      deadlineMs: Date.now() + 60_000,
    });
    expect(await ask('after\ncall py_once {"key":"genuine"}')).toContain("ok:");
    await vi.waitUntil(async () => (await queue.getJobCounts("wait", "active"))["active"] === 0, {
      timeout: 60_000,
      interval: 20,
    });
    await queue.close();
    expect(await system.recorded()).toContain("once genuine");
    expect(await system.recorded()).not.toContain("once forged");
  });

  it("drops what is no job, and answers a result that is no JSON with an error: nothing ends its threads", async () => {
    await startPython();
    await vi.waitUntil(async () => (await ask('t\ncall py_pure {"key":"p4"}')).includes("ok:"), {
      timeout: 60_000,
      interval: 50,
    });
    const queue = new Queue(toolsQueue(runner), {
      connection: { url: system.redis.url },
      prefix: "{larkline}",
    });
    const texts = {
      session: "x.y",
      turnId: "x.y-1",
      callId: "c2",
      name: "py_once",
      arguments: "{}",
    };
    const signedOddly = {
      ...texts,
      effect: "once",
      attempt: 1,
      deadlineMs: Date.now() + 60_000,
      envelope: "e30.签名",
    };
    const poison = [
      [],
      "text",
      { envelope: 1 },
      { ...signedOddly, session: "\ud800" },
      { ...signedOddly, attempt: "1" },
    ];
    await queue.addBulk(
      [...poison, signedOddly, signedOddly].map((data) => ({ name: "py_once", data })),
    );
    expect(await ask('after\ncall py_once {"key":"unharmed"}\ncall py_infinite {}')).toMatch(
      /ok:\{"python":"unharmed"\} failed:ValueError: Out of range/,
    );
    await vi.waitUntil(
      async () => {
        const { active = 0, wait = 0 } = await queue.getJobCounts("active", "wait");
        return active + wait === 0;
      },
      { timeout: 60_000, interval: 20 },
    );
    await queue.close();
  });

  it("does not run a `once` call again after kill -9, and runs a `pure` one again", async () => {
    const child = await startPython();
    await vi.waitUntil(async () => (await ask('t\ncall py_pure {"key":"p3"}')).includes("ok:"), {
      timeout: 60_000,
      interval: 50,
    });
    const answer = ask(
      'killed\ncall py_once {"key":"k1","seconds":8}\ncall py_pure {"key":"k2","seconds":8}',
    );
    const begun = ["once k1", "pure k2"];
    await vi.waitFor(
      async () => expect(await system.recorded()).toEqual(expect.arrayContaining(begun)),
      {
        timeout: 60_000,
        interval: 20,
      },
    );
    child.kill("SIGKILL");
    await startPython();
    const text = await answer;
    expect(text).toMatch(/failed:outcome unknown/);
    expect(text).toContain('ok:{"python":"k2"}');
    const recorded = await system.recorded();
    expect(recorded.filter((line) => line === "once k1")).toHaveLength(1);
    expect(recorded.filter((line) => line === "pure k2")).toHaveLength(2);
  });
});
