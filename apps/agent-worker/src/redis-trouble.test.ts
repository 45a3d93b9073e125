import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { messageStop, toolCallDelta, type LlmBackend } from "@larkline/model";
import type { JobResult } from "@larkline/store/queues";
import { systemClock } from "@larkline/protocol/clock";
import type { SessionStore } from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  type OwnPresence,
  type RedisConnection,
} from "@larkline/store/redis";
import { Presence } from "@larkline/store/operations";
import { openTestStores } from "@larkline/store/testing";
import { freePort, startRedis } from "@larkline/testkit";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { calling } from "./approval-world.fixture.ts";
import { checkEnds, heldByClients } from "./crash.fixture.ts";
import {
  append,
  holding,
  Crash,
  echoing,
  inbound,
  newWorld,
  outboxOf,
  runnerOf,
  runTools,
  session,
  type Parts,
  type World,
} from "./turn-world.fixture.ts";

const maxFailures = 5;
/** More often than a message may fail. */
const outages = maxFailures + 2;

interface Trouble {
  begins(redis: RedisConnection): Promise<unknown>;
  ends(redis: RedisConnection): Promise<unknown>;
}

const full: Trouble = {
  begins: async (redis) => await redis.call("CONFIG", "SET", "maxmemory", "1mb"),
  ends: async (redis) => await redis.call("CONFIG", "SET", "maxmemory", "0"),
};
const readOnly: Trouble = {
  begins: async (redis) => await redis.call("REPLICAOF", "127.0.0.1", String(await freePort())),
  ends: async (redis) => await redis.call("REPLICAOF", "NO", "ONE"),
};

/**
 * What a worker has whose Redis takes no writes from its first `method` of a run on, until it has refused what
 * comes after that, too. So often, then no more.
 */
function troubled(
  world: World,
  redis: RedisConnection,
  { trouble, method }: { trouble: Trouble; method: "save" | "commit" },
) {
  let begun = 0;
  let counted = 0;
  const store = new Proxy(world.store, {
    get: (target, name) => {
      const real: unknown = Reflect.get(target, name);
      if (typeof real !== "function") return real;
      return async (...given: unknown[]): Promise<unknown> => {
        if (name === "fail") counted += 1;
        if (name === method && begun < outages) {
          begun += 1;
          await trouble.begins(redis);
        }
        try {
          return await Reflect.apply(real, target, given);
        } catch (error) {
          if (name === "claim" || name === "releaseUncounted") await trouble.ends(redis);
          throw error;
        }
      };
    },
  });
  const parts: Parts & { store: SessionStore } = { ...world, store };
  return { parts, begun: () => begun, counted: () => counted };
}

async function ownWorld(): Promise<{ world: World; redis: RedisConnection }> {
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const redis = connectRedis(server.url);
  onTestFinished(async () => await closeRedis(redis));
  const stores = openTestStores({}, server.url);
  onTestFinished(stores.close);
  return { world: newWorld(stores), redis };
}

/** As the queue does: a job that was put back or has failed comes again. */
async function runJobs(world: World, run: ReturnType<typeof runnerOf>): Promise<void> {
  for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
    for (let result: JobResult | undefined; result !== "done";) {
      result = await run({ v: 1, session, gen }, new AbortController().signal).catch(
        () => undefined,
      );
    }
    await runTools(world);
  }
}

it.each([
  // A commit is taken by a full Redis: it begins with the message that leaves the inbox.
  ["is full", "its calls", { trouble: full, method: "save" }],
  ["is read-only", "its answer", { trouble: readOnly, method: "commit" }],
  ["is read-only", "its calls", { trouble: readOnly, method: "save" }],
  [
    "is read-only",
    "its calls, for which it keeps its slot,",
    { trouble: readOnly, method: "save", isHeld: true },
  ],
] as const)(
  "a Redis that %s again and again when a turn stores %s ends in no message that is given up",
  async (_how, _what, kind) => {
    const { world, redis } = await ownWorld();
    if ("isHeld" in kind) holding(world, "late");
    const { parts, begun, counted } = troubled(world, redis, kind);
    const differences = { ...calling(["echo"]), maxFailures };
    await append(world, inbound("om_1", "please"));
    await runJobs(world, runnerOf(world, differences, parts));
    expect([begun(), counted()]).toEqual([outages, 0]);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["c1-0"]);
    expect([...world.ran]).toEqual([["c1-0", 1]]);
    await checkEnds(world, [1]);
  },
);

