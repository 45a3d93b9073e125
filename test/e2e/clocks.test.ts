import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { decide, untilAsked } from "../system/approvals.ts";
import { startApp, type AppProcess } from "../system/app-process.ts";
import { waitForAnswer } from "../system/answer.ts";
import { write } from "../system/answers.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

// Processes whose clocks differ from that of Redis, by seconds and by an hour: Redis decides.

const shifted = fileURLToPath(new URL("../fixtures/wrong-clock.mjs", import.meta.url));
const approvalTools = fileURLToPath(new URL("../fixtures/approval-tools.ts", import.meta.url));

function ahead(ms: number): Record<string, string> {
  return { CLOCK_AHEAD_MS: String(ms), NODE_OPTIONS: `--import=${shifted}` };
}

async function readyOf({ url }: AppProcess): Promise<{ status: number; clock: unknown }> {
  const response = await fetch(`${url}/ready`);
  const { checks } = (await response.json()) as { checks: Record<string, unknown> }; // what /ready answers
  return { status: response.status, clock: checks["clock"] };
}

const hourMs = 3_600_000;

describe.each([
  ["a worker 10 s ahead", { worker: 10_000, runner: 0, ingress: 0 }],
  ["a worker an hour ahead", { worker: hourMs, runner: 0, ingress: 0 }],
  ["a worker an hour behind", { worker: -hourMs, runner: 0, ingress: 0 }],
  ["a runner 40 s ahead, ingress an hour behind", { worker: 0, runner: 40_000, ingress: -hourMs }],
] as const)("%s", (_name, clocks) => {
  let system: ProcessSystem;
  let operators: AppProcess;
  let apps: AppProcess[];

  beforeAll(async () => {
    system = await startProcesses({ ingresses: 0, workers: 0, runners: 0 });
    const tools = `${system.env["RUNNER_TOOLS"] ?? ""},${approvalTools}`;
    apps = [
      await system.start("tool-runner", { ...ahead(clocks.runner), RUNNER_TOOLS: tools }),
      await system.start("agent-worker", ahead(clocks.worker)),
      await system.start("ingress", ahead(clocks.ingress)),
    ];
    operators = await startApp({
      program: { file: "apps/console/src/main.ts" },
      port: await freePort(),
      env: { REDIS_URL: system.redis.url, FEISHU_APP_ID: system.appId },
    });
  });
  afterAll(async () => {
    await operators?.kill();
    await system?.close();
  });

  it("sees the tools, runs calls in time, and asks for approvals that are not expired", async () => {
    const person = system.person("Ann");
    expect(await system.ask(person, 'one\ncall note_once {"key":"k"}')).toBe(
      '[one] ok:{"key":"k"}',
    );
    const written = await write(system, person, 'two\ncall ask_once {"key":"asked"}');
    const [card] = await untilAsked(system, person.chatId);
    if (card === undefined) throw new Error("unreachable: one was waited for");
    await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } });
    const { text } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(text).toBe('[two] ok:{"key":"asked"}');
    expect(await system.recorded()).toEqual(["once k", "once asked"]);
  });

  it("is reported in the log, by /ready and on the console", async () => {
    const [runner, worker, ingress] = apps;
    const expected = [
      [runner, clocks.runner],
      [worker, clocks.worker],
      [ingress, clocks.ingress],
    ] as const;
    for (const [app, aheadMs] of expected) {
      if (app === undefined) throw new Error("not started");
      const words = `the clock of this machine is ${Math.abs(aheadMs) / 1_000} s ${aheadMs > 0 ? "ahead of" : "behind"} Redis`;
      const ready = { status: 200, clock: aheadMs === 0 ? true : words };
      // For a moment it is not, where Redis has just stood still.
      await vi.waitFor(
        async () => expect([app.name, await readyOf(app)]).toEqual([app.name, ready]),
        {
          timeout: 60_000,
          interval: 50,
        },
      );
      expect(app.output().includes('"msg":"clocks differ"')).toBe(aheadMs !== 0);
      if (aheadMs === 0) continue;
      const page = app === runner ? "runners" : "";
      await vi.waitFor(
        async () => expect(await (await fetch(`${operators.url}/${page}`)).text()).toContain(words),
        {
          timeout: 60_000,
          interval: 50,
        },
      );
    }
  });
});
