import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { EventRecord, PersonMessage } from "../event.ts";
import { runMessages } from "./chat-view.ts";
import { engineRecords } from "./engine-view.ts";
import { runItems } from "./item-view.ts";
import { plannedRun, recordsOf } from "./run.fixture.ts";
import {
  parsePosition,
  RunStream,
  runViews,
  type Emission,
  type Position,
  type RunViewName,
} from "./run-stream.ts";

const person: PersonMessage = { source: "Ann", parts: [{ type: "text", text: "hello" }], atMs: 0 };

function emissionsOf(
  view: RunViewName,
  records: readonly EventRecord[],
  after?: Position,
): Emission[] {
  const [first] = records.slice(1); // the one before is of another run
  const run = {
    runId: first?.runId ?? "",
    sessionId: "s1",
    agent: "default",
    startedAtMs: 1_700_000_000_000,
  };
  const stream = new RunStream(view, run, after);
  return records.flatMap((record) => stream.push(record));
}

describe("the position of an emission", () => {
  it("is read back from its id, and nothing else is", () => {
    expect(parsePosition("12")).toEqual({ seq: 12 });
    expect(parsePosition("12.1")).toEqual({ seq: 12, part: 1 });
    const wrong = ["", "x", "-1", "1.", "1.2.3", "1e3", "1234567890123456"];
    expect(wrong.filter((text) => parsePosition(text) !== undefined)).toEqual([]);
  });
});

describe("the stream of any run", () => {
  it("holds what its view shows, each at a position of its own", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const { parentRunId: _parentRunId, ...facts } = planned.facts;
        const records = recordsOf({ ...planned, facts }).map((record) => ({ ...record, person }));
        const shown = {
          engine: engineRecords(facts, records),
          items: runItems(facts, records),
          messages: runMessages(facts, records),
        };
        for (const view of runViews) {
          const emissions = emissionsOf(view, records);
          expect(emissions.map(({ data }) => data)).toEqual(shown[view]);
          expect(new Set(emissions.map(({ id }) => id)).size).toBe(emissions.length);
        }
      }),
    );
  });

  it("continues after any emission, without a gap and without a repetition", () => {
    fc.assert(
      fc.property(plannedRun, fc.constantFrom(...runViews), fc.nat(), (planned, view, cut) => {
        const { parentRunId: _parentRunId, ...facts } = planned.facts;
        const records = recordsOf({ ...planned, facts }).map((record) => ({ ...record, person }));
        const all = emissionsOf(view, records);
        const seen = all.slice(0, all.length === 0 ? 0 : (cut % all.length) + 1);
        const after = parsePosition(seen.at(-1)?.id ?? "0");
        expect([...seen, ...emissionsOf(view, records, after)]).toEqual(all);
      }),
    );
  });
});
