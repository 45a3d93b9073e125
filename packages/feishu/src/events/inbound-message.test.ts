import {
  assert,
  constantFrom,
  integer,
  json,
  oneof,
  property,
  shuffledSubarray,
  string,
} from "fast-check";
import { describe, expect, it } from "vitest";
import {
  parseEnvelope,
  type Envelope,
  inboundFromEvent,
  type FeishuMessage,
} from "./inbound-message.ts";

const botOpenId = "ou_bot";

interface TestMention {
  key: string;
  openId: string;
  name: string;
}

function envelopeOf(
  message: object,
  sender: object = { sender_id: { open_id: "ou_a" }, sender_type: "user" },
): Envelope {
  const parsed = parseEnvelope({
    schema: "2.0",
    header: {
      event_id: "e1",
      event_type: "im.message.receive_v1",
      create_time: "1608725989000000",
    },
    event: {
      sender,
      message: {
        message_id: "om_1",
        chat_id: "oc_1",
        chat_type: "group",
        create_time: "1609073151345",
        message_type: "text",
        content: '{"text":"hi"}',
        ...message,
      },
    },
  });
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.value;
}

function inbound(message: object, sender?: object): FeishuMessage {
  const parsed = inboundFromEvent(envelopeOf(message, sender), { botOpenId });
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.value;
}

function said(text: string, mentions: TestMention[] = []): FeishuMessage {
  return inbound({
    content: JSON.stringify({ text }),
    mentions: mentions.map(({ key, openId, name }) => ({ key, id: { open_id: openId }, name })),
  });
}

const bot = { key: "@_user_1", openId: botOpenId, name: "Bot" };

function createdAt(createTime: string): unknown {
  const parsed = parseEnvelope({
    schema: "2.0",
    header: { event_id: "e", event_type: "t", create_time: createTime },
    event: {},
  });
  return parsed.ok ? parsed.value.createdAtMs : parsed.error;
}

describe("parseEnvelope", () => {
  it("reads seconds, milliseconds and microseconds", () => {
    expect(createdAt("1603977298000000")).toBe(1603977298000);
    expect(createdAt("1603977298000")).toBe(1603977298000);
    expect(createdAt("1603977298")).toBe(1603977298000);
    expect(createdAt("soon")).toBe(0);
  });

  it("names what is missing", () => {
    expect(parseEnvelope({ schema: "2.0", header: {} })).toMatchObject({
      ok: false,
      error: expect.stringContaining("event_id"),
    });
    expect(parseEnvelope({})).toMatchObject({ ok: false });
    expect(parseEnvelope(null)).toMatchObject({ ok: false });
  });
});

