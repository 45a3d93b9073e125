import { systemClock } from "@larkline/protocol/clock";
import type { OutboxRecord } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { noticeCard } from "../cards/notice-cards.ts";
import { textOf } from "../reply/live-typing.fixture.ts";
import {
  answered,
  hourMs,
  replyWorld,
  until,
  viewOf,
  type ReplyWorldOptions,
} from "../reply/reply-world.fixture.ts";

/** A record without a view whose first attempt is lost, and its delivery hours later. */
async function lostAndRepeated(
  more: Partial<OutboxRecord>,
  options: ReplyWorldOptions & { inLaterThread?: boolean } = {},
) {
  const world = await replyWorld(options);
  const rootId = await world.say("root");
  const later = options.inLaterThread === true ? await threadMessage(rootId) : rootId;
  async function threadMessage(root: string): Promise<string> {
    await world.api.messages.reply({
      messageId: root,
      text: "an earlier answer",
      uuid: "earlier",
      inThread: true,
    });
    const from = world.person.openId;
    const { appId, chatId, simulator } = world;
    return (await simulator.sendMessage({ appId, chatId, from, text: "more", rootId: root }))
      .messageId;
  }
  const turn = await world.turn({ messageId: later, inThread: options.inLaterThread ?? false });
  const { view: _view, ...record } = (await turn.commit(answered("x"), more)).record;
  const again = async (): Promise<void> => {
    const lease = await world.store.outbox.lease(turn.session);
    if (lease === undefined) throw new Error("not due");
    await world.sender().deliver({ ...lease, record });
  };
  const before = world.shown().length;
  const attempt = async (
    action: "lose_response" | "refuse",
    path = /\/im\/v1\/messages/,
  ): Promise<void> => {
    const fault =
      action === "refuse"
        ? ({ kind: "respond", status: 503 } as const)
        : ({ kind: action } as const);
    world.simulator.faults.add({ match: { path, method: "POST" }, times: 2, action: fault });
    world.forward(31_000);
    await again();
    expect(world.simulator.faults.size).toBe(0);
    world.forward(2 * hourMs);
  };
  return { world, turn, attempt, again, shown: () => world.shown().slice(before) };
}

const card = noticeCard({ title: "Late message", text: "Run it or ignore it?" });

describe("an answer that may have been sent hours ago", () => {
  it.each([
    ["a text", { text: "plain words" }],
    [
      "a post with links",
      { text: "# Title\n\nSee [the docs](https://docs.example/a/b) and **more**" },
    ],
    ["an answer without letters", { text: "👍" }],
    ["a card", { text: "Late message", card }],
  ])("is found when it is %s, and not sent again", async (_what, more) => {
    for (const inLaterThread of [false, true]) {
      const { world, turn, attempt, again, shown } = await lostAndRepeated(more, { inLaterThread });
      await attempt("lose_response");
      expect(shown()).toHaveLength(1);
      await again();
      expect(shown()).toHaveLength(1);
      expect(await world.unsent(turn)).toBe(0);
    }
  });

  it.each([
    ["a text", { text: "plain words" }],
    ["a card", { text: "Late message", card }],
  ])(
    "is sent when it is %s and something else was answered to the same message",
    async (_what, more) => {
      for (const inLaterThread of [false, true]) {
        const { world, turn, attempt, again, shown } = await lostAndRepeated(more, {
          inLaterThread,
        });
        const { messageId } = turn;
        await world.api.messages.reply({
          messageId,
          text: "Your message waits",
          uuid: "notice",
          inThread: inLaterThread,
        });
        const other = JSON.stringify(noticeCard({ title: "Another", text: "card" }));
        const sent = { messageType: "interactive", content: other } as const;
        await world.api.messages.reply({
          messageId,
          ...sent,
          uuid: "notice-2",
          inThread: inLaterThread,
        });
        await attempt("refuse");
        await again();
        expect(shown()).toHaveLength(3);
        expect(await world.unsent(turn)).toBe(0);
      }
    },
  );

  it("is found in the chat when the message had been recalled", async () => {
    const { world, turn, attempt, again, shown } = await lostAndRepeated({ text: "plain words" });
    await world.simulator.recall(turn.messageId);
    await attempt("lose_response", /\/im\/v1\/messages$/);
    expect(shown()).toHaveLength(1);
    await again();
    expect(shown()).toHaveLength(1);
    expect(await world.unsent(turn)).toBe(0);
  });

  it("is sent as text although a card has shown its beginning", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const reply = world.live(turn, () => viewOf("one"));
    reply.changed();
    await until(() => textOf(world) === "one");
    await reply.release();
    world.simulator.faults.add({
      match: { path: /\/cards\/\d+$/ },
      action: { kind: "respond", status: 400, body: { code: 230099, msg: "ext=ErrCode: 200621;" } },
    });
    const lease = await turn.commit(answered("one two"));
    world.forward(2 * hourMs);
    await world.sender().deliver(lease);
    expect(world.shown().map(({ answer }) => answer)).toContain("one two");
    expect(await world.unsent(turn)).toBe(0);
  });
});

it("what was said before a message has those of the same millisecond that come before it", async () => {
  const createdAtMs = Date.now();
  const world = await replyWorld({
    simulator: { clock: { ...systemClock, now: () => createdAtMs } },
  });
  for (const text of ["one", "two"]) await world.say(text);
  const messageId = await world.say("what did they say?");
  await world.say("three");
  const said = await world.api.history.said({
    chatId: world.chatId,
    afterMs: createdAtMs - 1_000,
    before: { messageId, createdAtMs },
    sinceOwn: false,
    most: 10,
  });
  expect(said.map(({ content }) => content)).toEqual(['{"text":"one"}', '{"text":"two"}']);
});
