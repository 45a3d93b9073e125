import { afterAll, beforeAll } from "vitest";
import { createPromptedModel } from "../system/model-script.ts";
import { startSystem, type System } from "../system/system.ts";

/** What is said to some messages. */
export const model = createPromptedModel();
/** The one deployment of all suites on cards that type, at a platform that keeps its limits. */
export let system: System;

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    system = await startSystem({
      workers: 2,
      script: model.script,
      simulator: { limits: "enforced" },
      config: { feishu: { maxCards: 50 } },
      tools: ["recording", "holding"],
      lines: true,
    });
  });
  afterAll(async () => await system.close());
}
