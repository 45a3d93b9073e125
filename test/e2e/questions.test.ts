import { createClient } from "@larkline/sdk";
import { problemsOf } from "@larkline/protocol/views/conformance.fixture";
import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { runApp } from "../system/app-process.ts";
import { write } from "../system/answers.ts";
import { decide, untilRetired } from "../system/approvals.ts";
import { submit, theQuestion } from "../system/asking.ts";
import { answerTo, groupOf, send, takeBack } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;

/** Asks where the person says `ask me <words>`, and says what the question was answered with. */
const script: ModelScript = ({ messages }) => {
  const last = messages.at(-1);
  const [result] = last?.results ?? [];
  if (result !== undefined) return { text: `told: ${result.content}` };
  const [, words] =
    /ask me (.+)/.exec(messages.findLast(({ role }) => role === "user")?.text ?? "") ?? [];
  if (words === undefined) return { text: "hello" };
  const isOpen = /two|password/.test(words);
  const choices = isOpen ? {} : { choices: ["Blue", "Green"] };
  const more = words.startsWith("which day") ? { format: "date" } : choices;
  const input = { question: `${words}?`, ...more };
  return { text: "", calls: [{ name: "ask_person", arguments: JSON.stringify(input) }] };
};

beforeAll(async () => {
  const config = { agents: { default: { questions: true } } };
  system = await startSystem({ ingresses: 2, workers: 2, script, config, lines: true });
});
afterAll(async () => await system.close());

function urlOf(replica: number): string {
  return system.ingresses[replica]?.url ?? "";
}

/** Kills all processes, Redis included, and starts them again on what is stored. */
async function restartEverything(): Promise<void> {
  const { ingresses, workers, runners } = system;
  await Promise.all([...ingresses, ...workers, ...runners].map(async (app) => await app.kill()));
  await system.withoutRedis(async () => {});
  for (const [kind, apps] of [
    ["ingress", ingresses],
    ["agent-worker", workers],
    ["tool-runner", runners],
  ] as const) {
    const count = apps.length;
    apps.splice(0);
    for (let at = 0; at < count; at += 1) apps.push(await system.start(kind));
  }
}

