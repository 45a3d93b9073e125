import { describe, expect, it } from "vitest";
import { write } from "../system/answers.ts";
import { askedCards, decide, untilRetired } from "../system/approvals.ts";
import { namedPerson, theQuestion } from "../system/asking.ts";
import { answerTo, lastRequest } from "../system/sending.ts";
import { ids, system } from "./approvals-deployment.ts";

function results() {
  return lastRequest(system).messages.flatMap((message) => message.results);
}

describe("a question that is not answered in time", () => {
  it("AL-41: ends with an error result, retires its card, and a late click is no pending approval", async () => {
    const person = namedPerson(system, ids.late, "Ann");
    const written = await write(system, person, 'late\ncall ask_once {"key":"late"}');
    const card = await theQuestion(system, person.chatId);
    expect(card.title).toBe("Approve ask_once?");
    expect(await answerTo(system, written)).toContain(
      "failed:permission_denied: nobody approved this call in time.",
    );
    expect(results()).toMatchObject([{ isError: true }]);
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
      "ask_once expired",
    ]);
    for (const decision of ["approve", "reject"]) {
      const { toast } = await decide(system, card, { openId: person.openId, wanted: { decision } });
      expect(toast).toMatchObject({ type: "info", content: "no pending approval" });
    }
    expect(askedCards(system, person.chatId).map(({ title }) => title)).toEqual([
      "ask_once expired",
    ]);
    expect(await system.recorded()).not.toContain("once late");
  });
});

describe("a question whose card the platform refuses for good", () => {
  it("AL-28: ends its call with an error result, and the run continues", async () => {
    const person = system.person("Bob");
    const refusal = { code: 230002, msg: "Bot/User can NOT be out of the chat." };
    const mend = system.feishu.faults.add({
      match: { method: "POST", path: /\/im\/v1\/messages$/ },
      action: { kind: "respond", status: 400, body: refusal },
    });
    const written = await write(system, person, 'unsent\ncall ask_pure {"key":"unsent"}');
    const answer = await answerTo(system, written).finally(mend);
    expect(answer).toContain(
      "failed:permission_denied: nobody could be asked to approve this call.",
    );
    expect(results()).toMatchObject([{ isError: true }]);
    expect(askedCards(system, person.chatId)).toEqual([]);
    expect(await system.recorded()).not.toContain("pure unsent");
  });

  it("AL-28: waits for a platform that is only out of order, and asks then", async () => {
    const person = system.person("Cai");
    system.feishu.faults.add({
      match: { method: "POST", path: /\/im\/v1\/messages$/ },
      times: 2,
      action: { kind: "respond", status: 500 },
    });
    const written = await write(system, person, 'shaky\ncall ask_pure {"key":"shaky"}');
    const card = await theQuestion(system, person.chatId);
    await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } });
    expect(system.feishu.faults.size).toBe(0);
    expect(await answerTo(system, written)).toContain("ok:");
    expect(askedCards(system, person.chatId)).toHaveLength(1);
    expect((await system.recorded()).filter((line) => line.endsWith(" shaky"))).toEqual([
      "pure shaky",
    ]);
  });
});
