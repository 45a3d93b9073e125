import { describe, expect, it } from "vitest";
import { write } from "../system/answers.ts";
import { askedCards, decide, untilRetired } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { system } from "./approvals-deployment.ts";

const approve = { decision: "approve" };
const reject = { decision: "reject" };
const message = 'tidy\ncall ask_pure {"key":"archive"}';

/** Asks for the same call again, and approves it. */
async function approveOnce(person: Writer): Promise<void> {
  const written = await write(system, person, message);
  const card = await theQuestion(system, person.chatId);
  expect(card.title).toBe("Approve ask_pure?");
  await decide(system, card, { openId: person.openId, wanted: approve });
  expect(await answerTo(system, written)).toContain("ok:");
}

async function approveThreeTimes(person: Writer): Promise<void> {
  for (let round = 1; round <= 3; round += 1) {
    await approveOnce(person);
    if (round < 3) await untilRetired(system, person.chatId);
  }
}

function asked(person: Writer): number {
  return askedCards(system, person.chatId).length;
}

describe("after three approvals of one kind", () => {
  it("a rule is proposed, and once it is approved the next call runs unasked", async () => {
    const person = system.person("Ann");
    await approveThreeTimes(person);
    const rule = await theQuestion(system, person.chatId);
    expect(rule.title).toBe("Always allow ask_pure?");
    expect(JSON.stringify(rule.message.card?.json)).toContain("ask_pure(archive)");
    const { toast } = await decide(system, rule, { openId: person.openId, wanted: approve });
    expect(toast).toMatchObject({ type: "success", content: "Approved" });
    const titles = (await untilRetired(system, person.chatId)).map(({ title }) => title);
    expect(titles.toSorted()).toEqual(
      [...Array(3).fill("ask_pure approved"), "ask_pure always allowed"].toSorted(),
    );
    const unasked = await write(system, person, message);
    expect(await answerTo(system, unasked)).toContain("ok:");
    expect(asked(person)).toBe(4);
    const listed = await write(system, person, "/permissions");
    expect(await answerTo(system, listed)).toContain("ask_pure(archive)");
  });

  it("a proposal that is rejected changes nothing: people are asked as before", async () => {
    const person = system.person("Bob");
    await approveThreeTimes(person);
    const rule = await theQuestion(system, person.chatId);
    expect(rule.title).toBe("Always allow ask_pure?");
    await decide(system, rule, { openId: person.openId, wanted: reject });
    await untilRetired(system, person.chatId);
    await approveOnce(person);
    expect(asked(person)).toBe(5);
  });
});
