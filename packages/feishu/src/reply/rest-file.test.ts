import { describe, expect, it } from "vitest";
import { typing } from "./live-typing.fixture.ts";
import {
  answered,
  deliverUntilSent,
  lettersOf,
  longAnswer,
  viewOf,
} from "./reply-world.fixture.ts";
import { replacing } from "../simulated-api.fixture.ts";

const answer = longAnswer(140_000);
const maxCards = 3;
const upload = /\/im\/v1\/files$/;

type World = Awaited<ReturnType<typeof typing>>;

/** What people read: all cards, and the file below them. */
function read({ world, simulator }: World): {
  cards: string[];
  files: { name: string; text: string }[];
} {
  const shown = world.shown();
  const files = shown.flatMap(({ message }) => {
    if (message.messageType !== "file") return [];
    const { file_key: key } = JSON.parse(message.content) as { file_key: string }; // as the platform keeps it
    const media = simulator.media(key);
    return [
      {
        name: media?.name ?? "",
        text: media?.bytes instanceof Uint8Array ? Buffer.from(media.bytes).toString("utf8") : "",
      },
    ];
  });
  return { cards: shown.flatMap((one) => (one.card === undefined ? [] : [one.answer])), files };
}

function calls({ simulator }: World, path: RegExp): number {
  return simulator.apiCalls.filter((call) => path.test(call.path)).length;
}

describe("an answer that fills more cards than it may", () => {
  it("continues in one file, and the last card says so", async () => {
    const world = await typing();
    world.show(answer, { maxCards });
    await world.finish(answer, { maxCards });
    const { cards, files } = read(world);
    expect(cards).toHaveLength(maxCards);
    expect(files).toHaveLength(1);
    expect(files[0]?.name).toBe("answer-continued.md");
    expect(lettersOf(cards.join("") + (files[0]?.text ?? ""))).toBe(lettersOf(answer));
    const last = JSON.stringify(world.world.cards().at(-1)?.json);
    expect(last).toContain("the rest is in the file answer-continued.md");
    expect(last).toContain("m-1");
    expect(await world.world.unsent(world.turn)).toBe(0);
    expect(await world.ledger.load(world.turn.session, world.turn.replyId)).toBeUndefined();
  });

  it("says so in the language of the person", async () => {
    const world = await typing();
    await world.finish(answer, { maxCards, language: "zh" });
    expect(read(world).files[0]?.name).toBe("回答（续）.md");
    expect(JSON.stringify(world.world.cards().at(-1)?.json)).toContain("其余部分见下面的文件");
  });

  it("says while it is written that a file will come", async () => {
    const world = await typing();
    world.show(answer, { maxCards });
    await expect.poll(() => world.world.cards().length).toBe(maxCards);
    await expect
      .poll(() => JSON.stringify(world.world.cards().at(-1)?.json))
      .toContain("will come as a file");
    await world.reply.release();
    expect(read(world).files).toEqual([]);
  });

  it.each([
    {
      what: "the upload is refused for a moment",
      path: upload,
      action: { kind: "respond", status: 503 },
      uploads: 2,
    },
    {
      what: "the answer to the upload is lost",
      path: upload,
      action: { kind: "lose_response" },
      uploads: 2,
    },
    {
      what: "the send is refused for a moment",
      path: /\/reply$/,
      action: { kind: "respond", status: 503 },
      uploads: 1,
    },
    {
      what: "the answer to the send is lost",
      path: /\/reply$/,
      action: { kind: "lose_response" },
      uploads: 1,
    },
  ] as const)("is sent once when $what", async ({ path, action, uploads }) => {
    const world = await typing({ api: { retry: { attempts: 1 } } });
    // The cards are sent with `/reply` as well, so they are all there before.
    world.show(answer, { maxCards });
    await expect.poll(() => world.world.cards().length).toBe(maxCards);
    const lease = await world.commit(answer, { maxCards });
    world.simulator.faults.add({ match: { path }, times: 1, action });
    await world.world.sender().deliver(lease);
    await deliverUntilSent(world.world, world.turn);
    const { cards, files } = read(world);
    expect(cards).toHaveLength(maxCards);
    expect(files).toHaveLength(1);
    expect(calls(world, upload)).toBe(uploads);
  });

  it("is sent once by a worker that continues hours after the first one died before it could say so", async () => {
    const world = await typing();
    const lease = await world.commit(answer, { maxCards });
    let dies = true;
    const ledger = replacing(world.ledger, {
      save: async (reply, fence) => {
        if (dies && reply.file?.messageId !== undefined) throw new Error("died");
        return await world.ledger.save(reply, fence);
      },
    });
    await world.world.sender({ ledger }).deliver(lease);
    expect(read(world).files).toHaveLength(1);
    dies = false;
    world.world.forward(2 * 3_600_000);
    await deliverUntilSent(world.world, world.turn);
    expect(read(world).files).toHaveLength(1);
    expect(calls(world, upload)).toBe(1);
  });

  it("is all on cards when the app may not upload files", async () => {
    const world = await typing();
    const action = {
      kind: "respond",
      status: 400,
      body: { code: 99991672, msg: "no right" },
    } as const;
    world.simulator.faults.add({ match: { path: upload }, action });
    await world.finish(answer, { maxCards });
    const { cards, files } = read(world);
    expect(files).toEqual([]);
    expect(lettersOf(cards.join(""))).toBe(lettersOf(answer));
  });

  it("of which no bound is known is on as many cards as it takes, as before", async () => {
    const world = await typing();
    await world.finish(answer);
    expect(read(world).files).toEqual([]);
    expect(read(world).cards.length).toBeGreaterThan(maxCards);
    expect(viewOf("").maxCards).toBeUndefined();
    expect(answered("").maxCards).toBeUndefined();
  });
});
