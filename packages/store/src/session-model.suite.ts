import { turnIdOf } from "@larkline/protocol";
import { isTerminal } from "@larkline/protocol/event";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import { SessionWorld, type Work } from "./session-world.suite.ts";

type Step = (world: SessionWorld) => Promise<void> | void;

/** A step with a name that a failing run is reported with. */
function named(name: string, run: Step): Step & { toString(): string } {
  return Object.assign((world: SessionWorld) => run(world), { toString: () => name });
}

const pick = fc.nat({ max: 7 });
const place = fc.nat({ max: 1 });
const ways: Work[] = [
  "continue",
  "call one",
  "call two",
  "call and die",
  "ask",
  "call and ask two",
  "give up",
  "take in",
  "compact",
  "finish",
  "finish and go on",
  "handoff",
];

function sessionAt(world: SessionWorld, index: number): string {
  return world.sessions[index] ?? "";
}

/** Sessions come to rest seldom by themselves, and only then can they go. */
async function removeOnce(world: SessionWorld, session: string): Promise<void> {
  for (let round = 0; round < 6; round += 1) {
    await world.takeJob(round);
    await world.work(round, "finish and go on");
  }
  await world.remove(session);
}

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(place, fc.nat({ max: 9 }))
      .map(([s, n]) => named(`append ${s} ${n}`, (world) => world.append(sessionAt(world, s), n))),
  },
  { weight: 6, arbitrary: pick.map((p) => named(`takeJob ${p}`, (world) => world.takeJob(p))) },
  {
    weight: 8,
    arbitrary: fc
      .tuple(pick, fc.constantFrom(...ways))
      .map(([p, how]) => named(`work ${p} ${how}`, (world) => world.work(p, how))),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(pick, fc.constantFrom("retried" as const, "lost" as const), fc.boolean())
      .map(([p, job, dead]) =>
        named(`stall ${p} ${job} ${dead}`, (world) => world.stall(p, { job, dead })),
      ),
  },
  {
    weight: 4,
    arbitrary: fc
      .tuple(pick, fc.boolean())
      .map(([p, crashes]) =>
        named(`runTool ${p} ${crashes}`, (world) => world.runTool(p, crashes)),
      ),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(place, fc.nat({ max: 9 }))
      .map(([s, n]) => named(`park ${s} ${n}`, (world) => world.park(sessionAt(world, s), n))),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(place, fc.nat({ max: 9 }), fc.constantFrom("append" as const, "drop" as const))
      .map(([s, n, action]) =>
        named(`release ${s} ${n} ${action}`, (world) =>
          world.release(sessionAt(world, s), n, action),
        ),
      ),
  },
  {
    weight: 4,
    arbitrary: fc
      .tuple(pick, fc.constantFrom("approve" as const, "approve" as const, "reject" as const))
      .map(([p, word]) => named(`decide ${p} ${word}`, (world) => world.decide(p, word))),
  },
  { weight: 1, arbitrary: pick.map((p) => named(`failToAsk ${p}`, (world) => world.failToAsk(p))) },
  { weight: 1, arbitrary: pick.map((p) => named(`loseJob ${p}`, (world) => world.loseJob(p))) },
  { weight: 1, arbitrary: pick.map((p) => named(`emit ${p}`, (world) => world.emit(p))) },
  {
    weight: 2,
    arbitrary: place.map((s) =>
      named(`remove ${s}`, (world) => removeOnce(world, sessionAt(world, s))),
    ),
  },
  { weight: 1, arbitrary: fc.constant(named("expireCalls", (world) => world.expireCalls())) },
  { weight: 2, arbitrary: fc.constant(named("sweep", (world) => world.sweep(farFromNow))) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(place, pick)
      .map(([s, p]) => named(`cancel ${s} ${p}`, (world) => world.cancel(sessionAt(world, s), p))),
  },
);

// Every session counts as silent for too long.
const farFromNow = Date.UTC(2090, 0);

/** Random histories of appends, claims, crashes, retries and answers, checked against what happened. */
export function describeSessionModel(
  name: string,
  makeHarness: MakeSessionStore,
  runs: number,
): void {
  describe(`${name}: random histories`, () => {
    let harness: SessionStoreHarness;

    beforeAll(async () => {
      harness = await makeHarness({});
    });
    afterAll(() => harness.close());

    async function expectOneEndPerRun(world: SessionWorld): Promise<void> {
      for (const session of world.sessions) {
        const records = await harness.events.read(session, 0, 1_000);
        const first = records[0]?.seq ?? 0;
        expect(records.map(({ seq }) => seq)).toEqual(records.map((_, i) => first + i));
        const ends = records.filter(({ event }) => isTerminal(event)).map(({ runId }) => runId);
        const runIds = world.factsOf(session).numbers.map((number) => turnIdOf(session, number));
        expect(ends.toSorted()).toEqual(runIds.toSorted());
      }
    }

    it("AL-34, AL-45, AL-46, AL-47: nothing is lost, repeated, out of order or forgotten, whatever crashes when", async () => {
      let run = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 70, size: "max" }), async (steps) => {
          run += 1;
          const world = new SessionWorld(harness, [`cli_app.oc_a.r${run}`, `cli_app.oc_b.r${run}`]);
          for (const each of steps) {
            await each(world);
            await world.expectNobodyForgotten();
          }
          await world.settle(farFromNow);
          await world.expectAllDone();
          await expectOneEndPerRun(world);
        }),
        { numRuns: runs },
      );
    });
  });
}
