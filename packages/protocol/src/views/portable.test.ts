import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

/** The modules that a module loads, itself included; what is no file of this package stands there by its name. */
function loaded(file: URL, seen = new Set<string>()): Set<string> {
  if (seen.has(file.href)) return seen;
  seen.add(file.href);
  const source = readFileSync(file, "utf8").replaceAll(/(?:import|export) type [^;]*;/g, "");
  for (const [, name = ""] of source.matchAll(/(?:from|import) "([^"]+)"/g)) {
    if (name.startsWith(".")) loaded(new URL(name, file), seen);
    else seen.add(name);
  }
  return seen;
}

describe("what a program outside needs of the views", () => {
  it.each(["engine-view", "item-helpers", "item-view", "chat-texts", "chat-view", "run-stream"])(
    "%s loads no package and nothing of Node",
    (name) => {
      const modules = loaded(new URL(`${name}.ts`, import.meta.url));
      expect([...modules].filter((one) => !one.startsWith("file:"))).toEqual([]);
    },
  );

  it("is distinguished from what needs one", () => {
    expect(loaded(new URL("item-input.ts", import.meta.url))).toContain("node:module");
  });
});
