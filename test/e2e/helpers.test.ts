import { createClient, type RunEvent } from "@larkline/sdk";
import type { RunReport } from "@larkline/protocol/views/run-api";
import type { NormalisedRequest } from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import type { App } from "../system/app-process.ts";
import { answersTo, write } from "../system/answers.ts";
import { decide, untilAsked, untilRetired } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { obedientModel } from "../system/model-script.ts";
import { observer, writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { startSystem, type System } from "../system/system.ts";

const patience = { timeout: 60_000, interval: 20 };

let system: System;
let users: RedisUsers;
let operators: App;
/** Requests with these words wait until as many of them are under way. */
let gate: { words: string; count: number } | undefined;
let waiting: { system: string; pass(): void }[] = [];

function lastUser({ messages }: NormalisedRequest): string {
  return messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
}

const config = {
  agents: {
    default: {
      instructions: "desk",
      helpers: [
        { agent: "researcher", as: "research" },
        { agent: "vault", as: "open_vault" },
      ],
    },
    researcher: { instructions: "researcher", helpers: [{ agent: "reader", as: "read" }] },
    reader: { instructions: "reader", questions: true },
    vault: { instructions: "vault", people: ["ou_boss"] },
  },
};

beforeAll(async () => {
  users = await writeRedisUsers(["recording", "second", "paying"]);
  system = await startSystem({
    workers: 3,
    workerConcurrency: 1,
    redisUsers: users,
    lines: true,
    config,
    script: async (request) => {
      if (
        gate !== undefined &&
        lastUser(request).includes(gate.words) &&
        request.system.startsWith("researcher")
      ) {
        const passed = new Promise<void>((resolve) =>
          waiting.push({ system: request.system, pass: resolve }),
        );
        if (waiting.length >= gate.count) for (const one of waiting) one.pass();
        await passed;
      }
      return obedientModel(request);
    },
  });
  const holding = { RUNNER_TOOLS: await system.toolsOf(["holding"]), RUNNER_CONCURRENCY: "8" };
  await system.start("tool-runner", { RUNNER_NAME: "second", ...holding });
  operators = await system.start("console");
  await system.start("tool-runner", {
    RUNNER_NAME: "paying",
    RUNNER_TOOLS: await system.toolsOf(["approval"]),
  });
});
afterEach(() => {
  gate = undefined;
  waiting = [];
});
afterAll(async () => {
  await operators?.stop();
  const refused = await refusals().finally(async () => await system.close());
  expect(refused).toEqual([]);
  await users.remove();
});

/** Commands that Redis has refused to processes. */
async function refusals(): Promise<unknown[]> {
  const redis = new Redis(users.urlAs(Number(new URL(system.redis.url).port), observer));
  const log = (await redis.call("ACL", "LOG", "100")) as unknown[]; // one list for each
  redis.disconnect();
  return log;
}

function task(tool: string, text: string): string {
  return `call ${tool} ${JSON.stringify({ task: text })}`;
}

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const one of source) list.push(one);
  return list;
}

async function untilRecorded(line: string): Promise<void> {
  await vi.waitFor(async () => expect(await system.recorded()).toContain(line), patience);
}

