import { beforeAll, describe, expect, it } from "vitest";
import { askedCards, decide, openQuestions, untilRetired } from "../system/approvals.ts";
import { namedPerson, submit, theQuestion } from "../system/asking.ts";
import { answerTo, send, type Writer } from "../system/sending.ts";
import { ids, system } from "./approvals-deployment.ts";

const approve = { decision: "approve" };
const reject = { decision: "reject" };

/** By name, with the chat in which each of them is alone with the bot. */
let people: Record<"ann" | "max" | "lena" | "olaf" | "zoe", Writer>;
const { team } = ids;

async function askInTeam(key: string) {
  const writing = { text: `act\ncall ask_once ${JSON.stringify({ key })}`, mention: true };
  const written = await send(system, { openId: ids.ann, chatId: team }, writing);
  return {
    written,
    card: await theQuestion(system, team),
    copy: await theQuestion(system, people.max.chatId),
  };
}

function titlesIn(chatId: string): string[] {
  return askedCards(system, chatId).map(({ title }) => title);
}

describe("a call in a group that two named people have to approve", () => {
  beforeAll(() => {
    const named = (name: keyof typeof people): Writer => namedPerson(system, ids[name], name);
    people = {
      ann: named("ann"),
      max: named("max"),
      lena: named("lena"),
      olaf: named("olaf"),
      zoe: named("zoe"),
    };
    system.feishu.addUserGroup({ groupId: "g_operations", members: [ids.olaf] });
    const members = Object.values(people).map(({ openId }) => openId);
    system.feishu.addChat({ chatId: team, type: "group", name: "Team", members });
  });

  it("AL-42: is asked about in the group and with everybody who is named, but its requester cannot approve it", async () => {
    const { written, card, copy } = await askInTeam("pair");
    expect(JSON.stringify(card.message.card?.json)).toContain("Two of them have to see this.");
    for (const openId of [ids.ann, ids.zoe]) {
      const { toast, cardChanged } = await decide(system, card, { openId, wanted: approve });
      expect(toast).toMatchObject({
        type: "info",
        content: expect.stringMatching(/^Only these may decide: /),
      });
      expect(cardChanged).toBe(false);
    }
    expect(openQuestions(system, people.ann.chatId)).toEqual([]);

    const first = await decide(system, copy, { openId: ids.max, wanted: approve });
    expect(first).toMatchObject({
      toast: { type: "success", content: "Approved (1 of 2)" },
      cardChanged: true,
    });
    const twice = await decide(system, card, { openId: ids.max, wanted: approve });
    expect(twice.toast?.type).toBe("info");
    expect(await system.recorded()).not.toContain("once pair");

    const second = await decide(system, card, { openId: ids.lena, wanted: approve });
    expect(second).toMatchObject({
      toast: { type: "success", content: "Approved" },
      cardChanged: true,
    });
    expect(await answerTo(system, written)).toContain("ok:");
    expect((await system.recorded()).filter((line) => line === "once pair")).toHaveLength(1);
  });

  it("AL-33: has no button on any of its copies afterwards", async () => {
    const asked = [team, people.max.chatId, people.lena.chatId];
    await Promise.all(asked.map(async (chatId) => await untilRetired(system, chatId)));
    for (const chatId of asked) expect(titlesIn(chatId)).toEqual(["ask_once approved"]);
    for (const name of ["olaf", "zoe"] as const) expect(titlesIn(people[name].chatId)).toEqual([]);
  });

  it("AL-35: is rejected by one of them alone, here by a member of a user group of the platform, with a reason", async () => {
    const { written, card, copy } = await askInTeam("not");
    await decide(system, copy, { openId: ids.max, wanted: approve });
    const form = { reason: "Not on a Friday." };
    await decide(system, card, { openId: ids.zoe, wanted: { ask: "reason" } });
    await decide(system, card, { openId: ids.olaf, wanted: { ask: "reason" } });
    const { toast } = await submit(system, card, {
      openId: ids.olaf,
      button: "reject_form_submit",
      form,
    });
    expect(toast).toMatchObject({ type: "info", content: "Rejected" });
    expect(await answerTo(system, written)).toMatch(
      /failed:User rejected this action\.\s+Reason: Not on a Friday\./,
    );
    await Promise.all(
      [team, people.max.chatId].map(async (chatId) => await untilRetired(system, chatId)),
    );
    expect(titlesIn(team).at(-1)).toBe("ask_once rejected");
    expect(titlesIn(people.max.chatId).at(-1)).toBe("ask_once rejected");
    expect(await system.recorded()).not.toContain("once not");
  });

  it("AL-35: may be rejected by its requester at any time", async () => {
    const { written, card } = await askInTeam("mine");
    const { toast } = await decide(system, card, { openId: ids.ann, wanted: reject });
    expect(toast).toMatchObject({ type: "info", content: "Rejected" });
    expect(await answerTo(system, written)).toContain("failed:User rejected this action.");
    expect(await system.recorded()).not.toContain("once mine");
  });
});
