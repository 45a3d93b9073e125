import { systemClock, type Clock } from "@larkline/protocol/clock";
import { replaced } from "@larkline/store/testing";
import { expect, it, describe } from "vitest";
import {
  approvalWorld,
  dayMs,
  elementsOf,
  hasButtons,
  hourMs,
  minuteMs,
  titleOf,
} from "./approval-world.fixture.ts";

const imMessages = /^\/open-apis\/im\/v1\/messages$/;

describe("the cards of an approval", () => {
  it("AL-28, AL-29: come after it is stored, in the chat and to everybody who is named, with buttons to approve, to reject and to say why", async () => {
    const world = await approvalWorld({ deciders: 2 });
    const question = await world.ask();
    expect(world.allSent()).toEqual([]);
    expect(await world.stateOf(question)).toBe("pending");
    await world.cards.work(question.session, question.id);
    for (const sent of [world.inChat(), ...world.people.map(world.sentTo)]) {
      const [message, ...more] = sent;
      expect(more).toEqual([]);
      expect(titleOf(message)).toBe("Approve deploy?");
      const values = elementsOf(message?.card?.json).flatMap(({ tag, behaviors }) =>
        tag === "button" ? behaviors : [],
      );
      expect(values).toEqual(
        [
          [{ type: "callback", value: { __approval__: question.id, decision: "approve" } }],
          [{ type: "callback", value: { __approval__: question.id, decision: "reject" } }],
          [{ type: "callback", value: { __approval__: question.id, ask: "reason" } }],
        ].flat(),
      );
    }
    expect(await world.approvals.dueCards(world.now() + dayMs, 10)).toEqual([]);
  });

  it("are in the thread where the question arose, otherwise in the chat by themselves", async () => {
    const world = await approvalWorld();
    const plain = await world.ask();
    await world.settleCards();
    expect(world.inChat().at(-1)?.parentId).toBeUndefined();
    const root = await world.say("root");
    await world.ask({ target: { ...plain.target, messageId: root, inThread: true } });
    await world.settleCards();
    expect(world.inChat().at(-1)).toMatchObject({ rootId: root, threadId: expect.any(String) });
  });

  it("go to the chat when the message they would answer is gone", async () => {
    const world = await approvalWorld();
    const root = await world.say("root");
    await world.simulator.recall(root);
    const { target } = await world.ask();
    await world.ask({ target: { ...target, messageId: root, inThread: true } });
    await world.settleCards();
    expect(world.inChat().map(titleOf)).toEqual(["Approve deploy?", "Approve deploy?"]);
  });

  it("go to ten people at most, and not to the one who asked, who sees the chat", async () => {
    const world = await approvalWorld({ deciders: 12 });
    const deciders = {
      requester: true,
      people: [world.person.openId, ...world.people],
      roles: [],
      fourEyes: false,
      count: 1,
    };
    await world.ask({ deciders });
    await world.settleCards();
    expect(world.people.filter((openId) => world.sentTo(openId).length === 1)).toHaveLength(10);
    expect(world.sentTo(world.person.openId)).toEqual([]);
  });

  it("go to members of roles, too: no other message tells them of a question in a direct chat", async () => {
    const world = await approvalWorld({ deciders: 3 });
    const [one = "", two = "", third = ""] = world.people;
    const deciders = {
      requester: true,
      people: [one],
      roles: ["ops", "gone"],
      fourEyes: true,
      count: 1,
    };
    await world.ask({ deciders });
    await world.settleCards(
      world.cardsOver({ roles: { ops: { people: [one, two, world.person.openId], groups: [] } } }),
    );
    expect(
      [one, two, third, world.person.openId].map((openId) => world.sentTo(openId).length),
    ).toEqual([1, 1, 0, 0]);
  });

  it("are none where an approval is decided over HTTP", async () => {
    const world = await approvalWorld({ deciders: 1 });
    const question = await world.ask({ target: { channel: "none" } });
    await world.cards.work(question.session, question.id);
    expect(world.allSent()).toEqual([]);
    expect(await world.stateOf(question)).toBe("pending");
  });
});

