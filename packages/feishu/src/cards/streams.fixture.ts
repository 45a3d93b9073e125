import type { ReplyView } from "@larkline/protocol/reply-view";
import * as fc from "fast-check";

/** A view with nothing but its answer. */
export function viewOf(answer: string, more: Partial<ReplyView> = {}): ReplyView {
  return {
    v: 1,
    language: "en",
    state: "running",
    thinking: "",
    tools: [],
    earlierTools: 0,
    answer,
    footer: {},
    ...more,
  };
}

const word = fc.constantFrom(
  "word",
  "排队的消息",
  "こんにちは",
  "👩‍👩‍👧‍👦",
  "🇨🇳🇯🇵",
  "e\u0301",
  "x<y",
  "&lt;at id=all&gt;",
  "&#60;at id=all>",
  "&#0",
  "&",
  "<at id=all></at>",
  "< / at>",
  "<\u200Bat>",
  "<person id='ou_1'>",
  "<font color='red'>",
  "</font>",
  "<text_tag color='blue'>",
  "<button>",
  "<",
  "`code`",
  "`a",
  "``",
  "![pic](chart.png)",
  "![far](https://x.example/a.png)",
  "![",
  "[link](https://x.example)",
  "[bad](javascript:alert(1))",
  "[ref]: https://x.example",
  "](",
  "**bold**",
  "|",
  ":OK:",
  "$x_{12}^2$",
  "$$\\frac{a}{b}$$",
  "\\(\\alpha\\leq1\\)",
  "\\[",
  "$5",
  "$",
  "\\",
  "\\<at>",
  "\u0000",
  "\uD83D",
  "\r",
  '"quoted"',
  "a-very-long-word-without-any-place-to-break-it",
);

const line = fc.array(word, { minLength: 1, maxLength: 12 }).map((words) => words.join(" "));
const lines = (of: fc.Arbitrary<string>, maxLength: number) =>
  fc.array(of, { minLength: 1, maxLength, size: "max" }).map((list) => list.join("\n"));

const table = fc
  .tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 0, max: 60 }), line)
  .map(([width, rows, cell]) => {
    const row = `| ${Array.from({ length: width }, () => cell.replaceAll("|", "/")).join(" | ")} |`;
    return [row, `|${" --- |".repeat(width)}`, ...Array.from({ length: rows }, () => row)].join(
      "\n",
    );
  });

/** More than a reply shows as tables, of columns and rows of all widths. */
const manyTables = fc
  .tuple(
    fc.integer({ min: 14, max: 17 }),
    fc.array(fc.array(fc.oneof(word, line), { minLength: 1, maxLength: 6 }), {
      minLength: 1,
      maxLength: 12,
    }),
    fc.array(fc.constantFrom("---", ":--", "--:", ":-:", "-------------", "-"), {
      minLength: 1,
      maxLength: 6,
    }),
    fc.boolean(),
  )
  .map(([few, rows, delimiters, closed]) => {
    const row = (cells: string[]): string => `|${cells.join("|")}${closed ? "|" : ""}`;
    const [head = [], ...others] = rows;
    const own = [row(head), `|${delimiters.join("|")}|`, ...others.map(row)].join("\n");
    return `${"| t |\n|---|\n\n".repeat(few)}${own}`;
  });

const code = fc
  .tuple(
    fc.constantFrom("```", "````", "~~~", "  ```", "- ```", "1. ```js"),
    fc.constantFrom("", "ts", "c++ x", "`"),
    lines(line, 80),
    fc.boolean(),
  )
  .map(([fence, language, body, closed]) => {
    const marker = /[`~]+/.exec(fence)?.[0] ?? "";
    return `${fence}${language}\n${body}${closed ? `\n${marker}` : ""}`;
  });

const block = fc.oneof(
  { weight: 6, arbitrary: lines(line, 6) },
  {
    weight: 2,
    arbitrary: lines(
      line.map((text) => `- ${text}`),
      8,
    ),
  },
  {
    weight: 1,
    arbitrary: lines(
      line.map((text) => `    1. ${text}`),
      4,
    ),
  },
  {
    weight: 1,
    arbitrary: lines(
      line.map((text) => `> ${text}`),
      4,
    ),
  },
  { weight: 1, arbitrary: line.map((text) => `## ${text}`) },
  {
    weight: 1,
    arbitrary: fc.constantFrom("---", "***", "- - -", "#", "-", "|", "| a |", "===", "    ", "\t"),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(
        fc.constantFrom("$$", "\\["),
        lines(line, 5),
        fc.constantFrom("\n$$", "\n\\]", "$$", ""),
      )
      .map((parts) => parts.join("\n")),
  },
  {
    weight: 1,
    arbitrary: lines(
      fc
        .tuple(fc.constantFrom("- [ ] ", "1. [x] ", "* [X]", "- ["), line)
        .map((parts) => parts.join("")),
      4,
    ),
  },
  { weight: 2, arbitrary: table },
  { weight: 1, arbitrary: manyTables },
  { weight: 2, arbitrary: code },
  { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 200 }) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(word, fc.integer({ min: 1, max: 900 }))
      .map(([text, count]) => text.repeat(count)),
  },
);

/** Answers of models at their worst, up to about 200 KB. */
export const answers = fc
  .tuple(
    fc.array(fc.tuple(block, fc.constantFrom("\n", "\n\n", "\n\n\n", "\r\n", "")), {
      minLength: 1,
      maxLength: 30,
      size: "max",
    }),
    fc.integer({ min: 1, max: 6 }),
  )
  .map(([blocks, times]) =>
    blocks
      .map(([text, end]) => text + end)
      .join("")
      .repeat(times)
      .slice(0, 100_000),
  );

const maxPieces = 1_000;

/** The answer as it grew: every prefix that was there after a piece; long answers come in longer pieces. */
export function prefixesOf(answer: string, sizes: readonly number[]): string[] {
  const prefixes: string[] = [];
  const least = Math.ceil(answer.length / maxPieces);
  let at = 0;
  for (let index = 0; at < answer.length; index += 1) {
    at = Math.min(answer.length, at + Math.max(least, sizes[index % sizes.length] ?? 1));
    prefixes.push(answer.slice(0, at));
  }
  return prefixes;
}
