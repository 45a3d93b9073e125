import { blobIdOf } from "@larkline/store";
import type { EngineEvent } from "@larkline/protocol/event";
import { expect, it } from "vitest";
import { EventWriter } from "./turn-output.ts";
import { inbound, newWorld, servicesOf, session } from "./turn-world.fixture.ts";

const mark = `![bars](blob:${blobIdOf(Buffer.from("x"))})`;

function writerTo(published: EngineEvent[]): EventWriter {
  const services = servicesOf(newWorld());
  services.store.emit = async ({ events }) => {
    published.push(...events.map(({ event }) => event));
    return true;
  };
  const run = {
    session: "s",
    epoch: "1",
    runId: "s-1",
    agent: "default",
    published: new Set<string>(),
  };
  return new EventWriter(services, run, () => undefined);
}

/** All that is published of these events, those that go with the next save included. */
async function publishedOf(events: readonly EngineEvent[]): Promise<EngineEvent[]> {
  const published: EngineEvent[] = [];
  const writer = writerTo(published);
  for (const event of events) writer.push(event);
  const taken = await writer.take();
  return [...published, ...taken.map(({ event }) => event)];
}

const deltas = (text: string): EngineEvent[] =>
  [...text].map((character) => ({ type: "text_delta", text: character }));

it("followers get the name of a stored image in place of its Markdown, whatever pieces it comes in", async () => {
  const published = await publishedOf(deltas(`Look: ${mark} there`));
  expect(published).toEqual([{ type: "text_delta", text: "Look: bars there" }]);
});

it("nothing of a mark is published while it is open, and all of the text before it is", async () => {
  const published: EngineEvent[] = [];
  const writer = writerTo(published);
  for (const delta of deltas(`Look: ${mark.slice(0, -1)}`)) writer.push(delta);
  await expect.poll(() => published).toEqual([{ type: "text_delta", text: "Look: " }]);
  expect((await writer.take()).map(({ event }) => event)).toEqual([
    { type: "text_delta", text: mark.slice(0, -1) },
  ]);
});

it("text that looked like the beginning of an image is not lost, and stays before what follows", async () => {
  const call: EngineEvent = { type: "warning", code: "w", message: "m", detail: "" };
  const published = await publishedOf([...deltas("wait!"), call, ...deltas("![")]);
  expect(published).toEqual([
    { type: "text_delta", text: "wait!" },
    call,
    { type: "text_delta", text: "![" },
  ]);
});

it("whole texts have no such Markdown either; the results of tools keep it", async () => {
  const end = {
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCostUsd: 0,
    turnCount: 1,
    reason: "",
  };
  const published = await publishedOf([
    { type: "text", text: mark },
    { type: "done", ...end, final: `${mark}!` },
  ]);
  expect(published).toMatchObject([{ text: "bars" }, { final: "bars!" }]);
});

it("a batch whose write was not confirmed is published once, before what comes after it", async () => {
  const services = servicesOf(newWorld());
  const { store } = services;
  const { wakeGen = 0 } = await store.append(inbound("om_1", "hello"));
  const claim = await store.claim(session, wakeGen, "worker-1");
  const emit = store.emit.bind(store);
  let writes = 0;
  store.emit = async (write) => {
    const isOurs = await emit(write);
    writes += 1;
    if (writes === 1) throw new Error("Connection is closed."); // the answer is lost, the write is not
    return isOurs;
  };
  const run = {
    session,
    epoch: claim?.epoch ?? "",
    runId: "s-1",
    agent: "default",
    published: new Set<string>(),
  };
  const writer = new EventWriter(services, run, () => undefined);
  writer.push({ type: "text_delta", text: "a" });
  await expect.poll(() => writes).toBe(1);
  writer.push({ type: "text_delta", text: "b" });
  const taken = await writer.take();
  const published = await services.eventLog.read(session, 0, 10);
  const texts = [...published, ...taken].map(({ event }) =>
    event.type === "text_delta" ? event.text : event.type,
  );
  expect(texts).toEqual(["a", "b"]);
});
