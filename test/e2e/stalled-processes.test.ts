import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AppProcess } from "../system/app-process.ts";
import { metricOf } from "../system/answers.ts";
import { createPromptedModel } from "../system/model-script.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

const stalling = fileURLToPath(new URL("../fixtures/stalling.mjs", import.meta.url));
const stallingTool = fileURLToPath(new URL("../fixtures/stalling-tool.ts", import.meta.url));

describe("a process whose event loop is blocked for 3 s, beside an idle one", () => {
  const model = createPromptedModel();
  let system: ProcessSystem;
  beforeAll(async () => {
    const env = { NODE_OPTIONS: `--import=${stalling}`, RUNNER_TOOLS: stallingTool };
    system = await startProcesses({ workers: 2, runners: 2, script: model.script, env });
  });
  afterAll(async () => await system?.close());

  it("keeps its turn: the model is asked once, and nothing is healed", async () => {
    const question = "stall-the-worker";
    const beganMs = performance.now();
    expect(await system.ask(system.person("Ann"), question)).toBe(`[${question}]`);
    expect(performance.now() - beganMs).toBeGreaterThan(3_000);
    expect(model.asked(question)).toBe(1);
    const crashes = async (worker: AppProcess): Promise<number> =>
      await metricOf(worker, "larkline_healed_total", 'what="crash"');
    expect(await Promise.all(system.workers.map(crashes))).toEqual([0, 0]);
  });

  it("keeps its call: the tool runs once", async () => {
    const call = 'slow tool\ncall stall {"ms":3000}';
    expect(await system.ask(system.person("Bob"), call)).toBe("[slow tool] ok:over");
    expect((await system.recorded()).filter((line) => line === "stalled")).toHaveLength(1);
  });
});
