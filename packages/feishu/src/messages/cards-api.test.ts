import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text as readText } from "node:stream/consumers";
import { systemClock } from "@larkline/protocol/clock";
import { describe, expect, it, onTestFinished } from "vitest";
import type { FeishuApi } from "../feishu-api.ts";
import { failureOf, simulatedApi, type SimulatedApiOptions } from "../simulated-api.fixture.ts";

const settings = { config: { streaming_mode: false, summary: { content: "done" } } };

function cardOf(content: string, streaming = true): Record<string, unknown> {
  return {
    schema: "2.0",
    config: { streaming_mode: streaming, update_multi: true, summary: { content: "..." } },
    body: { elements: [{ tag: "markdown", element_id: "answer", content }] },
  };
}

function tables(count: number): Record<string, unknown> {
  const table = { tag: "table", columns: [{ name: "a", data_type: "text" }], rows: [{ a: "1" }] };
  return { schema: "2.0", body: { elements: Array.from({ length: count }, () => table) } };
}

/** A card entity on the screen of the group, with the text "a" in it. */
async function shownCard(options: SimulatedApiOptions = {}) {
  const world = await simulatedApi(options);
  const { api, chatId, say } = world;
  const messageId = await say("hi");
  const cardId = await api.cards.create(cardOf("a"));
  const sent = await api.cards.sendReply({
    cardId,
    messageId,
    chatId,
    uuid: "u-1",
    inThread: false,
  });
  const shown = () => world.simulator.card(cardId);
  const write = (content: string, sequence: number, on: FeishuApi = api): Promise<void> =>
    on.cards.content({
      cardId,
      elementId: "answer",
      content,
      sequence,
      uuid: `c-${sequence}-${content.length}`,
    });
  return { ...world, cardId, messageId, sent, shown, write };
}

/** A prepared refusal of every card call, as the platform words it. */
async function refusedWith(code: number, text = "refused", httpStatus = 400) {
  const world = await shownCard({ api: { retry: { attempts: 1 } } });
  world.simulator.faults.add({
    match: { path: /cardkit|messages|interactive/ },
    action: { kind: "respond", status: httpStatus, body: { code, msg: text } },
  });
  return world;
}