describe("inboundFromEvent", () => {
  it("takes no time from a number that can be none", () => {
    expect(inbound({ create_time: "9".repeat(310) }).createdAtMs).toBe(1608725989000);
  });

  it("tells the sender's own tenant, where the platform does", () => {
    const sender = { sender_id: { open_id: "ou_a" }, sender_type: "user" };
    expect(inbound({}, { ...sender, tenant_key: "t-other" }).senderTenant).toBe("t-other");
    for (const silent of [sender, { ...sender, tenant_key: null }, { ...sender, tenant_key: "" }]) {
      expect(inbound({}, silent)).not.toHaveProperty("senderTenant");
    }
  });

  it("keeps the ids of a reply in a thread", () => {
    expect(
      inbound({ root_id: "om_r", parent_id: "om_p", thread_id: "omt_1", chat_type: "p2p" }),
    ).toEqual({
      messageId: "om_1",
      rootId: "om_r",
      parentId: "om_p",
      threadId: "omt_1",
      chatId: "oc_1",
      chatType: "p2p",
      senderOpenId: "ou_a",
      senderType: "user",
      messageType: "text",
      text: "hi",
      attachments: [],
      forwarded: false,
      mentions: [],
      mentionsBot: false,
      mentionsAll: false,
      createdAtMs: 1609073151345,
    });
  });

  it("removes the bot's own mention in front and keeps it elsewhere", () => {
    expect(said("@_user_1 你好", [bot])).toMatchObject({ text: "你好", mentionsBot: true });
    expect(said("  @_user_1你好", [bot]).text).toBe("你好");
    expect(said("ask @_user_1 now", [bot]).text).toBe("ask @Bot now");
    expect(said("@_user_1", [bot]).text).toBe("");
  });

  it("AL-51: keeps the mention of another person in front", () => {
    expect(
      said("@_user_1 你好", [{ key: "@_user_1", openId: "ou_m", name: "小明" }]),
    ).toMatchObject({
      text: "@小明 你好",
      mentionsBot: false,
      mentions: [{ openId: "ou_m", name: "小明", isBot: false }],
    });
    expect(
      said("@_user_1 @_user_2 hi", [bot, { key: "@_user_2", openId: "ou_m", name: "小明" }]).text,
    ).toBe("@小明 hi");
  });

  it("AL-53: resolves @_user_1 next to @_user_10", () => {
    const ten = { key: "@_user_10", openId: "ou_t", name: "Ten" };
    expect(
      said("@_user_10 and @_user_1", [{ ...bot, openId: "ou_o", name: "One" }, ten]).text,
    ).toBe("@Ten and @One");
    expect(said("@_user_10 hi", [bot, ten])).toMatchObject({ text: "@Ten hi", mentionsBot: true });
  });

  it("resolves any number of mentions, whatever their order", () => {
    assert(
      property(
        integer({ min: 2, max: 30 }).chain((count) => shuffledSubarray([...Array(count).keys()])),
        (order) => {
          const mentions = order.map((index) => ({
            key: `@_user_${index + 1}`,
            openId: `ou_${index}`,
            name: `n${index};`,
          }));
          const text = `x ${mentions.map(({ key }) => key).join(" ")}`;
          expect(said(text, mentions.toReversed()).text).toBe(
            ["x", ...order.map((index) => `@n${index};`)].join(" "),
          );
        },
      ),
    );
  });

  it("resolves 500 mentions at most; the others stay placeholders", () => {
    const mentions = Array.from({ length: 501 }, (_, at) => ({
      key: `@_user_${at + 1}`,
      openId: `ou_${at}`,
      name: "Ann",
    }));
    const message = said(mentions.map(({ key }) => key).join(" "), mentions);
    expect(message.mentions).toHaveLength(500);
    expect(message.text).toBe(`${"@Ann ".repeat(500)}@_user_501`);
  });

  it("does not take @all for a mention of the bot, with or without a mention entry", () => {
    expect(said("@_all hi", [{ key: "@_all", openId: "", name: "所有人" }])).toMatchObject({
      mentionsBot: false,
      mentionsAll: true,
      mentions: [],
    });
    expect(said("@_all hi")).toMatchObject({ mentionsAll: true, mentionsBot: false });
    expect(said("hi")).toMatchObject({ mentionsAll: false });
  });

  it("counts nothing as a mention of the bot while its id is unknown", () => {
    const parsed = inboundFromEvent(
      envelopeOf({ mentions: [{ key: "@_user_1", id: { open_id: "" }, name: "x" }] }),
      {
        botOpenId: "",
      },
    );
    expect(parsed).toMatchObject({ ok: true, value: { mentionsBot: false } });
  });

  it("reads a post as Markdown, the bot's mention in front removed", () => {
    const content = {
      title: "",
      content: [
        [
          { tag: "at", user_id: "@_user_1", user_name: "Bot" },
          { tag: "text", text: " see " },
          { tag: "a", text: "docs", href: "https://x.example" },
        ],
        [{ tag: "code_block", language: "GO", text: "x := 1\n" }],
        [{ tag: "img", image_key: "img_1" }],
      ],
    };
    const message = inbound({
      message_type: "post",
      content: JSON.stringify(content),
      mentions: [{ key: "@_user_1", id: { open_id: botOpenId }, name: "Bot" }],
    });
    expect(message.text).toBe("see [docs](https://x.example)\n\n```go\nx := 1\n```\n\n[image]");
  });

  it("AL-51: puts a post's title in front as a heading", () => {
    const content = JSON.stringify({ title: "标题", content: [[{ tag: "text", text: "正文" }]] });
    expect(inbound({ message_type: "post", content }).text).toBe("## 标题\n\n正文");
  });

  it("AL-51: gives other kinds a neutral placeholder", () => {
    expect(inbound({ message_type: "image", content: '{"image_key":"img_1"}' }).text).toBe(
      "[image]",
    );
  });

  it("treats every sender that is no person as a machine", () => {
    expect(inbound({}, { sender_id: null, sender_type: "app" })).toMatchObject({
      senderType: "bot",
      senderOpenId: "",
    });
  });

  it("is as old as its event when it has no time of its own", () => {
    expect(inbound({ create_time: undefined }).createdAtMs).toBe(1608725989000);
  });

  it("AL-52: refuses an event without message or sender", () => {
    const empty = { ...envelopeOf({}), event: { sender: {} } };
    expect(inboundFromEvent(empty, { botOpenId })).toMatchObject({ ok: false });
    expect(inboundFromEvent(envelopeOf({}, { sender_type: "user" }), { botOpenId })).toMatchObject({
      ok: false,
    });
    expect(inboundFromEvent({ ...envelopeOf({}), type: "x" }, { botOpenId })).toMatchObject({
      ok: false,
    });
  });

  it("never throws, whatever a message holds", () => {
    assert(
      property(
        constantFrom("text", "post", "image"),
        oneof(string(), json()),
        (messageType, content) => {
          expect(typeof inbound({ message_type: messageType, content }).text).toBe("string");
        },
      ),
    );
  });
});
