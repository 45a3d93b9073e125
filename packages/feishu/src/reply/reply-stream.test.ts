import { systemRandom } from "@larkline/protocol/clock";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { expectFinished } from "./live-typing.fixture.ts";
import { ReplyCards } from "./reply-cards.ts";
import { ReplyRecord, newReply } from "./reply-record.ts";
import { answered, lettersOf, replyWorld, viewOf } from "./reply-world.fixture.ts";

const runs = { numRuns: Number(process.env["RUNS"] ?? 20) };

const word = fc.constantFrom(
  "word",
  "排队的消息",
  "こんにちは",
  "naïve",
  "x<y",
  "&",
  "**bold**",
  "`code`",
  "👩‍👩‍👧‍👦",
  "🇨🇳",
  "\\",
  '"q"',
);
const line = fc
  .array(word, { minLength: 1, maxLength: 20, size: "max" })
  .map((words) => words.join(" "));
const lines = fc
  .array(line, { minLength: 1, maxLength: 60, size: "max" })
  .map((list) => list.join("\n"));
const code = lines.map((text) => `\`\`\`\n${text.replaceAll("`", "'")}\n\`\`\``);
// No letters in the head: it is repeated on every card that the table reaches.
const table = fc
  .tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 80 }), line)
  .map(([width, rows, cell]) => {
    const row = (text: string): string =>
      `| ${Array.from({ length: width }, () => text).join(" | ")} |`;
    return [row("#"), row("---"), ...Array.from({ length: rows }, () => row(cell))].join("\n");
  });
const item = lines.map((text) => text.replaceAll(/^/gm, "- "));
/** Answers of about 1 to 200 KB. */
const answers = fc
  .tuple(
    fc.array(fc.oneof(lines, lines, code, table, item), {
      minLength: 1,
      maxLength: 12,
      size: "max",
    }),
    fc.integer({ min: 1, max: 5 }),
  )
  .map(([blocks, times]) => Array.from({ length: times }, () => blocks.join("\n\n")).join("\n\n"));
const sizes = fc.array(fc.integer({ min: 1, max: 6_000 }), { minLength: 3, maxLength: 20 });

function* prefixesOf(answer: string, lengths: readonly number[]): Iterable<string> {
  let at = 0;
  for (let index = 0; at < answer.length; index += 1) {
    at += (lengths[index % lengths.length] ?? 0) + Math.floor(answer.length / 25);
    yield answer.slice(0, at);
  }
}

describe("a stream of any form", () => {
  it("ends up on its cards whole, typed without a break and without one refusal", async () => {
    const world = await replyWorld();
    await fc.assert(
      fc.asyncProperty(answers, sizes, async (answer, lengths) => {
        const turn = await world.turn();
        const { session, replyId, target, uuid } = turn;
        const { api, ledger, clock } = world;
        const reply = await newReply(api, { session, replyId, target }, clock.now());
        const record = new ReplyRecord({ ledger, fence: { epoch: turn.epoch() }, reply, clock });
        const { signal } = new AbortController();
        const cards = new ReplyCards({
          api,
          record,
          target,
          uuid,
          clock,
          random: systemRandom,
          signal,
        });
        for (const prefix of prefixesOf(answer, lengths)) await cards.show(viewOf(prefix));
        await world.sender().deliver(await turn.commit(answered(answer)));
        const shown = world.shown().filter(({ message }) => message.parentId === turn.messageId);
        for (const { card } of shown) {
          expect(card?.operations.filter(({ code: refused }) => refused !== 0)).toEqual([]);
          expect(card?.frames.slice(1).filter(({ mode }) => mode !== "typewriter")).toEqual([]);
        }
        expect(shown.length).toBe(record.cards.length);
        const fromCards = lettersOf(shown.map((one) => one.answer).join("\n"));
        expect(fromCards).toBe(lettersOf(answer));
        await expectFinished(
          { ...world, shown: () => shown, cards: () => shown.flatMap(({ card }) => card ?? []) },
          turn,
          answer,
        );
      }),
      runs,
    );
  });
});
