import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeBlobStore } from "../blob-store.suite.ts";
import { createFileBlobStore } from "./file-blob-store.ts";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

describeBlobStore("files", async (demands) => {
  let nowMs = 1_700_000_000_000;
  const root = await mkdtemp(join(tmpdir(), "blobs-"));
  const options = { ...demands, directory: join(root, "made", "when missing"), now: () => nowMs };
  return {
    store: createFileBlobStore(options),
    elsewhere: createFileBlobStore(options),
    async advance(ms) {
      nowMs += ms;
    },
    close: async () => await rm(root, { recursive: true }),
  };
});

describe("files of blobs", () => {
  const facts = { mediaType: "text/plain", name: "../外面.txt" };
  const ttlMs = 1_000;
  const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
  let nowMs = 0;
  let root: string;
  let directory: string;
  const open = (sweepIntervalMs = 0) =>
    createFileBlobStore({ directory, ttlMs, sweepIntervalMs, now: () => nowMs });

  beforeEach(async () => {
    nowMs = 1_700_000_000_000;
    root = await mkdtemp(join(tmpdir(), "blobs-"));
    directory = join(root, "blobs");
  });
  afterEach(async () => await rm(root, { recursive: true }));

  it("has one file per blob, named by its id alone, readable by its owner alone", async () => {
    const id = await open().put(bytesOf("text"), facts);
    expect(await readdir(root, { recursive: true })).toEqual(["blobs", join("blobs", id)]);
    expect((await stat(join(directory, id))).mode & 0o777).toBe(0o600);
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
  });

  it("survives a restart", async () => {
    const id = await open().put(bytesOf("text"), facts);
    expect((await open().get(id))?.facts).toEqual(facts);
  });

  it.each([
    ["cut off", async (path: string) => await truncate(path, 30)],
    ["empty", async (path: string) => await truncate(path, 0)],
    [
      "other content",
      async (path: string) => await writeFile(path, "something else that is long enough"),
    ],
    [
      "one byte changed",
      async (path: string) => {
        const file = await readFile(path);
        file[file.length - 1] = 0;
        await writeFile(path, file);
      },
    ],
  ])("does not know a blob whose file is damaged: %s", async (_what, damage) => {
    const store = open();
    const id = await store.put(bytesOf("text"), facts);
    const path = join(directory, id);
    await damage(path);
    await utimes(path, nowMs / 1_000, nowMs / 1_000);
    expect(await store.get(id)).toBeUndefined();
    await store.put(bytesOf("text"), facts);
    expect((await store.get(id))?.facts).toEqual(facts);
  });

  it("removes expired files and leftovers of dead processes at a put, and nothing else", async () => {
    const store = open();
    const old = await store.put(bytesOf("old"), facts);
    await writeFile(join(directory, "partial-left-by-a-crash"), "half");
    await utimes(join(directory, "partial-left-by-a-crash"), nowMs / 1_000, nowMs / 1_000);
    await writeFile(join(directory, "README"), "somebody's file");
    await utimes(join(directory, "README"), 0, 0);
    nowMs += 3_600_000;
    await writeFile(join(directory, "partial-being-written"), "half");
    await utimes(join(directory, "partial-being-written"), nowMs / 1_000, nowMs / 1_000);
    const fresh = await store.put(bytesOf("fresh"), facts);
    expect((await readdir(directory)).sort()).toEqual(
      ["README", fresh, "partial-being-written"].sort(),
    );
    expect(await store.get(old)).toBeUndefined();
  });

  it("sweeps at most once per interval", async () => {
    const store = open(5_000);
    const old = await store.put(bytesOf("old"), facts);
    nowMs += ttlMs;
    await store.put(bytesOf("second"), facts);
    expect(await readdir(directory)).toContain(old);
    nowMs += 5_000;
    await store.put(bytesOf("third"), facts);
    expect(await readdir(directory)).not.toContain(old);
  });

  it("keeps a blob that is put again while others sweep it", async () => {
    const sweepers = [open(), open()];
    const owner = open(Number.MAX_SAFE_INTEGER);
    for (let round = 0; round < 20; round += 1) {
      const id = await owner.put(bytesOf("wanted"), facts);
      nowMs += ttlMs;
      await Promise.all([
        owner.put(bytesOf("wanted"), facts),
        ...sweepers.map((sweeper, i) => sweeper.put(bytesOf(`other ${i} of ${round}`), facts)),
      ]);
      expect(await owner.get(id)).toBeDefined();
    }
  });

  it("leaves no partial file behind when it cannot write", async () => {
    const store = open();
    const id = await store.put(bytesOf("text"), facts);
    await rm(join(directory, id));
    await mkdir(join(directory, id)); // a rename onto a directory fails
    await writeFile(join(directory, id, "x"), "");
    await expect(store.put(bytesOf("text"), facts)).rejects.toThrow();
    expect(await readdir(directory)).toEqual([id]);
  });

  it("answers undefined for an id that leads to a file outside", async () => {
    await writeFile(join(root, "secret"), "secret");
    const store = open();
    await store.put(bytesOf("text"), facts);
    expect(await store.get("../secret")).toBeUndefined();
    const id = `blob_${"a".repeat(43)}`;
    await symlink(join(root, "secret"), join(directory, id));
    expect(await store.get(id)).toBeUndefined();
  });
});
