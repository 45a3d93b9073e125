import type { ShownTool } from "@larkline/protocol/reply-view";
import type { SimulatorOptions } from "@larkline/simulator";
import type { AskedInReply } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { approvalOf } from "../cards/approval.fixture.ts";
import { withReasonForm } from "../cards/ask-in-reply.ts";
import { replacing } from "../simulated-api.fixture.ts";
import { expectFinished, textOf } from "./live-typing.fixture.ts";
import { FeishuError } from "../transport/error.ts";
import { endOrphan } from "./orphan.ts";
import {
  answered,
  opened,
  replyWorld,
  until,
  viewOf,
  type Parts,
  type ReplyWorld,
} from "./reply-world.fixture.ts";

const waiting: ShownTool = { id: "c1", name: "deploy", state: "waiting", startedAtMs: 0 };
const ask: AskedInReply = { approval: approvalOf(), reasonAskedAtMs: 0 };
const other: AskedInReply = {
  approval: approvalOf({ id: "f".repeat(32), tool: "erase" }),
  reasonAskedAtMs: 0,
};

function jsonOf(world: ReplyWorld): string {
  return JSON.stringify(world.cards().at(-1)?.json ?? {});
}

function hasButtons(world: ReplyWorld, { approval }: AskedInReply): boolean {
  return jsonOf(world).includes(
    `{"__approval__":"${approval.id}","decision":"approve","in_reply":true}`,
  );
}

/** A turn whose card is to ask something. `reported`: what the writer reports of each question, in order. */
async function asking({
  asks = [ask],
  text = "I need to deploy.",
  parts = {},
  simulator = {},
}: Scene = {}) {
  const world = await replyWorld({ simulator });
  const turn = await world.turn();
  const reported: [string, boolean][] = [];
  let view = viewOf(text, { tools: [waiting] });
  let wanted = asks;
  const replies = world.liveReplies(parts);
  const reply = opened(
    replies.open({
      ...world.startOf(turn, () => view),
      asks: () => wanted,
      onAsked: (which, isPlaced) =>
        void which.forEach(({ approval }) => reported.push([approval.id, isPlaced])),
    }),
  );
  const show = (answer: string, tools: ShownTool[], next: readonly AskedInReply[] = []): void => {
    view = viewOf(answer, { tools });
    wanted = next;
    reply.changed();
  };
  reply.changed();
  return { world, turn, reported, reply, show };
}

interface Scene {
  asks?: readonly AskedInReply[];
  text?: string;
  parts?: Partial<Parts>;
  simulator?: Partial<SimulatorOptions>;
}

