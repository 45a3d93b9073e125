import { afterAll, beforeAll } from "vitest";
import { startSystem, type System } from "../system/system.ts";

/** Larkline without a Feishu app: the HTTP API is the only way in and out of the one deployment of all its suites. */
export let system: System;

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    const none = {
      FEISHU_APP_ID: "",
      FEISHU_APP_SECRET: "",
      FEISHU_ENCRYPT_KEY: "",
      FEISHU_VERIFICATION_TOKEN: "",
    };
    system = await startSystem({
      ingresses: 2,
      workers: 2,
      tools: ["recording", "approval", "holding"],
      lines: true,
      env: {
        ...none,
        API_HEARTBEAT_MS: "50",
      },
      config: {
        agents: {
          default: { busy: "queue" },
          steered: { busy: "steer" },
          desk: { handoffs: ["writer"] },
          writer: {},
        },
      },
    });
  });
  afterAll(async () => await system.close());
}