describe("a card", () => {
  it("is created, sent, typed on, changed and closed", async () => {
    const { api, cardId, sent, shown, write } = await shownCard();
    expect(shown()).toMatchObject({ messageId: sent.messageId, streaming: true });
    await write("ab", 1);
    await write("abc", 2);
    await api.cards.batch({
      cardId,
      actions: [
        {
          action: "add_elements",
          params: {
            type: "append",
            elements: [{ tag: "markdown", element_id: "footer", content: "f" }],
          },
        },
      ],
      sequence: 3,
      uuid: "b-3",
    });
    await api.cards.settings({ cardId, settings, sequence: 4, uuid: "s-4" });
    expect(shown()).toMatchObject({ streaming: false, sequence: 4 });
    expect(JSON.stringify(shown()?.json)).toContain('"content":"abc"');
    expect(JSON.stringify(shown()?.json)).toContain('"footer"');
    await api.cards.update({ cardId, card: cardOf("all new", false), sequence: 5, uuid: "f-5" });
    expect(JSON.stringify(shown()?.json)).toContain("all new");
  });

  it("is sent to a chat once, however often it is asked for with one uuid", async () => {
    const { api, simulator, chatId } = await simulatedApi();
    const cardId = await api.cards.create(cardOf("a"));
    const request = { cardId, receiveIdType: "chat_id", receiveId: chatId, uuid: "u-1" } as const;
    const sent = await api.cards.sendTo(request);
    expect(await api.cards.sendTo(request)).toEqual(sent);
    expect(simulator.messages(chatId)).toHaveLength(1);
    expect(await failureOf(api.cards.sendTo({ ...request, uuid: "u-2" }))).toMatchObject({
      kind: "card_gone",
    });
  });

  it("is sent again when the platform does not know it yet, right after its creation", async () => {
    const { sent, shown } = await shownCard({ simulator: { cardInvalidOnce: true } });
    expect(shown()?.messageId).toBe(sent.messageId);
    expect(shown()?.operations.map(({ op, code }) => [op, code])).toEqual([
      ["create", 0],
      ["send", 230099],
      ["send", 0],
    ]);
  });

  it("that stays unknown is gone", async () => {
    const { api, say } = await simulatedApi();
    const request = {
      cardId: "7371713483664506900",
      messageId: await say("hi"),
      uuid: "u",
      inThread: false,
    };
    expect(await failureOf(api.cards.sendReply(request))).toMatchObject({
      kind: "card_gone",
      code: 230099,
    });
  });

  it("that was written although the answer got lost takes the repeat for the same", async () => {
    const { simulator, shown, write } = await shownCard();
    simulator.faults.add({
      match: { path: /\/content$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    await write("ab", 1);
    expect(shown()?.frames.map(({ text }) => text)).toEqual(["ab"]);
  });

  it.each([
    ["conflict", "applied_before"],
    ["behind", "sequence_behind"],
  ] as const)("answers that repeat with %s: %s, and in doubt", async (duplicateCardUuid, kind) => {
    const { simulator, shown, write } = await shownCard({ simulator: { duplicateCardUuid } });
    simulator.faults.add({
      match: { path: /\/content$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    expect(await failureOf(write("ab", 1))).toMatchObject({ kind, uncertain: true });
    expect(shown()?.frames.map(({ text }) => text)).toEqual(["ab"]);
  });

  it("refuses an operation number that was used, and its writer knows", async () => {
    const { write } = await shownCard();
    await write("ab", 5);
    expect(await failureOf(write("abc", 5))).toMatchObject({
      kind: "sequence_behind",
      uncertain: false,
    });
    await write("abc", 6);
  });

  it("that does not type any more says so, and types again when it is enabled", async () => {
    const { api, cardId, shown, write } = await shownCard();
    await api.cards.settings({ cardId, settings, sequence: 1, uuid: "s-1" });
    expect(await failureOf(write("ab", 2))).toMatchObject({
      kind: "streaming_closed",
      code: 300309,
    });
    const on = { config: { streaming_mode: true } };
    await api.cards.settings({ cardId, settings: on, sequence: 3, uuid: "s-3" });
    await write("ab", 4);
    expect(shown()?.frames).toHaveLength(1);
  });

  it("that has typed for ten minutes says so", async () => {
    let nowMs = Date.now();
    const { api, cardId, write } = await shownCard({
      simulator: { clock: { ...systemClock, now: () => nowMs } },
    });
    nowMs += 10 * 60_000;
    expect(await failureOf(write("ab", 1))).toMatchObject({
      kind: "streaming_closed",
      code: 200850,
    });
    expect(await failureOf(write("ab", 2))).toMatchObject({
      kind: "streaming_closed",
      code: 300309,
    });
    nowMs += 14 * 86_400_000;
    const late = api.cards.settings({ cardId, settings, sequence: 3, uuid: "s-3" });
    expect(await failureOf(late)).toMatchObject({
      kind: expect.stringMatching(/^(?:card_gone|token)$/),
    });
  });

  it("that is unknown is gone", async () => {
    const { api } = await simulatedApi();
    const content = { cardId: "123", elementId: "answer", content: "x", sequence: 1, uuid: "u" };
    expect(await failureOf(api.cards.content(content))).toMatchObject({
      kind: "card_gone",
      code: 200740,
    });
  });

  it("is full at 30 KB, 200 elements or too many tables", async () => {
    const { api, write } = await shownCard();
    expect(await failureOf(write("字".repeat(11_000), 1))).toMatchObject({
      kind: "card_full",
      code: 200860,
    });
    expect(await failureOf(api.cards.create(cardOf("x".repeat(31_000))))).toMatchObject({
      kind: "card_full",
    });
    const many = Array.from({ length: 201 }, () => ({ tag: "markdown", content: "x" }));
    const crowded = { schema: "2.0", body: { elements: many } };
    expect(await failureOf(api.cards.create(crowded))).toMatchObject({
      kind: "card_full",
      code: 300305,
    });
    expect(await failureOf(api.cards.create(tables(9)))).toMatchObject({
      kind: "card_full",
      code: 230099,
    });
  });

  it("with content that the platform refuses is invalid, also on its way into a message", async () => {
    const { api, write, say, cardId } = await shownCard();
    const card = { schema: "2.0", body: { elements: [{ tag: "no_such_tag" }] } };
    expect(await failureOf(api.cards.create(card))).toMatchObject({
      kind: "card_invalid",
      code: 200220,
    });
    const content = JSON.stringify(card);
    const reply = api.messages.reply({
      messageId: await say("x"),
      messageType: "interactive",
      content,
      uuid: "u",
      inThread: false,
    });
    expect(await failureOf(reply)).toMatchObject({ kind: "card_invalid", code: 230099 });
    const wrong = api.cards.content({
      cardId,
      elementId: "nobody",
      content: "x",
      sequence: 9,
      uuid: "w",
    });
    expect(await failureOf(wrong)).toMatchObject({ kind: "card_invalid", code: 300313 });
    await write("still fine", 10);
  });

  it("that waits for the answer to a click is locked, and written when that has come", async () => {
    const { simulator, write, shown } = await shownCard();
    const body = { code: 200810, msg: "ErrCode: 11310; ErrMsg: card action is lock;" };
    simulator.faults.add({
      match: { path: /\/content$/ },
      times: 2,
      action: { kind: "respond", status: 400, body },
    });
    await write("ab", 1);
    expect(shown()?.frames).toHaveLength(1);
  });

  it("is sent ready-made as a message, and replaced there", async () => {
    const { api, simulator, chatId, say } = await simulatedApi();
    const content = JSON.stringify(cardOf("first", false));
    const messageId = await say("hi");
    const sent = await api.messages.reply({
      messageId,
      chatId,
      messageType: "interactive",
      content,
      uuid: "u",
      inThread: false,
    });
    await api.cards.patchMessage({ messageId: sent.messageId, card: cardOf("second", false) });
    const shown = simulator
      .messages(chatId)
      .find((message) => message.messageId === sent.messageId);
    expect(JSON.stringify(shown?.card?.json)).toContain("second");
  });

  it("in a message is too old after 14 days", async () => {
    let nowMs = Date.now();
    const { api, chatId } = await simulatedApi({
      simulator: { clock: { ...systemClock, now: () => nowMs } },
    });
    const content = JSON.stringify(cardOf("first", false));
    const target = { receiveIdType: "chat_id", receiveId: chatId, uuid: "u" } as const;
    const { messageId } = await api.messages.send({
      ...target,
      messageType: "interactive",
      content,
    });
    nowMs += 15 * 86_400_000;
    const patch = api.cards.patchMessage({ messageId, card: cardOf("second", false) });
    expect(await failureOf(patch)).toMatchObject({ kind: "card_too_old", code: 230031 });
  });

  it("never leaves with an id that would address something else", async () => {
    const { api, simulator } = await simulatedApi();
    const before = simulator.apiCalls.length;
    const operation = { sequence: 1, uuid: "u" };
    for (const id of ["../x", "", "a/b", "a?b"]) {
      const calls = [
        api.cards.content({ ...operation, cardId: id, elementId: "e", content: "x" }),
        api.cards.content({ ...operation, cardId: "c", elementId: id, content: "x" }),
        api.cards.batch({ ...operation, cardId: id, actions: [] }),
        api.cards.settings({ ...operation, cardId: id, settings }),
        api.cards.update({ ...operation, cardId: id, card: {} }),
        api.cards.patchMessage({ messageId: id, card: {} }),
      ];
      for (const call of calls) expect((await failureOf(call)).kind).toBe("bad_request");
    }
    expect(simulator.apiCalls.slice(before)).toEqual([]);
  });
});

describe("a refusal of a card call", () => {
  // Section "card error codes" of the platform's documents; 200 is what many of these APIs answer in practice.
  it.each([
    [200810, "", "card_locked"],
    [230099, "ext=ErrCode: 11310; ErrMsg: card action is lock;", "card_locked"],
    [230099, "ext=ErrCode: 11310; ErrMsg: element exceeds the limit;", "card_full"],
    [230099, "ext=ErrCode: 11310; ErrMsg: card table number over limit;", "card_full"],
    [230099, "ext=ErrCode: 200621; ErrMsg: parse card json err;", "card_invalid"],
    [230020, "", "rate_limit"],
    [300120, "", "retry"],
    [300311, "", "card_gone"],
  ])("with code %d %j is %s, whatever the status", async (code, text, kind) => {
    for (const status of [400, 200]) {
      const { write } = await refusedWith(code, text, status);
      expect(await failureOf(write("ab", 1))).toMatchObject({
        api: "cardkit.cardElement.content",
        kind,
        code,
      });
    }
  });

  it("quotes neither the card nor its text", async () => {
    const { write } = await refusedWith(200220, "cannot render secret words");
    expect((await failureOf(write("secret words", 1))).message).not.toContain("secret words");
  });
});

/** A bot that answers every click with nothing; tells the tokens of the clicks. */
async function clickTokens(): Promise<{ url: string; tokens: string[] }> {
  const tokens: string[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    tokens.push(/"token":"(c-[^"]+)"/.exec(await readText(request))?.[1] ?? "");
    response.end("{}");
  };
  // The platform keeps its connections: none is closed between two clicks because this process stood still.
  const server = createServer(
    { keepAliveTimeout: 60_000 },
    (request, response) => void answer(request, response),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
  });
  const { port } = server.address() as AddressInfo; // a TCP server's address has this form
  return { url: `http://127.0.0.1:${port}`, tokens };
}

describe("the delayed update of a clicked card", () => {
  async function clicked(options: SimulatedApiOptions = {}) {
    const world = await simulatedApi(options);
    const { url, tokens } = await clickTokens();
    world.simulator.setWebhookUrl(world.appId, url);
    const button = {
      tag: "button",
      element_id: "yes",
      behaviors: [{ type: "callback", value: { a: 1 } }],
    };
    const content = JSON.stringify({ schema: "2.0", body: { elements: [button] } });
    const target = { receiveIdType: "chat_id", receiveId: world.chatId, uuid: "u" } as const;
    const { messageId } = await world.api.messages.send({
      ...target,
      messageType: "interactive",
      content,
    });
    const at = tokens.length;
    await world.simulator.click({ messageId, openId: world.person.openId, elementId: "yes" });
    const update = (text: string): Promise<void> =>
      world.api.cards.delayedUpdate({ token: tokens[at] ?? "", card: cardOf(text, false) });
    const shown = (): string =>
      JSON.stringify(world.simulator.messages(world.chatId)[0]?.card?.json);
    return { ...world, update, shown };
  }

  it("shows the new card twice, and says that the token is used up after that", async () => {
    const { update, shown } = await clicked();
    await update("first");
    await update("second");
    expect(shown()).toContain("second");
    expect(await failureOf(update("third"))).toMatchObject({ kind: "card_too_old", code: 300040 });
  });

  it("says that the token has run out after half an hour", async () => {
    let nowMs = Date.now();
    const { update } = await clicked({
      simulator: { clock: { ...systemClock, now: () => nowMs } },
    });
    nowMs += 31 * 60_000;
    expect(await failureOf(update("late"))).toMatchObject({ kind: "card_too_old", code: 300030 });
  });

  it("is not repeated when its answer gets lost: a repeat would use the token up", async () => {
    const { simulator, update, shown } = await clicked();
    simulator.faults.add({
      match: { path: /card\/update$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    expect(await failureOf(update("once"))).toMatchObject({ kind: "unavailable", uncertain: true });
    expect(shown()).toContain("once");
    await update("twice");
    expect(await failureOf(update("thrice"))).toMatchObject({ code: 300040 });
  });
});
