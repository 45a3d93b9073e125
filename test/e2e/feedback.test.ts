import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { Redis } from "ioredis";
import type { SimMessage } from "@larkline/simulator";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { waitForAnswer, elementOf } from "../system/answer.ts";
import { type App, runApp } from "../system/app-process.ts";
import { observer, writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { send, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

let users: RedisUsers;
let system: System;
let operators: App;

interface Passed {
  type: string;
  event: Record<string, unknown>;
}

/** A program outside, and the ratings that it was sent. */
let listener: Server;
const rated: Passed["event"][] = [];

beforeAll(async () => {
  users = await writeRedisUsers(["recording"]);
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { type, event } = (await json(request)) as Passed; // our own ingress writes it
    if (type === "reply.rated") rated.push(event);
    response.end();
  };
  listener = createServer((request, response) => void take(request, response));
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port } = listener.address() as AddressInfo; // it listens on TCP
  system = await startSystem({
    ingresses: 2,
    workers: 2,
    redisUsers: users,
    config: { feishu: { feedback: true }, events: { url: `http://127.0.0.1:${port}` } },
    env: { EVENTS_SIGNING_KEY: "of the program outside".repeat(2) },
  });
  operators = await system.start("console");
});
afterAll(async () => {
  await operators?.stop();
  await system?.close();
  await users?.remove();
  listener?.closeAllConnections();
  listener?.close();
});

/** Who answers. */
const model = "claude-sonnet-4-6";
const patience = { timeout: 60_000, interval: 50 };

async function cardFor(writer: Writer, text: string) {
  const { messageId } = await send(system, writer, { text });
  const { messages } = await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 });
  return messages.at(-1) ?? expect.fail("there is no answer");
}

async function pageOf(path: string): Promise<string> {
  return await (await fetch(`${operators.url}${path}`)).text();
}

async function admin(...args: string[]): Promise<string> {
  const env = {
    REDIS_URL: users.urlAs(system.redis.port, "admin"),
    FEISHU_APP_ID: system.appId,
    FEISHU_APP_SECRET: "unused",
  };
  const { code, output } = await runApp(
    { file: "apps/cli/src/main.ts", args: [...args, "--file", "/dev/null"] },
    env,
  );
  expect(code, output).toBe(0);
  return output;
}

it("people rate answers by thumbs and reactions; operators count them, and take them away as cases", async () => {
  const ann = system.person("Ann");
  const first = await cardFor(ann, 'pure\ncall note_pure {"key":"one"}');
  expect(elementOf(first, "footer")).toMatchObject({ tag: "column_set" });
  const click = async (elementId: string, more: object = {}) =>
    await system.feishu.click({
      messageId: first.messageId,
      openId: ann.openId,
      elementId,
      ...more,
    });
  // Which run the message shows is written a moment after it was sent.
  await vi.waitFor(async () => {
    expect(await click("rate_up")).toMatchObject({
      code: 0,
      toast: { type: "success" },
      cardChanged: false,
    });
    expect(await pageOf("/feedback?tool=note_pure")).toContain("Good</span>");
  }, patience);
  await click("rate_down");
  const hasField = (messages: readonly SimMessage[]): boolean =>
    messages.some(
      (each) => each.messageId === first.messageId && elementOf(each, "rate_reason") !== undefined,
    );
  await vi.waitFor(
    () => expect(hasField(system.feishu.messages(first.chatId))).toBe(true),
    patience,
  );
  await click("rate_reason", { inputValue: "I wanted two notes" });
  const second = await cardFor(ann, "hello");
  await vi.waitFor(async () => {
    system.feishu.react({ messageId: second.messageId, from: ann.openId, emojiType: "THUMBSUP" });
    await vi.waitFor(
      async () => expect(await pageOf("/feedback?rating=up")).toContain(ann.openId),
      { timeout: 2_000 },
    );
  }, patience);
  const page = await pageOf(`/feedback?person=${ann.openId}`);
  expect(page).toContain("Bad</span>");
  expect(page).not.toContain("two notes");
  // Of the first answer the last thumb alone is left.
  const ofTool = await pageOf("/feedback?tool=note_pure");
  expect(ofTool.match(/class="pill[^<]*<\/span>/g)).toEqual([expect.stringContaining("Bad")]);
  for (const name of ["default", model, "note_pure"]) expect(ofTool).toContain(`<td>${name}</td>`);

  const lines = (await admin("ratings")).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { rating: "up", agent: "default", model, input: "hello", calls: [], output: "[hello]" },
    {
      id: expect.stringMatching(/-1$/),
      rating: "down",
      reason: "I wanted two notes",
      agent: "default",
      model,
      tools: ["note_pure"],
      input: expect.stringContaining("call note_pure"),
      calls: [{ tool: "note_pure", arguments: { key: "one" } }],
      output: expect.stringMatching(/^\[pure\] ok:/),
    },
  ]);
  expect(lines.join("\n")).not.toContain(ann.openId);
  // Each click is an event; which of them comes first is not promised.
  const { id: turn } = JSON.parse(lines[1] ?? "") as { id: string }; // as above
  const run = { turn, agent: "default", model, tools: ["note_pure"], person: ann.openId };
  const wanted = [
    { ...run, rating: "up" },
    { ...run, rating: "down" },
    { ...run, reason: "I wanted two notes" },
  ];
  await vi.waitFor(() => expect(rated).toEqual(expect.arrayContaining(wanted)), patience);

  const exported = await admin("people", "export", ann.openId);
  expect(exported.split("\n").filter((line) => line.startsWith('{"type":"rating"'))).toHaveLength(
    2,
  );
  await admin("people", "delete", ann.openId, "--yes");
  expect(await admin("ratings")).toBe("");
  const client = new Redis(users.urlAs(system.redis.port, observer));
  expect(await client.call("ACL", "LOG", "100")).toEqual([]);
  client.disconnect();
});

it("a notice is not rated, and nothing is asked of a turn that was stopped", async () => {
  const bob = system.person("Bob");
  expect(JSON.stringify(await cardFor(bob, "/status"))).not.toContain("rate_up");
});
