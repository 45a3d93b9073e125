import type { LlmBackend, ModelRequest } from "@larkline/model";
import type { SessionKey } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import { textOf, type ImagePart, type Message, type UserPart } from "@larkline/protocol/content";
import { openTestStores, replaced } from "@larkline/store/testing";
import { LRUCache } from "lru-cache";
import { describe, expect, it } from "vitest";
import { readFiles, readHistory } from "./model-step.ts";
import {
  append,
  echoing,
  inbound,
  newWorld,
  runnerOf,
  session,
  type Differences,
} from "./turn-world.fixture.ts";

const { blobs } = openTestStores();

async function storedImage(bytes: Uint8Array): Promise<ImagePart> {
  const blobId = await blobs.put(bytes, { mediaType: "image/png" });
  return { type: "image", source: { sourceType: "blob", blobId, mediaType: "image/png" } };
}

async function images(count: number, bytes = 8): Promise<Message[]> {
  const parts = await Promise.all(
    Array.from(
      { length: count },
      async (_, index) => await storedImage(new Uint8Array(bytes).fill(index + 1)),
    ),
  );
  return parts.map((part) => ({ role: "user", content: [{ type: "text", text: "look" }, part] }));
}

function reader({ vision = true, maxChars = 1_000, maxTotalChars = 10_000 } = {}) {
  return async (history: readonly Message[]) =>
    await readHistory(blobs, history, { vision, maxChars, maxTotalChars });
}

/** First byte of each image that is shown, `-` for one that is not. */
function shownIn(history: readonly Message[]): string {
  return history
    .map(({ content }) => {
      const image = content.find((part) => part.type === "image");
      if (image?.source.sourceType !== "base64") return "-";
      return String(Buffer.from(image.source.data, "base64")[0]);
    })
    .join(" ");
}

function user(...content: UserPart[]): Message {
  return { role: "user", content };
}

