import { systemClock } from "@larkline/protocol/clock";
import { openTestStores } from "@larkline/store/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { FeishuApi } from "../feishu-api.ts";
import { LiveImages } from "./live-reply.ts";
import type { ImageResolver } from "./image-resolver.ts";

/** A bot that is never asked for anything here. */
function idleApi(): FeishuApi {
  const credentials = {
    appId: "cli_0123456789abcdef",
    appSecret: "secret",
    domain: "http://127.0.0.1:1",
  };
  const api = new FeishuApi({ ...credentials, tokenCache: openTestStores().tokens });
  onTestFinished(() => api.close());
  return api;
}

function world(imageOf: ImageResolver, waitMs = 10_000) {
  const api = idleApi();
  const asked: string[] = [];
  const live = new LiveImages({
    imageOf: async (of, reference, signal) => {
      asked.push(reference);
      return await imageOf(of, reference, signal);
    },
    clock: systemClock,
    waitMs,
  });
  const reply = () => {
    let changes = 0;
    const images = live.ofReply(api, () => {
      changes += 1;
    });
    return {
      keys: images.keys,
      look: (answer: string) => images.look(answer),
      changes: () => changes,
    };
  };
  return { asked, reply };
}

describe("the images of a reply that types", () => {
  it("are asked for once, however often the growing answer is drawn, and the card is drawn again when one is there", async () => {
    const { asked, reply } = world(async (_api, reference) => (reference === "a" ? "img_a" : null));
    const { look, keys, changes } = reply();
    for (const answer of ["![x](", "![x](a)", "![x](a) ![y](b)", "![x](a) ![y](b) ![x](a)"]) {
      look(answer);
    }
    expect(keys.size).toBe(0); // the card waits
    await expect.poll(changes).toBe(2);
    expect([...keys]).toEqual([
      ["a", "img_a"],
      ["b", null],
    ]);
    expect(asked).toEqual(["a", "b"]);
  });

  it("are names from then on when they do not come in time: the card does not wait for long, and takes nothing back", async () => {
    const late = Promise.withResolvers<string>();
    const { reply } = world(async (_api, _reference, signal) => {
      const aborted = new Promise<never>((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      });
      return await Promise.race([late.promise, aborted]);
    }, 20);
    const { look, keys, changes } = reply();
    look("![x](a)");
    await expect.poll(changes).toBe(1);
    late.resolve("img_a");
    look("![x](a) more");
    await Promise.resolve();
    expect([...keys]).toEqual([["a", null]]);
  });

  it("that fail are names, and fail nothing", async () => {
    const { reply } = world(() => Promise.reject(new Error("refused")));
    const { look, keys, changes } = reply();
    look("![x](a)");
    await expect.poll(changes).toBe(1);
    expect(keys.get("a")).toBeNull();
  });

  it("are known at once when the turn continues, so that the card never shows less than before", async () => {
    const { asked, reply } = world(async () => "img_a");
    const first = reply();
    first.look("![x](a)");
    await expect.poll(first.changes).toBe(1);
    const second = reply();
    second.look("![x](a) more");
    expect(second.keys.get("a")).toBe("img_a");
    expect(asked).toEqual(["a"]);
  });
});
