import { systemClock, systemRandom } from "@larkline/protocol/clock";
import { expect, test } from "vitest";
import { RunnerLocks } from "./runner-locks.ts";
import { openElsewhere, openTestStores } from "./testing.ts";

const never = new AbortController().signal;

/** Ids with every mark that a random one may have, and that means something in patterns of Lua. */
let ids = 0;
const random = { ...systemRandom, id: () => `a-b_${(ids += 1)}-c` };

/** Two processes of a runner, and what calls did in order. */
function scene() {
  const here = openTestStores();
  const { redis, namespace, advance } = here;
  const elsewhere = openElsewhere(here).redis;
  const of = (connection: typeof redis, runner = "feishu") =>
    new RunnerLocks({ redis: connection, namespace, runner, random });
  const log: string[] = [];
  /** A call that ends when it is let. */
  const call = (locks: RunnerLocks, name: string, person: string, signal = never) => {
    const { promise: ended, resolve: end } = Promise.withResolvers<undefined>();
    const { promise: begun, resolve: begin } = Promise.withResolvers<undefined>();
    const done = locks.run("table 1", { person, signal }, async () => {
      log.push(name);
      begin(undefined);
      await ended;
    });
    return { begun, done, end: () => end(undefined) };
  };
  const waiting = async (count: number) =>
    await expect
      .poll(async () => await redis.zcard(`{${namespace}}:locks:feishu:table 1:waiting`))
      .toBe(count);
  return { here, redis, advance, log, call, waiting, of, one: of(redis), two: of(elsewhere) };
}

test("one call of all processes works at an object, and people take turns", async () => {
  const { log, call, waiting, one, two } = scene();
  const first = call(one, "ann 1", "ann");
  await first.begun;
  const others = [];
  // Ann imports, Bob and Cid come later with one call each.
  for (const [at, name] of ["ann 2", "ann 3", "ann 4", "bob 1", "cid 1"].entries()) {
    others.push(call(at % 2 === 0 ? two : one, name, name.slice(0, 3)));
    await waiting(at + 1);
  }
  expect(log).toEqual(["ann 1"]);
  for (const each of [first, ...others]) each.end();
  await Promise.all([first, ...others].map(async ({ done }) => await done));
  expect(log).toEqual(["ann 1", "ann 2", "bob 1", "cid 1", "ann 3", "ann 4"]);
});

test("other objects and other runners are not held up, and a failure gives the lock back", async () => {
  const { one, two, of, redis } = scene();
  const options = { person: "ann", signal: never };
  await one.run("a", options, async () => {
    await two.run("b", options, () => Promise.resolve());
    await of(redis, "other").run("a", options, () => Promise.resolve());
  });
  await expect(one.run("a", options, () => Promise.reject(new Error("refused")))).rejects.toThrow(
    "refused",
  );
  expect(await two.run("a", options, () => Promise.resolve("free"))).toBe("free");
});

test("a process that died holds the lock for 15 s", async () => {
  const { here, call, waiting, advance, two } = scene();
  const dying = openElsewhere(here);
  const dead = call(
    new RunnerLocks({ redis: dying.redis, namespace: here.namespace, runner: "feishu" }),
    "dead",
    "ann",
  );
  dead.done.catch(() => undefined);
  await dead.begun;
  const next = call(two, "next", "bob");
  await waiting(1);
  let hasBegun = false;
  void next.begun.then(() => (hasBegun = true));
  await advance(14_000);
  await waiting(1);
  expect(hasBegun).toBe(false);
  await advance(2_000);
  await next.begun;
  next.end();
  await next.done;
  dead.end();
});

test("a process that lives holds the lock for as long as it works", async () => {
  const { here, call, waiting, advance, two } = scene();
  const renewals: (() => void)[] = [];
  const clock = {
    ...systemClock,
    after: (ms: number, run: () => void) => {
      if (ms !== 5_000) return systemClock.after(ms, run);
      renewals.push(run);
      return () => undefined;
    },
  };
  const { redis, namespace } = here;
  const working = call(
    new RunnerLocks({ redis, namespace, runner: "feishu", clock }),
    "working",
    "ann",
  );
  await working.begun;
  const next = call(two, "next", "bob");
  let hasBegun = false;
  void next.begun.then(() => (hasBegun = true));
  await waiting(1);
  for (let time = 0; time < 3; time += 1) {
    await advance(10_000);
    renewals.pop()?.();
    await expect.poll(() => renewals.length).toBe(1);
    await waiting(1);
  }
  expect(hasBegun).toBe(false);
  working.end();
  await working.done;
  // What is still under way takes nothing again.
  renewals.pop()?.();
  await next.begun;
  next.end();
  await next.done;
});

test("a call that is cancelled leaves the line", async () => {
  const { log, call, waiting, one, two } = scene();
  const first = call(one, "first", "ann");
  await first.begun;
  const cancel = new AbortController();
  const second = call(two, "second", "bob", cancel.signal);
  await waiting(1);
  cancel.abort(new Error("cancelled"));
  await expect(second.done).rejects.toThrow("cancelled");
  await waiting(0);
  first.end();
  await first.done;
  expect(log).toEqual(["first"]);
});

test("a pace lets one call begin in each time, over all processes", async () => {
  const { one, two, redis } = scene();
  const begun: number[] = [];
  const calls = Array.from({ length: 6 }, async (_, at) => {
    const options = { person: at < 4 ? "ann" : "bob", signal: never, everyMs: 100 };
    await (at % 2 === 0 ? one : two).run("documents", options, async () => {
      const [seconds, micros] = await redis.time();
      begun.push(Number(seconds) * 1_000 + Number(micros) / 1_000);
    });
  });
  await Promise.all(calls);
  const span = Math.max(...begun) - Math.min(...begun);
  expect(begun).toHaveLength(6);
  expect(span).toBeGreaterThan(5 * 100 - 50);
});
