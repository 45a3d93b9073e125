import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { engineEventTypes, type EngineEvent, type EventRecord } from "../event.ts";
import {
  eventSchemas,
  parseRunEvent,
  parseRunRecord,
  type RunEvent,
  type RunRecord,
} from "./engine-events.ts";
import { engineRecords, EngineView, LiveText } from "./engine-view.ts";
import { cutAt, finalOf, plannedRun, recordsOf } from "./run.fixture.ts";

const run = { runId: "api.s-1", sessionId: "s", agent: "default", startedAtMs: 1_000 };

function recordsOfEvents(...events: EngineEvent[]): EventRecord[] {
  return events.map((event, index) => ({ seq: index + 1, runId: run.runId, event }));
}

function shown(...events: EngineEvent[]): RunEvent[] {
  return engineRecords(run, recordsOfEvents(...events)).map(({ event }) => event);
}

const start = {
  type: "turn_start",
  turnNumber: 1,
  model: "m1",
  contextWindowTokens: 1_000,
} as const;
const result = {
  type: "tool_result",
  id: "c1",
  toolName: "t",
  output: "ok",
  isError: false,
  truncated: false,
  storedPath: "",
} as const;
const formerEnd = {
  type: "turn_end",
  turnNumber: 1,
  inputTokens: 7,
  outputTokens: 2,
  costUsd: 0.5,
  maxTokens: 9,
} as const;

describe("the schemas of events", () => {
  it("there is one for each type, and each accepts its own type alone", () => {
    expect(Object.keys(eventSchemas)).toEqual([...engineEventTypes]);
    for (const [type, schema] of Object.entries(eventSchemas)) {
      expect(schema.properties.type.const).toBe(type);
    }
  });

  it("name an unknown type, and the field that is wrong", () => {
    expect(parseRunEvent({ type: "telepathy" })).toEqual({
      ok: false,
      error: 'there is no event of type "telepathy"',
    });
    expect(parseRunEvent(undefined).ok).toBe(false);
    expect(parseRunEvent({ type: "text", text: 1 })).toEqual({
      ok: false,
      error: "text must be string",
    });
    const progress = { type: "tool_progress", id: "c", toolName: "t", progress: 1.5, detail: "" };
    expect(parseRunEvent(progress)).toEqual({ ok: false, error: "progress must be <= 1" });
    expect(
      parseRunRecord({ seq: 0, runId: "r", agent: "a", atMs: 1, event: { type: "text", text: "" } })
        .ok,
    ).toBe(false);
  });

  it("are of events that the core takes, too", () => {
    const taken = (event: RunEvent): EngineEvent => event;
    expect(taken({ type: "text", text: "" }).type).toBe("text");
  });
});

