import { setTimeout as delay } from "node:timers/promises";
import { Metrics, silentLogger, silentTelemetry } from "@larkline/process/telemetry";
import { RunnerLocks } from "@larkline/store/runners";
import { createToolRegistry, defineTool, InputRequiredError } from "@larkline/tool-kit";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { CallHandoff } from "./call-handoff.ts";
import { CallHandler, RunningCalls, createRunnerMetrics } from "./call.ts";
import { createTestBed, keyOf } from "./test-bed.fixture.ts";
import { createInlineLevel } from "./levels.ts";

let bed: ReturnType<typeof createTestBed>;
let calls: RunningCalls;
let handler: CallHandler;
let runs = 0;
let isElsewhere = false;
let closing: AbortController;
beforeEach(async () => {
  bed = createTestBed(inject("redisUrl"));
  calls = new RunningCalls();
  runs = 0;
  isElsewhere = false;
  const registry = createToolRegistry();
  const input: Record<string, unknown> = { type: "object" };
  for (const effect of ["once", "idempotent", "pure"] as const) {
    const run = async (): Promise<never> => {
      runs += 1;
      return await new Promise(() => {});
    };
    registry.add(
      defineTool({ name: effect, description: "hangs", input, effect, run, isolation: "inline" }),
    );
  }
  const failing: Record<string, Error> = {
    breaks: new Error("no disk"),
    asks: new InputRequiredError({
      server: "s",
      requests: [{ key: "k", message: "?", schema: {} }],
    }),
  };
  for (const [name, error] of Object.entries(failing)) {
    const run = async (): Promise<never> => {
      runs += 1;
      throw error;
    };
    const effect = name === "breaks" ? "once" : "pure";
    registry.add(
      defineTool({ name, description: "fails", input, effect, run, isolation: "inline" }),
    );
  }
  await bed.listening;
  await bed.handoffs.expect("r");
  closing = new AbortController();
  const handoff = new CallHandoff({
    handoff: bed.handoffOf("r"),
    runner: "r",
    onError: () => undefined,
  });
  await handoff.open(closing.signal);
  handler = new CallHandler({
    registry,
    levels: createInlineLevel(),
    envelope: { runner: "r", runnerKey: keyOf("r") },
    handoff,
    blobs: bed.blobs,
    locks: new RunnerLocks({ redis: bed.redis, namespace: bed.namespace, runner: "r" }),
    storeFile: bed.blobs.put.bind(bed.blobs),
    isElsewhere: async () => await Promise.resolve(isElsewhere),
    calls,
    metrics: createRunnerMetrics(new Metrics({ service: "test" }), () => calls.count),
    telemetry: silentTelemetry,
    logger: silentLogger,
  });
});
afterEach(async () => {
  closing.abort();
  await bed.close();
});

async function stored(session: string): Promise<unknown> {
  await bed.handoffs.sweep();
  const { gen } = await bed.store.summary(session);
  return (await bed.store.claim(session, gen, "test"))?.control;
}

it(
  "a call in the runner's own process ends at its deadline, however late it has begun",
  { timeout: 60_000 },
  async () => {
    const run = async (): Promise<never> => await new Promise(() => {});
    const tool = defineTool({
      name: "hangs",
      description: "d",
      input: { type: "object" },
      effect: "pure",
      run,
    });
    const context = {
      callId: "c1",
      turnId: "t1",
      signal: new AbortController().signal,
      actor: { app: "cli_1", userId: "ou_1", chatId: "oc_1" },
      authority: { by: "policy" as const },
      progress: () => undefined,
      log: () => undefined,
    };
    const request = { argumentsText: "{}", context, timeoutMs: 600_000, endsWithinMs: 500 };
    const outcome = await createInlineLevel().run(tool, request, async () => await delay(200));
    expect(outcome).toMatchObject({ ok: false, error: expect.stringContaining("did not answer") });
  },
);

describe("a job that fails for good", () => {
  it("answers a call that was not started with a plain error", async () => {
    const job = await bed.openCall({ name: "once", effect: "once" });
    await handler.fail(job, new Error("stalled"));
    expect(await stored(job.session)).toMatchObject([
      { outcome: { ok: false, error: "the runner could not work on the call" } },
    ]);
  });

  it("answers a `once` call that was started as unknown", async () => {
    const job = await bed.openCall({ name: "once", effect: "once" });
    await bed.store.begin(job.session, job.callId, job.effect);
    await handler.fail(job, new Error("stalled"));
    expect(await stored(job.session)).toMatchObject([{ outcome: { ok: false, unknown: true } }]);
  });

  it("changes nothing when the call was answered", async () => {
    const job = await bed.openCall({ name: "pure", effect: "pure" });
    await bed.store.deliver(job.session, job.callId, { ok: true, result: 1 });
    await handler.fail(job, new Error("stalled"));
    expect(await stored(job.session)).toMatchObject([{ outcome: { ok: true, result: 1 } }]);
  });
});

