import { mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { readablePaths } from "./readable-paths.ts";
import { sandboxNeeds } from "./sandbox-level.ts";

function tree(files: Record<string, string>): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "larkline-readable-")));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

function packageWith(...dependencies: string[]): string {
  return JSON.stringify({
    dependencies: Object.fromEntries(dependencies.map((name) => [name, "*"])),
  });
}

/** Whether what is there at a path can be read where only `paths` can. */
function covers(paths: readonly string[], path: string): boolean {
  return paths.some((each) => path === each || path.startsWith(`${each}/`));
}

describe("what a module needs elsewhere", () => {
  it("is its package and what that depends on, and nothing that begins with a dot", () => {
    const root = tree({
      "package.json": packageWith("left", "@scope/right"),
      ".env": "SECRET=1",
      ".git/config": "x",
      "src/tool.ts": "",
      "src/deep/data.json": "",
      "src/deep/.env.local": "SECRET=2",
      "src/plain/a.ts": "",
      "node_modules/left/package.json": packageWith("below"),
      "node_modules/left/index.js": "",
      "node_modules/left/node_modules/below/package.json": packageWith(),
      "node_modules/@scope/right/package.json": packageWith("left"),
    });
    const paths = readablePaths(join(root, "src/tool.ts"));
    for (const name of [".env", ".git/config", "src/deep/.env.local"]) {
      expect(covers(paths, join(root, name))).toBe(false);
    }
    for (const name of [
      "src/tool.ts",
      "src/deep/data.json",
      "package.json",
      "node_modules/left/node_modules/below",
    ]) {
      expect(covers(paths, join(root, name))).toBe(true);
    }
    expect(paths).toEqual(
      ["node_modules", "package.json", "src/deep/data.json", "src/plain", "src/tool.ts"].map(
        (name) => join(root, name),
      ),
    );
  });

  it("follows links to packages of a workspace, whose own secrets stay out", () => {
    const root = tree({
      "apps/runner/package.json": packageWith("mine", "missing"),
      "apps/runner/tool.ts": "",
      "packages/mine/package.json": packageWith("far"),
      "packages/mine/index.ts": "",
      "packages/mine/.env": "SECRET=1",
      "store/.pnpm/far@1/node_modules/far/package.json": packageWith(),
      "other/secret.ts": "",
    });
    for (const [from, to] of [
      ["apps/runner/node_modules/mine", "packages/mine"],
      ["packages/mine/node_modules/far", "store/.pnpm/far@1/node_modules/far"],
    ]) {
      mkdirSync(dirname(join(root, from ?? "")), { recursive: true });
      symlinkSync(join(root, to ?? ""), join(root, from ?? ""));
    }
    const paths = readablePaths(join(root, "apps/runner/tool.ts"));
    for (const name of [
      "packages/mine/index.ts",
      "packages/mine/node_modules",
      "store/.pnpm/far@1/node_modules/far",
    ]) {
      expect(covers(paths, join(root, name))).toBe(true);
    }
    for (const name of ["packages/mine/.env", "other", "apps/other"]) {
      expect(covers(paths, join(root, name))).toBe(false);
    }
  });

  it("is the file alone when it belongs to no package, and never a whole home directory", () => {
    const root = tree({ "tool.ts": "", "neighbour.ts": "" });
    expect(readablePaths(join(root, "tool.ts"))).toEqual([join(root, "tool.ts")]);
  });

  it("is what is needed of the dependencies, where that is known", () => {
    const root = tree({
      "apps/runner/package.json": packageWith("mine", "yours", "unneeded"),
      "apps/runner/tool.ts": "",
      "packages/mine/package.json": packageWith("far"),
      "packages/mine/index.ts": "",
      "packages/yours/package.json": packageWith("further"),
      "packages/yours/index.ts": "",
      "packages/unneeded/package.json": packageWith(),
      "store/far/package.json": packageWith(),
      "store/further/package.json": packageWith(),
    });
    for (const [from, to] of [
      ["apps/runner/node_modules/mine", "packages/mine"],
      ["apps/runner/node_modules/yours", "packages/yours"],
      ["apps/runner/node_modules/unneeded", "packages/unneeded"],
      ["packages/mine/node_modules/far", "store/far"],
      ["packages/yours/node_modules/further", "store/further"],
    ] as const) {
      mkdirSync(dirname(join(root, from)), { recursive: true });
      symlinkSync(join(root, to), join(root, from));
    }
    const paths = readablePaths(join(root, "apps/runner/tool.ts"), {
      mine: "whole",
      yours: "alone",
    });
    for (const name of [
      "apps/runner/tool.ts",
      "packages/mine/index.ts",
      "store/far",
      "packages/yours/index.ts",
    ]) {
      expect(covers(paths, join(root, name))).toBe(true);
    }
    for (const name of ["store/further", "packages/unneeded"]) {
      expect(covers(paths, join(root, name))).toBe(false);
    }
  });

  it("of this package itself is found, the tool's door and its dependencies among it", () => {
    const file = fileURLToPath(new URL("sandbox-entry.ts", import.meta.url));
    const paths = readablePaths(file, sandboxNeeds);
    const root = fileURLToPath(new URL("../../..", import.meta.url));
    // Nothing of what only a runner needs.
    expect(paths.filter((path) => /bullmq|ioredis|fastify/.test(path))).toEqual([]);
    expect(covers(paths, file)).toBe(true);
    expect(covers(paths, join(root, "packages/tool-kit/src/index.ts"))).toBe(true);
    expect(paths.filter((path) => path.includes("/."))).toEqual(
      paths.filter((path) => path.includes("/.pnpm/")),
    );
  });

  it("is pnpm's store as a whole, in one path, when packages in it are needed", () => {
    const root = tree({
      "package.json": packageWith("left"),
      "tool.ts": "",
      "node_modules/.pnpm/left@1/node_modules/left/package.json": packageWith("right"),
      "node_modules/.pnpm/right@1/node_modules/right/package.json": packageWith(),
    });
    for (const [from, to] of [
      ["node_modules/left", "node_modules/.pnpm/left@1/node_modules/left"],
      [
        "node_modules/.pnpm/left@1/node_modules/right",
        "node_modules/.pnpm/right@1/node_modules/right",
      ],
    ] as const) {
      symlinkSync(join(root, to), join(root, from));
    }
    const alone = tree({
      "package.json": packageWith("left"),
      "tool.ts": "",
      "node_modules/.keep": "",
    });
    symlinkSync(join(root, "node_modules/left"), join(alone, "node_modules/left"));
    expect(readablePaths(join(alone, "tool.ts")).sort()).toEqual(
      [alone, join(root, "node_modules/.pnpm")].sort(),
    );
  });
});
