import { traceIdOf, traceparentOf } from "@larkline/protocol/trace";
import type { ScriptedReply } from "@larkline/testkit";
import { Redis } from "ioredis";
import { expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { write } from "../system/answers.ts";
import { observer } from "../system/redis-users.ts";
import { obedientModel } from "../system/model-script.ts";
import { operators, system, users } from "./console-deployment.ts";

const patience = { timeout: 60_000, interval: 200 };

function textOf(html: string): string {
  return html
    .replaceAll(/<[^>]*>/g, " ")
    .replaceAll(/\s+/g, " ")
    .trim();
}

interface Why {
  reason: string;
  /** Names of what happened, in order. */
  happened: string[];
  page: string;
}

async function why(query: string): Promise<Why> {
  const html = await (await fetch(`${operators.url}/why?q=${encodeURIComponent(query)}`)).text();
  const [, reason = ""] = /class="reason[^>]*>([\s\S]*?)<\/p>/.exec(html) ?? [];
  const rows = [
    ...html.matchAll(/<tr>[\s\S]*?<th scope="row">[\s\S]*?<\/th>\s*<td>([\s\S]*?)<\/td>/g),
  ];
  return {
    reason: textOf(reason),
    happened: rows.map(([, name = ""]) => textOf(name)),
    page: textOf(html),
  };
}

/** Asks until the reason is as expected, and what else holds then. */
async function untilWhy(
  query: string,
  reason: RegExp,
  check: (now: Why) => void = () => undefined,
): Promise<Why> {
  let found: Why | undefined;
  await vi.waitFor(async () => {
    found = await why(query);
    expect(found.reason).toMatch(reason);
    check(found);
  }, patience);
  return found ?? (await why(query));
}

it("shows the way of an answered message through every process, found by its id, its trace, its chat and its person", async () => {
  const ann = system.person("Ann");
  const words = 'our secret plan\ncall note_pure {"key":"k1"}';
  const { messageId, chatId } = await write(system, ann, words);
  await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 });
  const steps = [
    "Message received",
    "In its conversation",
    "Taken by a worker",
    "Model step",
    "Judged by the policy",
    "Handed out",
    "Tool at work",
    "Outcome of the call",
    "Writing a card or message",
    "Turn over",
    "Delivered",
  ];
  // Each process writes its part when it has time for it.
  await vi.waitFor(async () => {
    const { happened, page } = await why(messageId);
    expect(happened).toEqual(expect.arrayContaining(steps));
    expect(page).not.toContain("has not ended");
  }, patience);
  const found = await why(messageId);
  expect(found.reason).toMatch(/^Answered after \d/);
  const traceId = traceIdOf(traceparentOf({ app: system.appId, id: messageId }));
  expect(found.page).toContain(traceId);
  const modelSteps = found.happened.filter((name) => name === "Model step").length;
  expect(modelSteps).toBe(2);
  expect(found.page).not.toMatch(/has not ended|secret plan/);
  for (const service of ["ingress", "agent-worker", "tool-runner"]) {
    expect(found.page).toContain(service);
  }
  for (const query of [
    traceId,
    chatId,
    ann.openId,
    `${system.appId}.${chatId}`,
    `${system.appId}.${chatId}-1`,
  ]) {
    await untilWhy(query, /^Answered after/);
  }
  const [card] = system.feishu.messages(chatId).flatMap((message) => message.card ?? []);
  expect(JSON.stringify(card?.json)).toContain(traceId);
});

it("explains a group message without a mention", async () => {
  const ann = system.person("Ann");
  const { chatId } = system.feishu.addChat({ type: "group", name: "Lunch", members: [ann.openId] });
  const { messageId } = await write(system, { ...ann, chatId }, "anybody hungry?");
  const { happened } = await untilWhy(messageId, /^Ignored: the bot was not mentioned/);
  expect(happened).toContain("Not taken");
  const unknown = await why("om_0000");
  expect(unknown.reason).toContain("Nothing is known of it");
});

it("shows where a worker died, that there is none, and that another one took the turn up", async () => {
  const bob = system.person("Bob");
  const [worker] = system.workers;
  let isAlive = true;
  system.model.setScript((request) =>
    isAlive && request.messages.at(-1)?.text === "think"
      ? { text: "never", fault: { kind: "hang", afterFrames: 0 } }
      : obedientModel(request),
  );
  const written = await write(system, bob, "think");
  await untilWhy(written.messageId, /^The model .* has been answering for/);
  isAlive = false;
  await worker?.kill();
  await untilWhy(
    written.messageId,
    /^(The process that worked on it is gone in the middle of model.step|Queued for)/,
  );
  const next = await write(system, system.person("Cai"), "hello");
  await untilWhy(next.messageId, /^Queued for .*: no worker is alive\.$/);
  await system.start("agent-worker");
  for (const one of [written, next]) {
    await waitForAnswer(system.feishu, one.messageId, { timeoutMs: 60_000 });
  }
  await untilWhy(written.messageId, /^Answered after/);
  // The new worker writes its part of the trace a moment later.
  await vi.waitFor(async () => {
    const { happened, page } = await why(written.messageId);
    expect(happened).toContain("Taken up after a crash");
    expect(page).toContain("has not ended");
  }, patience);
});

it("EE-51: says why a vendor refused, and when a model that is overloaded is asked again; people read neither", async () => {
  const key = "sk-ant-api03-0123456789abcdef";
  const said = "messages.7: odd block";
  const refuse = (status: number, message: string): ScriptedReply => ({
    fault: { kind: "status", status, message },
  });
  let recovered = false;
  system.model.setScript((request) => {
    const text = request.messages.at(-1)?.text ?? "";
    if (text === "bad") return refuse(400, `${said} (${key}) ${"x".repeat(300)} end`);
    return text === "later" && !recovered
      ? refuse(529, "Overloaded, says the vendor")
      : obedientModel(request);
  });
  const bad = await write(system, system.person("Dee"), "bad");
  const { text } = await waitForAnswer(system.feishu, bad.messageId, { timeoutMs: 60_000 });
  expect(text).not.toContain(said);
  const failed = await untilWhy(
    bad.messageId,
    /^The turn failed .* with api_bad_request/,
    ({ page }) => {
      expect(page).toMatch(
        /The last call of the model .* failed: “messages\.7: odd block .* end” \(request id req_scripted\)\./,
      );
    },
  );
  expect(failed.page).not.toContain(key);

  const later = await write(system, system.person("Eve"), "later");
  // The session and its trace, of which the page is made, are written separately.
  await untilWhy(
    later.messageId,
    /^The model .* is overloaded .*; try \d+ follows at \d\d:\d\d:\d\d UTC/,
    ({ happened, page }) => {
      expect(happened).toContain("Model asked again");
      expect(page).toContain("“Overloaded, says the vendor” (request id req_scripted).");
    },
  );
  recovered = true;
  const answered = await waitForAnswer(system.feishu, later.messageId, { timeoutMs: 90_000 });
  expect(answered.text).not.toContain("says the vendor");
  expect((await untilWhy(later.messageId, /^Answered after/)).page).not.toContain("The last call");
});

it("needs no right at Redis that its processes do not have", async () => {
  const client = new Redis(users.urlAs(system.redis.port, observer));
  const refused = (await client.call("ACL", "LOG", "100")) as unknown[][]; // one list for each refusal
  client.disconnect();
  expect(
    refused.filter((entry) => entry.includes("console") || entry.join().includes(":trace:")),
  ).toEqual([]);
});
