import { systemClock, type Clock } from "@larkline/protocol/clock";
import { openTestStores } from "@larkline/store/testing";
import type { ImageResolver } from "./image-resolver.ts";
import { describe, expect, it } from "vitest";
import { expectFinished, textOf, twoCards } from "./live-typing.fixture.ts";
import type { Turn } from "./reply-turn.fixture.ts";
import {
  answered,
  deliverUntilSent,
  hourMs,
  lettersOf,
  longAnswer,
  replyWorld,
  until,
  viewOf,
  type ReplyWorld,
  type ReplyWorldOptions,
} from "./reply-world.fixture.ts";
import { replacing } from "../simulated-api.fixture.ts";

const cardkit = /\/cardkit\/v1\//;
const updates = /\/cardkit\/v1\/cards\/\d+$/;
const sends = /\/im\/v1\/messages(\/[^/]+\/reply)?$/;

/** A turn of which nothing is shown yet. */
async function waiting(options: ReplyWorldOptions = {}) {
  const world = await replyWorld(options);
  const turn = await world.turn();
  const refuse = (
    path: RegExp,
    code: number,
    more: { times?: number; msg?: string } = {},
  ): (() => void) => {
    const { msg = "refused", ...limits } = more;
    const body = { code, msg };
    return world.simulator.faults.add({
      match: { path },
      action: { kind: "respond", status: 400, body },
      ...limits,
    });
  };
  const deliver = async (answer: string): Promise<void> => {
    await world.sender().deliver(await turn.commit(answered(answer)));
  };
  return { ...world, world, turn, refuse, deliver };
}

/** A turn whose card is on the screen and has shown a beginning. */
async function begun(options: ReplyWorldOptions = {}) {
  const parts = await waiting(options);
  const { world, turn } = parts;
  const reply = world.live(turn, () => viewOf("one"));
  reply.changed();
  await until(() => textOf(world) === "one");
  await reply.release();
  return parts;
}

async function expectText(world: ReplyWorld, turn: Turn, text: string): Promise<void> {
  const texts = world.shown().filter(({ message }) => message.card === undefined);
  expect(texts.map(({ answer }) => answer)).toEqual([text]);
  expect(await world.unsent(turn)).toBe(0);
}

describe("the last state of a reply", () => {
  it("comes as one card where nothing was typed", async () => {
    const { world, turn, deliver } = await waiting();
    await deliver("**Hello**");
    await expectFinished(world, turn, "Hello");
    expect(world.cards()[0]?.operations.map(({ op }) => op)).toEqual(["create", "send"]);
    expect(world.shown()[0]?.message.parentId).toBe(turn.messageId);
  });

  it("shows the images that it names, except those that are not stored", async () => {
    const { world, turn, api } = await waiting();
    const imageKey = await api.files.uploadImage(Buffer.from("\u0089PNG\r\n\u001A\n", "latin1"));
    const imageOf = async (_api: unknown, reference: string): Promise<string | null> => {
      if (reference === "chart.png") return imageKey;
      throw new Error("no such file");
    };
    const lease = await turn.commit(answered("![a](chart.png) and ![b](other.png)"));
    await world.sender({ imageOf }).deliver(lease);
    expect(textOf(world)).toContain(`(${imageKey})`);
    expect(await world.unsent(turn)).toBe(0);
  });

  it("shows images of the hosts that it may, five at most; others stay links", async () => {
    const { world, turn, api } = await waiting();
    const imageKey = await api.files.uploadImage(Buffer.from("\u0089PNG\r\n\u001A\n", "latin1"));
    const asked: string[] = [];
    const imageOf: ImageResolver = async (_api, reference, _signal, hosts) => {
      asked.push(`${reference} ${String(hosts)}`);
      if (reference.endsWith("/2.png")) throw new Error("away");
      return imageKey;
    };
    const addressOf = (at: number) => `https://a.test/${at}.png`;
    const marks = [1, 2, 3, 4, 5, 6].map((at) => `![p${at}](${addressOf(at)})`);
    const lease = await turn.commit({ ...answered(marks.join(" ")), imageHosts: ["a.test"] });
    await world.sender({ imageOf }).deliver(lease);
    const linked = [2, 6];
    const shown = [1, 2, 3, 4, 5, 6].map((at) =>
      linked.includes(at) ? `[p${at}](${addressOf(at)})` : `![p${at}](${imageKey})`,
    );
    expect(textOf(world)).toContain(shown.join(" "));
    expect(asked.toSorted()).toEqual([1, 2, 3, 4, 5].map((at) => `${addressOf(at)} a.test`));
  });

  it("fetches no image where it may not", async () => {
    const { world, turn } = await waiting();
    const asked: string[] = [];
    const imageOf: ImageResolver = async (_api, reference) => {
      asked.push(reference);
      return null;
    };
    const lease = await turn.commit(answered("![p](https://a.test/1.png)"));
    await world.sender({ imageOf }).deliver(lease);
    expect(asked).toEqual([]);
    expect(textOf(world)).toContain("[p](https://a.test/1.png)");
  });

  it("goes to the chat when the message was recalled before", async () => {
    const { world, turn, deliver, simulator } = await waiting();
    await simulator.recall(turn.messageId);
    await deliver("one");
    await expectFinished(world, turn, "one");
    expect(world.shown()[0]?.message.parentId).toBeUndefined();
  });

  it("stays on its card when the message is recalled while it types", async () => {
    const { world, turn, deliver, simulator } = await begun();
    await simulator.recall(turn.messageId);
    await deliver("one two");
    await expectFinished(world, turn, "one two");
    expect(world.shown()).toHaveLength(1);
  });

  it.each([230111, 230072, 230050, 230019])(
    "goes to the chat when the message cannot be answered: %d",
    async (code) => {
      const { world, turn, deliver, simulator } = await waiting();
      simulator.refuseSends(turn.messageId, code);
      await deliver("one");
      await expectFinished(world, turn, "one");
    },
  );

  it("is a plain answer where the chat has no threads", async () => {
    const { world, turn, deliver } = await waiting({ inThread: true, chat: { type: "p2p" } });
    await deliver("one");
    await expectFinished(world, turn, "one");
    expect(world.shown()[0]?.message.threadId).toBeUndefined();
  });

  it.each([230053, 230035, 230018, 230013])(
    "is given up where the bot may not write: %d",
    async (code) => {
      const { world, turn, deliver, simulator, lines } = await waiting();
      simulator.refuseSends(world.chatId, code);
      await deliver("private words");
      expect(world.shown()).toEqual([]);
      expect(await world.unsent(turn)).toBe(0);
      expect(await world.ledger.load(turn.session, turn.replyId)).toBeUndefined();
      expect(JSON.stringify(lines)).not.toContain("private words");
    },
  );

  it.each(["removeBot", "dissolveChat"] as const)(
    "is given up after %s; the card that was there is closed",
    async (change) => {
      const { world, turn, deliver, simulator } = await begun();
      simulator[change](world.chatId);
      await deliver(twoCards);
      expect(world.shown()).toHaveLength(1);
      expect(world.cards()[0]).toMatchObject({ streaming: false });
      expect(await world.unsent(turn)).toBe(0);
    },
  );
});

