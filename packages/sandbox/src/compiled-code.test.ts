import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { CompiledCode } from "./warm-pool.ts";

let left: string;
let kept: string;
let cache: string;
let code: CompiledCode;
beforeEach(() => {
  const place = mkdtempSync(join(tmpdir(), "larkline-code-test-"));
  left = join(place, "left");
  cache = join(left, "v24.0.0-x64-abcdef12-60001");
  mkdirSync(cache, { recursive: true });
  writeFileSync(join(cache, "0a1b2c3d"), "compiled");
  kept = join(place, "kept");
  mkdirSync(kept);
  code = new CompiledCode(kept);
});

describe("compiled code", () => {
  it("is found by guests of its profile, whatever their user, and by no other", async () => {
    expect([code.begin("tool"), code.begin("tool"), code.begin("other")]).toEqual([
      true,
      false,
      true,
    ]);
    expect(await code.directoryFor("tool", 1000)).toBeUndefined();
    await code.keep("tool", left);
    for (const user of [1000, 60_007, 1000]) {
      const directory = (await code.directoryFor("tool", user)) ?? "";
      expect(
        readFileSync(join(directory, `v24.0.0-x64-abcdef12-${user}`, "0a1b2c3d"), "utf8"),
      ).toBe("compiled");
    }
    expect(await code.directoryFor("other", 1000)).toBeUndefined();
    expect(code.begin("tool")).toBe(false);
  });

  it("leaves out files that are not finished or have another name", async () => {
    for (const name of ["0a1b2c3d.x7Ab", "notes.txt"]) writeFileSync(join(cache, name), "");
    await code.keep("tool", left);
    const directory = (await code.directoryFor("tool", 1000)) ?? "";
    expect(readdirSync(join(directory, "v24.0.0-x64-abcdef12-1000"))).toEqual(["0a1b2c3d"]);
  });

  it.each([
    ["a link to a file", () => symlinkSync("/etc/hostname", join(cache, "00000001"))],
    ["a second name of a file", () => linkSync(join(cache, "0a1b2c3d"), join(cache, "00000002"))],
    ["a directory among the files", () => mkdirSync(join(cache, "00000003"))],
    ["a second cache", () => mkdirSync(join(left, "v24.0.0-x64-abcdef12-60002"))],
  ])("is not kept with %s", async (_, plant) => {
    plant();
    await expect(code.keep("tool", left)).rejects.toThrow();
    expect(await code.directoryFor("tool", 1000)).toBeUndefined();
    expect(readdirSync(kept)).toEqual([]);
  });

  it.each([
    ["is missing", (): string => join(left, "nowhere")],
    ["is a link", (): string => (symlinkSync(left, `${left}-link`), `${left}-link`)],
    ["has no cache's name", (): string => cache],
  ])("is not kept when its directory %s", async (_, path) => {
    await expect(code.keep("tool", path())).rejects.toThrow();
  });
});
