import { describe, expect, it, vi } from "vitest";
import { write } from "../system/answers.ts";
import {
  askedCards,
  decide,
  openQuestions,
  untilAsked,
  untilRetired,
} from "../system/approvals.ts";
import { answerTo, groupOf, lastRequest, send } from "../system/sending.ts";
import { namedPerson } from "../system/asking.ts";
import { ids, model, system, useDeployment } from "./approvals-deployment.ts";
import "./approvals-audit.suite.ts";
import "./approvals-clicks.suite.ts";
import "./approvals-ending.suite.ts";
import "./approvals-learning.suite.ts";
import "./approvals-group.suite.ts";
import "./approvals-in-group.suite.ts";
import "./approvals-in-reply.suite.ts";
import "./approvals-outcome.suite.ts";
import "./approvals-trouble.suite.ts";

useDeployment();

const approve = { decision: "approve" };
const reject = { decision: "reject" };

async function ranWith(key: string): Promise<string[]> {
  return (await system.recorded()).filter((line) => line.endsWith(` ${key}`));
}

describe("a batch of plain calls and calls that need an approval", () => {
  it("AL-27, AL-38, AL-39: gets its four results in the thread it was asked for in, each approval with a card of its own", async () => {
    const { chatId, people } = groupOf(system, ["Ann"], { topic: true });
    const [ann] = people;
    if (ann === undefined) throw new Error("nobody is there");
    const lines = ["note_pure", "ask_once", "note_once", "ask_once"].map(
      (tool, index) => `call ${tool} {"key":"batch${index}"}`,
    );
    const written = await send(system, ann, { text: `batch\n${lines.join("\n")}`, mention: true });
    const both = await untilAsked(system, chatId, 2);
    // Their cards are sent at the same time: which of them is in the chat first is not promised.
    const cardOf = (key: string) => both.find(({ shown }) => JSON.stringify(shown).includes(key));
    const [first, second] = [cardOf("batch1"), cardOf("batch3")];
    if (first === undefined || second === undefined) {
      throw new Error("unreachable: two cards were waited for");
    }
    expect(first.title).toBe("Approve ask_once?");
    await vi.waitUntil(async () => (await ranWith("batch2")).length === 1, {
      timeout: 60_000,
      interval: 10,
    });
    expect(await ranWith("batch1")).toEqual([]);
    expect(await decide(system, second, { openId: ann.openId, wanted: reject })).toMatchObject({
      toast: { type: "info", content: "Rejected" },
      cardChanged: true,
    });
    expect(await decide(system, first, { openId: ann.openId, wanted: approve })).toMatchObject({
      toast: { type: "success", content: "Approved" },
      cardChanged: true,
    });
    const answer = await answerTo(system, written);
    expect(answer.match(/\b(?:ok|failed):/g)).toEqual(["ok:", "ok:", "ok:", "failed:"]);
    expect(answer).toContain("User rejected this action.");
    expect(await ranWith("batch1")).toEqual(["once batch1"]);
    expect(await ranWith("batch3")).toEqual([]);
    const cards = await untilRetired(system, chatId);
    expect(cards.map(({ title }) => title).toSorted()).toEqual([
      "ask_once approved",
      "ask_once rejected",
    ]);
    expect(cards.map(({ message }) => message.threadId)).toEqual([
      cards[0]?.message.threadId,
      cards[0]?.message.threadId,
    ]);
    const results =
      lastRequest(system).messages.findLast(({ results: given }) => given.length > 0)?.results ??
      [];
    expect(results).toHaveLength(4);
  });

  it("continues after every process was killed while people were asked", async () => {
    const person = system.person("Bob");
    const written = await write(
      system,
      person,
      'restart\ncall note_pure {"key":"r0"}\ncall ask_once {"key":"r1"}',
    );
    const [card] = await untilAsked(system, person.chatId);
    if (card === undefined) throw new Error("unreachable: a card was waited for");
    await vi.waitUntil(async () => (await ranWith("r0")).length === 1, {
      timeout: 60_000,
      interval: 10,
    });
    for (const [kind, group] of [
      ["agent-worker", system.workers],
      ["tool-runner", system.runners],
      ["ingress", system.ingresses],
    ] as const) {
      for (const [index, app] of group.entries()) {
        await app.kill();
        group[index] = await system.start(kind);
      }
    }
    await decide(system, card, { openId: person.openId, wanted: approve });
    expect(await answerTo(system, written)).toContain('ok:{"key":"r1"}');
    expect(await ranWith("r1")).toEqual(["once r1"]);
  });
});

