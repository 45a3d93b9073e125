import type { NormalisedRequest, ScriptedReply } from "@larkline/testkit";
import { textOf, type Message } from "@larkline/protocol/content";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { write } from "../system/answers.ts";
import { createPromptedModel, obedientModel } from "../system/model-script.ts";
import { answerTo, lastRequest, type Writer } from "../system/sending.ts";
import type { System } from "../system/system.ts";
import { system as deployment } from "./conversation-deployment.ts";

const prompted = createPromptedModel();
/** How the model answers requests for a summary. */
let summarise: () => ScriptedReply;

function isSummary({ system: instructions }: NormalisedRequest): boolean {
  return instructions.includes("compact conversation records");
}

let system: System;

const long = "many words that nobody reads ".repeat(70); // some 500 tokens

function part(number: number): string {
  return `part ${number}\n${long}\ncall note_pure {"key":"part ${number}"}`;
}

/** Long messages with a call each; resolves to the answers. */
async function talk(person: Writer, from: number, to: number): Promise<string[]> {
  const answers: string[] = [];
  for (let number = from; number <= to; number += 1) {
    answers.push(await system.ask(person, part(number)));
  }
  return answers;
}

async function stored<T>(
  kind: "h" | "ev",
  person: Writer,
  read: (redis: Redis, key: string) => Promise<T>,
): Promise<T> {
  const redis = new Redis(system.redis.url);
  const [key = ""] = await redis.keys(`*:${kind}:${system.appId}.${person.chatId}`);
  const value = await read(redis, key);
  redis.disconnect();
  return value;
}

/** What people have said, as the whole history keeps it. */
async function saidBy(person: Writer): Promise<string[]> {
  const messages = await stored("h", person, async (redis, key) => await redis.lrange(key, 0, -1));
  const history = messages.map((json) => JSON.parse(json) as Message); // our own store wrote it
  return history
    .filter(({ role }) => role === "user")
    .map((message) => textOf(message).split("\n")[0] ?? "");
}

async function compactions(person: Writer): Promise<number> {
  const entries = await stored(
    "ev",
    person,
    async (redis, key) => await redis.xrange(key, "-", "+"),
  );
  return (JSON.stringify(entries).match(/type\\*":\\*"compact\\*"/g) ?? []).length;
}

describe("a conversation with a small model", () => {
  beforeAll(() => {
    system = deployment.botNamed("small");
    system.model.setScript(async (request) =>
      isSummary(request) ? summarise() : await prompted.script(request),
    );
  });
  afterAll(() => system.model.setScript(obedientModel));
  beforeEach(() => {
    summarise = () => ({ text: "They spoke of numbers." });
  });

  it("a conversation that nears the window continues with a summary and its latest messages; all of it is kept", async () => {
    const person = system.person("Ann");
    const before = system.model.requests.length;
    // The summary and the words after it may reach this vendor as one message.
    const answers = (await talk(person, 1, 5)).map((text) => text.replace(/^\[.*\] /, ""));
    expect(answers).toEqual([1, 2, 3, 4, 5].map((number) => `ok:{"key":"part ${number}"}`));
    const requests = system.model.requests.slice(before);
    const summaries = requests.filter(isSummary);
    expect(summaries[0]?.messages[0]?.text).toMatch(
      /<conversation>[^]*part 1[^]*calls note_pure[^]*<\/conversation>/,
    );
    const { messages } = lastRequest(system);
    expect(messages[0]?.text).toContain("[Summary of the earlier conversation");
    expect(messages[0]?.text).toContain("They spoke of numbers.");
    expect(messages.map(({ text }) => text).join()).not.toContain("part 1\n");
    // The scripted vendor refuses requests with calls that have no result, and results without a call.
    const asked = messages.flatMap(({ calls }) => calls.map(({ id }) => id));
    expect(asked).toEqual(messages.flatMap(({ results }) => results.map(({ id }) => id)));
    expect(asked).toHaveLength(2);
    expect(await saidBy(person)).toEqual([1, 2, 3, 4, 5].map((number) => `part ${number}`));
    expect([summaries.length, await compactions(person)]).toEqual([1, 1]);
  });

  const overflow: ScriptedReply = {
    fault: {
      kind: "status",
      status: 400,
      type: "invalid_request_error",
      message: "prompt is too long: 9000 > 3600",
    },
  };

  /** The message is found too long as long as the request does not begin with these words. */
  const tooLongWithout = (text: string, words: string): void =>
    prompted.promptBy(text, ({ messages }) =>
      messages[0]?.text.includes(words) === true ? undefined : overflow,
    );

  it("a vendor that finds the request too long gets a shorter one, and the person an answer", async () => {
    const person = system.person("Bob");
    await talk(person, 1, 2);
    tooLongWithout("is it too long", "They spoke of numbers.");
    expect(await system.ask(person, "is it too long")).toBe("[is it too long]");
    expect(lastRequest(system).messages[0]?.text).toContain("They spoke of numbers.");
    expect(prompted.asked("is it too long")).toBe(2);
    expect(await compactions(person)).toBe(1);
    expect(await saidBy(person)).toEqual(["part 1", "part 2", "is it too long"]);
  });

  it("without a summary the older part is left out, and the model reads that", async () => {
    const person = system.person("Cai");
    await talk(person, 1, 2);
    summarise = () => ({
      fault: { kind: "status", status: 400, type: "invalid_request_error", message: "no" },
    });
    tooLongWithout("and without a summary", "Older messages were removed");
    expect(await system.ask(person, "and without a summary")).toBe("[and without a summary]");
    expect(lastRequest(system).messages[0]?.text).toMatch(
      /Older messages were removed[^]*do not guess/,
    );
    expect(await saidBy(person)).toEqual(["part 1", "part 2", "and without a summary"]);
  });

  it("a summary that fails or is refused does not stop a conversation that still fits", async () => {
    const person = system.person("Dan");
    let asked = 0;
    summarise = () => {
      asked += 1;
      return asked === 1
        ? { fault: { kind: "status", status: 400, type: "invalid_request_error", message: "no" } }
        : { text: "I cannot do that.", stopReason: "refusal" };
    };
    expect(await talk(person, 1, 5)).toHaveLength(5);
    expect(asked).toBe(2);
    expect(lastRequest(system).messages[0]?.text).toContain("part 1\n");
    expect(JSON.stringify(lastRequest(system).messages)).not.toContain("I cannot do that.");
    expect(await compactions(person)).toBe(0);
  });

  it("a single message that does not fit is answered with what to do", async () => {
    const person = system.person("Eve");
    prompted.promptBy("far too long", () => overflow);
    expect(await system.ask(person, "far too long")).toContain(
      "The conversation is too long for the model",
    );
    expect(await system.ask(person, "short")).toBe("[short]");
  });

  it("a worker that is killed while it waits for a summary is replaced: one answer, nothing lost", async () => {
    const person = system.person("Fay");
    await talk(person, 1, 2);
    let hanging = false;
    summarise = () => {
      hanging = true;
      return { text: "never", fault: { kind: "hang", afterFrames: 0 } };
    };
    tooLongWithout("over to you", "They spoke of numbers.");
    const written = await write(system, person, "over to you");
    await vi.waitUntil(() => hanging, { timeout: 60_000, interval: 5 });
    summarise = () => ({ text: "They spoke of numbers." });
    await Promise.all(system.workers.splice(0).map(async (worker) => await worker.kill()));
    system.workers.push(await system.start("agent-worker"));
    expect(await answerTo(system, written)).toBe("[over to you]");
    expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
    expect(await saidBy(person)).toEqual(["part 1", "part 2", "over to you"]);
  });
});