describe("a second delivery of a job, after the process died that had started its call", () => {
  it.each([
    ["its deadline is over", { name: "once", deadlineMs: Date.now() - 1 }],
    ["its tool is gone", { name: "gone" }],
    ["its envelope is not good", { name: "once", envelope: "x.y" }],
  ])("no answer says that the call was not run when %s", async (_, call) => {
    const job = await bed.openCall({ effect: "once", ...call });
    await bed.store.begin(job.session, job.callId, job.effect);
    expect(await handler.handle(job, new AbortController().signal)).toEqual({
      failed: expect.stringMatching(/not run|not started/),
    });
    await bed.handoffs.sweep();
    expect((await bed.store.summary(job.session)).state).toBe("suspended");
    expect(await bed.store.dueDeadlines(job.deadlineMs, 1_000)).toContainEqual({
      session: job.session,
      callId: job.callId,
    });
  });
});

describe("the job of a call", () => {
  it("has failed when its tool has, and finds the call answered when it comes again", async () => {
    const job = await bed.openCall({ name: "breaks", effect: "once" });
    const failed = { failed: "no disk" };
    expect(await handler.handle(job, closing.signal)).toEqual(failed);
    // The process died before its queue knew that.
    expect(await handler.handle(job, closing.signal)).toBe("done");
    expect(runs).toBe(1);
    expect(await stored(job.session)).toMatchObject([{ outcome: { ok: false, error: "no disk" } }]);
  });

  it("has not failed when the turn of the call is cancelled, or people are asked first", async () => {
    const job = await bed.openCall({ name: "pure", effect: "pure" });
    const handling = handler.handle(job, closing.signal);
    await expect.poll(() => runs).toBe(1);
    calls.cancel(job.session);
    expect(await handling).toBe("done");
    const asking = await bed.openCall({ name: "asks", effect: "pure" });
    expect(await handler.handle(asking, closing.signal)).toBe("done");
  });
});

describe("a runner without the tool that a call was made for", () => {
  it.each([
    ["none", { name: "gone" }],
    ["another version of it", { name: "pure", toolDigest: "another" }],
  ])("that has %s gives the call back while another process has the tool", async (_, call) => {
    isElsewhere = true;
    const job = await bed.openCall({ effect: "pure", ...call });
    expect(await handler.handle(job, closing.signal)).toBe("postpone");
    isElsewhere = false;
    expect(await handler.handle(job, closing.signal)).toEqual({
      failed: expect.stringContaining("it was not run"),
    });
    expect(await stored(job.session)).toMatchObject([{ outcome: { ok: false } }]);
  });
});

describe("a stopping runner", () => {
  it.each(["pure", "idempotent"] as const)(
    "gives a running %s call back to the queue, unanswered",
    async (effect) => {
      const job = await bed.openCall({ name: effect, effect });
      const handling = handler.handle(job, new AbortController().signal);
      await expect.poll(() => runs).toBe(1);
      calls.stop();
      expect(await handling).toBe("requeue");
      expect((await bed.store.summary(job.session)).state).toBe("suspended");
    },
  );

  it("answers a running `once` call as unknown", async () => {
    const job = await bed.openCall({ name: "once", effect: "once" });
    const handling = handler.handle(job, new AbortController().signal);
    await expect.poll(() => runs).toBe(1);
    calls.stop();
    const error = expect.stringMatching(/the runner was stopped during the call.*unknown/);
    expect(await handling).toEqual({ failed: error });
    expect(await stored(job.session)).toMatchObject([
      { outcome: { ok: false, error, unknown: true } },
    ]);
  });

  it("gives a call that it has not started back, so that another instance can run it", async () => {
    calls.stop();
    const job = await bed.openCall({ name: "once", effect: "once" });
    expect(await handler.handle(job, new AbortController().signal)).toBe("requeue");
    expect(runs).toBe(0);
    expect(await bed.store.begin(job.session, job.callId, job.effect)).toBe("run");
  });
});

it("a cancel stops the calls of its own turn, or of a whole session", async () => {
  const [first, second] = [
    await bed.openCall({ name: "pure", effect: "pure" }),
    await bed.openCall({ name: "pure", effect: "pure" }),
  ];
  const own = calls.start(first);
  const beside = calls.start({ ...second, session: first.session, turnId: `${first.turnId}0` });
  const other = calls.start(second);
  const stopped = () => [own, beside, other].map(({ signal }) => signal.aborted);
  calls.cancel(first.session, first.turnId);
  expect(stopped()).toEqual([true, false, false]);
  calls.cancel(first.session);
  expect(stopped()).toEqual([true, true, false]);
});

describe("a job that comes again while its call runs here, because the process stood still", () => {
  it.each(["pure", "idempotent", "once"] as const)(
    "does not run a %s call again, and ends as it ends",
    async (effect) => {
      const job = await bed.openCall({ name: effect, effect });
      const first = handler.handle(job, new AbortController().signal);
      await expect.poll(() => runs).toBe(1);
      const second = handler.handle(job, new AbortController().signal);
      calls.cancel(job.session);
      expect(await Promise.all([first, second])).toEqual(["done", "done"]);
      expect(runs).toBe(1);
      const error = expect.stringMatching(/^cancelled/);
      expect(await stored(job.session)).toMatchObject([{ outcome: { ok: false, error } }]);
    },
  );
});
