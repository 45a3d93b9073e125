import { setTimeout as delay } from "node:timers/promises";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createFileBlobStore } from "@larkline/store/blob-files";
import { blobIdOf } from "@larkline/store";
import { resultPage } from "@larkline/store/runners";
import { createLogger, Metrics, silentLogger, silentTelemetry } from "@larkline/process/telemetry";
import { defineTool, type HandlerTool, type Tool, type ToolContext } from "@larkline/tool-kit";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { CallAuthority, ToolLimits } from "@larkline/protocol/tool";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { startRunner, type RunnerSettings, type RunnerSetup, type ToolRunner } from "./runner.ts";
import { createTestBed, keyOf, until } from "./test-bed.fixture.ts";
import { toolsFrom } from "./tool-modules.ts";

let bed: ReturnType<typeof createTestBed>;
let runners: ToolRunner[] = [];

beforeEach(() => {
  bed = createTestBed(inject("redisUrl"));
});
afterEach(async () => {
  await Promise.all(runners.map(async (runner) => await runner.close()));
  runners = [];
  await bed.close();
});

function toolOf(
  name: string,
  run: (input: Record<string, unknown>, context: ToolContext) => unknown,
  more: Partial<Pick<Tool, "effect" | "timeoutMs" | "savesFiles">> & { limits?: ToolLimits } = {},
): HandlerTool {
  const input: Record<string, unknown> = { type: "object", properties: { n: { type: "number" } } };
  return defineTool({
    name,
    description: "d",
    input,
    effect: "pure",
    timeoutMs: 30_000,
    isolation: "inline",
    run,
    ...more,
  });
}

function configOf(runner: string): RunnerSettings {
  return {
    redisUrl: inject("redisUrl"),
    namespace: bed.namespace,
    runner,
    runnerKey: keyOf(runner),
    concurrency: 8,
  };
}

async function start(
  tools: readonly Tool[],
  changes: Partial<RunnerSetup> & { runner?: string } = {},
): Promise<ToolRunner> {
  const loaded = toolsFrom(tools);
  if (!loaded.ok) throw new Error(loaded.error);
  const runner = await startRunner({
    config: configOf(changes.runner ?? "r"),
    loaded: loaded.value,
    logger: silentLogger,
    metrics: new Metrics({ service: "test" }),
    telemetry: silentTelemetry,
    onRefused: (conflict) => {
      throw new Error(conflict);
    },
    graceMs: 300,
    ...changes,
  });
  runners.push(runner);
  return runner;
}

const never = (): Promise<never> => new Promise(() => {});