describe("reading a history for one request", () => {
  it("gives a history without references back as it is", async () => {
    const history: Message[] = [user({ type: "text", text: "a" })];
    expect(await reader()(history)).toBe(history);
  });

  it("puts an image in place of its reference, with the type that was recognised", async () => {
    const [message] = await reader()(await images(1));
    expect(message?.content[1]).toEqual({
      type: "image",
      source: {
        sourceType: "base64",
        mediaType: "image/png",
        data: Buffer.alloc(8, 1).toString("base64"),
      },
    });
  });

  it("shows the latest ten images only, and says of the others that they are not shown", async () => {
    const shown = await reader()(await images(12));
    expect(shownIn(shown)).toBe("- - 3 4 5 6 7 8 9 10 11 12");
    expect(textOf(shown[0] ?? user())).toContain("An image that is not shown");
  });

  it("shows the latest images of several in one message", async () => {
    const parts = (await images(12)).flatMap(({ content }) =>
      content.filter((part) => part.type === "image"),
    );
    const [message] = await reader()([user(...parts)]);
    const kinds = message?.content.map(({ type }) => type).join(" ");
    expect(kinds).toBe(`text text${" image".repeat(10)}`);
  });

  it("keeps a request within the vendors' size, the latest image first", async () => {
    expect(shownIn(await reader()(await images(5, 3_900_000)))).toBe("- - 3 4 5");
  });

  it("tells a model without vision that it cannot see, and shows it nothing", async () => {
    const shown = await reader({ vision: false })(await images(2));
    expect(shownIn(shown)).toBe("- -");
    expect(textOf(shown[1] ?? user())).toContain("cannot see");
  });

  it("tells that an image is gone when nothing is stored any more", async () => {
    const source = {
      sourceType: "blob",
      blobId: `blob_${"x".repeat(43)}`,
      mediaType: "image/png",
    } as const;
    const shown = await reader()([user({ type: "image", source })]);
    expect(textOf(shown[0] ?? user())).toContain("no longer stored");
  });

  it("leaves an image of the web to the vendor", async () => {
    const part: UserPart = {
      type: "image",
      source: { sourceType: "url", url: "https://example.com/a.png" },
    };
    const history = [user(part), ...(await images(1))];
    expect((await reader()(history))[0]?.content).toEqual([part]);
  });

  it("puts a file's text into its fence, cut to size, and tells when it is gone", async () => {
    const blobId = await blobs.put(Buffer.from("十二个字的一份文件内容。".repeat(200)), {
      mediaType: "text/plain",
    });
    const file = {
      type: "file",
      name: "a.txt",
      mediaType: "text/plain",
      bytes: 10,
      state: "ready",
    } as const;
    const [kept, gone] = await reader({ maxChars: 12 })([
      user({ ...file, blobId }),
      user({ ...file, blobId: `blob_${"y".repeat(43)}` }),
    ]);
    expect(textOf(kept ?? user())).toMatch(
      /^<attachment name="a.txt"[^]*\n十二个字的一份文件内容。\n[^]*Cut off[^]*<\/attachment>$/,
    );
    expect(textOf(gone ?? user())).toContain("no longer stored");
  });

  it("gives the latest files their text first when there is not room for all", async () => {
    const file = { type: "file", mediaType: "text/plain", bytes: 10, state: "ready" } as const;
    const files = await Promise.all(
      ["a", "b", "c"].map(async (name) => {
        const blobId = await blobs.put(Buffer.from(name.repeat(100)), { mediaType: "text/plain" });
        return user({ ...file, name, blobId });
      }),
    );
    const shown = (await reader({ maxTotalChars: 150 })(files)).map(textOf);
    expect(shown.map((text) => /(a|b|c)\1{9,}/.exec(text)?.[0].length ?? 0)).toEqual([0, 50, 100]);
    expect(shown[0]).toContain("only the first 0 of 100 characters are shown");
  });

  it("reads no file for which newer ones leave no room, and several at once", async () => {
    const file = { type: "file", mediaType: "text/plain", bytes: 10, state: "ready" } as const;
    const files = Array.from({ length: 20 }, (_, index) =>
      user({ ...file, name: `${index}.txt`, blobId: `b${index}` }),
    );
    const asked: string[] = [];
    const counted = replaced(blobs, {
      get: async (id: string) => {
        asked.push(id);
        return await Promise.resolve({
          bytes: Buffer.from("x".repeat(100)),
          facts: { mediaType: "text/plain" },
        });
      },
    });
    const shown = await readHistory(counted, files, {
      vision: true,
      maxChars: 1_000,
      maxTotalChars: 150,
    });
    expect(asked.toSorted()).toEqual(
      Array.from({ length: 8 }, (_, index) => `b${12 + index}`).toSorted(),
    );
    expect(textOf(shown[0] ?? user())).toContain("newer files leave no room for it");
    expect(textOf(shown[19] ?? user())).toContain("x".repeat(100));
  });

  it("for a summary, gives the text of files and leaves images as they are", async () => {
    const blobId = await blobs.put(Buffer.from("the contract"), { mediaType: "text/plain" });
    const file = {
      type: "file",
      name: "a.txt",
      mediaType: "text/plain",
      bytes: 12,
      state: "ready",
      blobId,
    } as const;
    const [image] = await images(1);
    const read = async (given: readonly Message[]) =>
      await readFiles(blobs, given, { maxChars: 1_000, maxTotalChars: 1_000 });
    const [first, second] = await read([user(file), image ?? user()]);
    expect(textOf(first ?? user())).toContain("the contract");
    expect(second).toBe(image);
  });
});

/** A model that answers, and what it was asked. */
function listening(): { backend: LlmBackend; requests: ModelRequest[] } {
  const requests: ModelRequest[] = [];
  const backend: LlmBackend = {
    async *stream(request, signal) {
      requests.push(request);
      yield* echoing.stream(request, signal);
    },
  };
  return { backend, requests };
}

