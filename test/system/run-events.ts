import { isTerminal, type EngineEvent, type EventRecord } from "@larkline/protocol";
import { parseMessage } from "@larkline/protocol/views/chat-messages";
import { runMessages } from "@larkline/protocol/views/chat-view";
import { problemsOf } from "@larkline/protocol/views/conformance.fixture";
import { parseRunRecord } from "@larkline/protocol/views/engine-events";
import { engineRecords, LiveText } from "@larkline/protocol/views/engine-view";
import { runItems } from "@larkline/protocol/views/item-view";
import { parseRunItem } from "@larkline/protocol/views/run-items";
import { closeRedis, connectRedis, EventLog } from "@larkline/store";
import { expect, vi } from "vitest";
import type { System } from "./system.ts";

/** The events of the latest run of a chat, once it has ended. Every view has shown them as its schemas say. */
export async function eventsOfRun(system: System, { chatId }: { chatId: string }): Promise<EngineEvent[]> {
  const redis = connectRedis(system.redis.url);
  const log = new EventLog({ redis, namespace: "larkline" });
  try {
    return await vi.waitFor(async () => {
      const records = await log.read(`${system.appId}.${chatId}`, 0, 10_000);
      const runId = records.at(-1)?.runId;
      const events = records.filter((record) => record.runId === runId).map(({ event }) => event);
      if (runId === undefined || !events.some(isTerminal)) throw new Error("the run has not ended");
      expectViews(records, runId);
      return events;
    });
  } finally {
    await closeRedis(redis);
  }
}

function expectViews(records: readonly EventRecord[], runId: string): void {
  const run = { runId, sessionId: "s", agent: "default", startedAtMs: 0 };
  const live = new LiveText();
  for (const record of engineRecords(run, records)) {
    expect(parseRunRecord(record)).toEqual({ ok: true, value: record });
    if (record.event.type === "done") expect(live.text).toBe(record.event.final);
    live.push(record.event);
  }
  for (const item of runItems(run, records)) expect(parseRunItem(item)).toEqual({ ok: true, value: item });
  const person = { source: "Ann", parts: [{ type: "text", text: "hello" } as const], atMs: 0 };
  for (const message of runMessages(run, person, records)) {
    expect(problemsOf(message.type, message)).toEqual([]);
    expect(parseMessage(message)).toEqual({ ok: true, value: message });
  }
}