it.each([
  ["its first step", "save"],
  ["its answer", "commit"],
] as const)(
  "EE-49: a Redis that is away when a turn stores %s leaves a client that obeys restarts with the final text",
  async (_what, method) => {
    const { world, redis } = await ownWorld();
    const { parts } = troubled(world, redis, { trouble: readOnly, method });
    const backend: LlmBackend = {
      async *stream({ messages }) {
        const isFirst = messages.length === 1;
        yield { type: "text_delta", text: isFirst ? "let me " : "all is " };
        await delay(70); // longer than the writer collects, so that the first piece is published by itself
        yield { type: "text_delta", text: isFirst ? "look" : "well" };
        if (isFirst) yield toolCallDelta(0, { id: "a", name: "echo", arguments: "{}" });
        yield messageStop(isFirst ? "tool_use" : "end_turn");
      },
    };
    await append(world, inbound("om_1", "please"));
    await runJobs(world, runnerOf(world, { backend, maxFailures }, parts));
    expect(await heldByClients(world)).toEqual([{ held: "all is well", final: "all is well" }]);
    await checkEnds(world, [1]);
  },
);

interface Seen {
  failures: Record<string, number>;
  deaths: { together: number; alone: number };
}

const uncounted = { failures: {}, deaths: { together: 0, alone: 0 } };

/**
 * Two workers that live in a part of Redis which takes writes. That of the session becomes read-only while the model
 * answers; `clock` measures how long a worker waits for it.
 */
async function twoWorkers(clock = systemClock) {
  const { world, redis } = await ownWorld();
  const elsewhere = connectRedis(inject("redisUrl"));
  onTestFinished(async () => await closeRedis(elsewhere));
  const namespace = `test-${randomUUID()}`;
  const presence = new Presence({ redis: elsewhere, namespace }) as OwnPresence; // no locks, no beats
  presence.fatesOf = async (ids) => new Map(ids.map((id) => [id, "died"]));
  let isTroubled = false;
  const backend: LlmBackend = {
    async *stream(request) {
      if (!isTroubled) await readOnly.begins(redis);
      isTroubled = true;
      yield* echoing.stream(request);
    },
  };
  const workerOf = (owner: string) => {
    const claims: Seen[] = [];
    let isDead = false;
    const store = new Proxy(world.store, {
      get: (target, name) => {
        const real: unknown = Reflect.get(target, name);
        if (typeof real !== "function") return real;
        return async (...given: unknown[]): Promise<unknown> => {
          if (isDead) throw new Crash();
          const result: unknown = await Reflect.apply(real, target, given);
          if (name === "claim" && result !== undefined) claims.push(result as Seen); // every claim has these
          return result;
        };
      },
    });
    const run = runnerOf(
      world,
      { backend, maxFailures, services: { clock, owner, presence } },
      { ...world, store },
    );
    return {
      claims,
      run: async (gen: number) => await run({ v: 1, session, gen }, new AbortController().signal),
      die: () => void (isDead = true),
    };
  };
  await append(world, inbound("om_1", "please"));
  const [gen = 0] = world.wakes.splice(0);
  return { world, redis, presence, first: workerOf("first"), second: workerOf("second"), gen };
}

it("a worker gives its slot back while Redis stays away from a session, and the message counts no try", async () => {
  const { world, redis, first, gen } = await twoWorkers();
  expect(await first.run(gen)).toBe("postpone");
  expect(await first.run(gen)).toBe("postpone"); // as the queue does later on: it is still away
  expect(first.claims).toHaveLength(1);
  await readOnly.ends(redis);
  // As the queue does: an answer of Redis that comes a second too late puts the job off once more.
  await expect.poll(async () => await first.run(gen)).toBe("done");
  expect(first.claims).toMatchObject([uncounted, uncounted]);
  expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["answer to please"]);
  await checkEnds(world, [1]);
});

it.each([
  ["before it has given its slot back", false],
  ["after it has given its slot back", true],
])(
  "a worker that dies %s, with Redis away from a session, counts as no death of its message",
  async (_when, isOver) => {
    // It does not give its slot back before it has died.
    const endless = { ...systemClock, monotonic: () => 0 };
    const { world, redis, presence, first, second, gen } = await twoWorkers(
      isOver ? systemClock : endless,
    );
    const run = first.run(gen);
    if (isOver) expect(await run).toBe("postpone");
    await vi.waitUntil(async () => (await presence.unreleased("first", session)) !== undefined, {
      timeout: 60_000,
    });
    first.die();
    if (!isOver) await expect(run).rejects.toThrow(Crash);
    await readOnly.ends(redis);
    // What a sweeper does that finds the session of a dead worker.
    const healed = await world.store.heal(session, gen);
    expect(await second.run(healed ?? 0)).toBe("done");
    expect(second.claims).toMatchObject([uncounted]);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["answer to please"]);
    await checkEnds(world, [1]);
  },
);

it("a worker that dies with a session that Redis has not failed counts as a death of its message", async () => {
  const { world, redis, first, second, gen } = await twoWorkers();
  await world.store.claim(session, gen, "first");
  const healed = await world.store.heal(session, gen);
  const run = second.run(healed ?? 0);
  await vi.waitUntil(() => second.claims.length > 0, { timeout: 60_000 });
  expect(first.claims).toEqual([]);
  expect(second.claims).toMatchObject([{ failures: {}, deaths: { together: 1, alone: 0 } }]);
  await readOnly.ends(redis);
  await run;
});
