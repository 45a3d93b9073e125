import { describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import { decide, openQuestions, untilRetired, type AskedCard } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { model, system } from "./approvals-deployment.ts";

const approve = { decision: "approve" };
const reject = { decision: "reject" };
const noPending = { type: "info", content: "no pending approval" };
const invalid = { type: "info", content: "invalid decision" };

interface Asked {
  person: Writer;
  written: Written;
  card: AskedCard;
}

async function ask(given: object, text = "act"): Promise<Asked> {
  const person = system.person("Ann");
  const written = await write(system, person, `${text}\ncall ask_once ${JSON.stringify(given)}`);
  return { person, written, card: await theQuestion(system, person.chatId) };
}

/** A click as the card never offered it. */
async function clickWith({ person, card }: Asked, value: Record<string, unknown>) {
  const { toast, cardChanged } = await system.feishu.click({
    messageId: card.message.messageId,
    openId: person.openId,
    value,
  });
  expect(cardChanged).toBe(false);
  return toast;
}

async function runs(key: string): Promise<number> {
  return (await system.recorded()).filter((line) => line === `once ${key}`).length;
}

/** The markdown of a card. */
function elementTexts({ message }: AskedCard): string[] {
  const { elements } = Object(message.card?.json["body"]) as { elements: { content?: string }[] }; // a card of ours
  return elements.flatMap(({ content }) => content ?? []);
}

function headerOf({ message }: AskedCard): unknown {
  return message.card?.json["header"];
}

describe("the card of a call that needs an approval", () => {
  it("AL-29, AL-63: has both buttons, shows the arguments as they are within their fence, and hides secrets", async () => {
    const secret = "hunter2-hunter2";
    const key = "```\n**用户** <at id=all></at>";
    const asked = await ask({ key, password: secret }, "请帮我做一下这个，谢谢你的帮助");
    const { card, person, written } = asked;
    const id = card.values[0]?.["__approval__"];
    expect(id).toMatch(/^[0-9a-f]{32}$/);
    expect(card.values).toEqual(
      expect.arrayContaining([approve, reject].map((one) => ({ __approval__: id, ...one }))),
    );
    expect(headerOf(card)).toMatchObject({
      title: { content: "批准 ask_once？" },
      template: "orange",
    });
    const shown = JSON.stringify(card.message.card?.json);
    expect(shown).not.toContain(secret);
    expect(shown).not.toContain("<at");
    const fence = /```json\n([^]*?)\n```/.exec(elementTexts(card).join("\n"))?.[1] ?? "";
    expect(fence).toContain("用户");
    expect(JSON.parse(fence)).toEqual({ key, password: "***" });
    await decide(system, card, { openId: person.openId, wanted: reject });
    expect(await answerTo(system, written)).toContain("User rejected this action.");
    expect(JSON.stringify(await untilRetired(system, person.chatId))).not.toContain(secret);
  });
});

describe("a click", () => {
  it("AL-30, AL-31, AL-32: with an altered value decides nothing, and the approval stays usable", async () => {
    const asked = await ask({ key: "altered" });
    const id = asked.card.values[0]?.["__approval__"];
    expect(await clickWith(asked, { __approval__: "", ...approve })).toMatchObject(noPending);
    expect(await clickWith(asked, { __approval__: "f".repeat(32), ...approve })).toMatchObject(
      noPending,
    );
    for (const decision of ["maybe", "Approve", undefined, ["approve"]]) {
      const value = decision === undefined ? { __approval__: id } : { __approval__: id, decision };
      expect(await clickWith(asked, value)).toMatchObject(invalid);
    }
    expect(
      await clickWith(asked, { __approval__: "f".repeat(32), decision: "maybe" }),
    ).toMatchObject(invalid);
    expect(openQuestions(system, asked.person.chatId)).toHaveLength(1);
    const { toast } = await decide(system, asked.card, {
      openId: asked.person.openId,
      wanted: approve,
    });
    expect(toast?.content).toBe("Approved");
    expect(await answerTo(system, asked.written)).toContain("ok:");
    expect(await runs("altered")).toBe(1);
  });

  it("AL-33, AL-37: is answered with toast and card while the tool still runs", async () => {
    const { person, card, written } = await ask({ key: "held-slow" });
    const { code, toast, cardChanged } = await decide(system, card, {
      openId: person.openId,
      wanted: approve,
    });
    // The platform would have shown a code after three seconds.
    expect({ code, cardChanged }).toEqual({ code: 0, cardChanged: true });
    expect(toast).toMatchObject({
      type: "success",
      content: "Approved",
      i18n: { zh_cn: "已批准" },
    });
    await vi.waitUntil(async () => (await runs("held-slow")) === 1, {
      timeout: 60_000,
      interval: 10,
    });
    expect(visibleAnswers(system.feishu, written).filter(({ finished }) => finished)).toEqual([]);
    const [decided] = await untilRetired(system, person.chatId);
    if (decided === undefined) throw new Error("the card is gone");
    expect(headerOf(decided)).toMatchObject({
      title: { content: "ask_once approved" },
      template: "green",
    });
    await system.release("held-slow");
    expect(await answerTo(system, written)).toContain('ok:{"key":"held-slow"}');
  });

  it("AL-33, AL-34: that comes once more, with the same bytes, changes nothing", async () => {
    const { person, card, written } = await ask({ key: "replayed" });
    const first = await decide(system, card, { openId: person.openId, wanted: reject });
    expect(first.toast).toMatchObject({
      type: "info",
      content: "Rejected",
      i18n: { zh_cn: "已拒绝" },
    });
    expect((await system.feishu.replayClick(card.message.messageId)).toast).toMatchObject(
      noPending,
    );
    expect(
      (await decide(system, card, { openId: person.openId, wanted: approve })).toast,
    ).toMatchObject(noPending);
    expect(await answerTo(system, written)).toContain("User rejected this action.");
    const [decided] = await untilRetired(system, person.chatId);
    if (decided === undefined) throw new Error("the card is gone");
    expect(headerOf(decided)).toMatchObject({
      title: { content: "ask_once rejected" },
      template: "grey",
    });
    expect(await runs("replayed")).toBe(0);
  });

  it("AL-36: has the same toast when the turn fails afterwards; that is logged, and the person gets a notice in the chat", async () => {
    const person = system.person("Bob");
    model.promptSteps(
      "breaks",
      { calls: [{ name: "ask_once", arguments: { key: "breaks" } }] },
      { fault: { kind: "status", status: 401 } },
    );
    const written = await write(system, person, "breaks");
    const card = await theQuestion(system, person.chatId);
    const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(toast).toMatchObject({ type: "success", content: "Approved" });
    expect(await answerTo(system, written)).toContain("Sorry, the model service refuses this bot");
    expect(await runs("breaks")).toBe(1);
    // What a process says comes by a pipe, the answer by HTTP.
    const said = () => system.workers.map((worker) => worker.output()).join("");
    await vi.waitFor(() => expect(said()).toContain("api_auth_error"), {
      timeout: 60_000,
      interval: 10,
    });
  });
});
