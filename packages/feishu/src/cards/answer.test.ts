import { describe, expect, it } from "vitest";
import { imageRefsIn } from "./answer.ts";
import { extendCuts, maxCardBytes, renderCard, type RenderedCard } from "./card.ts";
import { viewOf } from "./streams.fixture.ts";

const z = "\u200B";

function shown(answer: string, images?: ReadonlyMap<string, string | null>): string {
  const options = { streaming: false, ...(images === undefined ? {} : { images }) };
  return renderCard(viewOf(answer), { cuts: [], number: 0 }, options).answer;
}

function streamed(answer: string, images?: ReadonlyMap<string, string | null>): string {
  const options = { streaming: true, ...(images === undefined ? {} : { images }) };
  return renderCard(viewOf(answer), { cuts: [], number: 0 }, options).answer;
}

function finalCards(answer: string): RenderedCard[] {
  const cuts = extendCuts(answer, []);
  return [...cuts, 0].map((_, number) =>
    renderCard(viewOf(answer), { cuts, number }, { streaming: false }),
  );
}

function finalPages(answer: string): string[] {
  return finalCards(answer).map((card) => card.answer);
}

describe("an answer on a card", () => {
  it("keeps line breaks that the platform would swallow", () => {
    expect(shown("one\ntwo\n  three")).toBe("one\n\ntwo\n\nthree");
    expect(shown("> one\n> two")).toBe("> one\n>\n> two");
    expect(shown("text\n- a\n  - b\n- c\nend")).toBe("text\n\n- a\n  - b\n- c\n\nend");
    expect(shown("title\n---\ntext")).toBe("title\n\n---\n\ntext");
  });

  it("leaves tables and code in one piece", () => {
    expect(shown("see\n| a | b |\n|---|---|\n| 1 | 2 |\nend")).toBe(
      "see\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend",
    );
    expect(shown("see\n  ```ts\n  let a;\n\n    b();\n  ```\nend")).toBe(
      "see\n\n```ts\nlet a;\n\n  b();\n```\nend",
    );
  });

  it("shows formulas by the characters that they stand for, in a line and in lines of their own", () => {
    expect(shown("Einstein: $E = mc^2$, \\(\\alpha \\leq \\beta_1\\).")).toBe(
      "Einstein: E = mc², α ≤ β₁.",
    );
    expect(shown("so\n$$\nx = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}\n$$\nand on")).toBe(
      "so\n\nx = (-b ± √(b² - 4ac))/(2a)\n\nand on",
    );
    expect(
      shown(
        "\\[\n\\begin{aligned}\na &= b \\\\\n\\int_0^1 x\\,dx &= \\frac{1}{2}\n\\end{aligned}\n\\]\nend",
      ),
    ).toBe("a = b\n\n∫₀¹ x dx = 1/2\n\nend");
    expect(shown("$$\\sum_{i=1}^{n} i$$")).toBe("∑ᵢ₌₁ⁿ i");
    expect(shown("| $x^2$ | b |\n|---|---|\n| $\\vec{v}$ | $\\mathbb{R}$ |")).toBe(
      "| x² | b |\n|---|---|\n| v\u20D7 | ℝ |",
    );
  });

  it("leaves prices, variables, code and what is no formula as they were written", () => {
    for (const text of [
      "It costs $5 and $10.",
      "US$5 or HK$40",
      "$HOME and $PATH",
      "`$x^2$` is TeX",
      "\\$5_000\\$",
      "a $ b",
      "between $5-$6 a day",
    ]) {
      expect(shown(text)).toBe(text);
    }
    expect(shown("```\n$x^2$\n```")).toBe("```\n$x^2$\n```");
    expect(shown("$\\unknown{x} + 1$ and")).toBe(`\\${z}unknownx + 1 and`);
    expect(shown("$\\constructor{x} + 1$")).toBe(`\\${z}constructorx + 1`);
    expect(shown("$$\nx^2\n\nnot a formula_any_more")).toBe("x²\n\nnot a formula_any_more");
  });

  it("waits for the second half of a character, in text and in code", () => {
    expect(streamed("hot \u{1F525}".slice(0, -1))).toBe("hot ");
    expect(streamed("hot \u{1F525}")).toBe("hot \u{1F525}");
    expect(streamed("```\nhot \u{1F525}".slice(0, -1))).not.toMatch(/[\uD800-\uDBFF]/);
  });

  it("waits for the end of a formula, and not for long", () => {
    expect(streamed("so $x^")).toBe("so ");
    expect(streamed("so $x^2$")).toBe("so ");
    expect(streamed("so $x^2$,")).toBe("so x²,");
    expect(streamed(`so $x ${"y".repeat(300)}`)).toBe(`so $x ${"y".repeat(300)}`);
    expect(streamed("$$\nx^2")).toBe("…");
    expect(streamed("$$\nx^2\n")).toBe("x²");
  });

  it("shows which tasks are done", () => {
    expect(shown("- [ ] milk\n- [x] bread\n  1. [X] rye\n- [x](https://x.example)")).toBe(
      "- ☐ milk\n- ☑ bread\n  1. ☑ rye\n- [x](https://x.example)",
    );
    expect(streamed("- [x")).toBe("…");
    expect(streamed("- [x] br")).toBe("- ☑ br");
  });

  it("closes code that was left open once the card is finished", () => {
    expect(streamed("```js\nlet a;\n")).toBe("```js\nlet a;");
    expect(shown("```js\nlet a;\n")).toBe("```js\nlet a;\n```");
  });

  it("breaks tags and entities of tags, and leaves code copyable", () => {
    expect(shown("hi <at id=all></at>")).toBe(`hi <${z}at id=all><${z}/at>`);
    expect(shown("&lt;at id=all&gt; &#60;at &#x3C;at")).toBe(
      `&lt;${z}at id=all&gt; &#60;${z}at &#x3C;${z}at`,
    );
    expect(shown("```\nvector<int> <at id=all> <atomic> <div>\n```")).toBe(
      `\`\`\`\nvector<int> <${z}at id=all> <atomic> <div>\n\`\`\``,
    );
  });

  it("links to the web and to mail only", () => {
    expect(shown("[a](https://x.example) [b](mailto:a@x.example)")).toBe(
      "[a](https://x.example) [b](mailto:a@x.example)",
    );
    expect(shown("[c](javascript:x) [d](lark://x) [e](./f)")).toBe(
      `[c]${z}(javascript:x) [d]${z}(lark://x) [e]${z}(./f)`,
    );
  });

  it("shows images by their key, and those without one as text or as a link", () => {
    const images = new Map([
      ["a.png", "img_v3_1"],
      ["b.png", null],
    ]);
    expect(imageRefsIn("![x](a.png) ![y](b.png 'title') ![x](a.png)")).toEqual(["a.png", "b.png"]);
    expect(shown("![x](a.png) ![y](b.png) ![](https://x.example/c.png)", images)).toBe(
      "![x](img_v3_1) y [c.png](https://x.example/c.png)",
    );
    expect(shown("![x](img_v2_made_up)")).toBe("x");
    expect(shown("![a ![b](c)](d)")).not.toContain("![");
  });

  it("shows the name of a stored image that cannot be shown, never its id", () => {
    const blob = `blob:blob_${"x".repeat(43)}`;
    expect(shown(`![bars](${blob}) ![](${blob}) ![cut](blob:blob_x)`)).toBe("bars 🖼️ cut");
    expect(shown(`![<at id=all></at>](${blob})`)).not.toContain("<at");
  });

  it("waits with the text from an image on that is on its way", () => {
    expect(streamed("see ![x](a.png) there", new Map())).toBe("see ");
    expect(streamed("see ![x](a.png) there", new Map([["a.png", "img_1"]]))).toBe(
      "see ![x](img_1) there",
    );
    expect(streamed("see ![x](a.png) there")).toBe("see x there");
  });

  it("waits with marks that are not complete", () => {
    expect(streamed("see [a](htt")).toBe("see [a");
    expect(streamed("see `co")).toBe("see ");
    expect(streamed("see\n| a | b |\n")).toBe("see");
    expect(streamed("see\n| a | b |\n|--")).toBe("see");
    expect(streamed("see\n``")).toBe("see");
    expect(streamed("a &l")).toBe("a ");
    expect(streamed("a \uD83D")).toBe("a ");
  });

  it("lets nothing but the lines that are read as such open or close code", () => {
    expect(shown("> ```\n> a")).toBe(`> \`\`${z}\`\n>\n> a`);
    expect(shown(`${"`".repeat(300)}\na`)).toBe(`\`\`${z}${"`".repeat(298)}\n\na`);
    expect(shown(`\`\`\`\n${"`".repeat(300)}\na`)).toBe(
      `\`\`\`\n${z}${"`".repeat(300)}\na\n\`\`\``,
    );
    expect(shown("```\na\n```\u0000\n# b")).toBe("```\na\n```\n# b");
    expect(shown("\u00001. ```\na\n```")).toBe("1.\n\n```\na\n```");
    expect(shown("```\n        ```\na")).toBe(`\`\`\`\n${z}        \`\`\`\na\n\`\`\``);
  });

  it("continues with code on the next card, in the same language", () => {
    const answer = `\`\`\`python\n${"print('line of code')\n".repeat(1_800)}\`\`\`\n\nend`;
    const pages = finalPages(answer);
    expect(pages.length).toBeGreaterThan(1);
    for (const page of pages.slice(0, -1)) expect(page).toMatch(/^```python\n[^`]*\n```$/);
    expect(pages.at(-1)).toMatch(/^```python\n[^`]*\n```\n\nend$/);
  });

  it("begins a table on the next card when this one is rather full, and repeats the head of one that outgrows a card", () => {
    const table = `| name | value |\n|---|---|\n${"| some name | some value |\n".repeat(120)}`;
    const text = "A paragraph of text.\n\n".repeat(560);
    const [first, second] = finalPages(`${text}${table}`);
    expect(first).not.toContain("|");
    expect(second?.startsWith("| name | value |\n|---|---|\n| some")).toBe(true);
    const large = finalPages(
      `${"| a | b |\n|---|---|\n"}${"| some name | some value |\n".repeat(2_000)}`,
    );
    expect(large.length).toBeGreaterThan(1);
    for (const page of large) expect(page.startsWith("| a | b |\n|---|---|\n| some")).toBe(true);
  });

  it("takes a new card for a fourth table, and shows those after the fifteenth as code", () => {
    const tables = Array.from({ length: 20 }, (_, index) => `| t${index} |\n|---|\n| x |\n`);
    const pages = finalPages(tables.join("\n"));
    expect(pages).toHaveLength(5);
    expect(pages.map((page) => page.match(/^\| t\d+ \|\n\|-+\|/gm)?.length)).toEqual([
      3, 3, 3, 3, 8,
    ]);
    expect(pages[4]?.match(/^```\n\| t\d+ \|/gm)).toHaveLength(5);
  });

  it("aligns the columns of tables that are shown as code, by their heads, and keeps that while rows come", () => {
    const native = "| t |\n|---|\n| x |\n\n".repeat(15);
    const lastPage = (table: string): string => finalPages(native + table).at(-1) ?? "";
    const stock =
      "| fruit | 数量 | price |\n|:--|:-:|--:|\n| 苹果 | 3 | 1.5\n|pear||12.25|\n| watermelon | 4 | 2 | more |\n";
    expect(lastPage(stock)).toContain(`\`\`\`
| fruit | 数量 | price |
|:------|:----:|------:|
| 苹果  |  3   |   1.5 |
| pear  |      | 12.25 |
| watermelon | 4 |   2 | more |
\`\`\``);
    const own = "| a    | b\\|c |\n|------|---|\n| 👩‍👩‍👧‍👦🇨🇳 | e\u0301 |\n| <at id=all> | \u1100 |\n";
    expect(lastPage(own)).toContain(`\`\`\`
| a    | b\\|c |
|------|------|
| 👩‍👩‍👧‍👦🇨🇳 | e\u0301    |
| <${z}at id=all> | \u1100 |
\`\`\``);
    const wide = `| ${"w".repeat(300)} | b |\n|-|-|\n| 1 | 2 |\n`;
    expect(lastPage(wide)).toContain(`\`\`\`\n${wide}\`\`\``);
    expect(shown(stock)).toBe(stock.trim());
    const long = finalCards(
      `${native}| ${"w".repeat(150)} |\n|---|\n${"|1|\n".repeat(2_000)}`,
    ).slice(5);
    expect(long.length).toBeGreaterThan(10);
    for (const card of long) expect(card.bytes).toBeLessThan(maxCardBytes);
  });

  it("aligns the columns of tables in panels by all their rows", () => {
    const thinking = `| a | b |\n|---|--:|\n| long | 1 |\n| 苹果 | 1,024 |\n| ${"w".repeat(200)} | 3 |\n`;
    const panelOf = (text: string) =>
      JSON.stringify(
        renderCard(viewOf("", { thinking: text }), { cuts: [], number: 0 }, { streaming: false })
          .card,
      );
    const some = thinking.split("\n").slice(0, 4).join("\n");
    const aligned = "| a    |     b |\n|------|------:|\n| long |     1 |\n| 苹果 | 1,024 |";
    expect(panelOf(some)).toContain(JSON.stringify(aligned).slice(1, -1));
    expect(panelOf(thinking)).toContain(
      JSON.stringify("| a | b |\n|---|--:|\n| long | 1 |\n").slice(1, -1),
    );
  });

  it("is cut between paragraphs, else lines, else words, and never within a character", () => {
    const endings = ["Some words here.\n\n", "Some words here.\n", "words ", "👩‍👩‍👧‍👦"].map((text) => {
      const answer = text.repeat(4_000);
      const [cut = 0] = extendCuts(answer, []);
      return { cut: cut % text.length, cuts: extendCuts(answer, []).length > 0 };
    });
    expect(endings).toEqual(endings.map(() => ({ cut: 0, cuts: true })));
  });
});
