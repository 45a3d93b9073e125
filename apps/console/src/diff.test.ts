import { expect, it } from "vitest";
import { type DiffLine, diffBlock, diffOf } from "./diff.ts";

const signs = { same: " ", removed: "-", added: "+", gap: "~" };
function shown(lines: readonly DiffLine[]): string {
  return lines.map(({ kind, text }) => `${signs[kind]}${text}`).join("|");
}
const letters = (text: string): string[] => [...text];

it("shows what is removed and added, and equal lines where they are near", () => {
  expect(shown(diffOf(letters("abc"), letters("abc")))).toBe("");
  expect(shown(diffOf(letters("abcdefgh"), letters("abcdXfgh")))).toBe("~…| c| d|-e|+X| f| g|~…");
  expect(shown(diffOf([], letters("ab")))).toBe("+a|+b");
  expect(shown(diffOf(letters("ab"), []))).toBe("-a|-b");
  expect(shown(diffOf(letters("aXbYc"), letters("abZc")))).toBe(" a|-X| b|-Y|+Z| c");
});

it("either side comes out of what it shows, whatever changed", () => {
  const seeded = (seed: number): string[] =>
    Array.from({ length: seed % 7 }, (_none, at) => "abc".charAt((seed * (at + 3)) % 3));
  for (let seed = 0; seed < 500; seed += 1) {
    const [before, after] = [seeded(seed), seeded(seed * 7 + 1)];
    const lines = diffOf(before, after);
    if (lines.some(({ kind }) => kind === "gap")) continue;
    const side = (without: string): string[] =>
      lines.filter(({ kind }) => kind !== without).map(({ text }) => text);
    if (lines.length === 0) expect(before).toEqual(after);
    else expect([side("added"), side("removed")]).toEqual([before, after]);
  }
});

it("long texts that differ in everything are compared as a whole, at once", () => {
  const before = Array.from({ length: 20_000 }, (_none, at) => `a${at}`);
  const after = before.map((line) => `b${line}`);
  const usedBefore = process.cpuUsage(); // a busy machine lets the process wait, which is no work of it
  expect(diffOf(before, after)).toHaveLength(40_000);
  expect(process.cpuUsage(usedBefore).user / 1_000).toBeLessThan(5_000);
});

it("escapes what it shows", () => {
  expect(diffBlock(diffOf(["<b>"], ["<script>"])).markup).toContain(
    "<ins>+ &lt;script&gt;\n</ins>",
  );
});
