import { createHash, randomBytes } from "node:crypto";
import { EngineError } from "@larkline/protocol/error";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { BlobStore } from "./blob-store.ts";

/** A blob store under test with storage of its own. */
export interface BlobStoreHarness {
  store: BlobStore;
  /** The same blobs as another process sees them. */
  elsewhere: BlobStore;
  /** Returns when `ms` have passed on the store's clock. */
  advance(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** How a store under test is to be configured. */
export interface BlobStoreDemands {
  ttlMs: number;
  maxBytes: number;
}

/** Longer than any process stands still: beside `advance` real time passes. */
const ttlMs = 3_600_000;
const maxBytes = 1_000_000;
const facts = { mediaType: "application/pdf", name: "报告 2026.pdf" };

function textBytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function plain(bytes: Uint8Array | undefined): number[] | undefined {
  return bytes && [...bytes];
}

/** What every BlobStore promises. Call it at the top level of a test file. */
export function describeBlobStore(
  name: string,
  makeHarness: (demands: BlobStoreDemands) => Promise<BlobStoreHarness>,
): void {
  describe(`${name}: blob store`, () => {
    let harness: BlobStoreHarness;
    let store: BlobStore;
    let elsewhere: BlobStore;

    beforeEach(async () => {
      harness = await makeHarness({ ttlMs, maxBytes });
      ({ store, elsewhere } = harness);
    });
    afterEach(() => harness.close());

    it("returns bytes and facts to every process", async () => {
      const id = await store.put(textBytes("第一页"), facts);
      const blob = await elsewhere.get(id);
      expect(plain(blob?.bytes)).toEqual([...textBytes("第一页")]);
      expect(blob?.facts).toEqual(facts);
    });

    it("removes a blob for every process, and does not mind one that is not there", async () => {
      const bytes = textBytes("to be forgotten");
      const id = await store.put(bytes, facts);
      const kept = await store.put(textBytes("kept"), facts);
      for (const each of [id, id, "blob_unknown", "../secret"]) await elsewhere.delete(each);
      expect(await store.get(id)).toBeUndefined();
      expect(await store.get(kept)).toBeDefined();
      expect(await store.put(bytes, facts)).toBe(id);
      expect(await elsewhere.get(id)).toBeDefined();
    });

    it("keeps every byte value, in any order, also when they are no text", async () => {
      const bytes = Uint8Array.from([
        ...Array.from({ length: 256 }, (_, i) => i),
        0,
        13,
        10,
        0xc3,
        0x28,
        0xff,
        0,
      ]);
      const id = await store.put(bytes, { mediaType: "application/octet-stream" });
      expect(plain((await elsewhere.get(id))?.bytes)).toEqual([...bytes]);
    });

    it("keeps content as large as its cap", async () => {
      const bytes = randomBytes(maxBytes);
      const blob = await elsewhere.get(await store.put(bytes, facts));
      expect(Buffer.compare(bytes, blob?.bytes ?? new Uint8Array())).toBe(0);
    });

    it("refuses content above its cap and keeps nothing of it", async () => {
      const bytes = new Uint8Array(maxBytes + 1);
      const refused = await store.put(bytes, facts).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(EngineError);
      expect(refused).toMatchObject({ code: "api_bad_request", retryable: false });
      const digest = createHash("sha256").update(bytes).digest("base64url");
      expect(await elsewhere.get(`blob_${digest}`)).toBeUndefined();
    });

    it("keeps empty content", async () => {
      const blob = await elsewhere.get(
        await store.put(new Uint8Array(), { mediaType: "text/plain" }),
      );
      expect(blob).toBeDefined();
      expect(blob?.bytes.byteLength).toBe(0);
      expect(blob?.facts).toEqual({ mediaType: "text/plain" });
    });

    it("stores a view into a larger buffer, not the buffer", async () => {
      const around = textBytes("<secret>body<secret>");
      const id = await store.put(around.subarray(8, 12), facts);
      expect(plain((await elsewhere.get(id))?.bytes)).toEqual([...textBytes("body")]);
    });

    it("is not changed by a caller who changes his bytes afterwards", async () => {
      const bytes = textBytes("before");
      const id = await store.put(bytes, facts);
      bytes.fill(0);
      (await store.get(id))?.bytes.fill(0);
      expect(plain((await store.get(id))?.bytes)).toEqual([...textBytes("before")]);
    });

    it("gives the same bytes the same id, made from their SHA-256, whatever their facts", async () => {
      const id = await store.put(textBytes("same"), facts);
      expect(await elsewhere.put(textBytes("same"), { mediaType: "text/plain" })).toBe(id);
      expect(id).toBe(`blob_${createHash("sha256").update("same").digest("base64url")}`);
      expect(await store.put(textBytes("other"), facts)).not.toBe(id);
    });

    it("knows the newest facts of bytes that were put twice", async () => {
      const id = await store.put(textBytes("same"), facts);
      await elsewhere.put(textBytes("same"), { mediaType: "text/plain" });
      expect((await store.get(id))?.facts).toEqual({ mediaType: "text/plain" });
    });

    it("survives the same bytes put many times at once", async () => {
      const bytes = randomBytes(100_000);
      const ids = await Promise.all(
        Array.from({ length: 8 }, (_, i) => (i % 2 === 0 ? store : elsewhere).put(bytes, facts)),
      );
      expect(new Set(ids).size).toBe(1);
      expect(
        Buffer.compare(bytes, (await store.get(ids[0] ?? ""))?.bytes ?? new Uint8Array()),
      ).toBe(0);
    });

    it("forgets a blob when its time has passed", async () => {
      const id = await store.put(textBytes("old"), facts);
      await harness.advance(ttlMs + 1);
      expect(await elsewhere.get(id)).toBeUndefined();
    });

    it("starts the expiry anew when the same bytes are put again", async () => {
      const id = await store.put(textBytes("kept"), facts);
      await harness.advance(ttlMs * 0.75);
      await elsewhere.put(textBytes("kept"), facts);
      await harness.advance(ttlMs * 0.3);
      expect(await store.get(id)).toBeDefined();
    });

    it("does not know an id that was never put", async () => {
      expect(await store.get(`blob_${"A".repeat(43)}`)).toBeUndefined();
    });

    it.each([
      "",
      "blob_",
      "../../etc/passwd",
      `blob_${"../".repeat(14)}a`,
      `blob_${"a".repeat(42)}`,
      `blob_${"a".repeat(44)}`,
      `blob_${"a".repeat(42)}/`,
      `blob_${"a".repeat(42)}\0`,
      `blob_${"a".repeat(43)}\n`,
      `BLOB_${"a".repeat(43)}`,
      `*`,
    ])("answers undefined for %j, which is no blob id", async (id) => {
      await store.put(textBytes("something"), facts);
      expect(await store.get(id)).toBeUndefined();
    });

    it("keeps a name that looks like a path as a mere name", async () => {
      const evil = { mediaType: "text/plain", name: "../../../etc/cron.d/evil\u0000\n.txt" };
      const id = await store.put(textBytes("name"), evil);
      expect((await elsewhere.get(id))?.facts).toEqual(evil);
    });
  });
}