describe("a question in a chat", () => {
  it("AT-20: waits over a restart of everything, and its answer arrives once", async () => {
    const person = system.person("Ann");
    const written = await write(system, person, "ask me which colour");
    const card = await theQuestion(system, person.chatId);
    expect(card.title).toBe("A question for you");
    await restartEverything();
    const pressed = await decide(system, card, {
      openId: person.openId,
      wanted: { choice: "Green" },
    });
    expect(pressed).toMatchObject({
      toast: { type: "success", content: "Answered" },
      cardChanged: true,
    });
    const second = await decide(system, card, {
      openId: person.openId,
      wanted: { choice: "Blue" },
    });
    expect(second.toast).toMatchObject({
      type: "info",
      content: "This question is not open any more.",
    });
    expect(await answerTo(system, written)).toContain('told: {"answer":"Green","by":"Ann"}');
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
      "Answered",
    ]);
    const asked = system.model.requests.filter(({ messages }) =>
      JSON.stringify(messages).includes("Green"),
    );
    expect(asked).toHaveLength(1);
  });

  it("AT-20: refuses a stranger's click politely, and takes the words of who was asked", async () => {
    const { people } = groupOf(system, ["Bob", "Cai"]);
    const [bob, cai] = people;
    if (bob === undefined || cai === undefined) throw new Error("no people");
    const written = await send(system, bob, { text: "ask me which room", mention: true });
    const card = await theQuestion(system, bob.chatId);
    const { toast } = await decide(system, card, {
      openId: cai.openId,
      wanted: { choice: "Blue" },
    });
    expect(toast).toMatchObject({
      type: "info",
      content: expect.stringMatching(/^Only these may answer: /),
    });
    const form = { answer: "the big one" };
    expect(
      await submit(system, card, { openId: bob.openId, button: "answer_form_submit", form }),
    ).toMatchObject({
      toast: { content: "Answered" },
    });
    expect(await answerTo(system, written)).toContain('told: {"answer":"the big one","by":"Bob"}');
  });

  it("is answered by a reply to its card, and by the next message of who was asked", async () => {
    const person = system.person("Dan");
    const first = await write(system, person, "ask me about one");
    const card = await theQuestion(system, person.chatId);
    await send(system, person, { text: "with a reply", parentId: card.message.messageId });
    expect(await answerTo(system, first)).toContain('told: {"answer":"with a reply",');
    await untilRetired(system, person.chatId);
    const second = await write(system, person, "ask me about two");
    await theQuestion(system, person.chatId);
    await write(system, person, "with a message");
    expect(await answerTo(system, second)).toContain('told: {"answer":"with a message",');
    await untilRetired(system, person.chatId);
    const later = await write(system, person, "and now?");
    expect(await answerTo(system, later)).toContain("hello");
  });

  it("for a date has a picker; words are checked, and are an answer too", async () => {
    const person = system.person("Gus");
    const first = await write(system, person, "ask me which day to come");
    const card = await theQuestion(system, person.chatId);
    expect(JSON.stringify(card.message)).toContain("date_picker");
    const button = "form_submit";
    const early = await submit(system, card, { openId: person.openId, button, form: {} });
    expect(early.toast).toMatchObject({ type: "warning" });
    const form = { field_0: "2026-12-01 +0800" };
    const given = await submit(system, card, { openId: person.openId, button, form });
    expect(given).toMatchObject({
      toast: { type: "success", content: "Answered" },
      cardChanged: true,
    });
    expect(await answerTo(system, first)).toContain('told: {"answer":"2026-12-01",');
    await untilRetired(system, person.chatId);
    const second = await write(system, person, "ask me which day to go");
    await theQuestion(system, person.chatId);
    const wrong = await write(system, person, "2026-02-30");
    expect(await answerTo(system, wrong)).toContain("This does not fit what is asked.");
    await write(system, person, "2026年12月3日");
    expect(await answerTo(system, second)).toContain('told: {"answer":"2026-12-03",');
    await untilRetired(system, person.chatId);
  });

  it("is closed by /stop and by a recall, and retires", async () => {
    const person = system.person("Eve");
    const stopped = await write(system, person, "ask me something");
    await theQuestion(system, person.chatId);
    await write(system, person, "/stop");
    await answerTo(system, stopped);
    await untilRetired(system, person.chatId);
    const recalled = await write(system, person, "ask me another thing");
    const card = await theQuestion(system, person.chatId);
    await takeBack(system, recalled);
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
      "No answer is needed any more",
      "No answer is needed any more",
    ]);
    const { toast } = await decide(system, card, {
      openId: person.openId,
      wanted: { choice: "Blue" },
    });
    expect(toast).toMatchObject({ content: "This question is not open any more." });
  });

  it("leaves each answer in the audit log, without its text", async () => {
    const person = system.person("Fay");
    const written = await write(system, person, "ask me for the password");
    await theQuestion(system, person.chatId);
    await write(system, person, "correct-horse-battery");
    await answerTo(system, written);
    const args = ["audit", "--file", "no-such.env"];
    const { code, output } = await runApp(
      { file: "apps/cli/src/main.ts", args },
      system.env,
      60_000,
    );
    expect(code).toBe(0);
    const records = output.split("\n").filter((line) => line.includes(person.openId));
    expect(records.map((line) => (JSON.parse(line) as { kind: string }).kind)).toEqual([
      "approval_requested",
      "approval_decided",
      "approval_settled",
    ]);
    expect(output).not.toContain("correct-horse-battery");
    for (const app of [...system.ingresses, ...system.workers]) {
      expect(app.output()).not.toContain("correct-horse-battery");
    }
  });
});

