import { fileURLToPath } from "node:url";
import { afterAll, beforeAll } from "vitest";
import { createPromptedModel } from "../system/model-script.ts";
import { startSystem, type System } from "../system/system.ts";

const fixture = (name: string): string => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

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
      env: { RUNNER_TOOLS: `${fixture("recording-tools.ts")},${fixture("holding-tools.ts")}` },
    });
  });
  afterAll(async () => await system.close());
}
