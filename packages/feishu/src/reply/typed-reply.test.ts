import { openTestStores } from "@larkline/store/testing";
import { describe, expect, it } from "vitest";
import { expectFinished, textOf, threeCards, typing } from "./live-typing.fixture.ts";
import { answered, deliverUntilSent, lettersOf, longAnswer, until } from "./reply-world.fixture.ts";

const minuteMs = 60_000;
const stop = { session: "s1", turnId: "s1-1" };
const cardCalls = /\/cardkit\/v1\/cards\/\d+/;

describe("a reply that is typed", () => {
  it("appears at once with its stop button, types on, and is closed with footer and summary", async () => {
    const { world, turn, show, reads, finish, cards, shown } = await typing();
    show("", { stop });
    await reads("…");
    const [card] = cards();
    expect(JSON.stringify(card?.json)).toContain('"element_id":"stop"');
    expect(card?.streaming).toBe(true);
    for (const answer of ["Hel", "Hello", "Hello world"]) {
      show(answer, { stop });
      await reads(answer);
    }
    await finish("Hello world!");
    await expectFinished(world, turn, "Hello world!");
    expect(shown()).toHaveLength(1);
    const frames = cards()[0]?.frames ?? [];
    expect(frames.map(({ mode }) => mode)).toEqual(["replace", "typewriter", "typewriter"]);
    const json = JSON.stringify(cards()[0]?.json);
    expect(json).not.toContain('"element_id":"stop"');
    expect(json).toContain('"element_id":"footer"');
    expect(json).toContain('"summary":{"content":"Hello world!"}');
    expect(shown()[0]?.message.parentId).toBe(turn.messageId);
  });

  it("AL-48: each frame carries the whole text so far, the sequence rises, and a failed reply is closed as well", async () => {
    const { show, reads, finish, cards } = await typing();
    for (const answer of ["One", "One, two", "One, two, three"]) {
      show(answer);
      await reads(answer);
    }
    await finish("One, two, three\n\nSorry, the model service failed.", { state: "failed" });
    const [card] = cards();
    const frames = (card?.frames ?? []).map(({ text }) => text);
    expect(frames.at(-1)).toBe("One, two, three");
    for (const [index, text] of frames.slice(1).entries()) expect(text).toContain(frames[index]);
    const sequences = (card?.operations ?? []).flatMap(({ sequence }) =>
      sequence === undefined ? [] : [sequence],
    );
    expect(sequences.length).toBeGreaterThan(2);
    expect(sequences).toEqual([...new Set(sequences)].toSorted((left, right) => left - right));
    expect(card?.streaming).toBe(false);
    expect(JSON.stringify(card?.json)).toContain("Sorry, the model service failed.");
  });

  it("shows thinking and tools as they come, without drawing the card anew", async () => {
    const { world, turn, show, finish, cards } = await typing();
    show("", { thinking: "hm" });
    await until(() => JSON.stringify(cards()[0]?.json ?? {}).includes("hm"));
    const tool = { id: "c1", name: "search", state: "running", startedAtMs: 1 } as const;
    show("", { thinking: "hm, well", tools: [tool] });
    await until(() => JSON.stringify(cards()[0]?.json ?? {}).includes("search"));
    show("Found", {
      thinking: "hm, well",
      tools: [{ ...tool, state: "done", elapsedMs: 5, output: "42" }],
    });
    await until(() => textOf(world) === "Found");
    expect(cards()[0]?.operations.map(({ op }) => op)).not.toContain("update");
    await finish("Found it");
    await expectFinished(world, turn, "Found it");
  });

  it("continues over several cards when the answer is long, and shows all of it", async () => {
    const { world, turn, show, finish, cards, shown } = await typing();
    const table = "| a | b |\n| - | - |\n| 1 | 2 |";
    const code = `\`\`\`ts\n${"const line = 1;\n".repeat(400)}\`\`\``;
    const answer = `${longAnswer(24_000)}\n\n${table}\n\n${code}\n\n${longAnswer(32_000, "排队的消息")}`;
    for (let length = 0; length < answer.length; length += 2_500) {
      show(answer.slice(0, length));
      const shownLetters = lettersOf(
        answer.slice(Math.max(0, length - 500), Math.max(0, length - 300)),
      );
      await until(() => lettersOf(textOf(world)).includes(shownLetters));
    }
    await finish(answer);
    expect(shown().length).toBeGreaterThan(2);
    const joined = lettersOf(textOf(world));
    expect(joined.replaceAll("ts", "")).toBe(lettersOf(answer).replaceAll("ts", ""));
    for (const card of cards()) {
      expect(card.streaming).toBe(false);
      expect(card.operations.filter(({ code: refused }) => refused !== 0)).toEqual([]);
      const [, ...rest] = card.frames;
      expect(rest.map(({ mode }) => mode)).toEqual(rest.map(() => "typewriter"));
    }
    expect(await world.unsent(turn)).toBe(0);
  });

  it("starts anew with the model, also behind a card that was full", async () => {
    const { world, turn, show, finish, shown } = await typing();
    const first = threeCards;
    show(first);
    await until(() => shown().length === 3);
    show("Again");
    await until(() => shown()[0]?.answer === "Again");
    const second = longAnswer(20_000, "另一个完全不同的回答");
    show(second);
    await until(
      () =>
        lettersOf(shown()[1]?.answer ?? "").startsWith("Paragraph") &&
        shown()[0]?.answer.includes("另一个") === true,
    );
    await until(() => shown()[1]?.answer.includes("另一个") === true);
    await finish(second);
    const [one, two, three] = shown();
    expect(lettersOf(`${one?.answer ?? ""}${two?.answer ?? ""}`)).toBe(lettersOf(second));
    expect(three?.answer).toContain("written anew");
    expect(world.cards().map(({ streaming }) => streaming)).toEqual([false, false, false]);
    expect(await world.unsent(turn)).toBe(0);
  });

  it("draws a card that was full anew when it ends shorter than it was", async () => {
    const { world, turn, show, finish, shown } = await typing();
    show(threeCards);
    await until(() => shown().length === 3);
    await finish("Short");
    expect(shown().map(({ answer }) => answer.includes("Paragraph"))).toEqual([
      false,
      false,
      false,
    ]);
    expect(shown()[0]?.answer).toBe("Short");
    expect(world.cards().every(({ streaming }) => !streaming)).toBe(true);
    expect(await world.unsent(turn)).toBe(0);
  });

  it("is enabled again before ten minutes are over, and after they are", async () => {
    const { show, reads, forward, cards } = await typing();
    show("one");
    await reads("one");
    forward(9 * minuteMs);
    show("one two");
    await reads("one two");
    expect(cards()[0]?.operations.filter(({ code }) => code !== 0)).toEqual([]);
    expect(cards()[0]?.operations.map(({ op }) => op)).toContain("settings");
    forward(30 * minuteMs);
    show("one two three");
    await reads("one two three");
    expect(cards()[0]).toMatchObject({ streaming: true });
    expect(cards()[0]?.operations.filter(({ code }) => code !== 0)).toEqual([]);
  });

  it.each([200850, 300309, 200510])(
    "is enabled again when the platform says that streaming is over: %d",
    async (code) => {
      const { show, reads, cards, simulator } = await typing();
      show("one");
      await reads("one");
      const body = { code, msg: "card streaming timeout" };
      simulator.faults.add({
        match: { path: /\/content$/ },
        times: 1,
        action: { kind: "respond", status: 400, body },
      });
      show("one two");
      await reads("one two");
      expect(cards()[0]?.operations.map(({ op }) => op)).toContain("settings");
    },
  );

  it("continues above the number of a foreign operation, however high", async () => {
    const { world, turn, show, reads, cards, api, finish } = await typing();
    show("one");
    await reads("one");
    const cardId = cards()[0]?.cardId ?? "";
    const settings = { config: { streaming_mode: true } };
    await api.cards.settings({ cardId, settings, sequence: 9_000_000, uuid: "foreign" });
    show("one two");
    await reads("one two");
    await finish("one two three");
    await expectFinished(world, turn, "one two three");
  });

  it("takes no foreign operation with the same number for its own", async () => {
    const { world, turn, show, reads, cards, api, finish } = await typing();
    show("one");
    await reads("one");
    const { cardId = "", sequence = 0 } = cards()[0] ?? {};
    const settings = { config: { streaming_mode: true } };
    for (const next of [1, 2, 3]) {
      const number = sequence + next;
      await api.cards.settings({ cardId, settings, sequence: number, uuid: `${cardId}-${number}` });
    }
    show("one two");
    await reads("one two");
    await finish("one two three");
    await expectFinished(world, turn, "one two three");
  });

  it("waits while a click on the card is being answered", async () => {
    const { show, reads, simulator } = await typing();
    show("one");
    await reads("one");
    const body = { code: 200810, msg: "ErrCode: 11310; ErrMsg: card action is lock;" };
    simulator.faults.add({
      match: { path: cardCalls },
      times: 3,
      action: { kind: "respond", status: 400, body },
    });
    show("one two");
    await reads("one two");
  });

  it.each([200740, 200750])(
    "continues with a new card when the old one is gone: %d",
    async (code) => {
      const { world, turn, show, reads, simulator, shown, finish } = await typing();
      show("one");
      await reads("one");
      const [old] = shown();
      await simulator.recall(old?.message.messageId ?? "", { by: "group_owner" });
      const body = { code, msg: "card entity" };
      simulator.faults.add({
        match: { path: cardCalls },
        times: 1,
        action: { kind: "respond", status: 400, body },
      });
      show("one two");
      await reads("one two");
      await finish("one two three");
      await expectFinished(world, turn, "one two three");
    },
  );

  it.each([300313, 300314, 300315, 300121, 300301])(
    "draws the card anew when a part of it is not as it was: %d",
    async (code) => {
      const { show, reads, simulator, cards } = await typing();
      show("one");
      await reads("one");
      const body = { code, msg: "element" };
      const path = /\/(?:content|batch_update)$/;
      simulator.faults.add({
        match: { path },
        times: 1,
        action: { kind: "respond", status: 400, body },
      });
      show("one **two**", { thinking: "hm" });
      await reads("one **two**");
      expect(JSON.stringify(cards()[0]?.json)).toContain('"element_id":"thinking"');
    },
  );

  it("leaves frames out while the platform limits it, and the last one arrives", async () => {
    const { world, turn, show, reads, simulator, finish, cards } = await typing();
    show("one");
    await reads("one");
    const refuse = (status: number, code: number) =>
      simulator.faults.add({
        match: { path: cardCalls },
        times: 3,
        action: { kind: "respond", status, body: { code, msg: "limit" } },
      });
    refuse(429, 99991400);
    show("one two");
    await reads("one two");
    refuse(400, 230020);
    show("one two three");
    await finish("one two three four");
    await deliverUntilSent(world, turn);
    await expectFinished(world, turn, "one two three four");
    expect(cards()).toHaveLength(1);
  });

  it("keeps the limits of the platform by itself", async () => {
    const { world, turn, show, finish, simulator } = await typing({
      simulator: { limits: "enforced" },
      api: { governor: openTestStores().governor },
    });
    let answer = "";
    for (let words = 0; words < 60; words += 1) {
      answer += `word${words} `;
      show(answer);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await finish(answer);
    await expectFinished(world, turn, answer);
    expect(simulator.refusals).toEqual([]);
  });

  it.each([
    ["the content", /\/content$/],
    ["a batch", /\/batch_update$/],
    ["the closing", /\/cards\/\d+$/],
    ["the send", /\/reply$/],
    ["the creation", /\/cardkit\/v1\/cards$/],
  ])("shows one answer although the platform's word on %s got lost", async (_what, path) => {
    for (const duplicateCardUuid of ["success", "conflict", "behind"] as const) {
      const { world, turn, show, simulator, cards } = await typing({
        simulator: { duplicateCardUuid },
      });
      simulator.faults.add({ match: { path }, times: 2, action: { kind: "lose_response" } });
      show("one");
      await until(() => textOf(world) === "one");
      show("one two", { thinking: "hm" });
      await until(
        () => textOf(world) === "one two" && JSON.stringify(cards()[0]?.json ?? {}).includes("hm"),
      );
      const lease = await turn.commit(answered("one two three", { thinking: "hm" }));
      await world.sender().deliver(lease);
      await deliverUntilSent(world, turn);
      await expectFinished(world, turn, "one two three");
      expect(cards()).toHaveLength(1);
    }
  });

  it("types on when its token expires", async () => {
    const { world, turn, show, reads, simulator, finish } = await typing();
    show("one");
    await reads("one");
    simulator.expireTokens();
    show("one two");
    await reads("one two");
    simulator.expireTokens();
    await finish("one two three");
    await expectFinished(world, turn, "one two three");
  });

  it("types on after the platform was broken for a while", async () => {
    const { show, reads, simulator } = await typing();
    show("one");
    await reads("one");
    simulator.faults.add({ times: 4, action: { kind: "respond", status: 502 } });
    show("one two");
    await reads("one two");
  });
});
