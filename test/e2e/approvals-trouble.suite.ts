import { describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import {
  askedCards,
  decide,
  openQuestions,
  untilRetired,
  type AskedCard,
} from "../system/approvals.ts";
import { namedPerson, theQuestion } from "../system/asking.ts";
import { chat } from "../system/chat-stream.ts";
import { answerTo, takeBack, type Writer } from "../system/sending.ts";
import { ids, system } from "./approvals-deployment.ts";

const approve = { decision: "approve" };

interface Asked {
  person: Writer;
  written: Written;
  card: AskedCard;
}

async function ask(
  tool: string,
  key: string,
  person: Writer = system.person("Ann"),
): Promise<Asked> {
  const written = await write(system, person, `act\ncall ${tool} ${JSON.stringify({ key })}`);
  return { person, written, card: await theQuestion(system, person.chatId) };
}

async function runs(key: string): Promise<number> {
  return (await system.recorded()).filter((line) => line.endsWith(` ${key}`)).length;
}

/** The question has gone with its turn. */
async function expectCancelled({ person, card }: Asked, key: string): Promise<void> {
  expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
    "ask_once cancelled",
  ]);
  const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
  expect(toast).toMatchObject({ type: "info", content: "no pending approval" });
  expect(await system.ask(person, "still there")).toBe("[still there]");
  expect(await runs(key)).toBe(0);
}

describe("while people are asked", () => {
  it("the answer's card does not stream and says what it waits for; after kill -9 another worker continues it", async () => {
    const { person, written, card } = await ask("ask_once", "resting");
    const shown = () => visibleAnswers(system.feishu, written).at(-1)?.messages.at(-1);
    await vi.waitUntil(() => shown()?.card?.streaming === false, { timeout: 60_000, interval: 20 });
    expect(shown()?.card?.json).toMatchObject({
      config: { summary: { content: "✋ waiting for a person" } },
    });
    const { messageId } = shown() ?? {};
    for (const worker of system.workers.splice(0)) await worker.kill();
    system.workers.push(await system.start("agent-worker"));
    await decide(system, card, { openId: person.openId, wanted: approve });
    expect(await answerTo(system, written)).toContain('ok:{"key":"resting"}');
    expect(shown()).toMatchObject({ messageId, card: { streaming: false } });
    expect(JSON.stringify(shown()?.card?.json)).not.toContain("waiting for a person");
    expect(await runs("resting")).toBe(1);
  });

  it("/stop ends the turn, and the buttons go", async () => {
    const asked = await ask("ask_once", "stopped");
    await write(system, asked.person, "/stop");
    await answerTo(system, asked.written);
    await expectCancelled(asked, "stopped");
  });

  it("a recalled message ends its turn, and the buttons go", async () => {
    const asked = await ask("ask_once", "recalled");
    await takeBack(system, asked.written);
    await expectCancelled(asked, "recalled");
  });

  it("AL-37: a click without Redis is answered in time and honestly, and counts when it comes again", async () => {
    const { person, written, card } = await ask("ask_once", "outage");
    const click = async () =>
      await decide(system, card, { openId: person.openId, wanted: approve });
    await system.withoutRedis(async () => {
      const { code, toast } = await click();
      expect(code).toBe(0);
      expect(["error", "warning"]).toContain(toast?.type);
      expect(openQuestions(system, person.chatId)).toHaveLength(1);
    });
    await vi.waitUntil(
      async () =>
        ["Approved", "no pending approval"].includes((await click()).toast?.content ?? ""),
      {
        timeout: 60_000,
        interval: 100,
      },
    );
    expect(await answerTo(system, written)).toContain('ok:{"key":"outage"}');
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
      "ask_once approved",
    ]);
    expect(await runs("outage")).toBe(1);
  });

  it("AL-41: the time runs out although every worker is dead by then; the next one tells", async () => {
    const { person, written, card } = await ask(
      "ask_pure",
      "expired",
      namedPerson(system, ids.hasty, "Ann"),
    );
    const expiresAtMs = Date.now() + 10_000;
    for (const worker of system.workers.splice(0)) await worker.kill();
    await vi.waitUntil(() => Date.now() > expiresAtMs, { timeout: 60_000, interval: 50 });
    const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(toast).toMatchObject({ type: "info", content: "no pending approval" });
    // A person who clicks too late sees it at once, without any worker.
    expect(askedCards(system, person.chatId).map(({ title }) => title)).toEqual([
      "ask_pure expired",
    ]);
    expect(visibleAnswers(system.feishu, written).filter(({ finished }) => finished)).toEqual([]);
    system.workers.push(await system.start("agent-worker"));
    expect(await answerTo(system, written)).toContain(
      "failed:permission_denied: nobody approved this call in time.",
    );
    expect(await runs("expired")).toBe(0);
  });
});

describe("a `once` call over HTTP whose runner was killed in the middle of it", () => {
  it("waits for a word about it, and the note of that word is its result", async () => {
    const [ingress] = system.ingresses;
    if (ingress === undefined) throw new Error("nobody serves HTTP");
    const doomed = await system.startProcess("tool-runner");
    for (const runner of system.runners.splice(0)) await runner.stop();
    const stream = await chat(ingress.url, "broken", 'charge\ncall hold_once {"key":"broken"}');
    await vi.waitUntil(async () => (await runs("broken")) === 1, { timeout: 60_000, interval: 10 });
    await doomed.kill();
    system.runners.push(await system.start("tool-runner"));
    const listed = await vi.waitUntil(
      async () => {
        const response = await fetch(`${ingress.url}/v1/approvals?session_id=broken`);
        const { approvals } = (await response.json()) as { approvals: { id: string }[] }; // our own server wrote it
        return approvals[0];
      },
      { timeout: 60_000, interval: 50 },
    );
    expect(listed).toMatchObject({
      kind: "outcome",
      tool: "hold_once",
      decisions: ["retry", "done", "abort"],
    });
    const decided = await fetch(`${ingress.url}/v1/approvals/${listed.id}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ decision: "done", note: "It is on the statement." }),
    });
    expect(decided.status).toBe(200);
    const frames = await stream.end();
    expect(frames.at(-1)).toMatchObject({
      type: "done",
      final: expect.stringContaining("It is on the statement."),
    });
    expect(frames.map(({ type }) => type)).toContain("tool_result");
    expect(await runs("broken")).toBe(1);
  });
});