describe("a store of files that hangs", () => {
  /** A turn whose message has a stored image, at the moment at which its worker reads that. */
  async function reading(more: Differences["services"] = {}) {
    const world = newWorld();
    const asked = Promise.withResolvers<void>();
    const hanging = replaced(world.resultStores.blobs, {
      get: async () => {
        asked.resolve();
        return await new Promise<never>(() => {});
      },
    });
    const source = { sourceType: "blob", blobId: "b1", mediaType: "image/png" } as const;
    await append(world, inbound("om_1", "look", { parts: [{ type: "image", source }] }));
    const shutdown = new AbortController();
    const gen = world.wakes.shift() ?? expect.fail("the message wakes nothing");
    const run = runnerOf(world, { services: { blobs: hanging, ...more } });
    const running = run({ v: 1, session, gen }, shutdown.signal);
    await asked.promise;
    return { world, shutdown, gen, running, blobs: hanging };
  }

  it("keeps no turn from being cancelled", async () => {
    const { world, running } = await reading();
    await world.store.cancel(session, { reason: "stopped" });
    expect(await running).toBe("done");
    expect(await world.store.summary(session)).toMatchObject({ state: "idle" });
  });

  it("keeps no turn from being handed over", async () => {
    const { shutdown, running } = await reading();
    shutdown.abort();
    expect(await running).toBe("requeue");
  });

  const quick = {
    ...systemClock,
    after: (ms: number, act: () => void) => systemClock.after(ms / 100, act),
  };

  it("keeps no slot for good: the turn waits, which counts as no error", async () => {
    const { world, gen, running, blobs: hanging } = await reading({ clock: quick });
    expect(await running).toBe("postpone");
    const model = listening();
    const look = async (services: NonNullable<Differences["services"]>) =>
      await runnerOf(world, { backend: model.backend, services })(
        { v: 1, session, gen },
        new AbortController().signal,
      );
    // More often than a message may fail.
    for (let again = 0; again < 5; again += 1) {
      expect(await look({ clock: quick, blobs: hanging })).toBe("postpone");
    }
    expect(await look({})).toBe("done");
    expect(model.requests).toHaveLength(1);
  });

  it("lets its turn go on without its files after ten minutes, and the model reads that", async () => {
    const { world, gen, running, blobs: hanging } = await reading({ clock: quick });
    expect(await running).toBe("postpone");
    const model = listening();
    const clock = { ...quick, now: () => systemClock.now() + 11 * 60_000 };
    const run = runnerOf(world, { backend: model.backend, services: { clock, blobs: hanging } });
    expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("done");
    expect(JSON.stringify(model.requests[0]?.messages)).toContain(
      "An image that could not be read",
    );
  });

  it("does not hold up the next messages of its session as well", async () => {
    const filesGivenUp = new LRUCache<SessionKey, true>({ max: 10 });
    const { world, gen, running, blobs: hanging } = await reading({ clock: quick, filesGivenUp });
    expect(await running).toBe("postpone");
    const clock = { ...quick, now: () => systemClock.now() + 11 * 60_000 };
    const look = async (job: number, services: NonNullable<Differences["services"]>) =>
      await runnerOf(world, { services: { clock, filesGivenUp, ...services } })(
        { v: 1, session, gen: job },
        new AbortController().signal,
      );
    const next = async (id: string): Promise<number> => {
      await append(world, inbound(id, "and now?"));
      return world.wakes.at(-1) ?? expect.fail("the message wakes nothing");
    };
    expect(await look(gen, { blobs: hanging })).toBe("done");
    expect(await look(await next("om_2"), { blobs: hanging })).toBe("done");
    // Once they could be read, a new outage is waited for again.
    const unhurried = { ...clock, after: systemClock.after };
    expect(await look(await next("om_3"), { clock: unhurried })).toBe("done");
    expect(await look(await next("om_4"), { blobs: hanging })).toBe("postpone");
  });
});
