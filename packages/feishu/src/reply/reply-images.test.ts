import type { ReplyView } from "@larkline/protocol/reply-view";
import { describe, expect, it } from "vitest";
import { FeishuError } from "../transport/error.ts";
import type { ImageResolver } from "./image-resolver.ts";
import { answered, deliverUntilSent, replyWorld, type ReplyWorld } from "./reply-world.fixture.ts";

const png = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
const view: ReplyView = answered("**Before** ![bars](blob:x) after");

/** Delivers an answer that names an image; resolves to what people see and how often the image was asked for. */
async function delivered(imageOf: (world: ReplyWorld) => ImageResolver) {
  const world = await replyWorld();
  let asked = 0;
  const resolve = imageOf(world);
  const turn = await world.turn();
  await turn.commit(view);
  const counted: ImageResolver = async (api, reference, signal) => {
    asked += 1;
    return await resolve(api, reference, signal);
  };
  const { forget } = resolve;
  const sender = world.sender({
    imageOf: forget === undefined ? counted : Object.assign(counted, { forget }),
  });
  const deliveries = await deliverUntilSent(world, turn, sender);
  return { shown: world.shown().map(({ answer }) => answer), asked, deliveries };
}

function failure(kind: FeishuError["kind"]): FeishuError {
  return new FeishuError({ api: "im.image.create", kind, code: 1, httpStatus: 400 });
}

describe("the last frame of an answer that names an image", () => {
  it("has the image", async () => {
    const imageOf =
      ({ api }: ReplyWorld): ImageResolver =>
      async () =>
        await api.files.uploadImage(png);
    const { shown, deliveries } = await delivered(imageOf);
    expect(shown).toEqual([
      expect.stringMatching(/^\*\*Before\*\* !\[bars\]\(img_[\w-]+\) after$/),
    ]);
    expect(deliveries).toBe(1);
  });

  it.each(["too_large", "bad_request", "forbidden", "app_setup"] as const)(
    "has its name at once when the upload is refused for good: %s",
    async (kind) => {
      const { shown, asked } = await delivered(
        () => async () => await Promise.reject(failure(kind)),
      );
      expect(shown).toEqual(["**Before** bars after"]);
      expect(asked).toBe(1);
    },
  );

  it.each(["unavailable", "rate_limit", "cancelled"] as const)(
    "waits two deliveries for an upload that may succeed, then has the name: %s",
    async (kind) => {
      const { shown, asked, deliveries } = await delivered(
        () => async () => await Promise.reject(failure(kind)),
      );
      expect(shown).toEqual(["**Before** bars after"]);
      expect([asked, deliveries]).toEqual([3, 3]);
    },
  );

  it("has the image, uploaded anew, when the platform does not know its key any more", async () => {
    const imageOf = ({ api }: ReplyWorld): ImageResolver => {
      let isStale = true;
      const resolve: ImageResolver = async () =>
        isStale ? "img_v3_stale" : await api.files.uploadImage(png);
      return Object.assign(resolve, {
        forget: async () => {
          isStale = false;
        },
      });
    };
    const { shown, deliveries } = await delivered(imageOf);
    expect(shown).toEqual([
      expect.stringMatching(/^\*\*Before\*\* !\[bars\]\(img_v3_(?!stale)[\w-]+\) after$/),
    ]);
    expect(deliveries).toBe(1);
  });

  it("has its name, and keeps its form, when the platform never knows the key", async () => {
    const { shown, asked, deliveries } = await delivered(() => async () => "img_v3_stale");
    expect(shown).toEqual(["**Before** bars after"]);
    expect([asked, deliveries]).toEqual([2, 1]);
  });

  it("has names also where the platform takes nothing but plain text", async () => {
    const refuse = ({ simulator, api }: ReplyWorld): ImageResolver => {
      const action = {
        kind: "respond",
        status: 400,
        body: { code: 200220, msg: "card generation failed" },
      } as const;
      simulator.faults.add({ match: { path: /\/cards$/ }, action, times: 2 });
      return async () => await api.files.uploadImage(png);
    };
    expect((await delivered(refuse)).shown).toEqual(["**Before** bars after"]);
  });

  it("has its name when an upload hangs", async () => {
    let asked = 0;
    const imageOf: ImageResolver = async (_api, _reference, signal) => {
      asked += 1;
      if (asked < 3) throw failure("unavailable");
      return await new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      });
    };
    expect((await delivered(() => imageOf)).shown).toEqual(["**Before** bars after"]);
  });
});
