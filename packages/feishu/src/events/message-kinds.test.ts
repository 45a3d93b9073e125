import { describe, expect, it } from "vitest";
import { readContent } from "./inbound-message.ts";

function read(messageType: string, content: unknown) {
  return readContent({
    messageId: "om_1",
    messageType,
    content: typeof content === "string" ? content : JSON.stringify(content),
    mentions: [],
    botKey: undefined,
  });
}

describe("reading the kinds of messages", () => {
  it.each([
    ["file", { file_key: "file_1", file_name: "a.txt" }, "[file: a.txt]"],
    ["folder", { file_key: "file_1", file_name: "plans" }, "[folder, cannot be opened: plans]"],
    ["audio", { file_key: "file_1", duration: 2_000 }, "[audio: 2 s]"],
    [
      "media",
      { file_key: "f", image_key: "i", file_name: "a.mp4", duration: 3_000 },
      "[video: a.mp4, 3 s]",
    ],
    ["sticker", { file_key: "file_1" }, "[sticker]"],
    ["share_chat", { chat_id: "oc_2" }, "[shared group chat]"],
    ["share_user", { user_id: "ou_b" }, "[shared contact]"],
    [
      "location",
      { name: "West Lake", longitude: "120.1", latitude: "30.2" },
      "[location: West Lake, 30.2, 120.1]",
    ],
    ["hongbao", { text: "[红包]" }, "[红包]"],
    [
      "share_calendar_event",
      { summary: "Standup", start_time: "1608265395000", end_time: "1608267015000" },
      "[calendar event: Standup, 2020-12-18T04:23 to 2020-12-18T04:50 UTC]",
    ],
    [
      "system",
      {
        template: "{from_user} invited {to_chatters}",
        from_user: ["Ann"],
        to_chatters: ["Bo", "Cy"],
      },
      "[system message: Ann invited Bo, Cy]",
    ],
    ["video_chat", { topic: "Weekly" }, "[video meeting: Weekly]"],
    [
      "todo",
      { summary: { title: "Ship", content: [[{ tag: "text", text: "it" }]] } },
      "[task: Ship, it]",
    ],
    ["vote", { topic: "Lunch", options: ["rice", "noodles"] }, "[poll: Lunch, rice, noodles]"],
    ["hologram", {}, "[unsupported hologram]"],
    ["file", "no JSON", "[file]"],
  ])("%s is described in words", (kind, content, text) => {
    expect(read(kind, content).text).toBe(text);
  });

  it("a received card is read element by element", () => {
    const elements = [
      [
        { tag: "text", text: "Deploy" },
        { tag: "button", text: "Go" },
      ],
      [{ tag: "text", text: "now?" }],
    ];
    expect(read("interactive", { title: "Ask", elements }).text).toBe(
      "[card: Ask]\nDeploy Go\nnow?",
    );
  });

  it.each([
    ["2.0", { schema: "2.0", header: { title: { tag: "plain_text", content: "Ask" } } }, "body"],
    ["1.0", { header: { title: { tag: "plain_text", content: "Ask" } } }, "elements"],
    [
      "1.0 in languages",
      { header: { title: { tag: "plain_text", content: "Ask" } } },
      "i18n_elements",
    ],
  ])("a card as it was sent is read from top to bottom, form %s", (_form, card, place) => {
    const elements = [
      { tag: "markdown", content: "**Deploy**" },
      {
        tag: "div",
        text: { tag: "lark_md", content: "to *prod*" },
        fields: [{ text: { tag: "plain_text", content: "f" } }],
      },
      {
        tag: "column_set",
        columns: [
          {
            tag: "column",
            elements: [{ tag: "button", text: { tag: "plain_text", content: "Go" } }],
          },
        ],
      },
      {
        tag: "collapsible_panel",
        header: { title: { tag: "plain_text", content: "More" } },
        elements: [{ tag: "markdown", content: "m" }],
      },
      {
        tag: "table",
        columns: [{ name: "a", display_name: "A" }, { name: "b" }],
        rows: [{ a: "x", b: 1 }],
      },
    ];
    const content =
      place === "body"
        ? { body: { elements } }
        : { [place]: place === "elements" ? elements : { zh_cn: elements } };
    const lines = [
      "[card: Ask]",
      "**Deploy**",
      "to *prod*",
      "f",
      "Go",
      "More",
      "m",
      "| A | b |",
      "| x | 1 |",
    ];
    expect(read("interactive", { ...card, ...content }).text).toBe(lines.join("\n"));
  });

  it("a card of a thousand levels is read to a bound", () => {
    let element: object = { tag: "markdown", content: "deep" };
    for (let depth = 0; depth < 1_000; depth += 1) {
      element = { tag: "column_set", elements: [element] };
    }
    expect(read("interactive", { schema: "2.0", body: { elements: [element] } }).text).toBe(
      "[card]",
    );
  });

  it("a voice message says what the platform has understood, where the event carries it", () => {
    const said = read("audio", {
      file_key: "file_1",
      duration: 2_000,
      speech_to_text: "明天下午三点开会",
    });
    expect(said).toEqual({ text: "明天下午三点开会", attachments: [], forwarded: false });
    expect(read("audio", { file_key: "file_1", duration: 2_000, speech_to_text: " " }).text).toBe(
      "[audio: 2 s]",
    );
  });

  it("half of a surrogate pair in a text is replaced", () => {
    expect(read("text", String.raw`{"text":"a\ud83db"}`).text).toBe("a\ufffdb");
    const post = String.raw`{"title":"","content":[[{"tag":"text","text":"a\ud83d"}]]}`;
    expect(read("post", post).text).toBe("a\ufffd");
  });

  it("files keep their keys, names and the message that holds them", () => {
    expect(read("file", { file_key: "file_1", file_name: "a.txt" }).attachments).toEqual([
      { kind: "file", messageId: "om_1", key: "file_1", name: "a.txt" },
    ]);
    expect(read("audio", { file_key: "file_2", duration: 2_000 }).attachments).toEqual([
      { kind: "audio", messageId: "om_1", key: "file_2", durationMs: 2_000 },
    ]);
    expect(read("image", { image_key: "img_1" }).attachments).toMatchObject([
      { kind: "image", key: "img_1" },
    ]);
    expect(read("sticker", { file_key: "file_3" }).attachments).toEqual([]);
  });

  it("pictures and videos inside a rich text are attachments", () => {
    const content = [
      [
        { tag: "text", text: "see" },
        { tag: "img", image_key: "img_1" },
      ],
      [{ tag: "media", file_key: "file_1", image_key: "img_2" }],
    ];
    const { text, attachments } = read("post", { title: "", content });
    expect(text).toBe("see[image]\n\n[video]");
    expect(attachments.map(({ kind, key }) => [kind, key])).toEqual([
      ["image", "img_1"],
      ["video", "file_1"],
    ]);
  });

  it("a bundle of messages is marked, to be fetched", () => {
    expect(read("merge_forward", { content: "Merged and Forwarded Message" })).toEqual({
      text: "[forwarded messages]",
      attachments: [],
      forwarded: true,
    });
  });

  it("fields of a wrong type are left out", () => {
    expect(read("file", { file_key: 7, file_name: ["a"] })).toMatchObject({
      text: "[file]",
      attachments: [],
    });
    expect(read("todo", { summary: "text" }).text).toBe("[task]");
    expect(read("todo", { due_time: "9".repeat(17) }).text).toBe("[task]");
    expect(read("todo", { due_time: "1770641577000" }).text).toBe("[task: due 2026-02-09T12:52]");
    expect(read("image", { image_key: "x".repeat(300) }).attachments).toEqual([]);
  });
});
