import { afterAll, beforeAll } from "vitest";
import { createPromptedModel } from "../system/model-script.ts";
import { startSystem, type System } from "../system/system.ts";

/** What is said to some messages. */
export const model = createPromptedModel();
/** One deployment with a bot for each policy; what it has recorded and what models were asked is that of all of them. */
let deployment: System;

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    const policies = ["queue", "steer", "interrupt"] as const;
    deployment = await startSystem({
      script: model.script,
      tools: ["holding", "approval"],
      config: {
        agents: {
          ...Object.fromEntries(policies.map((busy) => [busy, { busy }])),
          reject: { busy: "reject", sessions: "sender" },
        },
      },
      bots: {
        ...Object.fromEntries(policies.map((agent) => [agent, { agent }])),
        "interrupt-lines": { agent: "interrupt", feishu: { queueNotice: "line" } },
        reject: { agent: "reject" },
        events: { feishu: { typing: true, menu: { report: "write the report" } } },
      },
    });
  });
  afterAll(async () => await deployment.close());
}

/** The deployment as one of its bots has it, for the tests of a block. */
export function useBot(name: string, use: (system: System) => void): void {
  beforeAll(() => use(deployment.botNamed(name)));
}
