import { expect, it, vi } from "vitest";
import { inbound, newWorld, runnerOf, session } from "./turn-world.fixture.ts";

/** As the workers of these tests do. */
const maxFailures = 50;

/** A message whose runs have failed too often; resolves to the wake-up of the next one. */
async function crashing(world: ReturnType<typeof newWorld>): Promise<number> {
  const { wakeGen: gen = 0 } = await world.store.append(inbound("om_1", "deadly words"));
  for (let times = 0; times < maxFailures; times += 1) {
    const claim = await world.store.claim(session, gen, "worker-1");
    expect(
      await world.store.fail(session, claim?.epoch ?? "", "TypeError in step model-step.ts:1"),
    ).toBe(true);
  }
  return gen;
}

it("a message that is given up is kept with what it takes to run it again, before its person gets the notice", async () => {
  const world = newWorld();
  const gen = await crashing(world);
  const ended = await runnerOf(world)({ v: 1, session, gen }, new AbortController().signal);
  expect(world.sent[0]?.text).toMatch(/given up/);
  const reason = "its runs failed 50 times in the same way: TypeError in step model-step.ts:1";
  expect(ended).toEqual({ failed: `a message is given up: ${reason}` });
  expect(await world.letters?.list(9)).toMatchObject([
    { kind: "message", id: `turn:${session}-1`, messageId: "om_1", reason },
  ]);
  expect(await world.letters?.find(session, `turn:${session}-1`)).toMatchObject({
    message: { id: "om_1" },
  });
});

it("a broken store of dead letters holds no message up", async () => {
  const world = newWorld();
  const gen = await crashing(world);
  if (world.letters !== undefined) {
    world.letters.add = async () => await Promise.reject(new Error("broken on purpose"));
  }
  await runnerOf(world)({ v: 1, session, gen }, new AbortController().signal);
  expect(await world.store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
});

it("a run that fails by its own code fails its job, which comes again", async () => {
  const world = newWorld();
  const { wakeGen: gen = 0 } = await world.store.append(inbound("om_1", "hello"));
  vi.spyOn(world.store, "commit").mockRejectedValueOnce(new TypeError("a bug"));
  const run = async () =>
    await runnerOf(world)({ v: 1, session, gen }, new AbortController().signal);
  await expect(run()).rejects.toThrow("a bug");
  expect(await run()).toBe("done");
  expect(world.sent.map(({ text }) => text)).toEqual(["answer to hello"]);
});
