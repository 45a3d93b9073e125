import type { CallState, ToolJob, ToolOutcome, TurnState } from "@larkline/protocol";
import type { AvailableTool } from "@larkline/session";
import { describe, expect, it } from "vitest";
import { dispatchCalls, type CallBatch } from "./tool-dispatch.ts";

const turn: TurnState = {
  v: 1,
  turnId: "s-1",
  message: {
    v: 1,
    id: "m1",
    app: "http",
    session: "s",
    sender: { id: "u" },
    chatType: "api",
    parts: [{ type: "text", text: "hello" }],
    createdAtMs: 0,
    reply: { channel: "none" },
  },
  steps: 1,
  calls: [],
  totals: { inputTokens: 0, outputTokens: 0, costUsd: 0 },
  startedAtMs: 0,
};
const handedOut: CallState = {
  id: "c1",
  name: "pay",
  arguments: {},
  state: "running",
  runner: "first",
  effect: "once",
};

function offered(runner: string): ReadonlyMap<string, AvailableTool> {
  const spec = { name: "pay", description: "", inputSchema: { type: "object" } };
  return new Map([
    ["pay", { runner, announcement: { spec, effect: "idempotent", requiresApproval: false, timeoutMs: 1_000 } }],
  ]);
}

async function dispatched(batch: CallBatch) {
  const jobs: [string, ToolJob["effect"]][] = [];
  const answers: ToolOutcome[] = [];
  const queues = {
    dispatch: async (runner: string, added: readonly ToolJob[]) =>
      void jobs.push(...added.map(({ effect }): [string, ToolJob["effect"]] => [runner, effect])),
  };
  const store = {
    deliver: async (_session: string, _callId: string, outcome: ToolOutcome) => {
      answers.push(outcome);
      return { accepted: true };
    },
  };
  await dispatchCalls({ queues, store, wake: async () => {} }, turn, batch);
  return { jobs, answers };
}

describe("a call that may have been handed out before", () => {
  it("goes to its runner again, although another one offers the tool by now", async () => {
    const batch = { calls: [handedOut], again: true, tools: offered("second") };
    expect(await dispatched(batch)).toEqual({ jobs: [["first", "once"]], answers: [] });
  });

  it("is not answered while its runner stops: that one still runs it, or answers it itself", async () => {
    const batch = { calls: [handedOut], again: true, tools: new Map() };
    expect(await dispatched(batch)).toEqual({ jobs: [["first", "once"]], answers: [] });
  });
});

describe("a new call", () => {
  it("goes to the runner that offers its tool", async () => {
    const batch = { calls: [handedOut], again: false, tools: offered("second") };
    expect(await dispatched(batch)).toEqual({ jobs: [["second", "idempotent"]], answers: [] });
  });

  it("whose runner has just gone is answered as not run", async () => {
    const { jobs, answers } = await dispatched({ calls: [handedOut], again: false, tools: new Map() });
    expect(jobs).toEqual([]);
    expect(answers).toEqual([{ ok: false, error: expect.stringMatching(/'pay' is gone\. The call was not run\.$/) }]);
  });

  it("with more arguments than a job may hold is answered at once, in place of blocking its turn", async () => {
    const large = { ...handedOut, arguments: { text: "文".repeat(100_000) } };
    const { jobs, answers } = await dispatched({ calls: [large], again: false, tools: offered("second") });
    expect(jobs).toEqual([]);
    expect(answers).toEqual([{ ok: false, error: expect.stringContaining("too large (300011 bytes") }]);
  });
});
