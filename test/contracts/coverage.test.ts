import { describe, expect, it } from "vitest";
import { citationsIn, readCitations, type Citation } from "./citations.ts";
import { checklistSizes, expectations, type Expectation } from "./expected.ts";

const citations = await readCitations();
const filesOf = filesByItem(citations);

function filesByItem(all: readonly Citation[]): Map<string, Set<string>> {
  const files = new Map<string, Set<string>>();
  for (const { file, items } of all) {
    for (const item of items) files.set(item, (files.get(item) ?? new Set()).add(file));
  }
  return files;
}

function itemsWhere(fact: (expectation: Expectation) => boolean): string[] {
  return Object.entries(expectations).flatMap(([item, expectation]) =>
    fact(expectation) ? [item] : [],
  );
}

const cited = itemsWhere((expectation) => expectation === "covered" || "partly" in expectation);
const waiting = itemsWhere((expectation) => expectation !== "covered");

function shortName(file: string): string {
  return file
    .replace(/^(?:packages|apps)\//, "")
    .replace("/src/", "/")
    .replace(/\.ts$/, "");
}

function listOf(item: string, expectation: Expectation): string {
  if (expectation !== "covered" && "later" in expectation) {
    return `${item}  later: ${expectation.later}`;
  }
  const files = [...(filesOf.get(item) ?? [])].map(shortName).sort().join(", ");
  return `${item}  ${files}${expectation === "covered" ? "" : `; later: ${expectation.partly}`}`;
}

describe("the contracts", () => {
  it("the table has every number of the checklists and no other", () => {
    const numbers = Object.entries(checklistSizes).flatMap(([list, size]) =>
      Array.from({ length: size }, (_, index) => `${list}-${index + 1}`),
    );
    expect(Object.keys(expectations)).toEqual(numbers);
  });

  it("every number that does not wait is cited by a test", () => {
    console.log(
      [
        `contract items: ${cited.length} cited, ${waiting.length} wait, wholly or in part`,
        ...Object.entries(expectations).map(([item, expectation]) => listOf(item, expectation)),
      ].join("\n"),
    );
    expect(cited.filter((item) => !filesOf.has(item))).toEqual([]);
  });

  it("no test cites a number that waits, or one that does not exist", () => {
    const wrong = citations.filter(({ items }) => !items.every((item) => cited.includes(item)));
    expect(wrong).toEqual([]);
  });

  it("every number that waits has its reason", () => {
    for (const item of waiting) {
      expect(Object.values(expectations[item] ?? {})).toEqual([expect.stringMatching(/\S/)]);
    }
  });
});

describe("the reading of citations", () => {
  it("finds lists and ranges, in every way to write a title", () => {
    const source = [
      'it("AL-4, EE-9: a", () => {});',
      'it.each([1, 2])("SA-1..3: %d", () => {});',
      "test(",
      "  `AL-56: ${name}`,",
    ];
    expect(citationsIn("a.test.ts", source.join("\n"))).toEqual([
      { file: "a.test.ts", line: 1, items: ["AL-4", "EE-9"] },
      { file: "a.test.ts", line: 2, items: ["SA-1", "SA-2", "SA-3"] },
      { file: "a.test.ts", line: 3, items: ["AL-56"] },
    ]);
  });

  it("leaves out groups, tests that do not run and numbers inside a title", () => {
    const source =
      'describe("AL-1: x"); it.skip("AL-2: x"); it.todo("AL-3: x"); it("see AL-4: x"); say("AL-5 x");';
    expect(citationsIn("a.test.ts", source)).toEqual([]);
  });
});
