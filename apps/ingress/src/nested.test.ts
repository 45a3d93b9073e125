import { childSessionOf, turnIdOf, type SessionKey } from "@larkline/protocol";
import type { EngineEvent } from "@larkline/protocol/event";
import { describe, expect, it, vi } from "vitest";
import type { TestMemory } from "./backend.fixture.ts";
import { createTestServices, doneEvent } from "./ingress.fixture.ts";
import { parseNested, runView, tellNested } from "./nested.ts";
import { testMemory } from "./redis.fixture.ts";

describe("the position in a run and its helpers", () => {
  it("AT-3: is read back, also that of a view of the root alone", () => {
    expect(parseNested("12.1~0-5~0_1_15-7.2")).toEqual({
      root: { seq: 12, part: 1 },
      below: new Map([
        ["0", { seq: 5 }],
        ["0_1_15", { seq: 7, part: 2 }],
      ]),
    });
    expect(parseNested("12")).toEqual({ root: { seq: 12 }, below: new Map() });
  });

  it("is refused when it is malformed, deeper than helpers work, or longer than any that is sent", () => {
    const branches = (count: number) =>
      ["1", ...Array.from({ length: count }, (_, at) => `${at}-1`)].join("~");
    expect(parseNested(branches(99))?.below.size).toBe(99);
    const wrong = [
      "",
      "~0-1",
      "1~",
      "1~0",
      "1~0-x",
      "1~0_1_2_3-1",
      "1~a-1",
      "x~0-1",
      branches(100),
      branches(90_000),
    ];
    expect(wrong.filter((text) => parseNested(text) !== undefined)).toEqual([]);
  });
});

/** Writes events of the first run of a session, as the worker that has claimed it. */
async function writerOf({ store }: TestMemory, session: SessionKey, parentRunId?: string) {
  const { wakeGen = 1 } = await store.append({
    v: 1,
    session,
    id: "m",
    app: "api",
    sender: { id: "caller" },
    chatType: "p2p",
    parts: [{ type: "text", text: "go" }],
    createdAtMs: 1,
    reply: { channel: "none" },
  });
  const claim = await store.claim(session, wakeGen, "worker-1");
  if (claim === undefined) throw new Error("the session belongs to another worker");
  const runId = turnIdOf(session, 1);
  return async (...events: EngineEvent[]) => {
    const facts = { runId, ...(parentRunId === undefined ? {} : { parentRunId }) };
    await store.emit({
      session,
      epoch: claim.epoch,
      events: events.map((event) => ({ ...facts, event })),
    });
  };
}

const called = (id: string): EngineEvent => ({
  type: "tool_use",
  id,
  toolName: "ask",
  input: {},
  helper: "reader",
});

const result = (id: string): EngineEvent => {
  return {
    type: "tool_result",
    id,
    toolName: "ask",
    output: "",
    isError: false,
    truncated: false,
    storedPath: "",
  };
};

describe("the events of a run and its helpers", () => {
  it("AT-3: have positions that stay short while many helpers have ended and their askers are silent", async () => {
    const shared = testMemory();
    const services = createTestServices(shared);
    const root = "api.many";
    const readers = Array.from({ length: 12 }, (_, at) => `r${at}`);
    const tellRoot = await writerOf(shared, root);
    await tellRoot(called("a"), called("b"));
    const askers = await Promise.all(
      ["a", "b"].map(async (id) => {
        const session = childSessionOf(root, turnIdOf(root, 1), id);
        const tell = await writerOf(shared, session, turnIdOf(root, 1));
        await tell(...readers.map(called));
        for (const reader of readers) {
          const below = await writerOf(
            shared,
            childSessionOf(session, turnIdOf(session, 1), reader),
            turnIdOf(session, 1),
          );
          await below({ type: "text_delta", text: reader }, doneEvent(reader));
        }
        return { id, tell };
      }),
    );
    const frames: { id: string; data: string }[] = [];
    const stream = {
      gone: new AbortController().signal,
      async write(text: string): Promise<void> {
        for (const [, id = "", data = ""] of text.matchAll(
          /^id: (.*)\n(?:event: .*\n)?data: (.*)$/gm,
        )) {
          frames.push({ id, data });
        }
      },
      end: () => {},
    };
    const facts = { runId: turnIdOf(root, 1), sessionId: "many", agent: "default", startedAtMs: 0 };
    const run = { session: root, runId: facts.runId, afterSeq: 0 };
    const nested = {
      run,
      name: "engine" as const,
      view: runView("engine", facts),
      sessionIdOf: String,
      after: undefined,
    };
    const told = tellNested(services, stream, nested, new AbortController().signal);
    const has = (words: string) => frames.filter(({ data }) => data.includes(words)).length;
    await vi.waitUntil(() => has('"done"') >= 16, { timeout: 60_000, interval: 5 });
    // Time for more, if more were sent: each of these goes the whole way.
    for (let at = 0; at < 10; at += 1) {
      await tellRoot({ type: "text_delta", text: `still here ${at}` });
      await vi.waitUntil(() => has(`still here ${at}`) === 1, { timeout: 60_000, interval: 5 });
    }
    expect(has('"done"')).toBe(16);
    for (const { id, tell } of askers) {
      await tell(...readers.map(result), doneEvent("ask"));
      await tellRoot(result(id));
    }
    await tellRoot(doneEvent("all"));
    expect(await told).toBe(true);
    expect(has('"done"')).toBe(27);
    const onLevel = frames.map(
      ({ id }) => id.split("~").filter((place) => /^\d+_\d+-/.test(place)).length,
    );
    // One more for each asker, whose next record is the end of a helper that had no place.
    expect(Math.max(...onLevel)).toBeLessThanOrEqual(18);
    expect(frames.filter(({ id }) => parseNested(id) === undefined)).toEqual([]);
  });
});
