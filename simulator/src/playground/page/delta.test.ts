import { expect, test } from "vitest";
import { changesBetween, withChanges } from "./recording.ts";

const message = {
  text: "答",
  card: { json: { body: { elements: [{ tag: "markdown", content: "第一" }, { tag: "hr" }] } }, streaming: true },
  reactions: [{ id: 1 }],
};

test("a text that grows costs only what it grew by", () => {
  const next = structuredClone(message);
  Object.assign(next.card.json.body.elements[0] ?? {}, { content: "第一，第二" });
  expect(changesBetween(message, next)).toEqual([
    { at: ["card", "json", "body", "elements", 0, "content"], append: "，第二" },
  ]);
});

test("what is removed, replaced or comes anew is sent, and nothing else", () => {
  expect(changesBetween({ a: 1, b: [1], c: "x" }, { b: [1, 2], c: "y", d: undefined })).toEqual([
    { at: ["a"] },
    { at: ["b"], set: [1, 2] },
    { at: ["c"], set: "y" },
    { at: ["d"], set: undefined },
  ]);
  expect(changesBetween(message, structuredClone(message))).toEqual([]);
});

/** Values of any form, the same for the same seed. */
function randomValue(random: () => number, depth: number): unknown {
  const kind = Math.floor(random() * (depth > 3 ? 4 : 6));
  const count = Math.floor(random() * 4);
  if (kind === 4) return Array.from({ length: count }, () => randomValue(random, depth + 1));
  if (kind === 5) {
    const names = ["a", "b", "c", "__proto"].slice(0, count);
    return Object.fromEntries(names.map((name) => [name, randomValue(random, depth + 1)]));
  }
  return ["", "ab".repeat(count), random() < 0.5, null][kind];
}

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

test("any value becomes any other by its changes, also after they were written as JSON", () => {
  for (let seed = 1; seed <= 500; seed += 1) {
    const random = randomFrom(seed);
    const [old, next] = [randomValue(random, 0), randomValue(random, 0)];
    const before = structuredClone(old);
    const changes = JSON.parse(JSON.stringify(changesBetween(old, next))) as ReturnType<typeof changesBetween>;
    expect(withChanges(old, changes)).toEqual(next);
    expect(old).toEqual(before);
  }
});
