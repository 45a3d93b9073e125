import type { EngineEvent } from "@larkline/protocol";
import { closeRedis, connectRedis, EventLog } from "@larkline/store";
import { vi } from "vitest";
import type { System } from "./system.ts";

/** The events of the latest run of a chat, once it has ended. */
export async function eventsOfRun(system: System, { chatId }: { chatId: string }): Promise<EngineEvent[]> {
  const redis = connectRedis(system.redis.url);
  const log = new EventLog({ redis, namespace: "larkline" });
  try {
    return await vi.waitFor(async () => {
      const records = await log.read(`${system.appId}.${chatId}`, 0, 10_000);
      const runId = records.at(-1)?.runId;
      const events = records.filter((record) => record.runId === runId).map(({ event }) => event);
      if (!events.some(({ type }) => type === "done" || type === "error")) throw new Error("the run has not ended");
      return events;
    });
  } finally {
    await closeRedis(redis);
  }
}
