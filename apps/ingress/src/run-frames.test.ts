import { describe, expect, it } from "vitest";
import type { EventRecord } from "@larkline/protocol/event";
import { streamFramesOfRecord, type StreamFrame } from "@larkline/protocol/views/stream-frame";
import { doneEvent } from "./ingress.fixture.ts";
import { lostRunFrame, recordsOfRun } from "./stream.ts";

const session = "api.s";
const delta = (seq: number, run: number): EventRecord => ({
  seq,
  runId: `${session}-${run}`,
  event: { type: "text_delta", text: `t${seq}` },
});
const end = (seq: number, run: number): EventRecord => ({
  seq,
  runId: `${session}-${run}`,
  event: doneEvent(""),
});

async function* follow(
  records: (EventRecord | undefined)[],
): AsyncGenerator<EventRecord | undefined> {
  yield* records;
}

async function framesFrom(
  records: (EventRecord | undefined)[],
  { runId }: { runId?: string },
): Promise<StreamFrame[]> {
  const frames: StreamFrame[] = [];
  for await (const record of recordsOfRun(follow(records), runId)) {
    frames.push(...(record === "lost" ? [lostRunFrame] : streamFramesOfRecord(record)));
  }
  return frames;
}

describe("the frames of one run", () => {
  it("end with the run and hold nothing of others", async () => {
    const records = [delta(1, 1), end(2, 1), delta(3, 2), end(4, 2), delta(5, 3)];
    const frames = await framesFrom(records, { runId: "api.s-2" });
    expect(frames.map(({ seq }) => seq)).toEqual([3, 4]);
  });

  it("are those of the next event's run when no run is named", async () => {
    const frames = await framesFrom([undefined, delta(7, 9), end(8, 9), delta(9, 10)], {});
    expect(frames.map(({ seq }) => seq)).toEqual([7, 8]);
  });

  it("end with an error when a later run continues and the end of this one is no longer kept", async () => {
    const frames = await framesFrom([undefined, delta(50, 4), end(51, 4)], { runId: "api.s-2" });
    expect(frames).toEqual([lostRunFrame]);
  });

  it("hold an outcome once that the successor of a dead worker tells again", async () => {
    const outcome = (seq: number, id: string): EventRecord => ({
      seq,
      runId: "api.s-1",
      event: {
        type: "tool_result",
        id,
        toolName: "t",
        output: "",
        isError: false,
        truncated: false,
        storedPath: "",
      },
    });
    const records = [outcome(1, "c1"), outcome(2, "c2"), outcome(3, "c1"), end(4, 1)];
    expect((await framesFrom(records, {})).map(({ seq }) => seq)).toEqual([1, 2, 4]);
  });

  it("go on with those of the run that took the message, once it has joined that", async () => {
    const { event: ended } = end(3, 2);
    const event =
      ended.type === "done" ? { ...ended, reason: "joined", takenBy: "api.s-1" } : ended;
    const joined: EventRecord = { seq: 3, runId: "api.s-2", event };
    const records = [
      delta(1, 1),
      end(2, 3),
      joined,
      end(4, 3),
      delta(5, 1),
      end(6, 1),
      delta(7, 4),
    ];
    const frames = await framesFrom(records, { runId: "api.s-2" });
    expect(frames.map(({ seq, run_id }) => [seq, run_id])).toEqual([
      [5, "api.s-1"],
      [6, "api.s-1"],
    ]);
  });

  it("come with the words of messages that join the run, where these are asked for", async () => {
    const joins = (seq: number, run: number, takenBy: string): EventRecord => ({
      seq,
      runId: `api.s-${run}`,
      event: { ...end(seq, run).event, reason: "joined", takenBy } as EventRecord["event"], // a `done`
    });
    const records = [
      delta(1, 1),
      joins(2, 2, "api.s-1"),
      delta(3, 1),
      joins(4, 4, "api.s-9"),
      end(5, 1),
    ];
    const seqs = async (runId: string) => {
      const found: unknown[] = [];
      for await (const record of recordsOfRun(follow(records), runId, true)) {
        found.push(record === "lost" ? record : record.seq);
      }
      return found;
    };
    expect(await seqs("api.s-1")).toEqual([1, 2, 3, 5]);
    expect(await seqs("api.s-2")).toEqual([2, 3, 5]);
  });

  it("are not ended by a waiting run that was cancelled, nor by run 10 sorting before run 9", async () => {
    const records = [delta(1, 9), end(2, 10), delta(3, 9), end(4, 9)];
    const frames = await framesFrom(records, { runId: "api.s-9" });
    expect(frames.map(({ seq }) => seq)).toEqual([1, 3, 4]);
  });
});
