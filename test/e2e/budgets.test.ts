import { createClient, type RunEvent } from "@larkline/sdk";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it } from "vitest";
import { elementOf, waitForAnswer } from "../system/answer.ts";
import { answersTo, metricOf, write, type Written } from "../system/answers.ts";
import { observer, writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { obedientModel } from "../system/model-script.ts";
import { answerTo } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

/** Of each answer. */
const usage = { inputTokens: 300, outputTokens: 120, cacheReadTokens: 0, cacheCreationTokens: 0 };
const limits = [
  { per: "person", period: "month", tokens: 1_000 },
  { per: "person", period: "month", of: ["api"], tokens: 500 },
];

const agents = {
  default: { instructions: "desk", helpers: [{ agent: "researcher", as: "research" }] },
  researcher: { instructions: "researcher", helpers: [{ agent: "reader", as: "read" }] },
  reader: { instructions: "reader" },
};

let users: RedisUsers;
let system: System;

beforeAll(async () => {
  users = await writeRedisUsers(["recording"]);
  system = await startSystem({
    redisUsers: users,
    workers: 2,
    // Each worker has one slot: who writes in two chats at once is answered by both.
    workerConcurrency: 1,
    runners: 0,
    script: async (request) => ({ ...(await obedientModel(request)), firstDelayMs: 400, usage }),
    config: { agents, budgets: { contact: "Bo", limits } },
  });
});
afterAll(async () => {
  await system.close();
  await users.remove();
});

async function footerOf({ messageId }: Written): Promise<string> {
  const { messages } = await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 });
  const last = messages.at(-1);
  return JSON.stringify(last && elementOf(last, "footer"));
}

async function countOf(metric: string): Promise<number> {
  const counts = await Promise.all(
    system.workers.map(async (worker) => await metricOf(worker, metric)),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

it("two workers share what a person may spend: a warning, then a refusal, and others are answered", async () => {
  const direct = system.person("Ann");
  const other = {
    ...direct,
    chatId: system.feishu.addChat({ type: "p2p", members: [direct.openId] }).chatId,
  };

  const both = [await write(system, direct, "one"), await write(system, other, "two")];
  expect(await Promise.all(both.map(async (written) => await answerTo(system, written)))).toEqual([
    "[one]",
    "[two]",
  ]);
  for (const written of both) expect(await footerOf(written)).not.toContain("Your budget");

  const third = await write(system, direct, "three");
  expect(await answerTo(system, third)).toBe("[three]");
  expect(await footerOf(third)).toContain("Your budget for this month is 84% used");

  const asked = system.model.requests.length;
  const refused = await write(system, other, "four");
  expect(await answerTo(system, refused)).toMatch(
    /^Your budget for this month is used up \(1,000 tokens\)\. It renews on .+ \(Asia\/Shanghai\)\. Ask Bo /,
  );
  expect(answersTo(system, refused)).toHaveLength(1);
  expect(system.model.requests).toHaveLength(asked);

  expect(await system.ask(system.person("Bob"), "five", 60_000)).toBe("[five]");
  expect(await system.ask(direct, "/usage", 60_000)).toContain("1,260 tokens of 1,000");
  expect([
    await countOf("larkline_budget_warnings_total"),
    await countOf("larkline_budget_refusals_total"),
  ]).toEqual([1, 1]);
});

it("EE-12, EE-19: over HTTP a run warns near the limit, and the next one ends in an error that says so", async () => {
  const client = createClient({ url: system.ingresses[0]?.url ?? "" });
  const ends = async (session: string) => {
    const events: RunEvent[] = [];
    for await (const event of client.run("hello", { session }).stream()) events.push(event);
    return events.filter(({ type }) => type === "warning" || type === "done" || type === "error");
  };
  expect(await ends("budget-1")).toMatchObject([{ type: "done" }]);
  const warning = { type: "warning", code: "budget_near_limit" };
  expect(await ends("budget-2")).toMatchObject([warning, { type: "done" }]);
  const message = expect.stringContaining(
    "Your budget for this month is used up (500 tokens)",
  ) as string;
  const failure = { type: "error", code: "budget_exceeded", retryable: false, message };
  expect(await ends("budget-3")).toMatchObject([failure]);
});

it("AT-14: helpers draw on the budget of the person they work for, and a spent one stops them and their asker", async () => {
  const person = system.person("Cal");
  const before = system.model.requests.length;
  const deep = `look\ncall read ${JSON.stringify({ task: "deep" })}`;
  const written = await write(
    system,
    person,
    `go\ncall research ${JSON.stringify({ task: deep })}`,
  );
  expect(await answerTo(system, written)).toMatch(
    /^Your budget for this month is used up \(1,000 tokens\)\./,
  );
  // The reader's answer has spent the rest: neither of those who wait for it gets another step.
  const asked = system.model.requests.slice(before).map((request) => request.system.split("\n")[0]);
  expect(asked.join(" ")).toBe("desk researcher reader");
  expect(answersTo(system, written)).toHaveLength(1);
  expect(await system.ask(person, "/usage", 60_000)).toContain("1,260 tokens of 1,000");
});

it("Redis has refused none of the counting", async () => {
  const client = new Redis(users.urlAs(system.redis.port, observer));
  const refusals = await client.call("ACL", "LOG", "100");
  client.disconnect();
  expect(JSON.stringify(refusals)).not.toContain(":budget}");
});
