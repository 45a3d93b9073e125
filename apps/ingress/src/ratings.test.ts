import type { OtherEvent } from "./other-events.ts";
import { afterEach, describe, expect, it, vi } from "vitest";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const { appId: app } = testApp;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

interface Rated {
  here: FeishuWorld;
  told: OtherEvent[];
  /** The message with the answer. */
  messageId: string;
  turn: string;
  ratings(): Promise<object[]>;
}

/** An answer in the group, as a worker has written it. */
async function rated(feedback = true): Promise<Rated> {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const told: OtherEvent[] = [];
  const consumers = [{ event: (event: OtherEvent) => void told.push(event) }];
  const here = await startWorld({ shared: memory, consumers, settings: { feishu: { feedback } } });
  closing.push(here.close);
  const turn = `${app}.${here.group}-1`;
  const question = await here.say("one", { chatId: here.group, mention: true });
  const buttons = (["up", "down"] as const).map((rating) => ({
    tag: "button",
    element_id: `rate_${rating}`,
    text: { tag: "plain_text", content: rating },
    behaviors: [{ type: "callback", value: { larkline: "rate", turn, rating } }],
  }));
  const columns = buttons.map((each) => ({ tag: "column", elements: [each] }));
  const elements = [{ tag: "column_set", element_id: "footer", columns }];
  const cardId = await here.api.cards.create({
    schema: "2.0",
    config: { update_multi: true },
    body: { elements },
  });
  const card = {
    messageId: question,
    cardId,
    chatId: here.group,
    uuid: "card",
    inThread: false,
  } as const;
  const { messageId } = await here.api.cards.sendReply(card);
  await memory.ratings.keepReplies([
    { sent: [messageId], of: { turn, agent: "expert", model: "m/large", tools: ["search"] } },
  ]);
  const ratings = async () => {
    const found = [];
    for await (const rating of memory.ratings.newest()) found.push(rating);
    return found;
  };
  return { here, told, messageId, turn, ratings };
}

describe("a rated answer", () => {
  it("keeps the last word of each person, with their reason, and tells the consumers of events", async () => {
    const { here, told, messageId, turn, ratings } = await rated();
    const click = async (openId: string, elementId: string, inputValue?: string) =>
      await here.platform.click({
        messageId,
        openId,
        elementId,
        ...(inputValue === undefined ? {} : { inputValue }),
      });
    expect(await click(here.ann, "rate_up")).toMatchObject({
      toast: { type: "success", content: "Thank you." },
    });
    const shown = () =>
      JSON.stringify(
        here.said(here.group).find((each) => each.messageId === messageId)?.card?.json,
      );
    const fields = () => shown().match(/"element_id":"rate_reason"/g) ?? [];
    expect(fields()).toEqual([]);
    expect(await click(here.ann, "rate_down")).toMatchObject({
      toast: { content: "Thank you. You can say why below." },
    });
    await vi.waitFor(() => expect(fields()).toHaveLength(1), 60_000);
    expect(await click(here.ann, "rate_down")).toMatchObject({ toast: { type: "success" } });
    expect(await click(here.ann, "rate_reason", "  it is wrong ")).toMatchObject({
      toast: { i18n: { zh_cn: "已记下，谢谢。" } },
    });
    expect(await click(here.bob, "rate_reason", " ")).toMatchObject({
      toast: { content: "Please write an answer first." },
    });
    expect(await click(here.bob, "rate_up")).toMatchObject({ cardChanged: false });
    const run = { turn, app, agent: "expert", model: "m/large", tools: ["search"] };
    expect(await ratings()).toMatchObject([
      { ...run, person: here.bob, rating: "up" },
      { ...run, person: here.ann, rating: "down", reason: "it is wrong" },
    ]);
    await vi.waitFor(
      () => expect(told.filter(({ type }) => type === "reply.rated")).toHaveLength(5),
      60_000,
    );
    expect(fields()).toHaveLength(1);
    expect(told.find(({ event }) => event["reason"] !== undefined)).toMatchObject({
      app,
      bot: "default",
      type: "reply.rated",
      event: {
        turn,
        agent: "expert",
        model: "m/large",
        tools: ["search"],
        person: here.ann,
        reason: "it is wrong",
      },
    });
  });

  it("counts a thumb that a person gives the message, until they take it away", async () => {
    const { here, messageId, ratings } = await rated();
    const bob = { messageId, from: here.bob };
    const react = async (emojiType: string) =>
      await here.platform.react({ ...bob, emojiType }).reports;
    expect(await react("THUMBSUP")).toMatchObject([{ outcome: "acknowledged" }]);
    expect(await ratings()).toMatchObject([{ person: here.bob, rating: "up" }]);
    await react("SMILE");
    expect(await ratings()).toMatchObject([{ rating: "up" }]);
    await react("ThumbsDown");
    await here.platform.unreact({ ...bob, emojiType: "THUMBSUP" }).reports;
    expect(await ratings()).toMatchObject([{ rating: "down" }]);
    await here.platform.unreact({ ...bob, emojiType: "ThumbsDown" }).reports;
    expect(await ratings()).toEqual([]);
  });

  it("is not rated by reactions where people are not asked, nor through a card of another bot", async () => {
    const { here, messageId, ratings, turn } = await rated(false);
    await here.platform.react({ messageId, from: here.bob, emojiType: "THUMBSUP" }).reports;
    const value = {
      larkline: "rate",
      turn: turn.replace(app, "cli_ffffffffffffffff"),
      rating: "up",
    };
    const foreign = await here.platform.click({ messageId, openId: here.bob, value });
    expect(foreign).toMatchObject({ toast: { content: "no pending approval" } });
    expect(await ratings()).toEqual([]);
  });
});
