import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import { blobIdOf, type BlobStore } from "@larkline/store";
import type { LookupCache } from "@larkline/store/platform";
import { openTestStores } from "@larkline/store/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { FeishuApi } from "../feishu-api.ts";
import { FeishuError } from "../transport/error.ts";
import { createImageResolver, type ImageResolver, type RemoteImages } from "./image-resolver.ts";

const appId = "cli_0123456789abcdef";
const appSecret = "secret";
const never = new AbortController().signal;

/** A PNG as far as its first bytes tell: 2 by `height` points. */
function picture(height = 2): Buffer {
  const head = Buffer.alloc(64);
  head.write("\x89PNG\r\n\x1a\n", "latin1");
  head.writeUInt32BE(2, 16);
  head.writeUInt32BE(height, 20);
  return head;
}

interface World {
  simulator: FeishuSimulator;
  api: FeishuApi;
  blobs: BlobStore;
  lookups: LookupCache;
  resolve: ImageResolver;
  /** Another process with the same stores. */
  another(): ImageResolver;
  advance(ms: number): Promise<void>;
  uploads(): number;
}

async function world(): Promise<World> {
  const { tokens: tokenCache, blobs, lookups, advance } = openTestStores();
  const simulator = await startFeishuSimulator({ apps: [{ appId, appSecret }], limits: "off" });
  onTestFinished(() => simulator.close());
  const api = new FeishuApi({
    appId,
    appSecret,
    domain: simulator.url,
    tokenCache,
    retry: { minDelayMs: 1 },
  });
  onTestFinished(() => api.close());
  const another = (): ImageResolver => createImageResolver(blobs, lookups);
  return {
    simulator,
    api,
    blobs,
    lookups,
    resolve: another(),
    another,
    advance,
    uploads: () => simulator.apiCalls.filter(({ path }) => path.endsWith("/im/v1/images")).length,
  };
}

describe("an image that an answer names", () => {
  it("is uploaded once for all answers and processes, also when they ask at once", async () => {
    const { api, blobs, resolve, another, uploads } = await world();
    const id = await blobs.put(picture(), { mediaType: "image/png" });
    const keys = await Promise.all([resolve(api, `blob:${id}`, never), resolve(api, id, never)]);
    keys.push(await resolve(api, `blob:${id}`, never), await another()(api, `blob:${id}`, never));
    expect(keys).toEqual(Array(4).fill(expect.stringMatching(/^img_/)));
    expect(new Set(keys).size).toBe(1);
    expect(uploads()).toBe(1);
  });

  it("keeps its key longer than its content is kept", async () => {
    const { api, blobs, resolve, advance } = await world();
    const id = await blobs.put(picture(), { mediaType: "image/png" });
    const key = await resolve(api, id, never);
    await advance(6 * 86_400_000);
    expect(await resolve(api, id, never)).toBe(key);
  });

  it("is fetched from an address only where hosts are given, and kept for an hour", async () => {
    const { api, lookups, blobs, uploads, advance } = await world();
    const asked: [string, readonly string[]][] = [];
    const remote: RemoteImages = async (address, hosts) => {
      asked.push([address, hosts]);
      if (address.endsWith("/page")) return Buffer.from("<html>");
      return address.endsWith("/none") ? undefined : picture();
    };
    const resolve = createImageResolver(blobs, lookups, { remote });
    const [image, hosts] = ["https://example.com/a.png", ["example.com"]];
    expect(await resolve(api, image, never)).toBeNull();
    expect(await resolve(api, "data:image/png;base64,AAAA", never, hosts)).toBeNull();
    expect(asked).toEqual([]);
    const key = await resolve(api, image, never, hosts);
    expect(key).toMatch(/^img_/);
    expect(await resolve(api, image, never, hosts)).toBe(key);
    expect(asked).toEqual([[image, hosts]]);
    for (const other of ["page", "none"]) {
      expect(await resolve(api, `https://example.com/${other}`, never, hosts)).toBeNull();
    }
    expect(uploads()).toBe(1);
    await advance(3_600_001);
    expect(await resolve(api, image, never, hosts)).not.toBe(key);
  });

  it("is uploaded anew when its key was forgotten", async () => {
    const { api, blobs, resolve, uploads } = await world();
    const id = await blobs.put(picture(), { mediaType: "image/png" });
    const key = await resolve(api, id, never);
    await resolve.forget?.(api, `blob:${id}`);
    await resolve.forget?.(api, "https://example.com/a.png");
    const newKey = await resolve(api, id, never);
    expect(newKey).toMatch(/^img_/);
    expect(newKey).not.toBe(key);
    expect(uploads()).toBe(2);
  });

  it("is none when it has expired, and nothing is uploaded", async () => {
    const { api, blobs, resolve, advance, uploads } = await world();
    const id = await blobs.put(picture(), { mediaType: "image/png" });
    await advance(8 * 86_400_000);
    expect(await resolve(api, id, never)).toBeNull();
    expect(uploads()).toBe(0);
  });

  it.each([
    "https://example.com/a.png",
    "http://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
    "img_v3_0001",
    "blob:https://example.com/x",
    `blob:${blobIdOf(Buffer.from("never stored"))}`,
  ])("%s names nothing that is stored: nothing is fetched or uploaded", async (reference) => {
    const { api, simulator, resolve } = await world();
    expect(await resolve(api, reference, never)).toBeNull();
    expect(simulator.apiCalls).toEqual([]);
  });

  it("is one by its bytes, not by the type that it claims", async () => {
    const { api, blobs, resolve, uploads } = await world();
    const html = await blobs.put(Buffer.from("<script>"), { mediaType: "image/png" });
    const png = await blobs.put(picture(), { mediaType: "application/octet-stream" });
    expect(await resolve(api, html, never)).toBeNull();
    expect(await resolve(api, png, never)).toMatch(/^img_/);
    expect(uploads()).toBe(1);
  });

  it("is not sent when it is larger than the platform takes", async () => {
    const { api, blobs, resolve, uploads } = await world();
    const large = Buffer.concat([picture(), Buffer.alloc(10 * 1024 * 1024)]);
    expect(
      await resolve(api, await blobs.put(large, { mediaType: "image/png" }), never),
    ).toBeNull();
    expect(uploads()).toBe(0);
  });

  it("rejects with the platform's refusal, and is tried again by the next answer", async () => {
    const { api, blobs, resolve, uploads } = await world();
    const id = await blobs.put(picture(20_000), { mediaType: "image/png" });
    for (let time = 1; time <= 2; time += 1) {
      const refused: unknown = await resolve(api, id, never).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(FeishuError);
      expect(refused).toMatchObject({ kind: "too_large", retryable: false });
      expect(uploads()).toBe(time);
    }
  });

  it("keeps uploading when the first caller gives up, so that the next one finds it", async () => {
    const { api, blobs, resolve, simulator, uploads } = await world();
    simulator.faults.add({
      times: 1,
      match: { path: /images$/ },
      action: { kind: "delay", delayMs: 300 },
    });
    const id = await blobs.put(picture(), { mediaType: "image/png" });
    const hasty = new AbortController();
    const first = resolve(api, id, hasty.signal);
    hasty.abort(new Error("too late"));
    await expect(first).rejects.toThrow("too late");
    expect(await resolve(api, id, never)).toMatch(/^img_/);
    expect(uploads()).toBe(1);
  });
});
