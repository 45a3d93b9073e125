import { describe, expect, it } from "vitest";
import { userTextOf, type Mention } from "./index.ts";

function textMessage(text: string, mentions?: Mention[]): string {
  return userTextOf({ messageType: "text", content: JSON.stringify({ text }), mentions });
}

function post(body: unknown, mentions?: Mention[]): string {
  return userTextOf({ messageType: "post", content: JSON.stringify(body), mentions });
}

describe("the text of a user message", () => {
  it("AL-51: a leading unresolved mention is removed", () => {
    expect(textMessage("@_user_1 你好")).toBe("你好");
    expect(textMessage("@_user_1 @_user_2 hi")).toBe("@_user_2 hi");
    expect(textMessage("@_user_1")).toBe("");
  });

  it("AL-51: mentions become names", () => {
    expect(textMessage("@_user_1 你好", [{ key: "@_user_1", name: "小明" }])).toBe("@小明 你好");
    expect(textMessage("问 @_user_2", [{ key: "@_user_2" }])).toBe("问 @");
  });

  it("AL-51: a rich text is its title and its texts", () => {
    expect(post({ title: "标题", content: [[{ tag: "text", text: "正文" }]] })).toBe("## 标题\n\n正文");
    expect(post({ content: [[{ tag: "text", text: "a" }], [{ tag: "a", text: "b", href: "https://x" }]] })).toBe(
      "a\n\nb",
    );
    expect(post({ elements: [[{ tag: "text", text: "a" }]] })).toBe("a");
  });

  it("AL-51: a text message without text or without JSON is its raw content", () => {
    expect(textMessage("")).toBe('{"text":""}');
    expect(userTextOf({ messageType: "text", content: "plain" })).toBe("plain");
    expect(userTextOf({ messageType: "text", content: "" })).toBe("");
    expect(userTextOf({ messageType: "text", content: { text: " object " } })).toBe("object");
  });

  it("AL-51: other kinds are a neutral placeholder", () => {
    expect(userTextOf({ messageType: "image", content: '{"image_key":"img_1"}' })).toBe("[image]");
    expect(userTextOf({ messageType: "share_chat", content: "{}" })).toBe("[share_chat]");
    expect(userTextOf({ messageType: "", content: "{}" })).toBe("[unknown]");
    expect(post({ content: [[{ tag: "img", image_key: "k" }]] })).toBe("[post]");
  });

  it("AL-53: @_user_1 and @_user_10 in one text are both replaced correctly", () => {
    const mentions = [
      { key: "@_user_1", name: "甲" },
      { key: "@_user_10", name: "乙" },
    ];
    expect(textMessage("x @_user_10 @_user_1", mentions)).toBe("x @乙 @甲");
    expect(textMessage("x @_user_10 @_user_1", mentions.toReversed())).toBe("x @乙 @甲");
  });

  it("AL-53: a key never matches inside a longer one that is not listed", () => {
    expect(textMessage("x @_user_10", [{ key: "@_user_1", name: "甲" }])).toBe("x @_user_10");
  });

  it("a name that looks like a key or a replacement pattern is taken as it is", () => {
    const mentions = [
      { key: "@_user_1", name: "_user_2 $& $1" },
      { key: "@_user_2", name: "乙" },
    ];
    expect(textMessage("x @_user_1 @_user_2", mentions)).toBe("x @_user_2 $& $1 @乙");
  });

  it("mentions within a rich text become names", () => {
    const content = [
      [
        { tag: "at", user_id: "@_user_1", user_name: "Bot" },
        { tag: "text", text: "hi" },
      ],
    ];
    expect(post({ content }, [{ key: "@_user_1", name: "小明" }])).toBe("@小明\n\nhi");
    expect(
      post({
        content: [
          [
            { tag: "text", text: "ask" },
            { tag: "at", user_id: "ou_1", user_name: "Tom" },
          ],
        ],
      }),
    ).toBe("ask\n\n@Tom");
  });

  it("odd shapes never throw", () => {
    for (const content of [null, 1, [], "[]", "null", { content: 1 }, { content: [null, [1, null, "x"]] }]) {
      expect(typeof userTextOf({ messageType: "post", content })).toBe("string");
      expect(typeof userTextOf({ messageType: "text", content })).toBe("string");
    }
  });
});
