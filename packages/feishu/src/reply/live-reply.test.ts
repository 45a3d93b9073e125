import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { ReplyView } from "@larkline/protocol/reply-view";
import { openTestStores, replaced } from "@larkline/store/testing";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { LiveReplies } from "./live-reply.ts";
import { expectFinished, textOf, twoCards, typing } from "./live-typing.fixture.ts";
import { CardHandover } from "./reply-record.ts";
import {
  answered,
  lettersOf,
  longAnswer,
  opened,
  replyWorld,
  until,
  viewOf,
} from "./reply-world.fixture.ts";
import { replacing } from "../simulated-api.fixture.ts";

describe("a live reply", () => {
  it("is not open for an app without credentials", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const start = world.startOf(turn, () => viewOf(""));
    const target = { ...start.target, app: "cli_ffffffffffffffff" };
    expect(world.liveReplies().open({ ...start, target })).toBeUndefined();
  });

  it("is released at once when nothing is on its way, also between tries", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const pauses: number[] = [];
    // Neither the pause before the next try ends by itself, nor the time for which a release waits at most.
    const after: Clock["after"] = (ms, work) => {
      const isLong = ms >= 2_000;
      if (isLong) pauses.push(ms);
      return isLong ? () => undefined : systemClock.after(ms, work);
    };
    const replies = new LiveReplies({
      apis: new Map([[world.appId, world.api]]),
      ledger: world.ledger,
      clock: { ...world.clock, after },
    });
    world.simulator.faults.add({ action: { kind: "respond", status: 503 } });
    const reply = opened(replies.open(world.startOf(turn, () => viewOf("one"))));
    reply.changed();
    await until(() => pauses.length === 1);
    await reply.release();
    expect(pauses).toEqual([2_000, 2_000]);
  });

  it("is released although the ledger hangs", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const asked = Promise.withResolvers<void>();
    const save = async (): Promise<boolean> => {
      asked.resolve();
      return await new Promise(() => undefined);
    };
    const ledger = replacing(world.ledger, { save });
    const reply = world.live(turn, () => viewOf("one"), { ledger });
    reply.changed();
    await asked.promise;
    await reply.release();
    await world.sender().deliver(await turn.commit(answered("one two")));
    await expectFinished(world, turn, "one two");
  });

  it("types on after an unknown failure, and stops when it stays", async () => {
    const { show, reads, simulator, lines, reply } = await typing();
    show("one");
    await reads("one");
    const action = { kind: "respond", status: 200, body: { code: 4242 } } as const;
    simulator.faults.add({ match: { path: /\/content$/ }, times: 1, action });
    show("one two");
    await reads("one two");
    const before = lines.length;
    simulator.faults.add({ match: { path: /\/content$/ }, times: 3, action });
    show("one two three");
    await until(() => lines.length === before + 3);
    const calls = simulator.apiCalls.length;
    show("one two three four");
    await reply.release();
    expect(simulator.apiCalls.length).toBe(calls);
  });

  it("does no harm with a frame that is still on its way when the turn ends", async () => {
    const { world, turn, show, reads, commit, simulator } = await typing();
    show("one");
    await reads("one");
    simulator.faults.add({
      match: { path: /\/content$/ },
      times: 1,
      action: { kind: "delay", delayMs: 150 },
    });
    show("one two");
    await until(() => simulator.faults.size === 0);
    show(twoCards);
    const lease = await commit(twoCards);
    await world.sender().deliver(lease);
    await expectFinished(world, turn, twoCards);
    expect(world.cards()).toHaveLength(2);
  });

  it("begins a frame 190 ms after the one before, however long that one was on its way", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const pauses: number[] = [];
    let onTheirWayMs = 0;
    const clock: Clock = {
      ...world.clock,
      monotonic: () => onTheirWayMs,
      after: (ms, work) => {
        pauses.push(ms);
        return world.clock.after(0, work);
      },
    };
    const content: typeof world.api.cards.content = async (...call) => {
      await world.api.cards.content(...call);
      onTheirWayMs += 120;
    };
    const api = replacing(world.api, { cards: replacing(world.api.cards, { content }) });
    const replies = new LiveReplies({
      apis: new Map([[world.appId, api]]),
      ledger: world.ledger,
      clock,
    });
    let view = viewOf("one");
    const reply = opened(replies.open(world.startOf(turn, () => view)));
    reply.changed();
    await until(() => pauses.length === 1);
    for (const answer of ["one two", "one two three"]) {
      view = viewOf(answer);
      reply.changed();
      await until(() => textOf(world) === answer);
    }
    await until(() => pauses.length === 3);
    expect(pauses).toEqual([190, 70, 70]);
    await reply.release();
  });

  it("lets the last frame go while an update is on its way, which changes nothing any more", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const left = Promise.withResolvers<void>();
    const arrives = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const content: typeof world.api.cards.content = async (operation, options) => {
      if (operation.content === "one") return await world.api.cards.content(operation, options);
      await options?.beforeLeaving?.();
      left.resolve();
      await arrives.promise;
      await world.api.cards
        .content(operation, { ...options, beforeLeaving: async () => undefined })
        .finally(ended.resolve);
    };
    const api = replacing(world.api, { cards: replacing(world.api.cards, { content }) });
    const replies = new LiveReplies({
      apis: new Map([[world.appId, api]]),
      ledger: world.ledger,
      // A release that waits does not end by itself.
      clock: {
        ...world.clock,
        after: (ms, work) => (ms >= 2_000 ? () => undefined : world.clock.after(ms, work)),
      },
    });
    let view = viewOf("one");
    const reply = opened(replies.open(world.startOf(turn, () => view)));
    reply.changed();
    await until(() => textOf(world) === "one");
    view = viewOf("one two");
    reply.changed();
    await left.promise;
    reply.answered();
    const lease = await turn.commit(answered("one two three"));
    await reply.release();
    await world.sender().deliver(lease);
    expect(textOf(world)).toBe("one two three");
    arrives.resolve();
    await ended.promise.catch(() => undefined);
    await expectFinished(world, turn, "one two three");
  });

  it("writes no more when another worker has taken the session", async () => {
    const { world, turn, show, reads, simulator } = await typing();
    show("one");
    await reads("one");
    show("one more");
    await reads("one more");
    await turn.reclaim();
    let view = viewOf("two");
    const second = world.live(turn, () => view);
    second.changed();
    await reads("two");
    // The first worker was stopped for longer than anything is believed.
    await delay(600);
    const calls = simulator.apiCalls.length;
    const saves = vi.spyOn(world.ledger, "save");
    show("one zombie");
    await until(async () =>
      (await Promise.all(saves.mock.results.map(({ value }) => value as unknown))).includes(false),
    );
    show("one zombie again");
    await second.release();
    expect(simulator.apiCalls.length).toBe(calls);
    expect(
      world.cards().flatMap(({ operations }) => operations.filter(({ code }) => code !== 0)),
    ).toEqual([]);
    expect(world.cards()).toHaveLength(1);
  });

  it("of a turn that was handed over asks the ledger before a frame that had to wait", async () => {
    const { governor } = openTestStores();
    const world = await replyWorld({ api: { governor } });
    const turn = await world.turn();
    let view = viewOf("one");
    const first = world.live(turn, () => view);
    first.changed();
    await until(() => textOf(world) === "one");
    // The frame waits for the limits while the turn is suspended and another worker continues the turn.
    const cardId = world.cards()[0]?.cardId ?? "";
    await governor.pause(`${world.appId}:card:${cardId}`, 400);
    view = viewOf("one two");
    first.changed();
    first.pause();
    await turn.reclaim();
    const second = world.live(turn, () => viewOf("one two three"));
    second.changed();
    await until(() => textOf(world) === "one two three");
    first.changed();
    await delay(700);
    expect(textOf(world)).toBe("one two three");
    await second.release();
    expect(
      world.cards().flatMap(({ operations }) => operations.filter(({ code }) => code !== 0)),
    ).toEqual([]);
  });

  it("waits until the answers before it are delivered, and appears then", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    let earlier = 1;
    let asked = 0;
    const mayAppear = async (): Promise<boolean> => {
      asked += 1;
      return earlier === 0;
    };
    const reply = opened(
      world.liveReplies({ mayAppear }).open(world.startOf(turn, () => viewOf("one"))),
    );
    reply.changed();
    await until(() => asked > 1);
    expect(world.shown()).toEqual([]);
    earlier = 0;
    await until(() => textOf(world) === "one");
    const before = asked;
    reply.changed();
    await until(() => world.lines.length === 0);
    await reply.release();
    expect(asked).toBe(before);
  });

  it("shows a suspended turn as it was, without asking it once more", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    let asked = 0;
    let tries = 0;
    let earlier = 1;
    const view = (): ReplyView => {
      asked += 1;
      return viewOf("one");
    };
    const mayAppear = async (): Promise<boolean> => {
      tries += 1;
      return earlier === 0;
    };
    const reply = opened(world.liveReplies({ mayAppear }).open(world.startOf(turn, view)));
    reply.changed();
    await until(() => tries > 0);
    reply.pause();
    const before = asked;
    earlier = 0;
    await until(() => textOf(world) === "one");
    expect(asked).toBe(before);
  });

  it("shows for how long a call has run and what it tells, also while the turn is suspended", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const replies = world.liveReplies();
    const startedAtMs = world.now();
    const call = { id: "c1", name: "search", state: "running", startedAtMs } as const;
    const reply = opened(replies.open(world.startOf(turn, () => viewOf("one", { tools: [call] }))));
    const title = (): string => JSON.stringify(world.cards()[0]?.json ?? "");
    reply.changed();
    await until(() => title().includes("⏳ search"));
    replies.progress(turn.replyId, "c1", { fraction: 0.5, detail: "half of it" });
    await until(() => title().includes("50% · half of it"));
    reply.pause();
    world.forward(7_000);
    replies.progress(turn.replyId, "c1", { fraction: 0.6, detail: "more" });
    await until(() => /⏳ search · \d+ s · 60% · more/.test(title()));
    world.forward(60_000);
    // No one tells anything: time alone draws it.
    await until(() => /⏳ search · [67]\d s/.test(title()));
    const { operations = [] } = world.cards()[0] ?? {};
    expect(new Set(operations.map(({ op }) => op))).toEqual(
      new Set(["create", "send", "batch_update"]),
    );
    replies.close();
  });

  it("continues after a suspension with the same card, without drawing it anew", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const replies = world.liveReplies();
    let view = viewOf("one");
    const first = opened(replies.open(world.startOf(turn, () => view)));
    first.changed();
    first.pause();
    await until(() => textOf(world) === "one");
    await turn.reclaim();
    const second = opened(replies.open(world.startOf(turn, () => view)));
    view = viewOf("one two");
    second.changed();
    await until(() => textOf(world) === "one two");
    expect(world.cards()[0]?.operations.map(({ op }) => op)).toEqual(["create", "send", "content"]);
  });

  it("continues after a suspension with what another worker has made of its cards meanwhile", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const replies = world.liveReplies();
    let view = viewOf("one");
    const first = opened(replies.open(world.startOf(turn, () => view)));
    first.changed();
    first.pause();
    await until(() => textOf(world) === "one");
    await turn.reclaim();
    const elsewhere = world.live(turn, () => viewOf(twoCards));
    elsewhere.changed();
    await until(() => world.cards().length === 2);
    elsewhere.pause();
    await elsewhere.release();
    await turn.reclaim();
    const second = opened(replies.open(world.startOf(turn, () => view)));
    view = viewOf(`${twoCards} and more`);
    second.changed();
    await until(() => textOf(world).endsWith("and more"));
    await second.release();
    await world.sender().deliver(await turn.commit(answered(`${twoCards} and more`)));
    await expectFinished(world, turn, `${twoCards} and more`);
    expect(world.cards()).toHaveLength(2);
  });

  it("that hangs through the turn of another worker does not write over what that one noted", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const replies = world.liveReplies();
    let view = viewOf("one");
    const first = opened(replies.open(world.startOf(turn, () => view)));
    first.changed();
    await until(() => textOf(world) === "one");
    world.simulator.faults.add({
      match: { path: /\/content$/ },
      times: 1,
      action: { kind: "delay", delayMs: 700 },
    });
    view = viewOf(longAnswer(12_000));
    first.changed();
    await until(() => world.simulator.faults.size === 0);
    view = viewOf(twoCards);
    first.changed();
    first.pause();
    await turn.reclaim();
    const elsewhere = world.live(turn, () => viewOf(twoCards));
    elsewhere.changed();
    await until(() => world.cards().length === 2);
    await elsewhere.release();
    await turn.reclaim();
    const second = opened(replies.open(world.startOf(turn, () => view)));
    second.changed();
    await until(() => lettersOf(textOf(world)) === lettersOf(twoCards));
    await second.release();
    await world.sender().deliver(await turn.commit(answered(twoCards)));
    await expectFinished(world, turn, twoCards);
    expect(world.cards()).toHaveLength(2);
  });

  it("uses no operation number that the ledger does not know", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    let broken = false;
    let saves = 0;
    const ledger = replaced(world.ledger, {
      save: async (...args: Parameters<typeof world.ledger.save>) => {
        saves += 1;
        if (broken) throw new Error("redis");
        return await world.ledger.save(...args);
      },
    });
    let view = viewOf("one");
    const reply = world.live(turn, () => view, { ledger });
    reply.changed();
    await until(() => textOf(world) === "one");
    broken = true;
    const before = saves;
    view = viewOf("one two");
    reply.changed();
    await until(() => saves >= before + 2);
    const reserved =
      (await world.ledger.load(turn.session, turn.replyId))?.cards[0]?.reservedSequence ?? 0;
    expect(world.cards()[0]?.sequence).toBeLessThanOrEqual(reserved);
    broken = false;
    await until(() => textOf(world) === "one two");
    await reply.release();
  });

  it("writes nothing while the month is nearly used up, and leaves the answer to the delivery", async () => {
    const { governor } = openTestStores();
    const world = await replyWorld({ api: { governor, monthlyCalls: 10 } });
    const turn = await world.turn();
    const month = new Date(Date.now() + 8 * 3_600_000).toISOString().slice(0, 7);
    for (let calls = 0; calls < 8; calls += 1) await governor.countCall(world.appId, month);
    const reply = world.live(turn, () => viewOf("one"));
    reply.changed();
    await reply.release();
    expect(world.shown()).toEqual([]);
    await world.sender().deliver(await turn.commit(answered("one two")));
    await expectFinished(world, turn, "one two");
    expect(world.cards()).toHaveLength(1);
  });

  it.each([
    ["made", /\/cardkit\/v1\/cards$/],
    ["sent", /\/reply$/],
  ])(
    "of an answer that is ready while its card is being %s makes one card and sends it once",
    async (_what, path) => {
      const world = await replyWorld();
      const { simulator, appId } = world;
      const turn = await world.turn();
      const handover = new CardHandover();
      const apis = new Map([[appId, world.api]]);
      const replies = new LiveReplies({ apis, ledger: world.ledger, handover, clock: world.clock });
      simulator.faults.add({ match: { path }, times: 1, action: { kind: "delay", delayMs: 200 } });
      const reply = opened(replies.open(world.startOf(turn, () => viewOf(""))));
      reply.changed();
      await until(() => simulator.faults.size === 0);
      reply.answered();
      const lease = await turn.commit(answered("all of it"));
      await reply.release();
      await world.sender({ handover }).deliver(lease);
      await expectFinished(world, turn, "all of it");
      const called = (pattern: RegExp): number =>
        simulator.apiCalls.filter((call) => pattern.test(call.path)).length;
      expect(called(/\/cardkit\/v1\/cards$/)).toBe(1);
      expect(called(/\/reply$/)).toBe(1);
    },
  );

  it("begins no card for an answer that is there already", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const load = Promise.withResolvers<undefined>();
    const ledger = replacing(world.ledger, { load: async () => await load.promise });
    const reply = world.live(turn, () => viewOf(""), { ledger });
    reply.changed();
    reply.answered();
    load.resolve(undefined);
    const lease = await turn.commit(answered("all of it"));
    await reply.release();
    expect(world.simulator.apiCalls.filter(({ path }) => path.includes("cardkit"))).toEqual([]);
    await world.sender().deliver(lease);
    await expectFinished(world, turn, "all of it");
    expect(world.cards()[0]?.operations.map(({ op }) => op)).toEqual(["create", "send"]);
  });
});