describe("a runner answers calls", () => {
  it("AL-40: unknown tool, invalid arguments, unparsable JSON and a throwing handler each become an error outcome", async () => {
    let runs = 0;
    const broken = toolOf("broken", () => {
      runs += 1;
      throw new Error("boom");
    });
    await start([broken]);
    const cases: [string, string, RegExp][] = [
      ["nope", "{}", /unknown tool "nope"/],
      ["broken", '{"n":"x"}', /n must be number/],
      ["broken", '{"n":', /not valid JSON/],
      ["broken", "{}", /^boom$/],
    ];
    for (const [name, args, error] of cases) {
      const job = await bed.send("r", { name, effect: "pure", arguments: args });
      expect(await bed.outcomeOf(job)).toEqual({ ok: false, error: expect.stringMatching(error) });
    }
    expect(runs).toBe(1);
  });

  it("SA-16: what is stored for a call is ok with the result, or not ok with the error, and nothing else", async () => {
    const weather = { city: "上海", degrees: [21, null], rain: false };
    const tools = {
      object: () => weather,
      text: () => '"晴"',
      nothing: () => undefined,
      fail: () => Promise.reject(new Error("没有")),
    };
    await start(Object.entries(tools).map(([name, run]) => toolOf(name, run)));
    const stored: Record<string, unknown> = {};
    for (const name of Object.keys(tools)) {
      stored[name] = await bed.outcomeOf(await bed.send("r", { name, effect: "pure" }));
    }
    expect(stored).toStrictEqual({
      object: { ok: true, result: weather },
      text: { ok: true, result: '"晴"' },
      nothing: { ok: true, result: null },
      fail: { ok: false, error: "没有" },
    });
  });

  it("tells the tool for whom it acts", async () => {
    await start([
      toolOf("who", (_input, { actor, callId, turnId }) => ({ actor, callId, turnId })),
    ]);
    const job = await bed.send("r", { name: "who", effect: "pure" });
    const { actor, callId, turnId } = job;
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: { actor, callId, turnId } });
  });

  it("keeps what a tool saves in the folder that workers share, where there is one", async () => {
    const directory = mkdtempSync(join(tmpdir(), "larkline-blobs-"));
    const png = Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1");
    const draw = toolOf(
      "draw",
      (_input, context) => context.saveFile(png, { mediaType: "image/png" }),
      {
        savesFiles: true,
      },
    );
    await start([draw], { config: { ...configOf("r"), blobDirectory: directory } });
    const outcome = await bed.outcomeOf(await bed.send("r", { name: "draw", effect: "pure" }));
    const id = blobIdOf(png);
    expect(outcome).toEqual({ ok: true, result: `![image](blob:${id})` });
    expect((await createFileBlobStore({ directory }).get(id))?.bytes).toEqual(png);
    expect(await bed.blobs.get(id)).toBeUndefined();
    rmSync(directory, { recursive: true });
  });

  it("keeps what a tool saves where workers find it, and puts its Markdown into the outcome", async () => {
    const png = Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1");
    const facts = { mediaType: "image/png", name: "bars" };
    await start([
      toolOf("draw", (_input, context) => context.saveFile(png, facts), { savesFiles: true }),
    ]);
    const outcome = await bed.outcomeOf(await bed.send("r", { name: "draw", effect: "pure" }));
    const id = blobIdOf(png);
    expect(outcome).toEqual({ ok: true, result: `![bars](blob:${id})` });
    expect(await bed.blobs.get(id)).toEqual({ bytes: png, facts });
  });

  it("tells the tool who allowed the call, and keeps its id through every attempt", async () => {
    await start([
      toolOf("who", (_input, { callId, authority }) => ({ callId, authority }), { effect: "once" }),
    ]);
    const authority: CallAuthority = { by: "approval", id: "a1", people: ["ou_2"] };
    const attempt = { attempt: 2, callId: "c1", claims: { authority } };
    const job = await bed.send("r", { name: "who", effect: "once", ...attempt });
    expect(await bed.answerOf(job)).toMatchObject({
      callId: "c1.2",
      outcome: { ok: true, result: { callId: "c1", authority } },
    });
  });

  it("says how long the call waited and ran, and who began and answered it", async () => {
    // Of the clock of Redis a process knows no more than half of a round trip allows: both times are of one clock here.
    const clock: Clock = { ...systemClock, now: () => Date.now() };
    await start([toolOf("wait", async () => await delay(60), { effect: "once" })], { clock });
    const job = await bed.send("r", {
      name: "wait",
      effect: "once",
      queuedAtMs: Date.now() - 5_000,
    });
    const { timing } = await bed.answerOf(job);
    expect(timing?.queuedMs).toBeGreaterThanOrEqual(5_000);
    expect(timing?.ranMs).toBeGreaterThanOrEqual(50);
    const audit = (await bed.audit(job.session)).filter(({ callId }) => callId === job.callId);
    expect(audit).toMatchObject([
      { kind: "call_opened" },
      { kind: "call_started", runner: "r" },
      { kind: "call_ended", runner: "r", result: "ok" },
    ]);
  });

  it("refuses a call that is not signed for it, runs nothing, and logs why without what was sent", async () => {
    let runs = 0;
    const lines: string[] = [];
    const logger = createLogger({
      service: "t",
      destination: { write: (line) => void lines.push(line) },
    });
    await start([toolOf("count", () => (runs += 1))], { logger });
    const call = { name: "count", effect: "pure", arguments: '{"n":7}' } as const;
    const forged = [
      await bed.send("r", { ...call, envelope: "made.up" }),
      await bed.send("r", { ...call, claims: { argumentsHash: "0" } }),
      await bed.send("r", { ...call, claims: { expiresAtMs: 1 } }),
      await bed.send("r", { ...call, claims: { runner: "other" } }),
    ];
    for (const job of forged) {
      expect(await bed.outcomeOf(job)).toEqual({
        ok: false,
        error: expect.stringMatching(/refused .* was not run$/),
      });
    }
    expect(runs).toBe(0);
    for (const reason of [
      "the signature is wrong",
      "another argumentsHash",
      "it has expired",
      "another runner",
    ]) {
      expect(lines.join("")).toContain(reason);
    }
    expect(lines.join("")).not.toContain("made.up");
    expect(lines.join("")).not.toContain('"n"');
  });

  it("keeps a large result where it can be read page by page, and hands over its head and tail", async () => {
    const whole = Array.from({ length: 40_000 }, (_, row) => `row ${row} 长`).join("\n");
    await start([toolOf("list", () => whole), toolOf("short", () => "x".repeat(262_144))]);
    const job = await bed.send("r", { name: "list", effect: "pure" });
    const outcome = await bed.outcomeOf(job);
    if (!outcome.ok || outcome.stored === undefined) {
      throw new Error(JSON.stringify(outcome).slice(0, 200));
    }
    const { handle, characters } = outcome.stored;
    expect(characters).toBe(whole.length);
    expect(outcome.result).toMatch(/^row 0 长\n/);
    expect(outcome.result).toMatch(/row 39999 长$/);
    expect(String(outcome.result).length).toBeLessThan(51_000);
    const page = await resultPage(bed, job.session, { handle, offset: 100_000, characters: 50 });
    expect(page).toEqual({
      text: whole.slice(100_000, 100_050),
      characters: whole.length,
      nextOffset: 100_050,
    });
    expect(
      await resultPage(bed, "app.other", { handle, offset: 0, characters: 50 }),
    ).toBeUndefined();
    expect(
      await bed.outcomeOf(await bed.send("r", { name: "short", effect: "pure" })),
    ).not.toHaveProperty("stored");
  });

  it("EE-44: publishes what a tool says while it runs, as messages of kind log", async () => {
    await start([toolOf("talk", (_input, { log }) => log("half way", { rows: 7 }))]);
    const job = await bed.send("r", { name: "talk", effect: "pure" });
    await bed.outcomeOf(job);
    expect(await bed.events(job)).toContainEqual({
      type: "inbox_message",
      messageType: "log",
      toolUseId: job.callId,
      data: 'half way {"rows":7}\n',
      meta: '{"toolName":"talk"}',
    });
  });

  it("runs no more calls of a limited tool than it may, over all instances, beside those of other tools", async () => {
    const gates: (() => void)[] = [];
    let running = 0;
    let most = 0;
    const narrow = toolOf(
      "narrow",
      async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise<void>((resolve) => gates.push(resolve));
        running -= 1;
      },
      { limits: { concurrency: 2 } },
    );
    const wide = toolOf("wide", () => "free");
    await Promise.all([start([narrow, wide]), start([narrow, wide])]);
    const options = { limitedTools: new Set(["narrow"]) };
    const jobs = await Promise.all(
      Array.from(
        { length: 6 },
        async () => await bed.send("r", { name: "narrow", effect: "pure" }, options),
      ),
    );
    await until("two at work", () => (gates.length === 2 ? true : undefined));
    expect(await bed.outcomeOf(await bed.send("r", { name: "wide", effect: "pure" }))).toEqual({
      ok: true,
      result: "free",
    });
    for (let ended = 0; ended < jobs.length; ended += 1) {
      await until("the next call", () => (gates.length > ended ? true : undefined));
      gates[ended]?.();
    }
    for (const job of jobs) expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: null });
    expect(most).toBe(2);
  });

  it("runs the calls of a batch in parallel", async () => {
    let waiting = 0;
    const gate = Promise.withResolvers<void>();
    await start([
      toolOf("meet", async () => {
        waiting += 1;
        if (waiting === 4) gate.resolve();
        await gate.promise;
      }),
    ]);
    const jobs = await Promise.all(
      [1, 2, 3, 4].map(async () => await bed.send("r", { name: "meet", effect: "pure" })),
    );
    for (const job of jobs) expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: null });
  });

  it("does not start a call whose deadline has passed", async () => {
    let runs = 0;
    await start([toolOf("count", () => (runs += 1))]);
    const job = await bed.send("r", {
      name: "count",
      effect: "pure",
      deadlineMs: Date.now() - 10_000,
    });
    expect(await bed.outcomeOf(job)).toMatchObject({
      ok: false,
      error: expect.stringContaining("deadline"),
    });
    expect(runs).toBe(0);
  });

  it("ends a call at the tool's timeout or the call's deadline, whichever is first", async () => {
    // The deadline of a call comes when the call runs, however late that is.
    const deadlines = new Set<() => void>();
    const after: Clock["after"] = (ms, work) => {
      if (ms < 50_000) return systemClock.after(ms, work);
      deadlines.add(work);
      return () => deadlines.delete(work);
    };
    const run = async (): Promise<never> => {
      setImmediate(() => deadlines.forEach((ring) => ring()));
      return await never();
    };
    const tools = [
      toolOf("short", never, { timeoutMs: 50 }),
      toolOf("long", run, { timeoutMs: 600_000 }),
    ];
    await start(tools, { clock: { ...systemClock, after } });
    const short = await bed.send("r", { name: "short", effect: "pure" });
    const long = await bed.send("r", {
      name: "long",
      effect: "pure",
      deadlineMs: Date.now() + 100_000,
    });
    for (const job of [short, long]) {
      expect(await bed.outcomeOf(job)).toMatchObject({
        ok: false,
        error: expect.stringContaining("did not answer within"),
      });
    }
  });

  it("does not run a call that was answered meanwhile, and adds the lost wake-up again", async () => {
    let runs = 0;
    const job = await bed.openCall({ name: "count", effect: "once" });
    // Answered, but the runner died before it added the wake-up.
    await bed.store.deliver(job.session, job.callId, { ok: true, result: "first" });
    await bed.queues.dispatch("r", [job]);
    await start([toolOf("count", () => (runs += 1), { effect: "once" })]);
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "first" });
    expect(runs).toBe(0);
  });

  it("does not run a `once` call that was started before; a `pure` one it runs", async () => {
    let runs = 0;
    const once = await bed.openCall({ name: "once", effect: "once" });
    const pure = await bed.openCall({ name: "pure", effect: "pure" });
    // A stale worker calls the tool pure; the runner's own definition is stricter and wins.
    const mislabelled = await bed.openCall({ name: "once", effect: "pure" });
    for (const job of [once, pure, mislabelled]) {
      await bed.store.begin(job.session, job.callId, job.effect);
    }
    await bed.queues.dispatch("r", [once, pure, mislabelled]);
    await start([
      toolOf("once", () => (runs += 1), { effect: "once" }),
      toolOf("pure", () => "ran"),
    ]);
    expect(await bed.outcomeOf(once)).toMatchObject({ ok: false, unknown: true });
    expect(await bed.outcomeOf(mislabelled)).toMatchObject({ ok: false, unknown: true });
    expect(await bed.outcomeOf(pure)).toEqual({ ok: true, result: "ran" });
    expect(runs).toBe(0);
  });

  it("stops the calls of a cancelled turn and leaves others alone", async () => {
    const started: string[] = [];
    const aborted: string[] = [];
    const gate = Promise.withResolvers<string>();
    const hang = toolOf("hang", async (_input, { callId, signal }) => {
      started.push(callId);
      signal.addEventListener("abort", () => aborted.push(callId));
      return await gate.promise;
    });
    await start([hang]);
    const cancelled = await bed.send("r", { name: "hang", effect: "pure" });
    const other = await bed.send("r", { name: "hang", effect: "pure" });
    await until("both runs", () => (started.length === 2 ? true : undefined));
    await bed.busOf("r").publish({ session: cancelled.session, turnId: "another-turn" });
    await bed.busOf("r").publish({ session: cancelled.session, turnId: cancelled.turnId });
    expect(await bed.outcomeOf(cancelled)).toEqual({ ok: false, error: "cancelled" });
    gate.resolve("undisturbed");
    expect(await bed.outcomeOf(other)).toEqual({ ok: true, result: "undisturbed" });
    expect(aborted).toEqual([cancelled.callId]);
  });

  it("writes no arguments and no results to its log", async () => {
    const lines: string[] = [];
    const logger = createLogger({
      service: "t",
      level: "debug",
      destination: { write: (line) => void lines.push(line) },
    });
    await start([toolOf("echo", (input) => input)], { logger });
    const job = await bed.send("r", {
      name: "echo",
      effect: "pure",
      arguments: '{"secret":"geheim"}',
    });
    await bed.outcomeOf(job);
    expect(lines.join("")).toContain(job.callId);
    expect(lines.join("")).not.toContain("geheim");
  });
});

