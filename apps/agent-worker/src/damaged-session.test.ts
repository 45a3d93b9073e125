import type { RedisConnection } from "@larkline/store/redis";
import { noteStall } from "@larkline/store/stall-notes";
import { openTestStores } from "@larkline/store/testing";
import { describe, expect, inject, it } from "vitest";
import { calling } from "./approval-world.fixture.ts";
import { checkEnds } from "./crash.fixture.ts";
import {
  append,
  inbound,
  newWorld,
  outboxOf,
  runnerOf,
  runWakes,
  session,
  settle,
  type World,
} from "./turn-world.fixture.ts";

/** Errors after which the workers of these tests give up. */
const maxFailures = 50;
const givenUp = {
  threw: maxFailures,
  end: {
    failed: expect.stringMatching(
      /^a message is given up: (?:what is stored of it cannot be read: |its runs failed 50 times )/,
    ),
  },
};
const unreadable = /cannot be read|is not readable/;

interface Stored {
  world: World;
  redis: RedisConnection;
  /** The key of the session that holds this kind of value. */
  key(kind: string): Promise<string>;
}

function stored(): Stored {
  const stores = openTestStores();
  const { redis, namespace } = stores;
  const world = newWorld(stores);
  const key = async (kind: string): Promise<string> => {
    const [found] = await redis.keys(`{${namespace}:*}:${kind}:${session}`);
    if (found === undefined) throw new Error(`nothing of this kind is stored: ${kind}`);
    return found;
  };
  return { world, redis, key };
}

/** Runs the wake-up as the queue does: again while it throws. Resolves with how often it threw, and its end. */
async function runUntilOver(world: World): Promise<{ threw: number; end: unknown }> {
  const gen = world.wakes.shift() ?? 0;
  const run = runnerOf(world);
  for (let errors = 0; errors <= maxFailures; errors += 1) {
    const result = await run({ v: 1, session, gen }, new AbortController().signal).catch(
      (error: unknown) => error,
    );
    if (!(result instanceof Error)) return { threw: errors, end: result };
    expect(result.message).toMatch(unreadable);
  }
  throw new Error("it never ends");
}

/** A person has asked, and the turn waits for the approval of a call; then an operator wakes it. */
async function waiting(world: World): Promise<void> {
  await append(world, inbound("om_1", "please pay"));
  await runWakes(world, { backend: calling(["pay"]).backend });
  expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
  const { wakeGen = 0 } = await world.store.cancel(session, {
    turnId: `${session}-1`,
    reason: "stopped",
  });
  world.wakes.push(wakeGen);
}

