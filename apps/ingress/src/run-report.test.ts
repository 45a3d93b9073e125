import type { RunReport } from "@larkline/protocol/views/run-api";
import { expect, it, onTestFinished } from "vitest";
import { replacing } from "./backend.fixture.ts";
import { startTestIngress, type Script } from "./ingress.fixture.ts";

const steps = 230;

/** A run of many steps, each with a long result. */
const long: Script = async (_text, { emit }) => {
  const output = "x".repeat(5_000);
  for (let turnNumber = 1; turnNumber <= steps; turnNumber += 1) {
    const id = `c${turnNumber}`;
    const used = {
      inputTokens: 1,
      outputTokens: 1,
      costUsd: 0,
      maxTokens: 1,
      responseId: `msg_${turnNumber}`,
    };
    await emit({ type: "turn_start", turnNumber, model: "m", contextWindowTokens: 1 });
    await emit({ type: "tool_use", id, toolName: "read", input: {} });
    await emit({
      type: "tool_result",
      id,
      toolName: "read",
      output,
      isError: false,
      truncated: false,
      storedPath: "",
    });
    await emit({ type: "turn_end", turnNumber, ...used });
  }
};

async function startLong() {
  const ingress = await startTestIngress({ script: long });
  onTestFinished(async () => await ingress.close());
  const body = JSON.stringify({ input: "go", session_id: "s" });
  await fetch(`${ingress.url}/v1/runs`, { method: "POST", headers: { prefer: "wait=300" }, body });
  const read = async (query = "") => await fetch(`${ingress.url}/v1/runs/api.s-1${query}`);
  return { ingress, read };
}

it("a report of a long run is short, and its lists come in pages", async () => {
  const { read } = await startLong();
  const first = await (await read()).text();
  expect(first.length).toBeLessThan(5_000);
  const pages = [JSON.parse(first) as RunReport]; // our own server wrote it
  for (let next = pages[0]?.next ?? null; next !== null; next = pages.at(-1)?.next ?? null) {
    pages.push((await (await read(`?after=${next}`)).json()) as RunReport);
  }
  expect(pages.map((page) => page.response_ids.length)).toEqual([100, 100, 30]);
  const ids = Array.from({ length: steps }, (_, at) => `msg_${at + 1}`);
  expect(pages.flatMap((page) => page.response_ids)).toEqual(ids);
  for (const page of pages) {
    expect(page).toMatchObject({ state: "done", usage: { requests: steps, input_tokens: steps } });
  }
  expect(await (await read("?limit=500")).json()).toMatchObject({ response_ids: ids, next: null });
  expect((await read("?limit=501")).status).toBe(400);
  expect((await read("?after=soon")).status).toBe(400);
});

it("a report holds a few pages of events at once, and reads no further when it takes too long", async () => {
  const { ingress, read } = await startLong();
  const { eventLog } = ingress.services;
  const sizes: number[] = [];
  Object.assign(ingress.services, {
    eventLog: replacing(eventLog, {
      read: async (session, afterSeq, limit) => {
        const page = await eventLog.read(session, afterSeq, limit);
        sizes.push(page.length);
        return page;
      },
    }),
  });
  expect((await read()).status).toBe(200);
  expect(Math.max(...sizes)).toBe(100);
  const stuck = Promise.withResolvers<never>();
  const asked: number[] = [];
  const { clock } = ingress.services;
  Object.assign(ingress.services, {
    eventLog: replacing(eventLog, { read: async () => await stuck.promise }),
    clock: replacing(clock, {
      after: (ms, work) => {
        asked.push(ms);
        return clock.after(0, work);
      },
    }),
  });
  expect((await read()).status).toBe(503);
  expect(asked).toEqual([8_000]);
});