describe("when an approval is settled", () => {
  it.each([
    ["approve", "deploy approved", "green"],
    ["reject", "deploy rejected", "grey"],
  ] as const)(
    "AL-33: after %s every copy says so and has no button",
    async (decision, title, template) => {
      const world = await approvalWorld({ deciders: 2 });
      const question = await world.ask();
      await world.settleCards();
      await world.decide(question, decision, { note: "because" });
      await world.settleCards();
      expect(world.allSent()).toHaveLength(3);
      for (const message of world.allSent()) {
        expect(titleOf(message)).toBe(title);
        expect(message.text).toContain("Reason: because");
        expect(hasButtons(message)).toBe(false);
        expect(message.card?.json).toMatchObject({ header: { template } });
      }
    },
  );

  it("by its expiry or the end of its turn, every copy loses its buttons", async () => {
    const world = await approvalWorld({ deciders: 1 });
    const expired = await world.ask();
    await world.settleCards();
    world.forward(dayMs);
    await world.approvals.settle(expired.session, expired.id, "expired");
    await world.settleCards();
    expect(world.allSent().map(titleOf)).toEqual(["deploy expired", "deploy expired"]);
    const cancelled = await world.ask();
    await world.settleCards();
    const gen = (await world.store.cancel(cancelled.session, { reason: "stopped" })).wakeGen ?? 0;
    const claim = await world.store.claim(cancelled.session, gen, "worker");
    const write = {
      session: cancelled.session,
      epoch: claim?.epoch ?? "",
      history: [],
      events: [],
    };
    await world.store.commit({ ...write, seq: 1, more: false });
    await world.settleCards();
    expect(await world.stateOf(cancelled)).toBe("cancelled");
    expect(world.allSent().filter(hasButtons)).toEqual([]);
    expect(world.allSent().map(titleOf)).toContain("deploy cancelled");
  });

  it("a count of people is shown until enough have approved", async () => {
    const world = await approvalWorld({ deciders: 2 });
    const [one = "", other = ""] = world.people;
    const deciders = {
      requester: false,
      people: [one, other],
      roles: [],
      fourEyes: false,
      count: 2,
    };
    const question = await world.ask({ deciders });
    await world.settleCards();
    expect(world.inChat()[0]?.text).toContain("0 of 2 approved");
    await world.decide(question, "approve", { by: { id: one, name: "Dora" } });
    await world.settleCards();
    for (const message of world.allSent()) {
      expect(message.text).toContain("1 of 2 approved\nApproved by: Dora");
      expect(hasButtons(message)).toBe(true);
    }
    await world.decide(question, "approve", { by: { id: other } });
    await world.settleCards();
    expect(world.allSent().map(titleOf)).toEqual(Array(3).fill("deploy approved"));
  });

  it("before its cards were sent no person gets one", async () => {
    const world = await approvalWorld({ deciders: 1 });
    const question = await world.ask();
    await world.decide(question, "approve");
    await world.settleCards();
    expect(world.allSent()).toEqual([]);
  });

  it("a remembered decision becomes a rule, once, and not when the approval was rejected in the end", async () => {
    const world = await approvalWorld();
    const remember = { tool: "deploy", pattern: "prod *" };
    const kept = await world.ask({ remember });
    await world.decide(kept, "approve", { remember: true });
    const failing = world.cardsOver({
      keepRule: async () => await Promise.reject(new Error("down")),
    });
    await failing.work(kept.session, kept.id);
    expect(await world.rules.list(world.appId)).toEqual([]);
    await world.settleCards();
    expect(await world.rules.list(world.appId)).toMatchObject([
      { id: kept.id, chatId: world.chatId, pattern: "prod *" },
    ]);
    await world.rules.revoke(world.appId, kept.id, { id: "ou_admin" });
    await world.cards.work(kept.session, kept.id);
    expect(await world.rules.list(world.appId)).toEqual([]);
    const two = { requester: true, people: [], roles: [], fourEyes: false, count: 2 };
    const rejected = await world.ask({ remember, deciders: two });
    await world.decide(rejected, "approve", { remember: true });
    await world.decide(rejected, "reject", { by: { id: "ou_other" } });
    await world.settleCards();
    expect(await world.rules.list(world.appId)).toEqual([]);
  });

  it("words that content review refuses are left out, so that the buttons go", async () => {
    const world = await approvalWorld();
    const question = await world.ask({ arguments: { secretly: "forbidden words" } });
    await world.settleCards();
    await world.decide(question, "reject", { note: "forbidden words too" });
    const body = { code: 230028, msg: "The messages do NOT pass DLP detection." };
    world.simulator.faults.add({
      match: { method: "PATCH" },
      times: 1,
      action: { kind: "respond", status: 400, body },
    });
    await world.settleCards();
    const [message] = world.inChat();
    expect(titleOf(message)).toBe("deploy rejected");
    expect(JSON.stringify(message?.card?.json)).not.toContain("forbidden words");
  });

  it("a count that the platform does not take keeps no card from losing its buttons in the end", async () => {
    const world = await approvalWorld();
    const people = [world.person.openId, "ou_other"];
    const question = await world.ask({
      deciders: { requester: false, people, roles: [], fourEyes: false, count: 2 },
    });
    await world.settleCards();
    const body = { code: 230028, msg: "The messages do NOT pass DLP detection." };
    world.simulator.faults.add({
      match: { method: "PATCH" },
      times: 1,
      action: { kind: "respond", status: 400, body },
    });
    await world.decide(question, "approve");
    await world.settleCards();
    expect(world.inChat()[0]?.text).toContain("0 of 2 approved");
    await world.decide(question, "approve", { by: { id: "ou_other" } });
    await world.settleCards();
    expect(world.inChat().map(titleOf)).toEqual(["deploy approved"]);
  });

  it("a card that can be changed no more is given up, and the others are not", async () => {
    const world = await approvalWorld({ deciders: 1 });
    const question = await world.ask();
    await world.settleCards();
    const [inChat] = world.inChat();
    await world.simulator.recall(inChat?.messageId ?? "", { by: "group_owner" });
    await world.decide(question, "approve");
    await world.settleCards();
    expect(
      world
        .allSent()
        .filter(({ recalled }) => !recalled)
        .map(titleOf),
    ).toEqual(["deploy approved"]);
    expect(await world.approvals.dueCards(world.now() + 30 * dayMs, 10)).toEqual([]);
  });

  it("after 14 days nothing can be changed, and nothing is tried any more", async () => {
    const world = await approvalWorld();
    const question = await world.ask({ expiresAtMs: Date.now() + 20 * dayMs });
    await world.settleCards();
    world.forward(15 * dayMs);
    await world.decide(question, "approve");
    const before = world.simulator.apiCalls.length;
    await world.settleCards();
    expect(
      world.simulator.apiCalls.slice(before).filter(({ method }) => method === "PATCH"),
    ).toEqual([]);
    expect(world.lines.map(({ fields }) => fields["failed"])).toContain("too old");
    expect(await world.approvals.dueCards(world.now() + 30 * dayMs, 10)).toEqual([]);
  });
});