async function expectGivenUp(
  world: World,
  messageId = "om_1",
  reason = "cannot be read",
): Promise<void> {
  expect(await world.store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
  expect(
    (await outboxOf(world)).map(({ text, target }) => [target.messageId, /given up/.test(text)]),
  ).toEqual([[messageId, true]]);
  expect(await world.letters?.list(9)).toMatchObject([
    { messageId, reason: expect.stringContaining(reason) },
  ]);
  await checkEnds(world, [1]);
}

describe("what is stored of a turn and cannot be read", () => {
  it.each([
    ["no JSON", "turn", "{{{"],
    ["without a seal", "turn", '{"v":1}'],
  ])(
    "is given up after some tries, when it is %s, and the person gets a notice",
    async (_, field, value) => {
      const { world, redis, key } = stored();
      await waiting(world);
      await redis.hset(await key("state"), field, value);
      expect(await runUntilOver(world)).toEqual(givenUp);
      await expectGivenUp(world);
      expect(await world.approvals.pending(session)).toEqual([]);
      await append(world, inbound("om_2", "hello"));
      await runWakes(world);
      expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["answer to hello"]);
    },
  );

  it.each([
    [
      "settings",
      { field: "settings", value: "{{{" },
      /^answer to hello\n\nThe settings of this conversation could not be read/,
    ],
    [
      "a summary",
      { field: "summary", value: '{"v":99}' },
      /^answer to hello\n\nThe summary of the earlier conversation could not be read/,
    ],
  ])(
    "costs a conversation no more than that when it is %s: the person gets one notice",
    async (_, { field, value }, told) => {
      const { world, redis, key } = stored();
      await append(world, inbound("om_1", "first"));
      await runWakes(world);
      await redis.hset(await key("state"), field, value);
      await append(world, inbound("om_2", "hello"));
      expect(await runUntilOver(world)).toEqual({ threw: 0, end: "done" });
      await append(world, inbound("om_3", "again"));
      await runWakes(world);
      expect((await outboxOf(world)).map(({ text }) => text)).toEqual([
        "answer to first",
        expect.stringMatching(told),
        "answer to again",
      ]);
      const lost = world.logged.filter(
        ({ msg }) => msg === "stored state cannot be read and is replaced",
      );
      expect(lost).toMatchObject([
        { session, what: field, bytes: value.length, reason: expect.any(String) },
      ]);
      expect(await redis.hexists(await key("state"), "summary")).toBe(0);
      expect(JSON.stringify(lost)).not.toContain(value);
      expect((await world.store.history(session)).map(({ role }) => role)).toEqual(
        Array.from({ length: 3 }, () => ["user", "assistant"]).flat(),
      );
    },
  );

  it("is reported to the person of a turn that was under way when the settings were damaged", async () => {
    const { world, redis, key } = stored();
    await append(world, inbound("om_1", "tools first"));
    await runWakes(world);
    await redis.hset(await key("state"), "settings", "{{{");
    await settle(world);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual([
      expect.stringMatching(/^answer to [\s\S]*\n\nThe settings of this conversation/),
    ]);
  });

  it("is given up when a control entry of it is damaged", async () => {
    const { world, redis, key } = stored();
    await waiting(world);
    await redis.rpush((await key("state")).replace(":state:", ":ctl:"), "not an entry");
    expect(await runUntilOver(world)).toEqual(givenUp);
    await expectGivenUp(world);
  });

  it("is given up when an approval that it waits for is damaged", async () => {
    const { world, redis, key } = stored();
    await waiting(world);
    const [approval = ""] = await redis.keys(
      `${(await key("state")).replace(":state:", ":approval:")}:*`,
    );
    await redis.hset(approval, "approval", "{{{");
    expect(await runUntilOver(world)).toEqual(givenUp);
    await expectGivenUp(world, "om_1", "in the same way");
  });

  it("is given up when it is the history, and no word of that is logged or kept elsewhere", async () => {
    const { world, redis, key } = stored();
    await append(world, inbound("om_1", "first"));
    await runWakes(world);
    await redis.rpush(await key("h"), "the wages of Li Hua");
    await append(world, inbound("om_2", "hello"));
    expect(await runUntilOver(world)).toEqual(givenUp);
    const letters = (await world.letters?.list(9)) ?? [];
    expect(letters).toMatchObject([
      { messageId: "om_2", reason: expect.stringContaining("cannot be read") },
    ]);
    const events = await world.events.read(session, 0, 10_000);
    expect(
      JSON.stringify([letters.map(({ reason }) => reason), world.logged, events]),
    ).not.toContain("wages");
  });

  it("is reported to the person when it is the message itself, as far as its place is known", async () => {
    const { world, redis, key } = stored();
    await append(world, inbound("om_1", "hello"));
    const broken = { reply: inbound("om_1", "").reply, id: "om_1", parts: 7 };
    await redis.lset(await key("in"), 0, `1:${JSON.stringify(broken)}`);
    // Others are not held up: what they append is accepted, and answered next.
    await append(world, inbound("om_2", "hi"));
    expect(await runUntilOver(world)).toEqual(givenUp);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual([
      expect.stringContaining("given up"),
      "answer to hi",
    ]);
    expect(await world.letters?.list(9)).toMatchObject([{ messageId: "om_1" }]);
  });

  it("leaves the inbox even when nothing of the message is known", async () => {
    const { world, redis, key } = stored();
    await append(world, inbound("om_1", "hello"));
    await redis.lset(await key("in"), 0, "1:{{{");
    expect(await runUntilOver(world)).toEqual(givenUp);
    expect(await world.store.summary(session)).toMatchObject({
      state: "idle",
      waiting: 0,
      unsent: 0,
    });
    await checkEnds(world, [1]);
  });
});

describe("a message whose workers have died", () => {
  /** Its workers die one after the other. */
  async function dying(world: World, times: number): Promise<void> {
    const { wakeGen: gen = 0 } = await world.store.append(inbound("om_1", "deadly words"));
    let next = gen;
    for (let death = 0; death < times; death += 1) {
      const alone = death >= 2;
      await world.store.claim(session, next, `dead-${death}`, { alone });
      next = (await world.store.heal(session, next)) ?? next;
    }
    world.wakes.push(next);
  }

  it("asks to be alone from the third run on", async () => {
    const world = newWorld();
    await dying(world, 2);
    const job = { v: 1, session, gen: world.wakes.shift() ?? 0 } as const;
    const run = runnerOf(world);
    expect(await run(job, new AbortController().signal)).toBe("alone");
    expect(world.sent).toEqual([]);
    expect(await run(job, new AbortController().signal, true)).toBe("done");
    expect(world.sent.map(({ text }) => text)).toEqual(["answer to deadly words"]);
  });

  it("is given up after three deaths alone, and its dead letter names what the last worker has noted", async () => {
    const world = newWorld();
    await dying(world, 5);
    const cause = "the event loop stood still for 15 s";
    await noteStall(
      { redisUrl: inject("redisUrl"), namespace: world.namespace, id: "dead-4" },
      cause,
    );
    const job = { v: 1, session, gen: world.wakes.shift() ?? 0 } as const;
    const reason = `its worker died 3 times, with nothing else at work in it: ${cause}`;
    expect(await runnerOf(world)(job, new AbortController().signal, true)).toEqual({
      failed: `a message is given up: ${reason}`,
    });
    expect(world.sent.map(({ text }) => text)).toEqual([expect.stringContaining("given up")]);
    expect(await world.letters?.list(9)).toMatchObject([{ reason }]);
  });

  it("is left to newer workers when it needs what this one lacks", async () => {
    const world = newWorld();
    const { wakeGen: gen = 0 } = await world.store.append(
      inbound("om_1", "hello", { needs: ["from-tomorrow"] }),
    );
    const run = runnerOf(world);
    for (let turn = 0; turn < 3; turn += 1) {
      expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("postpone");
    }
    expect(
      await world.store.claim(session, gen, "newer", { features: ["from-tomorrow"] }),
    ).toMatchObject({
      failures: {},
    });
  });
});