describe("a reply whose card is refused", () => {
  it.each([
    ["its markdown", 1],
    ["its markdown and its panels", 2],
  ])(
    "shows its answer as plain text on the card when the platform takes all but %s",
    async (_what, times) => {
      for (const setUp of [waiting, begun]) {
        const { world, turn, deliver, refuse } = await setUp();
        refuse(setUp === begun ? updates : cardkit, 230099, {
          times,
          msg: "ext=ErrCode: 200621; ErrMsg: parse card json err;",
        });
        await deliver("**one** two");
        await expectFinished(world, turn, "**one** two");
        expect(world.shown()).toHaveLength(1);
      }
    },
  );

  it.each([
    [200860, "too large"],
    [300305, "too many"],
    [230099, "ext=ErrCode: 11310; ErrMsg: card table number over limit;"],
  ])(
    "goes over more cards when the platform finds one too full that we did not: %d",
    async (code, msg) => {
      const { world, turn, deliver, refuse } = await begun();
      refuse(updates, code, { times: 2, msg });
      await deliver(twoCards);
      await expectFinished(world, turn, twoCards);
      expect(world.shown().length).toBeGreaterThan(2);
    },
  );

  it("keeps its form, and shows a chart as it was written, when the platform refuses the chart", async () => {
    const chart = { type: "bar", data: [{ month: "May", sold: 3 }], x: "month", y: "sold" };
    const { world, deliver, refuse } = await begun();
    refuse(updates, 230099, { times: 1, msg: "ext=ErrCode: 200550; ErrMsg: chart spec;" });
    await deliver(`**Sold**\n\n\`\`\`chart\n${JSON.stringify(chart)}\n\`\`\`\n`);
    const shown = JSON.stringify(world.shown());
    expect(shown).toContain("**Sold**");
    expect(shown).toContain("sold");
    expect(shown).not.toContain("chart_spec");
  });

  it("is plain when it is small and yet too full", async () => {
    const { world, turn, deliver, refuse } = await begun();
    refuse(updates, 230099, {
      times: 1,
      msg: "ext=ErrCode: 11310; ErrMsg: card table number over limit;",
    });
    await deliver("one | two");
    await expectFinished(world, turn, "one | two");
    expect(world.shown()).toHaveLength(1);
  });

  it.each([200621, 200550, 200570, 4_242])(
    "comes as text when no card is taken at all: %d",
    async (code) => {
      const { world, turn, deliver, refuse } = await waiting();
      refuse(cardkit, code === 4_242 ? code : 230099, { msg: `ext=ErrCode: ${code}; ErrMsg: x;` });
      await deliver("one");
      await expectText(world, turn, "one");
      expect(world.shown()).toHaveLength(1);
    },
  );

  it("comes as text, and the card that has begun to show it makes way", async () => {
    const { world, turn, deliver, refuse } = await begun();
    refuse(updates, 230099, { times: 3, msg: "ext=ErrCode: 200621; ErrMsg: parse card json err;" });
    await deliver("one two");
    await expectText(world, turn, "one two");
    const [card] = world.shown();
    expect(card?.answer).toContain("in the message below");
    expect(card?.card).toMatchObject({ streaming: false });
  });

  it("is made anew when its send is refused, so that it is not believed to be there", async () => {
    const { world, turn, deliver, refuse } = await waiting();
    refuse(sends, 230099, { times: 1, msg: "ext=ErrCode: 200621; ErrMsg: parse card json err;" });
    await deliver("**one** two");
    await expectFinished(world, turn, "**one** two");
    expect(world.shown()).toHaveLength(1);
    expect(world.cards()).toHaveLength(1);
  });

  it("is not given up when the platform does not know it right after its creation", async () => {
    const { world, turn, deliver } = await waiting({
      simulator: { cardInvalidOnce: true },
      api: { retry: { attempts: 1 } },
    });
    await deliver("one");
    await deliverUntilSent(world, turn);
    expect(textOf(world)).toBe("one");
    expect(world.shown()).toHaveLength(1);
  });

  it("comes as text when no card can be sent", async () => {
    const { world, turn, deliver, refuse } = await waiting();
    refuse(sends, 230099, { times: 6, msg: "ext=ErrCode: 11310; ErrMsg: cardid is invalid;" });
    await deliver("one");
    await expectText(world, turn, "one");
    expect(world.shown()).toHaveLength(1);
  });

  it("comes as text where the app may not use cards", async () => {
    const { world, turn, deliver, refuse } = await waiting();
    refuse(cardkit, 99991672);
    await deliver("one");
    await expectText(world, turn, "one");
  });

  it("waits for the operator when the month's calls are used up, and comes as a card then", async () => {
    const { world, turn, deliver, refuse } = await begun();
    const heal = refuse(/./, 99991403);
    await deliver("one two");
    expect(await world.unsent(turn)).toBe(1);
    heal();
    await deliverUntilSent(world, turn);
    await expectFinished(world, turn, "one two");
    expect(world.shown()).toHaveLength(1);
  });

  it.each([230022, 230028])("says that its content was blocked: %d", async (code) => {
    const { world, turn, deliver, refuse } = await waiting();
    refuse(sends, code, { times: 2 });
    await deliver("secret");
    expect(textOf(world)).toContain("content policy");
    expect(world.shown()).toHaveLength(1);
    expect(await world.unsent(turn)).toBe(0);
  });

  it("says on the card that its content was blocked, when that is on the screen", async () => {
    const { world, turn, deliver, refuse } = await begun();
    refuse(updates, 230028, { times: 1 });
    await deliver("secret");
    expect(textOf(world)).toContain("content policy");
    expect(world.shown()).toHaveLength(1);
    expect(world.cards()[0]).toMatchObject({ streaming: false });
    expect(await world.unsent(turn)).toBe(0);
  });
});

