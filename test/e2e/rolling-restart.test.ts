import { patientClock } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import type { AppProcess } from "../system/app-process.ts";
import { waitForAnswer } from "../system/answer.ts";
import {
  answersTo,
  metricOf,
  repeats,
  tally,
  untilAnswered,
  write,
  type Written,
} from "../system/answers.ts";
import { cardsOf, refusedOperations } from "../system/card-watch.ts";
import { obedientModel } from "../system/model-script.ts";
import { startProcesses, type AppKind, type ProcessSystem } from "../system/system.ts";

let system: ProcessSystem;
const stopped: AppProcess[] = [];
beforeAll(async () => {
  system = await startProcesses({ workers: 2, runners: 2, ingresses: 2 });
});
afterAll(async () => await system.close());

/** For an answer, while processes start and stop on a machine that is busy with other tests. */
const patienceMs = 60_000;

/** Stops a process as an operator does, its successor being ready. */
async function replace(group: AppProcess[], kind: AppKind, index: number): Promise<void> {
  const old = group[index];
  if (old === undefined) throw new RangeError(`no ${kind} ${index}`);
  group[index] = await system.start(kind);
  stopped.push(old);
  let isLate = false;
  const cancel = patientClock.after(10_000, () => (isLate = true)); // what `npm start` and orchestrators are promised
  expect({ kind, code: await old.stop() }, old.output()).toEqual({ kind, code: 0 });
  cancel();
  expect(isLate, "it takes less than ten seconds").toBe(false);
}

async function replaceAll(): Promise<void> {
  for (const [kind, group] of [
    ["agent-worker", system.workers],
    ["tool-runner", system.runners],
    ["ingress", system.ingresses],
    ["agent-worker", system.workers],
  ] as const) {
    for (let index = 0; index < group.length; index += 1) await replace(group, kind, index);
  }
}

function textOf(chat: number, position: number): string {
  const key = `${chat}-${position}`;
  const name = `m${key} pause ${200 + (((chat * 7 + position) * 53) % 500)}`;
  const tool = ["", "note_once", "note_pure"][position % 3];
  return tool === ""
    ? name
    : `${name}\ncall ${tool} ${JSON.stringify({ key, ms: (position * 71) % 300 })}`;
}

/** Writes until the test stops it, with up to two messages waiting for their answers. */
async function keepWriting(chat: number, stop: AbortSignal): Promise<Written[]> {
  const person = system.person(`person ${chat}`);
  const written: Written[] = [];
  const waiting = () => written.filter((message) => answersTo(system, message).length === 0).length;
  for (let position = 0; !stop.aborted; position += 1) {
    written.push(await write(system, person, textOf(chat, position)));
    await vi.waitUntil(() => waiting() < 2 || stop.aborted, { timeout: patienceMs, interval: 10 });
  }
  return written;
}

it("replacing every process under load loses, repeats and reorders nothing, and leaves nothing to be healed", async () => {
  const stop = new AbortController();
  const writers = Array.from(
    { length: 3 },
    async (_, chat) => await keepWriting(chat, stop.signal),
  );
  const writing = Promise.all(writers);
  try {
    await Promise.race([
      replaceAll(),
      writing.then(() => Promise.reject(new Error("nobody writes any more"))),
    ]);
  } finally {
    stop.abort();
  }
  const chats = await writing;
  await untilAnswered(system, chats.flat(), patienceMs);
  expect(tally(system, chats)).toEqual({ lost: 0, duplicated: 0, misordered: 0 });
  const answers = chats
    .flat()
    .flatMap((message) => answersTo(system, message).map(({ text }) => text));
  expect(answers.filter((text) => !/^\[m[^\]]*\](?: ok:\S+)?$/.test(text))).toEqual([]);
  const once = repeats(await system.recorded(), "once");
  expect(once.started).toBeGreaterThan(chats.length);
  expect(once.repeated).toBe(0);
  const cards = chats.flat().flatMap((message) => cardsOf(system, message));
  expect(cards.length).toBeGreaterThan(chats.length);
  expect(refusedOperations(cards)).toEqual([]);
  expect(healed()).toEqual([]);
});

/** The lines of all workers about sessions that were left to them. */
function healed(): string[] {
  const lines = [...stopped, ...system.workers].flatMap((worker) => worker.output().split("\n"));
  return lines.filter((line) => /"what":"(?:crash|wake)"/.test(line));
}

it("a turn in the middle of its model call is handed over at once, and its message is asked again", async () => {
  const text = "in the middle";
  const asked = () =>
    system.model.requests.filter(({ messages }) => messages.at(-1)?.text === text).length;
  let isStopping = false;
  system.model.setScript((request) =>
    !isStopping && request.messages.at(-1)?.text === text
      ? { text: ["begun ", "and "], firstDelayMs: 1, fault: { kind: "hang", afterFrames: 3 } }
      : obedientModel(request),
  );
  const [only, ...others] = system.workers;
  for (const other of others) await other.stop();
  const before = system.model.aborted;
  const written = await write(system, system.person("Ida"), text);
  await vi.waitUntil(() => asked() > 0, { timeout: 60_000, interval: 10 });
  const successor = await system.start("agent-worker");
  system.workers.splice(0, system.workers.length, successor);
  isStopping = true;
  if (only === undefined) throw new Error("unreachable: a worker runs");
  stopped.push(only);
  expect(await only.stop()).toBe(0);
  const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: patienceMs });
  expect(answer.text).toBe(`[${text}]`);
  expect(asked()).toBe(2);
  await vi.waitFor(() => expect(system.model.aborted).toBeGreaterThan(before), { timeout: 60_000 });
  expect(await metricOf(successor, "larkline_turn_runs_total", 'outcome="answered"')).toBe(1);
  expect(healed()).toEqual([]);
  expect(await metricOf(successor, "larkline_healed_total")).toBe(0);
});

it("a reply that is being sent while its worker stops is sent by another worker, once", async () => {
  system.model.setScript(obedientModel);
  const [sender] = system.workers;
  expect(system.workers).toHaveLength(1);
  const lastFrame = { method: "PUT", path: /\/cards\/[^/]+$/ };
  system.feishu.faults.add({ match: lastFrame, times: 1, action: { kind: "hang" } });
  // The sender tries again: however long its successor takes to start, it must not get through.
  const letThrough = system.feishu.faults.add({ match: lastFrame, action: { kind: "hang" } });
  const written = await write(system, system.person("Jon"), "sending pause 400");
  const requests = () =>
    system.model.requests.filter(({ messages }) => messages.at(-1)?.text === written.text).length;
  await vi.waitUntil(() => requests() > 0 && system.feishu.faults.size === 1, {
    timeout: 60_000,
    interval: 10,
  });
  const requestsBefore = requests();
  const successor = await system.start("agent-worker");
  expect(await sender?.stop()).toBe(0);
  letThrough();
  await waitForAnswer(system.feishu, written.messageId, { timeoutMs: patienceMs });
  expect(answersTo(system, written).map(({ text }) => text)).toEqual(["[sending pause 400]"]);
  expect(requests()).toBe(requestsBefore);
  expect(await metricOf(successor, "larkline_healed_total", 'what="outbox"')).toBeGreaterThan(0);
});
