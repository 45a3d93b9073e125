import { existsSync, globSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { root, textOf } from "./document.ts";

/** Short files with one importer that a reader looks for by name, or that cannot be part of their importer's file. */
const reasons: Record<string, string> = {
  "apps/ingress/src/webhook.ts": "the addresses that Feishu calls: where a message comes in",
  "apps/ingress/src/consent-callback.ts": "the address to which browsers bring people's consents",
  "apps/agent-worker/src/attachments/watchdog.ts": "the program of a thread",
  "packages/example-tools/src/page-text.ts": "text of a web page, which authors of tools copy",
  "simulator/src/playground/page-script.ts": "a bundle has another module in its place",
  "packages/protocol/src/compiled-schemas.ts": "a bundle has another module in its place",
  "packages/store/src/archive-postgres/migrations.ts": "steps that are never changed once released",
  "packages/store/src/blob-files/blob-file.ts": "a stored format",
};
const shortLines = 80;

const isTest = (path: string): boolean => /\.(?:test|suite|fixture)\.tsx?$/.test(path);

function sources(): string[] {
  return globSync("{apps/*,packages/*,simulator}/src/**/*.{ts,tsx}", { cwd: root }).filter(
    (path) => !isTest(path),
  );
}

/** Who imports each file by its path. */
function importers(paths: readonly string[]): Map<string, Set<string>> {
  const all = new Map<string, Set<string>>();
  for (const path of paths) {
    for (const [, target = ""] of textOf(path).matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)) {
      const imported = join(dirname(path), target);
      all.set(imported, (all.get(imported) ?? new Set()).add(path));
    }
  }
  return all;
}

/** Files that packages and apps export. */
const doors = new Set(
  globSync("{apps,packages}/*/package.json", { cwd: root }).flatMap((path) => {
    const { exports = {} } = JSON.parse(textOf(path)) as {
      exports?: string | Record<string, unknown>;
    }; // our own file
    const files = typeof exports === "string" ? [exports] : Object.values(exports);
    return files.flatMap((file) => (typeof file === "string" ? [join(dirname(path), file)] : []));
  }),
);

/** What only the door of a package imports has its importers outside; what has tests of its own is a subject. */
function isSlip(path: string, by: ReadonlySet<string>): boolean {
  const [only = ""] = by;
  if (by.size !== 1 || only.endsWith("/index.ts") || doors.has(path)) return false;
  if (doors.has(only) && only.startsWith("packages/")) return false;
  if (existsSync(join(root, path.replace(/\.tsx?$/, ".test.ts")))) return false;
  return textOf(path).trimEnd().split("\n").length < shortLines;
}

it("a short file with one importer has a reason to be a file of its own", () => {
  const paths = sources();
  const by = importers(paths);
  expect(paths.length).toBeGreaterThan(300);
  const slips = paths.filter((path) => isSlip(path, by.get(path) ?? new Set()));
  expect(slips.filter((path) => !(path in reasons))).toEqual([]);
  expect(Object.keys(reasons).filter((path) => !slips.includes(path))).toEqual([]);
});