describe("a reply whose cards are gone", () => {
  it("is shown anew after 14 days, every card of it", async () => {
    const { world, turn, deliver } = await waiting();
    const reply = world.live(turn, () => viewOf(longAnswer(75_000)));
    reply.changed();
    await until(() => lettersOf(textOf(world)) === lettersOf(longAnswer(75_000)));
    await reply.release();
    const before = world.shown().length;
    expect(before).toBeGreaterThan(4);
    world.forward(15 * 24 * hourMs);
    const dead = world.shown();
    await deliver(longAnswer(75_000));
    const shown = world.shown().slice(dead.length);
    expect(lettersOf(shown.map(({ answer }) => answer).join(""))).toBe(
      lettersOf(longAnswer(75_000)),
    );
    expect(await world.unsent(turn)).toBe(0);
  });

  it("is shown on a new card when a person took the old one away", async () => {
    const { world, turn, deliver, simulator } = await begun();
    await simulator.recall(world.shown()[0]?.message.messageId ?? "", { by: "group_owner" });
    await deliver("one two");
    await expectFinished(world, turn, "one two");
    expect(world.shown()).toHaveLength(1);
  });

  it("replaces the card that is gone, and not another one", async () => {
    const { world, turn, deliver, simulator } = await waiting();
    const reply = world.live(turn, () => viewOf(twoCards));
    reply.changed();
    await until(() => lettersOf(textOf(world)) === lettersOf(twoCards));
    await reply.release();
    const [first, second] = world.shown();
    await simulator.recall(first?.message.messageId ?? "", { by: "group_owner" });
    await deliver(twoCards);
    const shown = world.shown();
    expect(shown).toHaveLength(2);
    expect(shown[0]?.message.messageId).toBe(second?.message.messageId);
    expect(lettersOf(`${shown[1]?.answer ?? ""}${shown[0]?.answer ?? ""}`)).toBe(
      lettersOf(twoCards),
    );
    expect(await world.unsent(turn)).toBe(0);
  });
});

