import { array, assert, constantFrom, integer, oneof, property, string } from "fast-check";
import { describe, expect, it } from "vitest";
import { contentsOf, holdsMarkdown, splitText, withoutMentions } from "./outgoing-text.ts";

/** What the platform would take for a mention, also after decoding entities and ignoring blanks. */
const forged = /<[\s/]*at/i;

function decoded(text: string): string {
  return text.replaceAll(/&(?:lt|#0*60|#x0*3c);?/gi, "<");
}

const fragments = constantFrom(
  "<",
  "&lt;",
  "&LT;",
  "&#60;",
  "&#x3c;",
  "&#0060",
  "/",
  " ",
  "\n",
  "\0",
  "at",
  "AT",
  ' user_id="all"',
  ">",
  "a",
  "t",
);

describe("withoutMentions", () => {
  it("breaks every spelling of a mention", () => {
    assert(
      property(array(fragments, { maxLength: 30 }), (pieces) => {
        const safe = withoutMentions(pieces.join(""));
        expect(safe).not.toMatch(forged);
        expect(decoded(safe).replaceAll("\0", "")).not.toMatch(forged);
      }),
    );
  });

  it("breaks a mention whose name holds invisible characters", () => {
    for (const name of ["a\0t", "a\u0001\u200Dt", "\u2060A\u00ADT"]) {
      expect(withoutMentions(`<${name} user_id="all">`)).toBe(`<\u200B${name} user_id="all">`);
    }
  });

  it("changes nothing a reader sees", () => {
    assert(
      property(
        oneof(
          string(),
          array(fragments).map((pieces) => pieces.join("")),
        ),
        (text) => {
          expect(withoutMentions(text).replaceAll("\u200B", "")).toBe(
            text.replaceAll("\u200B", ""),
          );
        },
      ),
    );
  });

  it("leaves code and comparisons alone", () => {
    for (const text of ["a < b", "<div>", "List<String>", "cat", "&lt;div"]) {
      expect(withoutMentions(text)).toBe(text);
    }
  });
});

describe("contentsOf", () => {
  it("sends plain text as text", () => {
    expect(contentsOf('say "hi"\n你好')).toEqual([
      { messageType: "text", content: '{"text":"say \\"hi\\"\\n你好"}' },
    ]);
  });

  it("sends Markdown as one md paragraph of a post", () => {
    const [post] = contentsOf("# Title\n\n- one");
    expect(post?.messageType).toBe("post");
    expect(JSON.parse(post?.content ?? "")).toEqual({
      zh_cn: { title: "", content: [[{ tag: "md", text: "# Title\n\n- one" }]] },
    });
  });

  it("is judged at once whatever it says: a million brackets", () => {
    expect(holdsMarkdown("[".repeat(1_000_000))).toBe(false);
    expect(holdsMarkdown("see [[the page](https://example.com)")).toBe(true);
  });

  it("follows the given format", () => {
    expect(contentsOf("# Title", "text")[0]?.messageType).toBe("text");
    expect(contentsOf("plain", "post")[0]?.messageType).toBe("post");
  });

  it("sends Markdown above 30 KB as several posts, cut between blocks, never within code", () => {
    const code = `~~~\n\n${"x\n\n".repeat(4_000)}~~~`;
    const blocks = [
      `# ${"长".repeat(5_000)}`,
      code,
      "| a |\n|---|",
      `\`\`\`js\n${"y\n\n```z\n".repeat(1_500)}\`\`\``,
      "- end",
    ];
    const posts = contentsOf(blocks.join("\n\n\n"));
    const texts = posts.map(({ content }) => String(JSON.parse(content).zh_cn.content[0][0].text));
    expect(texts).toEqual([
      blocks[0],
      blocks.slice(1, 3).join("\n\n"),
      blocks.slice(3).join("\n\n"),
    ]);
    for (const { messageType, content } of posts) {
      expect(messageType).toBe("post");
      expect(Buffer.byteLength(content)).toBeLessThan(30_000);
    }
  });

  it("sends Markdown as text where a block is above 30 KB, or there are very many", () => {
    const typesOf = (text: string) => contentsOf(text).map(({ messageType }) => messageType);
    expect(typesOf(`# Title\n${"长".repeat(10_000)}`)).toEqual(["text"]);
    expect(new Set(typesOf("- item\n\n".repeat(40_000)))).toEqual(new Set(["text"]));
  });

  it.each([
    "```js\nx\n```",
    "**bold**",
    "`code`",
    "[a](https://b)",
    "- item",
    "1. item",
    "> quote",
    "| a | b |",
    "a | b\n--- | :-:\n1 | 2",
    "---",
  ])("sees Markdown in %j", (text) => expect(holdsMarkdown(text)).toBe(true));

  it.each(["2 * 3 * 4", "a_b_c", "5 > 3", "#hashtag", "it costs 3.50", "well-known"])(
    "sees none in %j",
    (text) => expect(holdsMarkdown(text)).toBe(false),
  );
});

describe("splitText", () => {
  it("loses nothing and keeps every piece within the limit", () => {
    assert(
      property(
        array(
          oneof(string({ unit: "binary" }), constantFrom("\n\n", "\n", " ", "你好", "😀", '"\\')),
          {
            maxLength: 120,
          },
        ),
        integer({ min: 60, max: 300 }),
        (pieces, maxBytes) => {
          const text = pieces.join("");
          const parts = splitText(text, maxBytes);
          expect(parts.join("")).toBe(text);
          for (const part of parts) {
            expect(Buffer.byteLength(JSON.stringify({ text: part }))).toBeLessThanOrEqual(maxBytes);
          }
        },
      ),
    );
  });

  it("never cuts a character in two", () => {
    for (const part of splitText("😀".repeat(1000), 100)) expect(part.isWellFormed()).toBe(true);
  });

  it("cuts half a megabyte into messages of at most 150 KB", () => {
    const text = "一行文字\n".repeat(40_000);
    const parts = contentsOf(text, "text");
    expect(parts.length).toBeGreaterThan(3);
    for (const part of parts) expect(Buffer.byteLength(part.content)).toBeLessThanOrEqual(150_000);
    expect(parts.map(({ content }) => String(JSON.parse(content).text)).join("")).toBe(text);
  });
});