describe("a runner in the directory", () => {
  it("is found while it runs and away when it is closed", async () => {
    const runner = await start([toolOf("one", () => 1)]);
    expect((await bed.directory.tools()).get("one")).toMatchObject({
      runner: "r",
      announcement: { effect: "pure" },
    });
    await runner.close();
    expect(await bed.directory.runners()).toEqual([]);
    expect((await bed.directory.tools()).get("one")?.awayForMs).toBeGreaterThan(0);
  });

  it("is refused when another living runner offers the tool, and accepted once that one is away", async () => {
    const first = await start([toolOf("one", () => 1)]);
    await expect(start([toolOf("one", () => 1)], { runner: "r2" })).rejects.toThrow(
      /belongs to runner 'r'/,
    );
    await first.close();
    await start([toolOf("one", () => 2)], { runner: "r2" });
    expect((await bed.directory.tools()).get("one")?.runner).toBe("r2");
  });

  it("a new build with a changed tool takes over while the old one lives, and the old one takes calls again without it", async () => {
    const changed = defineTool({
      name: "one",
      description: "now with another schema",
      input: { type: "object", properties: { m: { type: "string" } } },
      effect: "pure",
      isolation: "inline",
      run: () => "new",
    });
    await start([toolOf("one", () => "old")]);
    const newer = await start([changed]);
    expect((await bed.directory.tools()).get("one")?.announcement.spec.description).toBe(
      "now with another schema",
    );
    const superseded = async (): Promise<boolean> =>
      (await bed.directory.runners()).some(({ isCurrent }) => !isCurrent);
    expect(await superseded()).toBe(true);
    for (let i = 0; i < 20; i += 1) {
      const job = await bed.send("r", { name: "one", effect: "pure" });
      expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "new" });
    }
    await newer.close();
    const job = await bed.send("r", { name: "one", effect: "pure" });
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "old" });
  });

  it("answers a call that waited for a tool that is another one by now, and does not run it", async () => {
    const job = await bed.send("r", {
      name: "one",
      effect: "pure",
      toolDigest: "of another schema",
    });
    let ran = 0;
    await start([toolOf("one", () => (ran += 1))]);
    expect(await bed.outcomeOf(job)).toMatchObject({
      ok: false,
      error: expect.stringMatching(/^tool_changed: /),
    });
    const announced = (await bed.directory.tools()).get("one")?.announcement.digest;
    const fitting = await bed.send("r", {
      name: "one",
      effect: "pure",
      toolDigest: announced ?? "",
    });
    expect(await bed.outcomeOf(fitting)).toEqual({ ok: true, result: 1 });
  });

  it("leaves waiting calls to the next instance when its last one closes", async () => {
    const one = await start([toolOf("hang", never)], { graceMs: 50 });
    const jobs = await Promise.all(
      Array.from({ length: 20 }, async () => await bed.send("r", { name: "hang", effect: "pure" })),
    );
    await one.close();
    for (const job of jobs) expect((await bed.store.summary(job.session)).state).toBe("suspended");
    await start([toolOf("hang", () => "the next one")]);
    for (const job of jobs) {
      expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "the next one" });
    }
  });
});