describe("a delivery on cards", () => {
  it("waits through an outage of hours and then finishes the card that had begun", async () => {
    const { world, turn, deliver, simulator } = await begun();
    simulator.faults.add({ action: { kind: "respond", status: 503 } });
    await deliver("one two");
    for (let hours = 0; hours < 5; hours += 1) {
      world.forward(hourMs);
      const lease = await world.store.outbox.lease(turn.session);
      if (lease !== undefined) await world.sender().deliver(lease);
      expect(await world.unsent(turn)).toBe(1);
    }
    simulator.faults.clear();
    await deliverUntilSent(world, turn);
    await expectFinished(world, turn, "one two");
    expect(world.shown()).toHaveLength(1);
  });

  it.each([
    ["creation", /\/cards$/],
    ["send", sends],
    ["update", updates],
  ])(
    "is done once although the platform's word on the %s gets lost for hours",
    async (_what, path) => {
      const { world, turn, deliver, simulator } = await waiting();
      simulator.faults.add({
        match: { path, method: path === updates ? "PUT" : "POST" },
        times: 6,
        action: { kind: "lose_response" },
      });
      await deliver(twoCards);
      for (let tries = 0; tries < 4; tries += 1) {
        world.forward(2 * hourMs);
        const lease = await world.store.outbox.lease(turn.session);
        if (lease !== undefined) await world.sender().deliver(lease);
      }
      await expectFinished(world, turn, twoCards);
      expect(world.shown()).toHaveLength(2);
    },
  );

  it("is done once although the platform says for an hour that the message is being sent", async () => {
    const { world, turn, deliver, simulator } = await waiting({
      simulator: { duplicateUuid: "in_progress" },
    });
    simulator.faults.add({
      match: { path: sends, method: "POST" },
      times: 1,
      action: { kind: "lose_response" },
    });
    await deliver("one");
    expect(await world.unsent(turn)).toBe(1);
    world.forward(2 * hourMs);
    await deliverUntilSent(world, turn);
    await expectFinished(world, turn, "one");
    expect(world.shown()).toHaveLength(1);
  });

  it("of a long answer continues where the deadline cut it off, without backing off", async () => {
    const answer = longAnswer(120_000);
    const { world, turn, simulator } = await waiting({
      simulator: { limits: "enforced" },
      api: { governor: openTestStores().governor },
    });
    const deadlineMs = 1_200;
    const deadlines: (() => void)[] = [];
    const after: Clock["after"] = (ms, work) => {
      if (ms === deadlineMs) deadlines.push(work);
      return ms === deadlineMs ? () => undefined : systemClock.after(ms, work);
    };
    let sent = 0;
    // The deadline comes while every third card is sent, however long that took.
    simulator.on("message", () => {
      if ((sent += 1) % 3 === 0) deadlines.at(-1)?.();
    });
    const sender = world.sender({ deadlineMs, clock: { ...world.clock, after } });
    await sender.deliver(await turn.commit(answered(answer)));
    expect(deadlines.length).toBeGreaterThan(2);
    await expectFinished(world, turn, answer);
    expect(world.lines.filter(({ text }) => text.includes("tried again"))).toEqual([]);
    expect(simulator.refusals).toEqual([]);
  });

  it("that cannot use the ledger is left to the next one, and is no failed try", async () => {
    const { world, turn } = await begun();
    const ledger = replacing(world.ledger, { save: () => Promise.reject(new Error("redis")) });
    await world.sender({ ledger }).deliver(await turn.commit(answered("one two")));
    expect(world.shown().map(({ answer }) => answer)).toEqual(["one"]);
    expect(world.lines.at(-1)?.text).toBe("outbox could not be updated");
    world.forward(31_000);
    const lease = await world.store.outbox.lease(turn.session);
    expect(lease?.record.attempts).toBe(0);
    if (lease !== undefined) await world.sender().deliver(lease);
    await expectFinished(world, turn, "one two");
  });
});
