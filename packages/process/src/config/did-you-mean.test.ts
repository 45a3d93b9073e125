import { describe, expect, it } from "vitest";
import { didYouMean, nearestName } from "./did-you-mean.ts";

describe("the nearest name", () => {
  it.each([
    ["claude-sonet-4-6", ["claude-sonnet-4-5", "claude-sonnet-4-6"], "claude-sonnet-4-6"],
    ["gtp-5", ["gpt-4o", "gpt-5"], "gpt-5"],
    ["Web_Search", ["web_fetch", "web_search"], "web_search"],
    ["ab", ["b", "xyz"], "b"],
  ])("of %s among %j is %s", (wanted, names, nearest) => {
    expect(nearestName(wanted, names)).toBe(nearest);
  });

  it("is none where all are far, or too long to be compared", () => {
    expect(nearestName("calculator", ["web_search", "constructor"])).toBeUndefined();
    expect(nearestName("x".repeat(300), ["x".repeat(299)])).toBeUndefined();
    expect(didYouMean("calculator", [])).toBe("");
  });

  it("stands at the end of an error", () => {
    expect(`there is no tool 'calculater'${didYouMean("calculater", ["calculator"])}`).toBe(
      "there is no tool 'calculater', did you mean 'calculator'?",
    );
  });
});