describe("the view of events", () => {
  it("fills in what the version before has not stored", () => {
    const done = {
      type: "done",
      totalInputTokens: 7,
      totalOutputTokens: 2,
      totalCostUsd: 0.5,
      turnCount: 1,
      reason: "",
      final: "",
    } as const;
    const [record] = engineRecords(run, recordsOfEvents(start));
    expect(record).toEqual({
      seq: 1,
      runId: run.runId,
      agent: "default",
      atMs: 1_000,
      event: start,
    });
    expect(shown(start, formerEnd, done).slice(1)).toEqual([
      {
        ...formerEnd,
        cacheReadTokens: 0,
        cacheCreationTokens: 0,
        model: "m1",
        responseId: null,
        attempts: 1,
        estimated: false,
      },
      { ...done, totalCacheReadTokens: 0, totalCacheCreationTokens: 0, agent: "default" },
    ]);
  });

  it("EE-11: sums up the steps where an error of the version before has no totals", () => {
    const failure = {
      type: "error",
      message: "m",
      code: "internal_error",
      suggestion: "",
      retryable: false,
    } as const;
    const second = { ...formerEnd, turnNumber: 2, cacheReadTokens: 4, cacheCreationTokens: 1 };
    expect(shown(start, formerEnd, { ...start, turnNumber: 2 }, second, failure).at(-1)).toEqual({
      ...failure,
      totalInputTokens: 14,
      totalOutputTokens: 4,
      totalCacheReadTokens: 4,
      totalCacheCreationTokens: 1,
      totalCostUsd: 1,
      turnCount: 2,
      agent: "default",
    });
  });

  it("EE-9: no step starts twice: a second start is a restart", () => {
    const restart = { type: "step_restarted", turnNumber: 1, model: "m1", reason: "crash" };
    expect(shown(start, start)).toEqual([start, restart]);
  });

  it("EE-6: a result that is published again, after a crash, comes once", () => {
    expect(
      shown(result, { ...result, output: "again" }, { ...result, id: "c2" }).map(
        (event) => "id" in event && event.id,
      ),
    ).toEqual(["c1", "c2"]);
  });

  it("EE-2: nothing but the totals of the session follows the end", () => {
    const info = {
      type: "session_info",
      sessionId: "s",
      title: "",
      turnCount: 1,
      inputTokens: 1,
      outputTokens: 1,
      costUsd: 0,
    } as const;
    const done = {
      type: "done",
      totalInputTokens: 0,
      totalOutputTokens: 0,
      totalCostUsd: 0,
      turnCount: 0,
      reason: "",
      final: "",
    } as const;
    expect(shown(done, info, { type: "text", text: "late" }, done).map(({ type }) => type)).toEqual(
      ["done", "session_info"],
    );
  });

  it("EE-10: the vendors' raw usage is not shown, nor what a later version may tell", () => {
    const usage = {
      type: "usage",
      inputTokens: 1,
      outputTokens: 1,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
      stopReason: "end_turn",
    } as const;
    const later = { type: "telepathy" } as unknown as EngineEvent; // of a version to come
    expect(shown(usage, later)).toEqual([]);
  });

  it("EE-7: progress lies within 0 and 1 whatever was stored", () => {
    const progress = { type: "tool_progress", id: "c", toolName: "t", detail: "" } as const;
    expect(shown({ ...progress, progress: 1.2 }, { ...progress, progress: -1 })).toEqual([
      { ...progress, progress: 1 },
      { ...progress, progress: 0 },
    ]);
  });

  it("EE-12: the code of a failed result is the one that its text begins with", () => {
    const codes = (...outputs: string[]) =>
      shown(
        ...outputs.map((output, index) => ({
          ...result,
          id: `c${index}`,
          output,
          isError: output !== "ok",
        })),
      ).map((event) => event.type === "tool_result" && event.code);
    expect(
      codes(
        "ok",
        "permission_denied: no",
        "tool_not_found: x",
        "mcp_connection_error: gone",
        "boom",
      ),
    ).toEqual([
      "",
      "permission_denied",
      "tool_not_found",
      "mcp_connection_error",
      "tool_execution_error",
    ]);
  });

  it("EE-40, EE-41: the place of a large result is not shown, only a handle; a small one has neither", () => {
    const path = "res_0123456789abcdef";
    const large = {
      ...result,
      truncated: true,
      storedPath: path,
      output: `head\n[read_result ${path}]`,
    };
    expect(shown(large)).toEqual([
      { ...large, storedPath: "", output: "head\n[read_result …]", code: "", handle: "result_1" },
    ]);
    expect(shown(result)).toEqual([{ ...result, code: "", handle: "" }]);
  });

  it("names the agent that answers, also where records do not", () => {
    const change = {
      type: "agent_changed",
      from: "default",
      to: "writer",
      reason: "handoff",
      callId: "c1",
    } as const;
    const agents = (records: EventRecord[]) =>
      engineRecords(run, records).map(({ agent }) => agent);
    const records = recordsOfEvents(start, change, { type: "text", text: "" });
    expect(agents(records)).toEqual(["default", "default", "writer"]);
    expect(agents(records.map((record) => ({ ...record, agent: "critic" })))).toEqual([
      "critic",
      "critic",
      "critic",
    ]);
  });

  it("leaves out other runs and positions that it has seen", () => {
    const view = new EngineView(run);
    const [record] = recordsOfEvents(start) as [EventRecord];
    expect(view.push({ ...record, runId: "api.s-2" })).toBeUndefined();
    expect(view.push(record)?.event).toEqual(start);
    expect(view.push(record)).toBeUndefined();
  });

  it("keeps the run that a child works for", () => {
    const parentRunId = "api.s-0";
    expect(engineRecords({ ...run, parentRunId }, recordsOfEvents(start))[0]?.parentRunId).toBe(
      parentRunId,
    );
    const stored = recordsOfEvents(start).map((record) => ({ ...record, parentRunId }));
    expect(engineRecords(run, stored)[0]?.parentRunId).toBe(parentRunId);
  });
});

describe("any run", () => {
  it("is shown in records that fit their schema, however often its reader is cut off", () => {
    fc.assert(
      fc.property(plannedRun, fc.array(fc.nat(), { maxLength: 5 }), (planned, cuts) => {
        const records = recordsOf(planned);
        const whole = engineRecords(planned.facts, records);
        for (const record of whole) {
          expect(parseRunRecord(record)).toEqual({ ok: true, value: record });
        }
        expect(engineRecords(planned.facts, cutAt(records, cuts))).toEqual(whole);
        expect(JSON.parse(JSON.stringify(whole))).toEqual(whole);
      }),
    );
  });

  it("EE-49: the text that is rebuilt from its deltas is what `final` says", () => {
    fc.assert(
      fc.property(plannedRun, fc.array(fc.nat(), { maxLength: 5 }), (planned, cuts) => {
        const live = new LiveText();
        const shownRecords = engineRecords(planned.facts, cutAt(recordsOf(planned), cuts));
        for (const { event } of shownRecords) live.push(event);
        expect(live.text).toBe(finalOf(planned));
        const done = shownRecords.find(({ event }) => event.type === "done")?.event;
        if (done?.type === "done") expect(done.final).toBe(live.text);
      }),
    );
  });

  it("EE-2, EE-9: ends once, at its end, with steps that are numbered without gaps", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const events = engineRecords(planned.facts, recordsOf(planned)).map(
          ({ event }: RunRecord) => event,
        );
        expect(events.findIndex(({ type }) => type === "done" || type === "error")).toBe(
          events.length - 1,
        );
        const starts = events.flatMap((event) =>
          event.type === "turn_start" ? [event.turnNumber] : [],
        );
        expect(starts).toEqual(planned.steps.map((_step, index) => index + 1));
      }),
    );
  });
});
