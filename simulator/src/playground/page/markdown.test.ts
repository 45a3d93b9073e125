import { expect, test } from "vitest";
import { parseInline, parseMarkdown } from "./markdown.ts";

const text = (value: string) => ({ kind: "text", text: value });
const item = (depth: number, ordered: boolean, value: string) => ({
  depth,
  ordered,
  inlines: [text(value)],
});

test("headings, paragraphs, lists, code and rules become blocks", () => {
  const source =
    "# Title\nfirst\nline\n\n- a\n  1. b\n\n3. c\n4. d\n\n```ts\nconst x = **1**;\n```\n---\n> quoted";
  expect(parseMarkdown(source)).toEqual([
    { kind: "heading", level: 1, inlines: [text("Title")] },
    { kind: "paragraph", inlines: [text("first\nline")] },
    { kind: "list", start: 1, items: [item(0, false, "a"), item(1, true, "b")] },
    { kind: "list", start: 3, items: [item(0, true, "c"), item(0, true, "d")] },
    { kind: "code", language: "ts", text: "const x = **1**;" },
    { kind: "rule" },
    { kind: "quote", blocks: [{ kind: "paragraph", inlines: [text("quoted")] }] },
  ]);
});

test("a table has a header, rows, and columns that stand where they should", () => {
  expect(parseMarkdown("| a | b |\n|---|:-:|\n| 1 | 2 |")).toEqual([
    {
      kind: "table",
      header: [[text("a")], [text("b")]],
      rows: [[[text("1")], [text("2")]]],
      aligns: [undefined, "center"],
    },
  ]);
  expect(parseMarkdown("a | b\n:-- | --:\n1 | 2")).toMatchObject([
    { kind: "table", aligns: ["left", "right"] },
  ]);
});

test("an unclosed fence runs to the end", () => {
  expect(parseMarkdown("```\nx")).toEqual([{ kind: "code", language: "", text: "x" }]);
});

test("strong, emphasis, strike, code and links nest in running text", () => {
  expect(parseInline("a **b *c*** `d` ~~e~~ [f](https://x.example)")).toEqual([
    text("a "),
    { kind: "strong", children: [text("b "), { kind: "emphasis", children: [text("c")] }] },
    text(" "),
    { kind: "code", text: "d" },
    text(" "),
    { kind: "strike", children: [text("e")] },
    text(" "),
    { kind: "link", href: "https://x.example", children: [text("f")] },
  ]);
});

test.each(["javascript:alert(1)", "data:text/html,x", "//evil.example", "JAVASCRIPT:x"])(
  "a link to %s stays text",
  (href) => {
    expect(parseInline(`[x](${href})`)).toEqual([text(`[x](${href})`)]);
  },
);

test("markup stays text", () => {
  expect(parseMarkdown("<img src=x onerror=alert(1)>")).toEqual([
    { kind: "paragraph", inlines: [text("<img src=x onerror=alert(1)>")] },
  ]);
});

test("deep nesting and long runs end quickly", () => {
  const startedAt = performance.now();
  parseMarkdown(`${">".repeat(2000)} x`);
  parseInline("*a".repeat(5000));
  parseInline("[".repeat(5000));
  parseInline("**".repeat(5000));
  expect(performance.now() - startedAt).toBeLessThan(20_000);
});

test("tags of cards become colour, labels, mentions, images and line breaks", () => {
  expect(
    parseInline("<font color='red'>a</font><text_tag color='blue'>b</text_tag><at id=ou_1></at>"),
  ).toEqual([
    { kind: "font", color: "red", children: [text("a")] },
    { kind: "label", color: "blue", text: "b" },
    { kind: "at", id: "ou_1", name: "" },
  ]);
  const moment =
    "<local_datetime millisecond='1795277364939' format_type='date_num'></local_datetime>";
  expect(parseInline(`until ${moment}`)).toEqual([
    text("until "),
    { kind: "time", atMs: 1_795_277_364_939, shows: "date" },
  ]);
  expect(parseInline("![x](img_v3_1)<br/>")).toEqual([
    { kind: "image", key: "img_v3_1", alt: "x" },
    { kind: "break" },
  ]);
});

test("escapes and entities stand for their characters, and never begin a tag", () => {
  expect(parseInline("\\*a\\* &lt;at id=all&gt;&#42;")).toEqual([
    text("*"),
    text("a"),
    text("*"),
    text(" <at id=all>*"),
  ]);
});
