import type { ConfigInput } from "@larkline/process/config";
import { childSessionOf, type InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { askPersonName } from "@larkline/protocol/tool";
import { afterEach, describe, expect, it } from "vitest";
import { approvalFor, ask, shownCard, suspendOn, type Question } from "./approval.fixture.ts";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

const question = { text: "Which room?", choices: ["Blue", "Green"] };

/** Ann's turn in the group has asked her, or whom `fields` name; its card is in the chat, and its id is stored yet or not. */
async function asked(fields: Partial<Approval> = {}, settings: ConfigInput = {}, isStored = true) {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const here = await startWorld({ shared: memory, settings });
  closing.push(here.close);
  const open = await ask(here, {
    kind: "question",
    tool: askPersonName,
    risk: "low",
    question,
    ...fields,
  });
  const { approvals } = here.ingress;
  const lease = await approvals.leaseCards(open.session, open.approval.id);
  if (lease === undefined) throw new Error("the cards of the question belong to another process");
  const cards = [{ to: "", messageId: open.messageId, shows: "pending" as const }];
  if (isStored) await approvals.saveCards({ ...lease, cards });
  const click = async (openId: string, more: object) =>
    await here.platform.click({ messageId: open.messageId, openId, ...more });
  return { here, open, click };
}

/** A helper of the turn that waits for `open` asks Ann, in its own session; `messageId` is the card of what it asks. */
async function askedByHelper(
  here: FeishuWorld,
  open: Question,
  messageId: string,
): Promise<Question> {
  const { store, approvals } = here.ingress;
  const { turnId } = open.approval;
  const { approval } = open;
  await approvals.decide(open.session, approval.id, { decision: "approve", by: { id: here.ann } });
  const claim = await here.begin(open.session);
  if (claim.turn === undefined || claim.head === undefined) {
    throw new Error("the turn of the root is not there");
  }
  const session = childSessionOf(open.session, turnId, "h1");
  const { message } = claim.head;
  const task: InboundMessage = {
    ...message,
    needs: ["helpers"],
    session,
    id: session,
    reply: { channel: "none" },
  };
  const facts = {
    parentRunId: turnId,
    callId: "h1",
    as: "plan",
    agent: "planner",
    beganAtMs: Date.now(),
  };
  const call = {
    callId: "h1",
    deadlineMs: Date.now() + 600_000,
    facts: { turnId, child: session },
  };
  const { epoch, turn } = claim;
  const write = {
    session: open.session,
    epoch,
    history: [],
    events: [],
    consumed: claim.control.length,
    turn,
  };
  const opened = { ...write, open: [{ ...call, child: { message: task, facts } }], approvals: [] };
  expect(await store.save({ ...opened, mode: "suspend" })).toMatchObject({ state: "suspended" });
  const own = await here.begin(session);
  const fields = {
    kind: "question",
    tool: askPersonName,
    risk: "low",
    question,
    target: approval.target,
  } as const;
  const asks = approvalFor(own, here.group, fields);
  await suspendOn(here.ingress, own, [asks]);
  const lease = await approvals.leaseCards(session, asks.id);
  if (lease === undefined) throw new Error("the cards of the question belong to another process");
  await approvals.saveCards({ ...lease, cards: [{ to: "", messageId, shows: "pending" }] });
  return { session, approval: asks, messageId };
}

async function heard(here: FeishuWorld, { session }: Question) {
  return await here.told(session);
}

/** Messages that wait behind the one whose turn asks, or has asked. */
async function later(here: FeishuWorld, { session }: Question): Promise<number> {
  return (await here.waiting(session)) - 1;
}

function answered(note: string, id: string) {
  return [
    { type: "decision", state: "answered", decisions: [{ decision: "answer", note, by: { id } }] },
  ];
}

describe("the card of a question", () => {
  it("AT-20: takes one choice, once, and says that a second answer comes too late", async () => {
    const { here, open, click } = await asked();
    expect(shownCard(here, open)).toMatchObject({ title: "A question for you", hasButtons: true });
    expect(await click(here.ann, { elementId: "choice_1" })).toMatchObject({
      toast: { type: "success", content: "Answered" },
      cardChanged: true,
    });
    expect(shownCard(here, open)).toEqual({
      title: "Answered",
      template: "green",
      hasButtons: false,
    });
    const value = { larkline: "answer", approval: open.approval.id, choice: "Blue" };
    expect(await click(here.ann, { value })).toMatchObject({
      toast: { type: "info", content: "This question is not open any more." },
    });
    expect(await heard(here, open)).toMatchObject(answered("Green", here.ann));
  });

  it("takes words of the person's own from its field, and none where there are none", async () => {
    const { here, open, click } = await asked();
    const submit = { elementId: "answer_form_submit" };
    expect(await click(here.ann, { ...submit, formValue: { answer: "  " } })).toMatchObject({
      toast: { content: "Please write an answer first." },
    });
    expect(
      await click(here.ann, { ...submit, formValue: { answer: " the red one " } }),
    ).toMatchObject({
      toast: { content: "Answered" },
    });
    expect(await heard(here, open)).toMatchObject(answered("the red one", here.ann));
  });

  it("AT-20: refuses a stranger's click politely, and stays open", async () => {
    const { here, open, click } = await asked();
    expect(await click(here.bob, { elementId: "choice_0" })).toMatchObject({
      toast: { type: "info", content: expect.stringMatching(/^Only these may answer: /) },
      cardChanged: false,
    });
    expect(await heard(here, open)).toEqual([]);
    expect(await click(here.ann, { elementId: "choice_0" })).toMatchObject({
      toast: { content: "Answered" },
    });
  });

  it("AT-20: refuses an answer that comes after its time, and retires", async () => {
    const { here, open, click } = await asked({ expiresAtMs: Date.now() + 1 });
    const late = await click(here.ann, { elementId: "choice_0" });
    expect(late).toMatchObject({
      toast: { type: "info", content: "This question is not open any more." },
    });
    expect(shownCard(here, open)).toMatchObject({
      title: "Nobody answered in time",
      hasButtons: false,
    });
    expect(await heard(here, open)).toMatchObject([{ state: "expired", decisions: [] }]);
  });

  it("takes no word of an approval, and an approval takes no answer", async () => {
    const { here, open, click } = await asked();
    const { id } = open.approval;
    expect(
      await click(here.ann, { value: { __approval__: id, decision: "approve" } }),
    ).toMatchObject({
      toast: { content: "no pending approval" },
    });
    expect(await heard(here, open)).toEqual([]);
    const other = await asked({ kind: "call", tool: "deploy", id: "c".repeat(32) });
    const value = { larkline: "answer", approval: other.open.approval.id, choice: "yes" };
    expect(await other.click(other.here.ann, { value })).toMatchObject({
      toast: { content: "This question is not open any more." },
    });
    expect(await heard(other.here, other.open)).toEqual([]);
  });

  it("for a role is answered by its members alone", async () => {
    const deciders = { requester: false, people: [], roles: ["leads"], fourEyes: false, count: 1 };
    const { here, open, click } = await asked(
      { deciders },
      { roles: { leads: { people: ["ou_lead"] } } },
    );
    here.platform.addUser({ openId: "ou_lead", name: "Lena" });
    here.platform.addMembers(here.group, ["ou_lead"]);
    expect(await click(here.ann, { elementId: "choice_0" })).toMatchObject({
      toast: { type: "info" },
    });
    expect(await click("ou_lead", { elementId: "choice_0" })).toMatchObject({
      toast: { content: "Answered" },
    });
    expect(await heard(here, open)).toMatchObject(answered("Blue", "ou_lead"));
  });
});

describe("a message while a question is open", () => {
  it("of the person who was asked is the answer, also when it is delivered again; the one after it is a message", async () => {
    const { here, open } = await asked();
    const written = { chatId: here.group, mention: true };
    const messageId = await here.say(" green! ", written);
    expect(await heard(here, open)).toMatchObject(answered("Green", here.ann));
    expect(await later(here, open)).toBe(0);
    expect(await here.ingress.store.seen(open.session, testApp.appId, messageId)).toBe(true);
    expect(await here.ingress.approvals.openQuestions(open.session)).toEqual([]);
    const { approvals } = here.ingress;
    const again = { app: testApp.appId, messageId, by: { id: here.ann }, text: "Green" };
    expect(await approvals.answer(open.session, open.approval.id, again)).toEqual({
      result: "unknown",
    });
    await here.say("and something else", written);
    expect(await later(here, open)).toBe(1);
  });

  it("with choices is the answer by its number, too", async () => {
    const { here, open } = await asked();
    await here.say("2", { chatId: here.group, mention: true });
    expect(await heard(here, open)).toMatchObject(answered("Green", here.ann));
  });

  it("with choices is a message of its own where it names none, and its writer reads once what it waits for", async () => {
    const { here, open } = await asked();
    const said = here.said(here.group).length;
    const written = { chatId: here.group, mention: true };
    await here.say("how is the weather in Green Bay?", written);
    expect((await here.untilSaid(here.group, said + 1)).text).toContain(
      "I still wait for your answer to “Which room?”",
    );
    const noticeId = `queued-${open.approval.id}`;
    expect(await here.ingress.store.seen(open.session, testApp.appId, noticeId)).toBe(true);
    await here.say("and tomorrow?", written);
    expect(await heard(here, open)).toEqual([]);
    expect(await later(here, open)).toBe(2);
  });

  it.each([
    { who: "has answered already", fourEyes: false },
    { who: "may not say yes alone", fourEyes: true },
  ])(
    "has no line about what another person has to decide: its writer $who",
    async ({ fourEyes }) => {
      const { memory, close } = connectSharedRedis();
      closing.push(close);
      const here = await startWorld({ shared: memory });
      closing.push(here.close);
      const deciders = { requester: true, people: [here.bob], roles: [], fourEyes, count: 2 };
      const { approval, session } = await ask(here, { deciders });
      if (!fourEyes) {
        const by = { id: here.ann };
        await here.ingress.approvals.decide(session, approval.id, { decision: "approve", by });
      }
      const said = here.said(here.group).length;
      const messageId = await here.say("and then?", { chatId: here.group, mention: true });
      // The reaction comes after the line would.
      await expect.poll(() => here.reactions(messageId), { timeout: 60_000 }).not.toEqual([]);
      expect(here.said(here.group)).toHaveLength(said);
    },
  );

  it("of another person, or an order, is none", async () => {
    const { here, open } = await asked();
    await here.say("I would take the blue one", {
      chatId: here.group,
      from: here.bob,
      mention: true,
    });
    await here.say("/status", { chatId: here.group, mention: true });
    expect(await heard(here, open)).toEqual([]);
    expect(await later(here, open)).toBe(1);
  });

  it("AT-20: that replies to the card is the answer of those who were asked, and refused politely of others", async () => {
    const { here, open } = await asked();
    const reply = { chatId: here.group, mention: true, parentId: open.messageId };
    const said = here.said(here.group).length;
    await here.say("blue", { ...reply, from: here.bob });
    expect((await here.untilSaid(here.group, said + 1)).text).toContain(
      "This question is for others",
    );
    expect(await heard(here, open)).toEqual([]);
    expect(await later(here, open)).toBe(0);
    await here.say("the dark one", reply);
    expect(await heard(here, open)).toMatchObject(answered("the dark one", here.ann));
  });

  it("is the answer, too, when it replies to a card whose id is not stored yet", async () => {
    const { here, open } = await asked({}, {}, false);
    await here.say("blue", { chatId: here.group, mention: true, parentId: open.messageId });
    expect(await heard(here, open)).toMatchObject(answered("Blue", here.ann));
  });

  it("that replies to another message is none", async () => {
    const { here, open } = await asked();
    const other = await here.say("my favourite is green", {
      chatId: here.group,
      from: here.bob,
      mention: true,
    });
    await here.say("mine is blue", { chatId: here.group, mention: true, parentId: other });
    expect(await heard(here, open)).toEqual([]);
    expect(await later(here, open)).toBe(2);
  });

  it("answers nothing where two questions to its writer are open", async () => {
    const { here, open } = await asked();
    const { approval } = open;
    await here.ingress.approvals.add({ ...approval, id: "e".repeat(32), callId: "c2" });
    await here.say("green", { chatId: here.group, mention: true });
    expect(await heard(here, open)).toEqual([]);
    expect(await later(here, open)).toBe(1);
  });

  it("that is too long for an answer is not taken, and its writer gets a notice", async () => {
    const { here, open } = await asked({ question: { text: "Which room?", choices: [] } });
    const said = here.said(here.group).length;
    await here.say("x".repeat(4_001), { chatId: here.group, mention: true });
    expect((await here.untilSaid(here.group, said + 1)).text).toContain("too long");
    expect(await heard(here, open)).toEqual([]);
  });

  it.each(["", "replies"])(
    "AT-13: is the answer to what a helper asks its writer (%s)",
    async (how) => {
      const { memory, close } = connectSharedRedis();
      closing.push(close);
      const here = await startWorld({ shared: memory });
      closing.push(here.close);
      const root = await ask(here);
      const open = await askedByHelper(here, root, root.messageId);
      here.ingress.wakes.length = 0;
      const written = {
        chatId: here.group,
        mention: true,
        ...(how === "" ? {} : { parentId: open.messageId }),
      };
      const messageId = await here.say("Green", written);
      expect(here.ingress.wakes).toMatchObject([{ session: open.session }]);
      expect(await heard(here, open)).toMatchObject(answered("Green", here.ann));
      expect(await later(here, root)).toBe(0);
      expect(await here.ingress.store.seen(root.session, testApp.appId, messageId)).toBe(true);
      await here.say("and something else", { chatId: here.group, mention: true });
      expect(await later(here, root)).toBe(1);
    },
  );
});