describe("a platform in trouble", () => {
  it("is asked again later, at most a minute apart while a question is open", async () => {
    const world = await approvalWorld({ deciders: 1 });
    const limited = { code: 99991400, msg: "request trigger frequency limit" };
    const respond = { kind: "respond" as const, status: 429, body: limited };
    const remove = world.simulator.faults.add({
      match: { method: "POST", path: imMessages },
      action: respond,
    });
    const question = await world.ask();
    await world.cards.work(question.session, question.id);
    expect(world.allSent()).toEqual([]);
    world.forward(5 * minuteMs);
    await world.cards.work(question.session, question.id);
    expect(await world.approvals.dueCards(world.now() + 80_000, 10)).toHaveLength(1);
    remove();
    await world.settleCards();
    expect(world.allSent().map(titleOf)).toEqual(["Approve deploy?", "Approve deploy?"]);
    expect(await world.stateOf(question)).toBe("pending");
  });

  it("AL-28: a question that can be put to no person is settled, and its session is woken", async () => {
    const world = await approvalWorld({ deciders: 1 });
    const [decider = ""] = world.people;
    world.simulator.refuseSends(world.chatId, 230018);
    world.simulator.refuseSends(decider, 230053);
    const question = await world.ask();
    await world.cards.work(question.session, question.id);
    expect(await world.stateOf(question)).toBe("undeliverable");
    expect(world.woken).toEqual([question.session]);
    expect(await world.letters.list(9)).toMatchObject([
      { kind: "approval", session: question.session },
    ]);
  });

  it("a copy that reaches one person is enough", async () => {
    const world = await approvalWorld({ deciders: 1 });
    world.simulator.refuseSends(world.chatId, 230018);
    const question = await world.ask();
    await world.settleCards();
    expect(await world.stateOf(question)).toBe("pending");
    expect(world.allSent().map(titleOf)).toEqual(["Approve deploy?"]);
    await world.decide(question, "approve");
    await world.settleCards();
    expect(world.allSent().map(titleOf)).toEqual(["deploy approved"]);
  });

  it("that lasts for ten minutes ends the question unasked", async () => {
    const world = await approvalWorld();
    world.simulator.refuseSends(world.chatId, 230020);
    const question = await world.ask();
    await world.cards.work(question.session, question.id);
    world.forward(9 * minuteMs);
    await world.cards.work(question.session, question.id);
    expect(await world.stateOf(question)).toBe("pending");
    world.forward(2 * minuteMs);
    await world.cards.work(question.session, question.id);
    expect(await world.stateOf(question)).toBe("undeliverable");
    expect(world.woken).toEqual([question.session]);
    await world.settleCards();
    expect(world.inChat()).toEqual([]);
  });

  it("a card that was refused for certain is not sent any more once its question is settled", async () => {
    const world = await approvalWorld();
    world.simulator.refuseSends(world.chatId, 230020);
    const question = await world.ask();
    await world.cards.work(question.session, question.id);
    world.simulator.refuseSends(world.chatId, undefined);
    await world.decide(question, "approve");
    await world.settleCards();
    expect(world.inChat()).toEqual([]);
  });

  it("without credentials of the app the question is left to a worker that has them, for as long as it stands", async () => {
    const world = await approvalWorld();
    const cards = world.cardsOver({ apis: new Map() });
    const question = await world.ask();
    await cards.work(question.session, question.id);
    expect(await world.stateOf(question)).toBe("pending");
    world.forward(11 * minuteMs);
    await cards.work(question.session, question.id);
    expect(await world.stateOf(question)).toBe("pending");
    world.forward(11_000);
    await world.cards.work(question.session, question.id);
    expect(world.inChat()).toHaveLength(1);
  });

  it("whose answer got lost has sent one card, which is found by sending it again", async () => {
    const world = await approvalWorld({
      api: { retry: { attempts: 1, minDelayMs: 1, maxDelayMs: 10 } },
    });
    world.simulator.faults.add({
      match: { path: imMessages },
      times: 1,
      action: { kind: "lose_response" },
    });
    const question = await world.ask();
    await world.cards.work(question.session, question.id);
    await world.decide(question, "reject");
    await world.settleCards();
    expect(world.inChat().map(titleOf)).toEqual(["deploy rejected"]);
  });

  it("whose answer got lost an hour ago has its card looked for, among others like it", async () => {
    const world = await approvalWorld({
      api: { retry: { attempts: 1, minDelayMs: 1, maxDelayMs: 10 } },
    });
    world.simulator.faults.add({
      match: { path: imMessages },
      times: 1,
      action: { kind: "lose_response" },
    });
    const lost = await world.ask();
    await world.cards.work(lost.session, lost.id);
    const twin = await world.ask();
    await world.cards.work(twin.session, twin.id);
    world.forward(2 * hourMs);
    await world.decide(lost, "reject");
    await world.settleCards();
    expect(world.inChat().map(titleOf)).toEqual(["deploy rejected", "Approve deploy?"]);
  });

  it("that takes the same message for being sent has it looked for", async () => {
    const world = await approvalWorld({
      simulator: { duplicateUuid: "in_progress" },
      api: { retry: { attempts: 1, minDelayMs: 1, maxDelayMs: 10 } },
    });
    world.simulator.faults.add({
      match: { path: imMessages },
      times: 1,
      action: { kind: "lose_response" },
    });
    const question = await world.ask();
    await world.settleCards();
    await world.decide(question, "approve");
    await world.settleCards();
    expect(world.inChat().map(titleOf)).toEqual(["deploy approved"]);
  });

  it("a store that fails is no failure of the caller, and nothing is lost", async () => {
    const world = await approvalWorld();
    const question = await world.ask();
    const down = async () => await Promise.reject(new Error("down"));
    await world
      .cardsOver({ approvals: replaced(world.approvals, { leaseCards: down }) })
      .work(question.session, question.id);
    await world.settleCards();
    expect(world.inChat()).toHaveLength(1);
  });
});

