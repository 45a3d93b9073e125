import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";

/** The launcher is plain JavaScript, without types. */
const { loadedFiles }: { loadedFiles(module: string): Map<string, string> } = await import(
  new URL("../../infra/dev/launcher/reload.mjs", import.meta.url).href
);

const folder = mkdtempSync(join(tmpdir(), "larkline-loaded-"));
afterAll(() => rmSync(folder, { recursive: true }));

function write(name: string, content: string): string {
  const path = join(folder, name);
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, content);
  return path;
}

it("knows what a module imports by paths, in circles too, and nothing else of its folders", () => {
  const tool = write(
    "tools/dice.ts",
    'import { face } from "./lib/face.ts";\nimport "node:fs";\nimport "zod";\n',
  );
  const face = write(
    "tools/lib/face.ts",
    'export * from "../dice.ts";\nawait import("../../shared.mjs");\n',
  );
  const shared = write(
    "shared.mjs",
    'import data from "./data.json" with { type: "json" };\nimport "./gone.ts";\n',
  );
  const data = write("data.json", "{}");
  write("tools/notes.ts", "");
  write("tools/lib/face.test.ts", 'import "./face.ts";');
  const before = loadedFiles(tool);
  expect([...before.keys()]).toEqual([tool, face, shared, data]);

  write("data.json", "[]");
  const after = loadedFiles(tool);
  expect(
    [...after].filter(([path, hash]) => before.get(path) !== hash).map(([path]) => path),
  ).toEqual([data]);
  expect(loadedFiles(join(folder, "tools"))).toEqual(new Map());
});
