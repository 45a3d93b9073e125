import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { writeConfig } from "../system/config-file.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;
beforeAll(async () => {
  system = await startSystem({ workers: 0, ingresses: 0 });
});
afterAll(async () => await system.close());

async function workerWith(config: object) {
  const file = await writeConfig(config);
  try {
    return await system.start("agent-worker", { LARKLINE_CONFIG: file.path });
  } finally {
    await file.remove();
  }
}

it.each([
  [
    { agents: { default: { model: "antropic/claude-opus-5" } } },
    "unknown provider, did you mean 'anthropic'?",
  ],
  [
    { models: [{ provider: "opnai", id: "m", contextWindow: 1, maxOutputTokens: 1 }] },
    "did you mean 'openai'?",
  ],
])(
  "a worker does not start with the name of a provider that does not exist: %j",
  async (config, why) => {
    await expect(workerWith(config)).rejects.toThrow(why);
  },
);

it("a worker says which tools of its agents no runner offers, and which were meant", async () => {
  const worker = await workerWith({
    agents: { default: { tools: ["note_prue", "note_once"] }, ops: {} },
  });
  await vi.waitFor(() => expect(worker.output()).toContain("did you mean"), {
    timeout: 60_000,
    interval: 100,
  });
  expect(worker.output()).toContain(
    "agents.default.tools: no runner offers 'note_prue', did you mean 'note_pure'?",
  );
  expect(worker.output()).not.toContain("no runner offers 'note_once'");
});
