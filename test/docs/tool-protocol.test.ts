import { describe, expect, it } from "vitest";
import { rowsUnder, textOf } from "./document.ts";
import { protocolFiles } from "./tool-protocol.ts";

describe("docs/tool-protocol.md", () => {
  it.each(Object.entries(protocolFiles()))(
    "%s is what the code says (npm run protocol)",
    (path, expected) => {
      expect(textOf(path)).toBe(expected);
    },
  );

  it("names every key that a script takes", () => {
    const named = rowsUnder(textOf("docs/tool-protocol.md"), "name in `scripts.json`").map(
      ([name = ""]) => name.slice(1, -1),
    );
    const scripts: Record<string, { keys: string[]; arguments: string[] }> = JSON.parse(
      textOf("docs/tool-protocol/scripts.json"),
    ) as Record<string, { keys: string[]; arguments: string[] }>; // compared with the code above
    const keys = new Set(Object.values(scripts).flatMap((script) => script.keys));
    expect([...keys].toSorted()).toEqual(named.toSorted());
    for (const script of Object.values(scripts)) expect(script.arguments.length).toBeGreaterThan(0);
  });
});
