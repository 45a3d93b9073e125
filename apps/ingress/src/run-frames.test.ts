import { describe, expect, it } from "vitest";
import type { EventRecord, StreamFrame } from "@larkline/protocol";
import { doneEvent } from "./ingress.fixture.ts";
import { framesOfRun, lostRunFrame, type RunPosition } from "./run-frames.ts";

const session = "api.s";
const delta = (seq: number, run: number): EventRecord => ({
  seq,
  runId: `${session}-${run}`,
  event: { type: "text_delta", text: `t${seq}` },
});
const end = (seq: number, run: number): EventRecord => ({ seq, runId: `${session}-${run}`, event: doneEvent("") });

async function framesFrom(
  records: (EventRecord | undefined)[],
  position: Partial<RunPosition>,
): Promise<StreamFrame[]> {
  const log = {
    async *follow() {
      yield* records;
    },
  };
  const run = { session, runId: undefined, afterSeq: 0, ...position };
  const frames: StreamFrame[] = [];
  for await (const frame of framesOfRun(log, run, new AbortController().signal)) frames.push(frame);
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

  it("end with an error when a later run goes on and the end of this one is no longer kept", async () => {
    const frames = await framesFrom([undefined, delta(50, 4), end(51, 4)], { runId: "api.s-2" });
    expect(frames).toEqual([lostRunFrame]);
  });

  it("are not ended by a waiting run that was cancelled, nor by run 10 sorting before run 9", async () => {
    const records = [delta(1, 9), end(2, 10), delta(3, 9), end(4, 9)];
    const frames = await framesFrom(records, { runId: "api.s-9" });
    expect(frames.map(({ seq }) => seq)).toEqual([1, 3, 4]);
  });
});
