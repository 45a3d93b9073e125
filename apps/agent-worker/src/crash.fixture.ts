import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import { streamFramesOfRecord } from "@larkline/protocol/views/stream-frame";
import { isLongRun } from "@larkline/testkit";
import { expect } from "vitest";
import {
  append,
  askPeople,
  checkPairs,
  Crash,
  crashing,
  holding,
  newWorld,
  outboxOf,
  runnerOf,
  runTools,
  session,
  settle,
  type Differences,
  type Parts,
  type World,
} from "./turn-world.fixture.ts";

// For tests: what happens to a turn whose process dies.

/** What happens in a session, with a process that dies once on the way. */
interface Scenario {
  /**
   * Makes the world in which it happens; absent: one in which slots are kept while calls run, and one without.
   */
  makeWorld?: () => World;
  differences(world: World): Differences;
  /** Messages that are answered before anything goes wrong. */
  before?: InboundMessage[];
  messages: InboundMessage[];
  /** Every point is tried in every run: the test is about what one of them leaves. */
  everyPoint?: true;
  check(world: World): Promise<void>;
}

/** Runs the wake-ups that there are; whether the process has died of it. */
export async function runUntilCrash(
  world: World,
  differences: Differences,
  parts: Parts,
): Promise<boolean> {
  const doomed = runnerOf(world, differences, parts);
  for (let wake = nextWake(world); wake !== undefined; wake = nextWake(world)) {
    try {
      await doomed({ v: 1, ...wake }, new AbortController().signal);
    } catch (error) {
      if (error instanceof Crash) return true;
      throw error;
    }
    await runTools(world);
    await askPeople(world);
  }
  return false;
}

function nextWake({ wakes, childWakes }: World): { session: string; gen: number } | undefined {
  const gen = wakes.shift();
  return gen === undefined ? childWakes.shift() : { session, gen };
}

/** Every run that began has ended, once. */
export async function checkEnds({ events }: World, runs: readonly number[]): Promise<void> {
  const records = await events.read(session, 0, 10_000);
  const ends = records.filter(({ event }) => event.type === "done" || event.type === "error");
  expect(ends.map(({ runId }) => runId).toSorted()).toEqual(
    runs.map((seq) => turnIdOf(session, seq)).toSorted(),
  );
}

/** The messages that have been answered, in the order of the answers. */
export async function repliedTo(world: World): Promise<string[]> {
  return (await outboxOf(world)).map(({ target }) => target.messageId);
}

/** Plays it with a crash before and after each call of a store or a queue, until none is left to crash at. */
export async function survives(scenario: Scenario): Promise<void> {
  const { makeWorld } = scenario;
  if (makeWorld !== undefined) return await survivesIn(makeWorld, scenario);
  await survivesIn(newWorld, scenario);
  await survivesIn(() => holding(newWorld(), "at once"), scenario);
}

/**
 * A crash after one call leaves what one before the next call leaves. So `npm test` tries both at every second call,
 * which are all of these states where calls come in the same order each time; `npm run test:all` tries both at every call.
 */
async function survivesIn(makeWorld: () => World, scenario: Scenario): Promise<void> {
  const step = isLongRun || scenario.everyPoint === true ? 1 : 2;
  let crashes = 0;
  for (const when of ["before", "after"] as const) {
    let died = true;
    for (let at = 1; died; at += step) {
      const world = makeWorld();
      const differences = scenario.differences(world);
      for (const message of scenario.before ?? []) {
        await append(world, message);
        await settle(world, differences);
      }
      await append(world, ...scenario.messages);
      died = await runUntilCrash(world, differences, crashing(world, at, when));
      if (died) crashes += 1;
      await settle(world, differences);
      checkPairs(await world.store.history(session));
      expect([...world.ran.values()].every((count) => count === 1)).toBe(true);
      await scenario.check(world);
    }
  }
  expect(crashes * step).toBeGreaterThan(4);
}

/**
 * What a client of the stream holds of each run when it drops what a restart or a tool's result voids.
 * A result that comes again is nothing new to it.
 */
export async function heldByClients({ events }: World): Promise<{ held: string; final: string }[]> {
  const ends: { held: string; final: string }[] = [];
  const results = new Set<string | undefined>();
  let held = "";
  for (const frame of (await events.read(session, 0, 10_000)).flatMap(streamFramesOfRecord)) {
    if (frame.type === "assistant") held += frame.content;
    else if (frame.type === "done") ends.push({ held, final: frame.final });
    const isNew = frame.type === "tool_result" && !results.has(frame.id);
    if (frame.type === "tool_result") results.add(frame.id);
    if (isNew || frame.type === "restart" || frame.type === "done") held = "";
  }
  return ends;
}