it("a round that hangs ends at its deadline or when the cards are closed, and is taken up again", async () => {
  const world = await approvalWorld();
  const remove = world.simulator.faults.add({
    match: { path: imMessages },
    action: { kind: "hang" },
  });
  const slow = world.connect({ timeoutMs: 60_000 });
  const question = await world.ask();
  await world.cardsOver({ api: slow, deadlineMs: 50 }).work(question.session, question.id);
  expect(await world.stateOf(question)).toBe("pending");
  remove();
  await world.settleCards();
  expect(world.inChat()).toHaveLength(1);
});

it("closing the cards waits for no store that hangs, and begins nothing more", async () => {
  const world = await approvalWorld();
  const question = await world.ask();
  const hangs = async () => await new Promise<never>(() => undefined);
  const after: Clock["after"] = (ms, run) => systemClock.after(ms / 100, run);
  const clock = { ...systemClock, now: world.now, after };
  const cards = world.cardsOver({
    approvals: replaced(world.approvals, { leaseCards: hangs }),
    clock,
  });
  void cards.work(question.session, question.id);
  await cards.close();
  await cards.work(question.session, question.id);
  await world.settleCards();
  expect(world.inChat()).toHaveLength(1);
});

it("two workers at one approval send one card", async () => {
  const world = await approvalWorld({ deciders: 1 });
  const question = await world.ask();
  const workers = [world.cardsOver(), world.cardsOver(), world.cardsOver()];
  await Promise.all(
    workers.map(async (worker) => await worker.work(question.session, question.id)),
  );
  await world.settleCards();
  expect(world.allSent()).toHaveLength(2);
});
