import { afterAll, beforeAll } from "vitest";
import { startSystem, type System } from "../system/system.ts";

/** The one deployment of all suites on conversations. */
export let system: System;

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    system = await startSystem({
      transport: "both",
      ingresses: 2,
      workers: 3,
      tools: ["recording", "holding"],
      lines: true,
      config: {
        agents: {
          default: {
            models: ["openai/gpt-5"],
            commands: { 周报: { description: "写周报", prompt: "Write the weekly report about:" } },
          },
          small: { model: "anthropic/small" },
          remembering: { memory: { person: "direct", chat: true } },
          listening: { groupContext: 4 },
        },
        models: [
          { provider: "anthropic", id: "small", contextWindow: 3_600, maxOutputTokens: 1_000 },
        ],
      },
      bots: {
        small: { agent: "small" },
        remembering: { agent: "remembering" },
        listening: { agent: "listening" },
      },
    });
  });
  afterAll(async () => await system.close());
}