describe("helpers", () => {
  it("AT-10: two of one step run at the same time, at the vendor and on two workers of one slot each", async () => {
    gate = { words: "both at once", count: 2 };
    const answer = await system.ask(
      system.person("Ann"),
      ["go", task("research", "both at once 1"), task("research", "both at once 2")].join("\n"),
      60_000,
    );
    expect(answer).toBe("[go] ok:[both at once 1] ok:[both at once 2]");
    expect(waiting).toHaveLength(2);
  });

  it("AT-14: are counted in the run of their asker, over HTTP", async () => {
    const client = createClient({ url: system.ingresses[0]?.url ?? "" });
    const result = await client
      .run(`go\n${task("research", "alone")}`, { session: "counted" })
      .result();
    expect(result.finalOutput).toBe("[go] ok:[alone]");
    const report = async (runId: string): Promise<RunReport> => {
      const response = await fetch(`${system.ingresses[0]?.url}/v1/runs/${runId}`);
      return (await response.json()) as RunReport; // of our own server
    };
    const { children, usage } = await report(result.runId);
    expect(children).toHaveLength(1);
    const child = await report(children[0] ?? "");
    expect(child).toMatchObject({ agent: "researcher", state: "done", final_output: "[alone]" });
    expect(child.usage).toMatchObject({ requests: 1 });
    expect(usage).toMatchObject({ requests: 3 });
    const run = client.run(`go\n${task("research", task("read", "deep"))}`, { session: "deep" });
    const deep = await report((await run.result()).runId);
    const ends = [];
    for await (const event of run.stream()) if (event.type === "done") ends.push(event);
    const {
      input_tokens: totalInputTokens,
      output_tokens: totalOutputTokens,
      requests,
    } = deep.usage;
    expect(requests).toBe(5);
    expect(ends).toMatchObject([{ totalInputTokens, totalOutputTokens }]);
    expect(deep.cost_usd).toBeCloseTo(ends[0]?.totalCostUsd ?? -1, 9);
    expect(deep.children).toHaveLength(1);
  });

  it("AT-3, EE-1: are seen with their asker exactly once, by readers who are cut every 200 ms, over a kill -9 of their ingress", async () => {
    const victim = await system.start("ingress");
    const url = system.ingresses[0]?.url ?? "";
    let isDead = false;
    let cuts = 0;
    const cutFetch: typeof fetch = async (input, init = {}) => {
      const target = isDead ? String(input).replace(victim.url, url) : String(input);
      if (!target.includes("/events")) return await fetch(target, init);
      cuts += 1;
      const signal = AbortSignal.any([
        AbortSignal.timeout(200),
        ...(init.signal ? [init.signal] : []),
      ]);
      return await fetch(target, { ...init, signal });
    };
    const deep = task("research", `outer type 20\n${task("read", "inner type 60")}`);
    const run = createClient({ url: victim.url, fetch: cutFetch }).run(
      `tell\n${task("research", "first type 60")}\n${deep}\n${task("open_vault", "refused")}`,
      { session: "nested", detach: true },
    );
    const events: RunEvent[] = [];
    const reading = Promise.all([
      all(run.items({ nested: true })),
      all(run.messages({ nested: true })),
    ]);
    for await (const event of run.stream({ nested: true })) {
      events.push(event);
      if (event.type !== "text_delta" || isDead) continue;
      isDead = true;
      await victim.kill();
    }
    const [items, messages] = await reading;
    expect(cuts).toBeGreaterThan(10);
    const client = createClient({ url });
    const runs = Map.groupBy(events, ({ runId }) => runId);
    expect([...runs.values()].map(([first]) => first?.agent).toSorted()).toEqual([
      "default",
      "reader",
      "researcher",
      "researcher",
    ]);
    for (const [runId, own] of runs) {
      const alone = client.attach(runId);
      expect(own).toEqual(await all(alone.stream()));
      const itemsOfRun = items.filter((item) => item.runId === runId);
      expect(
        itemsOfRun.map(({ runId: _runId, parentRunId: _parentRunId, ...item }) => item),
      ).toEqual(await all(alone.items()));
      expect(messages.filter(({ metadata }) => metadata["run_id"] === runId)).toEqual(
        await all(alone.messages()),
      );
    }
    const told = events.flatMap((event) =>
      event.type === "teammate_message_received" ? [event] : [],
    );
    expect(
      told.map(({ messageType, from, to }) => `${messageType} ${from} ${to}`).toSorted(),
    ).toEqual([
      "task_assignment default researcher",
      "task_assignment default researcher",
      "task_assignment researcher reader",
      "task_result reader researcher",
      "task_result researcher default",
      "task_result researcher default",
    ]);
    const summaries = messages.filter(({ type }) => type === "ToolCallSummaryMessage");
    expect(summaries.map(({ source }) => source).toSorted()).toEqual([
      "reader",
      "researcher",
      "researcher",
    ]);
    // The tree, and each run before the result of its call.
    const ends = events.filter(({ type }) => type === "done");
    expect(ends.map(({ agent }) => agent).at(-1)).toBe("default");
    const rootId = await run.id();
    for (const [runId, own] of runs) {
      const parents = new Set(own.map(({ parentRunId }) => parentRunId));
      expect(parents.size).toBe(1);
      const [parent] = parents;
      expect(parent === undefined).toBe(runId === rootId);
      if (parent === undefined) continue;
      const last = events.findLastIndex((event) => event.runId === runId);
      const heard = events.findIndex(
        (event) =>
          event.runId === parent &&
          event.type === "teammate_message_received" &&
          event.messageId === runId,
      );
      expect(heard).toBeGreaterThan(last);
    }
    const after = await all(client.attach(rootId).stream({ nested: true }));
    expect(Map.groupBy(after, ({ runId }) => runId)).toEqual(runs);
  });

  it("AT-13: have their questions asked in the chat of their root, with their path, and answered there by a button", async () => {
    const person = system.person("Gil");
    const question = `call ask_person {"question":"Which colour?","choices":["Blue","Green"]}`;
    const written = await write(
      system,
      person,
      `colours\n${task("research", task("read", question))}`,
    );
    const card = await theQuestion(system, person.chatId);
    const shown = JSON.stringify(card.message.card?.json);
    expect(shown).toContain("Which colour?");
    expect(shown).toContain("default > researcher > reader");
    const tree = async (language: string): Promise<string> => {
      const response = await fetch(`${operators.url}/why?q=${written.messageId}`, {
        headers: { "accept-language": language },
      });
      const rows =
        /<caption>\s*(?:Helpers|助手)\s*<\/caption>[^]*?<\/table>/.exec(
          await response.text(),
        )?.[0] ?? "";
      return rows.replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");
    };
    await vi.waitFor(async () => {
      expect(await tree("en")).toMatch(
        /Agent State Waits for Took Cost default Waits Helpers: 1 .* ↳ researcher research Waits Helpers: 1 .* ↳ reader read Waits a person: an answer /,
      );
    }, patience);
    expect(await tree("zh")).toMatch(
      / default 等待中 助手: 1 .* researcher research 等待中 助手: 1 .* reader read 等待中 等人处理: 回答问题/,
    );
    const pressed = await decide(system, card, {
      openId: person.openId,
      wanted: { choice: "Green" },
    });
    expect(pressed).toMatchObject({ toast: { type: "success" }, cardChanged: true });
    const { text } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(text).toContain('{"answer":"Green","by":"Gil"}');
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
      "Answered",
    ]);
    expect(answersTo(system, written)).toHaveLength(1);
    await vi.waitFor(async () => {
      expect(await tree("en")).toMatch(
        / Cost default Answered .* ↳ researcher research Answered .* ↳ reader read Answered /,
      );
    }, patience);
  });

  it("EE-1: tell each asker above them that they wait for a person, who answers by that word", async () => {
    const client = createClient({ url: system.ingresses[0]?.url ?? "" });
    const question = `call ask_person {"question":"Which colour?","choices":["Blue","Green"]}`;
    const run = client.run(`colours\n${task("research", task("read", question))}`, {
      session: "asking",
    });
    const told: {
      runId: string;
      from: string;
      to: string;
      messageId: string;
      payloadSize: number;
    }[] = [];
    for await (const event of run.stream({ nested: true })) {
      if (event.type !== "teammate_message_received" || event.messageType !== "idle_notification") {
        continue;
      }
      told.push(event);
      if (event.to === "default") await run.answer(event.messageId, "Green");
    }
    expect((await run.result()).finalOutput).toContain('"answer":"Green"');
    const lines = told.map(({ from, to, payloadSize }) => `${from} ${to} ${payloadSize}`);
    expect(lines.toSorted()).toEqual(["reader researcher 13", "researcher default 13"]);
    expect(new Set(told.map(({ messageId }) => messageId)).size).toBe(1);
    expect(told.find(({ to }) => to === "default")?.runId).toBe(await run.id());
  });

  it("AT-3: are all followed where more than sixteen work on one level, by positions that stay short", async () => {
    const url = system.ingresses[0]?.url ?? "";
    const readers = (name: string) =>
      Array.from({ length: 12 }, (_, at) => task("read", `${name}${at}`)).join("\n");
    const asked = [
      "many",
      ...["a", "b"].map((name) => task("research", `some\n${readers(name)}`)),
    ].join("\n");
    const run = createClient({ url }).run(asked, { session: "many" });
    const runsOf = (events: readonly { runId?: string }[]) =>
      new Set(events.flatMap(({ runId }) => runId ?? [])).size;
    expect(runsOf(await all(run.stream({ nested: true })))).toBe(27);
    const framesAfter = async (seen: string) => {
      const target = `${url}/v1/runs/${await run.id()}/events?nested=1${seen === "" ? "" : `&after=${seen}`}`;
      const text = await (await fetch(target)).text();
      return text.split("\n\n").flatMap((frame) => {
        const [, id = ""] = /^id: (.*)$/m.exec(frame) ?? [];
        const [, data] = /^data: (.*)$/m.exec(frame) ?? [];
        return data === undefined ? [] : [{ id, data }];
      });
    };
    const frames = await framesAfter("");
    expect(runsOf(frames.map(({ data }) => JSON.parse(data) as { runId?: string }))).toBe(27);
    const deep = frames.map(
      ({ id }) => id.split("~").filter((place) => /^\d+_\d+-/.test(place)).length,
    );
    const most = Math.max(...deep);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(18);
    const at = deep.indexOf(most);
    const both = [...frames.slice(0, at + 1), ...(await framesAfter(frames[at]?.id ?? ""))];
    const texts = (list: readonly { data: string }[]) => list.map(({ data }) => data).toSorted();
    expect(texts(both)).toEqual(texts(frames));
  });

  it("AT-13: have their calls approved in the chat of their root, with their path, and run them on a worker of their own", async () => {
    const person = system.person("Hal");
    const calls = ["a1", "a2"].map((key) =>
      task("research", task("read", `call ask_once {"key":"${key}"}`)),
    );
    const written = await write(system, person, ["payments", ...calls].join("\n"));
    const cards = await untilAsked(system, person.chatId, 2);
    for (const card of cards) {
      expect(JSON.stringify(card.message.card?.json)).toContain("default > researcher > reader");
    }
    expect((await system.recorded()).filter((line) => /^once a[12]$/.test(line))).toEqual([]);
    await Promise.all(
      cards.map(
        async (card) =>
          await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } }),
      ),
    );
    const { text } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(text).toMatch(/^\[payments\] .*"key":"a1".*"key":"a2"/s);
    expect((await system.recorded()).filter((line) => /^once a[12]$/.test(line))).toHaveLength(2);
    const titles = (await untilRetired(system, person.chatId)).map(({ title }) => title);
    expect(titles).toHaveLength(2);
    expect(answersTo(system, written)).toHaveLength(1);
  });

  it("AT-12: are stopped with all below them and their running tools, and the reply says so", async () => {
    const person = system.person("Bob");
    const deep = task("research", task("read", `call hold_once {"key":"deep"}`));
    const written = await write(system, person, `stop me\n${deep}`);
    await untilRecorded("once deep");
    await write(system, person, "/stop");
    const { text } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(text).toContain("research");
    expect(await system.recorded()).toContain("once deep");
    await untilRecorded("stopped deep");
    expect(answersTo(system, written)).toHaveLength(1);
  });

  it("AT-11: outlive workers that are killed while they work", async () => {
    const written = await write(
      system,
      system.person("Eve"),
      [
        "killed",
        task("research", `call hold_once {"key":"k1"}`),
        task("research", task("read", `call note_once {"key":"k2"}`)),
      ].join("\n"),
    );
    await untilRecorded("once k1");
    const [first] = system.workers;
    await system.start("agent-worker");
    await first?.kill();
    await system.release("k1");
    const { text } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
    expect(text).toMatch(/^\[killed\] ok:\[.*\] ok:released ok:\[.*k2/s);
    expect((await system.recorded()).filter((line) => /^once k[12]$/.test(line))).toHaveLength(2);
    expect(answersTo(system, written)).toHaveLength(1);
  });
});