describe("a reply whose person alone decides about a call", () => {
  it("has the question below its text, on a card that does not stream; then it types on", async () => {
    const { world, turn, reported, reply, show } = await asking();
    await until(() => reported.length > 0);
    expect(reported[0]).toEqual([ask.approval.id, true]);
    expect(world.cards()).toHaveLength(1);
    expect(hasButtons(world, ask)).toBe(true);
    expect(world.cards()[0]?.streaming).toBe(false);
    expect((await world.ledger.load(turn.session, turn.replyId))?.asking).toEqual(
      world.cards()[0]?.json,
    );
    show("I need to deploy. It is", [{ ...waiting, state: "done", elapsedMs: 1_000 }]);
    await until(() => textOf(world) === "I need to deploy. It is");
    expect(world.cards()[0]?.streaming).toBe(true);
    expect(jsonOf(world)).not.toContain("__approval__");
    expect((await world.ledger.load(turn.session, turn.replyId))?.asking).toBeUndefined();
    const lease = await turn.commit(answered("I need to deploy. It is done."));
    await reply.release();
    await world.sender().deliver(lease);
    await expectFinished(world, turn, "I need to deploy. It is done.");
    expect(world.cards()[0]?.operations.filter(({ code }) => code !== 0)).toEqual([]);
  });

  it("does not call a question refused that came while a frame before it was on its way", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const reported: boolean[] = [];
    let frames = 0;
    const reply = opened(
      world.liveReplies().open({
        ...world.startOf(turn, () => viewOf("I need to deploy.", { tools: [waiting] })),
        asks: () => ((frames += 1) === 1 ? [] : [ask]),
        onAsked: (_asks, isPlaced) => void reported.push(isPlaced),
      }),
    );
    reply.changed();
    await until(() => world.cards().length > 0);
    expect(reported).toEqual([]);
    reply.changed();
    await until(() => reported.length > 0);
    expect(reported).not.toContain(false);
    await reply.release();
  });

  it("asks on a card without text, and has no placeholder of one", async () => {
    const { world, reported } = await asking({ text: "" });
    await until(() => reported.length > 0);
    expect(hasButtons(world, ask)).toBe(true);
    expect(jsonOf(world)).not.toContain('"element_id":"answer"');
  });

  it("keeps the card as it is while a person may write a reason and a call runs on", async () => {
    const { world, reported, show } = await asking();
    await until(() => reported.length > 0);
    const operations = world.cards()[0]?.operations.length;
    const run: ShownTool = { id: "c2", name: "look", state: "running", startedAtMs: 0 };
    show("I need to deploy.", [waiting, run], [ask]);
    await until(() => (world.cards()[0]?.operations.length ?? 0) > (operations ?? 0));
    const drawn = world.cards()[0]?.operations.length;
    const count = reported.length;
    show(
      "I need to deploy.",
      [waiting, { ...run, elapsedMs: 9_000, progress: { fraction: 0.5, detail: "half" } }],
      [ask],
    );
    await until(() => reported.length > count);
    expect(world.cards()[0]?.operations).toHaveLength(drawn ?? 0);
    expect(hasButtons(world, ask)).toBe(true);
  });

  it("draws the open form for a reason again, and stores the card without it", async () => {
    const { world, turn, reported, show } = await asking({ asks: [ask, other] });
    await until(() => reported.length > 1);
    const shown = world.cards()[0]?.json as Record<string, unknown>; // a card of ours
    const form = JSON.stringify(withReasonForm(shown, ask.approval));
    expect(form).toContain('"name":"reject_form"');
    show("I need to deploy.", [waiting], [{ ...ask, reasonAskedAtMs: 5 }, other]);
    await until(() => jsonOf(world).includes("reject_form"));
    expect(jsonOf(world)).toBe(form);
    expect((await world.ledger.load(turn.session, turn.replyId))?.asking).toEqual(shown);
    show("I need to deploy.", [waiting], [other]);
    await until(() => !hasButtons(world, ask));
    expect(jsonOf(world)).not.toContain("reject_form");
    expect(hasButtons(world, other)).toBe(true);
  });

  it("tells of questions for which the card has no room", async () => {
    const many = Array.from({ length: 12 }, (_, at) => ({
      approval: approvalOf({
        id: String(at).padStart(32, "0"),
        arguments: { text: "x".repeat(3_000) },
      }),
      reasonAskedAtMs: 0,
    }));
    const { world, reported } = await asking({ asks: many });
    await until(() => reported.length === many.length);
    const placed = reported.filter(([, isPlaced]) => isPlaced);
    expect(placed.length).toBeGreaterThan(0);
    expect(placed.length).toBeLessThan(many.length);
    expect(world.cards()).toHaveLength(1);
    expect(many.filter((each) => hasButtons(world, each))).toHaveLength(placed.length);
  });

  it("tells that it cannot show them when the platform refuses the card, and when replies have no cards any more", async () => {
    const refused = await replyWorld();
    const api = replacing(refused.api, {
      cards: replacing(refused.api.cards, {
        create: async () => await Promise.reject(new Error("broken")),
      }),
    });
    const turn = await refused.turn();
    const reported: [string, boolean][] = [];
    const reply = opened(
      refused.liveReplies({ api }).open({
        ...refused.startOf(turn, () => viewOf("Hm", { tools: [waiting] })),
        asks: () => [ask],
        onAsked: (which, isPlaced) =>
          void which.forEach(({ approval }) => reported.push([approval.id, isPlaced])),
      }),
    );
    reply.changed();
    reply.pause();
    await until(() => reported.length > 0);
    expect(reported).toEqual([[ask.approval.id, false]]);
    expect(refused.cards()).toEqual([]);
  });

  it("loses the buttons with its turn", async () => {
    const { world, turn, reported } = await asking({ asks: [ask, other] });
    await until(() => reported.length > 1);
    const ledger = await world.ledger.load(turn.session, turn.replyId);
    if (ledger === undefined) throw new Error("no cards");
    await endOrphan(world.api, ledger, new AbortController().signal);
    expect(jsonOf(world)).not.toContain("__approval__");
    expect(jsonOf(world)).toContain("interrupted");
  });

  it.each([
    [2, "conflict"],
    [3, "behind"],
  ] as const)(
    "loses them also when ending it fails at operation %i and is repeated (%s)",
    async (failing, answer) => {
      const { world, turn, reported } = await asking({
        asks: [ask, other],
        simulator: { duplicateCardUuid: answer },
      });
      await until(() => reported.length > 1);
      const ledger = await world.ledger.load(turn.session, turn.replyId);
      if (ledger === undefined) throw new Error("no cards");
      const { cards } = world.api;
      let operations = 0;
      const api = replacing(world.api, {
        cards: replacing(cards, {
          batch: async (request, options) => {
            operations += 1;
            if (operations !== failing) return await cards.batch(request, options);
            throw new FeishuError({
              api: "cardkit.card.batchUpdate",
              kind: "unavailable",
              code: 0,
              httpStatus: 503,
            });
          },
        }),
      });
      const { signal } = new AbortController();
      await expect(endOrphan(api, ledger, signal)).rejects.toThrow("unavailable");
      await endOrphan(api, ledger, signal);
      expect(jsonOf(world)).not.toContain("__approval__");
      expect(jsonOf(world)).toContain("interrupted");
    },
  );
});