describe("a question over HTTP", () => {
  interface Inputs {
    inputs: { id: string; question: string; choices: string[]; state: string }[];
  }

  const inputsOf = async (session: string, replica = 0): Promise<Inputs["inputs"]> => {
    const response = await fetch(`${urlOf(replica)}/v1/inputs?session_id=${session}`);
    return ((await response.json()) as Inputs).inputs; // our own server wrote it
  };

  const post = async (id: string, value: unknown, replica = 1) => {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ value });
    const response = await fetch(`${urlOf(replica)}/v1/inputs/${id}`, {
      method: "POST",
      headers,
      body,
    });
    return { status: response.status, body: (await response.json()) as object }; // our own server wrote it
  };

  it("AT-20: is listed, shown in every view, and takes one answer on any replica", async () => {
    const run = createClient({ url: urlOf(0) }).run("ask me which one", { session: "q1" });
    const asked = await vi.waitUntil(async () => (await inputsOf("q1", 1))[0], {
      timeout: 60_000,
      interval: 20,
    });
    expect(asked).toMatchObject({
      question: "which one?",
      choices: ["Blue", "Green"],
      state: "pending",
    });
    expect((await run.report()).interruptions).toEqual([asked]);
    expect(await (await fetch(`${urlOf(0)}/v1/approvals?session_id=q1`)).json()).toEqual({
      approvals: [],
    });
    expect((await post(asked.id, "")).status).toBe(400);
    expect((await post(asked.id, 7)).status).toBe(400);
    expect((await post("f".repeat(32), "Blue")).status).toBe(404);
    const answers = await Promise.all([post(asked.id, "Blue", 0), post(asked.id, "Green", 1)]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    const taken = answers[0]?.status === 200 ? "Blue" : "Green";
    const { finalOutput } = await run.result();
    expect(finalOutput).toMatch(new RegExp(`^told: \\{"answer":"${taken}"`));
    const requested = [];
    for await (const event of run.stream()) {
      if (event.type === "input_requested") requested.push(event);
    }
    expect(requested).toMatchObject([
      { requestId: asked.id, question: "which one?", choices: ["Blue", "Green"] },
    ]);
    const messages = [];
    for await (const message of run.messages()) messages.push(message);
    const told = messages.find(({ type }) => type === "UserInputRequestedEvent");
    expect(told).toMatchObject({ request_id: asked.id, content: "" });
    expect(problemsOf("UserInputRequestedEvent", told)).toEqual([]);
    expect(await inputsOf("q1")).toEqual([]);
  });

  it("for a date says so in the list, and takes no other words", async () => {
    const run = createClient({ url: urlOf(0) }).run("ask me which day", { session: "q3" });
    const asked = await vi.waitUntil(async () => (await inputsOf("q3", 1))[0], {
      timeout: 60_000,
      interval: 20,
    });
    expect(asked).toMatchObject({ question: "which day?", choices: [], format: "date" });
    const refused = await post(asked.id, "soon");
    expect(refused).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("2026-12-24") },
    });
    expect((await post(asked.id, "2026-12-05")).status).toBe(200);
    expect((await run.result()).finalOutput).toContain('told: {"answer":"2026-12-05"');
  });

  it("AT-20: is answered through the SDK; a second answer is refused", async () => {
    const client = createClient({ url: urlOf(0) });
    const run = client.run("ask me again", { session: "q2" });
    let late: unknown;
    for await (const event of run.stream()) {
      if (event.type !== "input_requested") continue;
      await run.answer(event.requestId, "Green");
      late = await run.answer(event.requestId, "Blue").catch((error: unknown) => error);
    }
    expect((await run.result()).finalOutput).toContain('"answer":"Green"');
    expect(late).toMatchObject({ status: 409 });
  });
});

it("a card of a question that was answered has no buttons on any copy", async () => {
  for (const chat of system.feishu.chats.keys()) {
    const cards = await untilRetired(system, chat);
    for (const { title, values } of cards) expect({ title, values }).toEqual({ title, values: [] });
  }
});