describe("a click", () => {
  it("AL-42: of another person changes nothing, and says who may decide", async () => {
    const { chatId, people } = groupOf(system, ["Cai", "Dan"]);
    const [cai, dan] = people;
    if (cai === undefined || dan === undefined) throw new Error("nobody is there");
    const written = await send(system, cai, {
      text: 'foreign\ncall ask_once {"key":"f1"}',
      mention: true,
    });
    const [card] = await untilAsked(system, chatId);
    if (card === undefined) throw new Error("unreachable: a card was waited for");
    const { toast, cardChanged } = await decide(system, card, {
      openId: dan.openId,
      wanted: approve,
    });
    expect(toast?.type).toBe("info");
    expect(toast?.content).not.toBe("Approved");
    expect(cardChanged).toBe(false);
    expect(openQuestions(system, chatId)).toHaveLength(1);
    await decide(system, card, { openId: cai.openId, wanted: approve });
    expect(await answerTo(system, written)).toContain("ok:");
  });

  it("AL-34: takes effect once when two come at the same moment, to whichever ingress", async () => {
    for (let round = 0; round < 5; round += 1) {
      const person = system.person(`Eve ${round}`);
      const written = await write(system, person, `race\ncall ask_once {"key":"race${round}"}`);
      const [card] = await untilAsked(system, person.chatId);
      if (card === undefined) throw new Error("unreachable: a card was waited for");
      const clicks = await Promise.all(
        [approve, reject, approve, reject].map(
          async (wanted) => await decide(system, card, { openId: person.openId, wanted }),
        ),
      );
      const contents = clicks.map(({ toast }) => toast?.content);
      expect(
        contents.filter((content) => content === "Approved" || content === "Rejected"),
      ).toHaveLength(1);
      expect(contents.filter((content) => content === "no pending approval")).toHaveLength(3);
      const approved = contents.includes("Approved");
      expect(await answerTo(system, written)).toContain(
        approved ? "ok:" : "User rejected this action.",
      );
      expect(await ranWith(`race${round}`)).toHaveLength(approved ? 1 : 0);
    }
  });
});

describe("always allowing", () => {
  it("lets the next call of the kind run unasked, until the rule is revoked", async () => {
    const person = namedPerson(system, ids.keeper, "Fay");
    const first = await write(system, person, 'allow\ncall ask_pure {"key":"open"}');
    const [card] = await untilAsked(system, person.chatId);
    if (card === undefined) throw new Error("unreachable: a card was waited for");
    expect(JSON.stringify(card.message.card?.json)).toContain("Touches the archive.");
    await decide(system, card, { openId: person.openId, wanted: { remember: true } });
    expect(await answerTo(system, first)).toContain("ok:");
    await untilRetired(system, person.chatId);
    const again = await write(system, person, 'again\ncall ask_pure {"key":"open"}');
    expect(await answerTo(system, again)).toContain("ok:");
    expect(askedCards(system, person.chatId)).toHaveLength(1);
    const listed = await write(system, person, "/permissions");
    expect(await answerTo(system, listed)).toContain("ask_pure(open)");
    const revoked = await write(system, person, "/permissions revoke 1");
    expect(await answerTo(system, revoked)).toContain("ask_pure(open)");
    const asked = await write(system, person, 'third\ncall ask_pure {"key":"open"}');
    const [next] = await untilAsked(system, person.chatId);
    if (next === undefined) throw new Error("unreachable: a card was waited for");
    await decide(system, next, { openId: person.openId, wanted: reject });
    expect(await answerTo(system, asked)).toContain("User rejected this action.");
  });
});

describe("a person who rejects", () => {
  it("three times in a turn is not asked a fourth time", async () => {
    const person = system.person("Gus");
    const call = (key: string) => ({
      calls: [{ name: "ask_once", arguments: `{"key":"${key}"}` }],
    });
    model.promptSteps("insist", call("i1"), call("i2"), call("i3"), call("i4"), {
      text: "I stop.",
    });
    const written = await write(system, person, "insist");
    for (let round = 1; round <= 3; round += 1) {
      const card = await vi.waitUntil(
        () =>
          openQuestions(system, person.chatId).find(({ message }) =>
            JSON.stringify(message.card?.json).includes(`i${round}`),
          ),
        { timeout: 60_000, interval: 10 },
      );
      await decide(system, card, { openId: person.openId, wanted: reject });
    }
    expect(await answerTo(system, written)).toContain("I stop.");
    expect(askedCards(system, person.chatId)).toHaveLength(3);
    expect(await ranWith("i4")).toEqual([]);
  });
});
