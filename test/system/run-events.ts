import { isTerminal, type EngineEvent, type EventRecord } from "@larkline/protocol/event";
import { parseMessage, StructuredModels } from "@larkline/protocol/views/chat-messages";
import { runMessages } from "@larkline/protocol/views/chat-view";
import { problemsOf } from "@larkline/protocol/views/conformance.fixture";
import { parseRunRecord } from "@larkline/protocol/views/engine-events";
import { engineRecords, LiveText } from "@larkline/protocol/views/engine-view";
import { runItems } from "@larkline/protocol/views/item-view";
import { parseRunItem } from "@larkline/protocol/views/run-items";
import { EventLog } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { expect, vi } from "vitest";
import { noteSeen } from "./seen.ts";
import type { System } from "./system.ts";

/** The events of the latest run of a chat (over HTTP: of a session of the app `api`), once it has ended. Every view has shown them as its schemas say. */
export async function eventsOfRun(
  system: System,
  { chatId, app = system.appId }: { chatId: string; app?: string },
): Promise<EngineEvent[]> {
  const redis = connectRedis(system.redis.url);
  const log = new EventLog({ redis, namespace: "larkline" });
  try {
    const read = async () => {
      const records = await log.read(`${app}.${chatId}`, 0, 10_000);
      const runId = records.at(-1)?.runId;
      const events = records.filter((record) => record.runId === runId).map(({ event }) => event);
      if (runId === undefined || !events.some(isTerminal)) throw new Error("the run has not ended");
      expectViews(records, runId);
      return events;
    };
    return await vi.waitFor(read, { timeout: 60_000, interval: 50 });
  } finally {
    await closeRedis(redis);
  }
}

function expectViews(records: readonly EventRecord[], runId: string): void {
  const run = { runId, sessionId: "s", agent: "default", startedAtMs: 0 };
  const live = new LiveText();
  const shown = engineRecords(run, records);
  noteSeen(
    "event",
    shown.map(({ event }) => event.type),
  );
  for (const record of shown) {
    expect(parseRunRecord(record)).toEqual({ ok: true, value: record });
    if (record.event.type === "done") expect(live.text).toBe(record.event.final);
    live.push(record.event);
  }
  const items = runItems(run, records);
  noteSeen(
    "item",
    items.map(({ type }) => type),
  );
  for (const item of items) expect(parseRunItem(item)).toEqual({ ok: true, value: item });
  const models = new StructuredModels();
  for (const { event } of shown) {
    if (event.type === "done" && event.outputName !== undefined) {
      models.register(event.outputName, { type: "object" });
    }
  }
  const messages = runMessages(run, records);
  const isAsked = records.some(
    ({ runId: of, event }) => of === runId && event.type === "turn_start",
  );
  if (isAsked) expect(messages[0]?.type).toMatch(/^(?:Text|MultiModal)Message$/);
  noteSeen(
    "message",
    messages.map(({ type }) => type),
  );
  for (const message of messages) {
    expect(problemsOf(message.type.replace(/\[.*/, ""), message)).toEqual([]);
    expect(parseMessage(message, models)).toEqual({ ok: true, value: message });
  }
}
