import { describe, expect, it } from "vitest";
import { loadObservers } from "./observers.ts";

function moduleOf(source: string): string {
  return `data:text/javascript,${encodeURIComponent(source)}`;
}

describe("loadObservers", () => {
  it("takes one observer, or several, from a default export", async () => {
    const one = moduleOf("export default { event() {}, error() {}, metric() {} };");
    const two = moduleOf("const o = { event() {}, error() {} }; export default [o, { ...o }];");
    const loaded = await loadObservers([one, two]);
    expect(
      loaded.ok ? loaded.value.map((observer) => Object.keys(observer)) : loaded.error,
    ).toEqual([
      ["event", "error", "metric"],
      ["event", "error"],
      ["event", "error"],
    ]);
  });

  it.each([
    [
      "export const observer = {};",
      "its default export is neither an observer nor an array of them",
    ],
    ["export default { event() {} };", "an observer has no method error"],
    [
      "export default [{ event() {}, error() {}, metric: 1 }];",
      "metric of an observer is not a method",
    ],
    [
      "export default { event() {}, error() {}, spanStart() {} };",
      "has one of spanStart and spanEnd without the other",
    ],
    ["throw new Error('no such host');", "no such host"],
  ])("EE-12: says what is wrong with %j", async (source, problem) => {
    const good = moduleOf("export default { event() {}, error() {} };");
    const loaded = await loadObservers([good, moduleOf(source)]);
    const error = loaded.ok ? "" : loaded.error;
    expect(error).toMatch(/^plugin_load_error: observers: cannot use /);
    expect(error).toContain(problem);
  });
});
