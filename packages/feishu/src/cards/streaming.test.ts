import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { imageRefsIn } from "./answer.ts";
import { contextAt, extendCuts, renderCard, type RenderedCard } from "./card.ts";
import { maxCardBytes } from "./card.ts";
import { answers, prefixesOf, viewOf } from "./streams.fixture.ts";

const runs = { numRuns: 40 };
const pieceSizes = fc.array(
  fc.oneof(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 20, max: 4_000 })),
  {
    minLength: 4,
    maxLength: 40,
  },
);

function onePage(answer: string, cuts: readonly number[], number: number): RenderedCard {
  return renderCard(viewOf(answer, { state: "answered" }), { cuts, number }, { streaming: false });
}

function pagesOf(answer: string, cuts: readonly number[]): RenderedCard[] {
  return Array.from({ length: cuts.length + 1 }, (_, number) => onePage(answer, cuts, number));
}

function slicesOf(answer: string, cuts: readonly number[]): string[] {
  return [...cuts, answer.length].map((to, index) => answer.slice(cuts[index - 1] ?? 0, to));
}

function expectWithinLimits(card: RenderedCard): void {
  expect(card.bytes).toBeLessThan(maxCardBytes);
  expect(card.bytes).toBe(Buffer.byteLength(JSON.stringify(card.card)));
  expect(card.elements).toBeLessThan(200);
  expect(card.tables).toBeLessThanOrEqual(3);
  expect(card.answer).not.toBe("");
}

/** Letters and digits only: what rendering must neither add nor lose. */
function lettersOf(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N}\p{Emoji}]|\uFFFD|[#*]/gu, "");
}

function commonLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length += 1;
  return length;
}

/** As a reader of entities sees it. */
function decoded(text: string): string {
  return text.replaceAll("&amp;", "&").replaceAll(/&(?:lt|#0*60(?!\d)|#x0*3c(?![\da-f]));?/gi, "<");
}

/** What a card shows of its slice: without the table head that is repeated from the card before. */
function ownText(answer: string, cuts: readonly number[], number: number): string {
  const shown = onePage(answer, cuts, number).answer;
  const { table } = contextAt(answer, cuts, number);
  const repeated =
    table?.asCode === false &&
    answer
      .slice(cuts[number - 1])
      .trimStart()
      .startsWith("|");
  return repeated ? shown.split("\n").slice(2).join("\n") : shown;
}

/** Streams the answer piece by piece, as the writer of cards does, and looks at every frame. */
function expectGrowingFrames(
  answer: string,
  { sizes, answerBytes }: { sizes: number[]; answerBytes?: number },
): void {
  const images = new Map(
    imageRefsIn(answer).map((ref, index) => [ref, index % 2 === 0 ? `img_${index}` : null]),
  );
  const limits = answerBytes === undefined ? {} : { answerBytes };
  let cuts: number[] = [];
  let shown = "";
  const show = (prefix: string, number: number, streaming: boolean) => {
    const card = renderCard(viewOf(prefix), { cuts, number }, { streaming, images });
    expectWithinLimits(card);
    if (card.answer === "…") return;
    expect(card.answer.startsWith(shown)).toBe(true);
    shown = card.answer;
  };
  for (const prefix of prefixesOf(answer, sizes)) {
    const known = cuts.length;
    cuts = extendCuts(prefix, cuts, limits);
    for (let number = known; number < cuts.length; number += 1) {
      show(prefix, number, false);
      shown = "";
    }
    show(prefix, cuts.length, true);
  }
  show(answer, cuts.length, false);
  expect(cuts).toEqual(extendCuts(answer, [], limits));
}

describe("a growing answer", () => {
  it("is cut at the same places whatever pieces it came in, and a cut stays", () => {
    fc.assert(
      fc.property(answers, pieceSizes, (answer, sizes) => {
        let cuts: number[] = [];
        for (const prefix of prefixesOf(answer, sizes)) {
          const extended = extendCuts(prefix, cuts);
          expect(extended.slice(0, cuts.length)).toEqual(cuts);
          cuts = extended;
        }
        expect(cuts).toEqual(extendCuts(answer, []));
        expect(slicesOf(answer, cuts).join("")).toBe(answer);
        for (const slice of slicesOf(answer, cuts)) {
          expect(cuts.length === 0 || slice.trim() !== "").toBe(true);
        }
      }),
      runs,
    );
  });

  it("shows frames of which each begins with the one before, the last of a card too", () => {
    fc.assert(
      fc.property(answers, pieceSizes, (answer, sizes) => expectGrowingFrames(answer, { sizes })),
      runs,
    );
  });

  it("grows so on small cards too, whose cuts are everywhere, and character by character", () => {
    fc.assert(
      fc.property(answers, fc.integer({ min: 500, max: 2_000 }), (answer, answerBytes) =>
        expectGrowingFrames(answer.slice(0, 1_000), { sizes: [1], answerBytes }),
      ),
      runs,
    );
  });

  it("loses nothing that can be read, and gets nothing but what blocks need that go on from card to card", () => {
    // Formulas and boxes of tasks are shown as other characters.
    const readable = answers.map((text) =>
      text
        .replaceAll("![", "! [")
        .replaceAll(/(`{3,}|~{3,})[^\n]*/g, "$1")
        .replaceAll(/[$\\]|\[[xX]\]/g, ""),
    );
    fc.assert(
      fc.property(readable, (answer) => {
        const cuts = extendCuts(answer, []);
        const shown = [...cuts, 0].map((_cut, number) => ownText(answer, cuts, number));
        fc.pre(answer.trim() !== "");
        const [found, expected] = [lettersOf(shown.join("\n")), lettersOf(answer)];
        const same = commonLength(found, expected);
        expect(found.slice(same, same + 80)).toBe(expected.slice(same, same + 80));
      }),
      runs,
    );
  });

  it("mentions no person, in code neither", () => {
    fc.assert(
      fc.property(answers, (answer) => {
        for (const card of pagesOf(answer, extendCuts(answer, []))) {
          expect(decoded(card.answer)).not.toMatch(/<[\s/]*(?:at|person)(?![\w-])/i);
        }
      }),
      runs,
    );
  });

  it("begins no tag outside of code", () => {
    const withoutCode = answers.map((text) => text.replaceAll(/`{2,}|~{2,}/g, "~"));
    fc.assert(
      fc.property(withoutCode, (answer) => {
        for (const card of pagesOf(answer, extendCuts(answer, []))) {
          const text = card.answer.replaceAll(/^```\n[^]*?^```$/gm, "");
          expect(decoded(text)).not.toMatch(/<(?!\u200B)/);
        }
      }),
      runs,
    );
  });

  it("links to the web and to mail addresses only", () => {
    const withoutCode = answers.map((text) => text.replaceAll(/`{2,}|~{2,}/g, "~"));
    fc.assert(
      fc.property(withoutCode, (answer) => {
        for (const card of pagesOf(answer, extendCuts(answer, []))) {
          const text = card.answer.replaceAll(/^```\n[^]*?^```$/gm, "");
          expect(text).not.toMatch(/\]\((?!https?:\/\/|mailto:)/i);
        }
      }),
      runs,
    );
  });
});
