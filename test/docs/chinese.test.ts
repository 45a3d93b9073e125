import { existsSync, readdirSync } from "node:fs";
import { basename } from "node:path";
import { describe, expect, it } from "vitest";
import { cellsOf, quotedIn, root, textOf } from "./document.ts";

const pairs = [
  { english: "README.md", chinese: "README.zh.md", links: ["README.zh.md", "README.md"] },
  ...readdirSync(`${root}/docs/zh`).map((page) => ({
    english: `docs/${page}`,
    chinese: `docs/zh/${page}`,
    links: [`zh/${page}`, `../${page}`],
  })),
];

describe.each(pairs)(
  "$chinese",
  ({ english, chinese, links: [toChinese = "", toEnglish = ""] }) => {
    it("has the headings, the tables and the code of the English page", () => {
      expect(skeletonOf(textOf(chinese))).toEqual(skeletonOf(textOf(english)));
    });

    it("has headings in Chinese, or names that are headings of the English page", () => {
      const [inChinese, inEnglish] = [headingsOf(textOf(chinese)), headingsOf(textOf(english))];
      expect(inEnglish).toEqual(
        expect.arrayContaining(inChinese.filter((heading) => !/\p{Script=Han}/u.test(heading))),
      );
    });

    it("and the English page link to each other", () => {
      expect(textOf(english)).toContain(`](${toChinese})`);
      expect(textOf(chinese)).toContain(`](${toEnglish})`);
    });

    it("links to the Chinese page where there is one", () => {
      const inEnglish = [...textOf(chinese).matchAll(/\]\((?:\.\.|docs)\/([\w-]+\.md)/g)].map(
        ([, page = ""]) => page,
      );
      const others = inEnglish.filter((page) => page !== basename(chinese));
      expect(others.filter((page) => existsSync(`${root}/docs/zh/${page}`))).toEqual([]);
    });
  },
);

describe("what is compared", () => {
  const page = [
    "# Page",
    "A sentence.",
    "| key | default | meaning |",
    "| --- | --- | --- |",
    "| `a`, `b` | 5 | One. |",
    "```sh",
    "npm start   # starts it",
    "```",
    "```",
    "Larkline is running.",
    "```",
  ];
  const changed = (from: string, to: string): string[] =>
    skeletonOf(page.join("\n").replace(from, to));

  it.each([
    ["a sentence", "A sentence.", "一句话。"],
    ["a comment of code", "starts it", "启动"],
    ["the last column of a table", "One.", "一。"],
    ["the order of names in a row", "`a`, `b`", "`b`、`a`"],
    ["what a program prints", "Larkline is running.", "Larkline 已启动。"],
  ])("lets %s be translated", (_what, from, to) => {
    expect(changed(from, to)).toEqual(skeletonOf(page.join("\n")));
  });

  it.each([
    ["the level of a heading", "# Page", "## Page"],
    ["a further heading", "A sentence.", "## A sentence"],
    ["a key", "`b`", "`c`"],
    ["a default", "| 5 |", "| 6 |"],
    ["a row", "| `a`", "| `c` | 1 | Two. |\n| `a`"],
    ["a column", "| 5 |", "| 5 | 5 |"],
    ["code", "npm start", "npm test"],
    ["the language of code", "```sh", "```ts"],
    ["a line of output", "is running.", "is running.\nCtrl-C stops it."],
  ])("finds a change of %s", (_what, from, to) => {
    expect(changed(from, to)).not.toEqual(skeletonOf(page.join("\n")));
  });
});

const fences = /^```(\w*)\n([^]*?)^```$/gm;

function headingsOf(text: string): string[] {
  return [...text.replaceAll(fences, "").matchAll(/^#+ (.+)$/gm)].map(
    ([, heading = ""]) => heading,
  );
}

/**
 * What a page and its translation have in common, in its order: levels of headings; rows of tables; code without its
 * comments. Of a row these are the quoted names and the numbers, the last column left out, where sentences are.
 */
function skeletonOf(text: string): string[] {
  const blocks = [...text.matchAll(fences)].map(([, language = "", code = ""]) =>
    codeOf(language, code),
  );
  return text
    .replaceAll(fences, "```")
    .split("\n")
    .flatMap((line) => {
      if (line === "```") return [blocks.shift() ?? ""];
      if (line.startsWith("|")) return [rowOf(cellsOf(line))];
      return /^#+(?= )/.exec(line) ?? [];
    });
}

function codeOf(language: string, code: string): string {
  const lines = code.trimEnd().split("\n");
  if (language === "") return `output of ${lines.length} lines`;
  return [language, ...lines.map((line) => line.replace(/(?:^|\s+)(?:#|\/\/) .*$/, ""))].join("\n");
}

function rowOf(cells: string[]): string {
  const numbersIn = (cell: string): string[] =>
    cell.replaceAll(/`[^`]*`/g, "").match(/\d+(?:[.,]\d+)*/g) ?? [];
  const facts = (cell: string): string => [...quotedIn(cell), ...numbersIn(cell)].toSorted().join();
  return [...cells.slice(0, -1).map(facts), ""].join(" | ");
}
