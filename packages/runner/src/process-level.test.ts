import { existsSync } from "node:fs";
import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { ToolOutcome } from "@larkline/protocol/tool";
import { isLongRun } from "@larkline/testkit";
import type { RunToolRequest, StoreFile } from "@larkline/tool-kit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { createProcessLevel, type ProcessLevelOptions } from "./process-level.ts";
import { until } from "./test-bed.fixture.ts";
import type { ToolLevel } from "./level.ts";
import { loadTools, type LoadedTools } from "./tool-modules.ts";

const begin = async (): Promise<undefined> => await Promise.resolve(undefined);

// Starting processes takes its time on a busy machine.

const actor = { app: "app", userId: "ou_1", chatId: "oc_1" };
const environment = {
  REDIS_URL: "redis://:geheim@host",
  RUNNER_KEY: "geheim",
  LARKLINE_SECRET: "geheim",
  LARKLINE_GIVEN: "given",
};

/** With a child that waits for the first call. */
async function openProcessLevel(options: ProcessLevelOptions): Promise<ToolLevel> {
  const opened = createProcessLevel(options);
  await opened.warm?.();
  return opened;
}

let loaded: LoadedTools;
let level: ToolLevel;
const lines: string[] = [];
let told: unknown[] = [];

beforeAll(async () => {
  const fixture = fileURLToPath(new URL("faulty-tools.fixture.ts", import.meta.url));
  const tools = await loadTools([fixture], { directory: "/" });
  if (!tools.ok) throw new Error(tools.error);
  loaded = tools.value;
  level = await openProcessLevel({
    loaded,
    environment,
    concurrency: 4,
    onLine: (line) => void lines.push(line),
    onDropped: () => {},
  });
});
afterAll(async () => await level.close());
beforeEach(() => {
  told = [];
});

interface Changes {
  argumentsText?: string;
  signal?: AbortSignal;
  storeFile?: StoreFile;
  timeoutMs?: number;
  callId?: string;
}

function requestOf({
  signal = new AbortController().signal,
  callId = "c1",
  ...changes
}: Changes): RunToolRequest {
  return {
    argumentsText: "{}",
    maxOutputBytes: 4_000_000,
    ...changes,
    context: {
      callId,
      turnId: "t1",
      signal,
      actor,
      authority: { by: "approval", id: "a1", people: ["ou_2"] },
      progress: (fraction, detail) => void told.push([fraction, detail]),
      log: (message, fields) => void told.push([message, fields]),
    },
  };
}

async function call(name: string, changes: Changes = {}): Promise<ToolOutcome> {
  return await level.run(loaded.registry.get(name), requestOf(changes), begin);
}

/** Of a call whose tool did something bad: the next one finds everything as it was. */
async function expectContained(): Promise<void> {
  expect(await call("echo", { argumentsText: '{"城":"上海"}' })).toEqual({
    ok: true,
    result: { 城: "上海" },
  });
}

describe("a tool in a process of its own", () => {
  it("gets its input, and for whom and by whose leave it acts", async () => {
    expect(await call("echo", { argumentsText: '{"a":[1,null,"晴"]}' })).toEqual({
      ok: true,
      result: { a: [1, null, "晴"] },
    });
    expect(await call("whoami")).toEqual({
      ok: true,
      result: {
        callId: "c1",
        turnId: "t1",
        actor,
        authority: { by: "approval", id: "a1", people: ["ou_2"] },
      },
    });
  });

  it("is not run with arguments that do not fit", async () => {
    expect(await call("echo", { argumentsText: "[1]" })).toMatchObject({
      ok: false,
      error: /arguments/,
    });
  });

  it("stays warm: its module is loaded once, and 1,000 calls later it is the same process with no more memory", async () => {
    const first = await call("pid");
    for (let n = 0; n < 100; n += 1) await call("count");
    const before = process.memoryUsage.rss();
    for (let n = 0; n < 1_000; n += 1) await call("count");
    expect(await call("pid")).toEqual(first);
    expect(await call("count")).toEqual({ ok: true, result: 1_101 });
    expect(process.memoryUsage.rss() - before).toBeLessThan(60 * 1_048_576);
  });

  it("runs beside others, each in a process that it has to itself meanwhile", async () => {
    const outcomes = await Promise.all([1, 2, 3, 4, 5, 6].map(async () => await call("pid")));
    expect(outcomes.every(({ ok }) => ok)).toBe(true);
    const patient = await Promise.all([1, 2, 3].map(async () => await call("spin")));
    expect(patient.every(({ ok }) => !ok)).toBe(true);
  });

  it.runIf(isLongRun)(
    "shares a few processes with other short calls, however many come at once",
    async () => {
      const own = await openProcessLevel({
        loaded,
        environment,
        concurrency: 64,
        onLine: () => {},
        onDropped: () => {},
      });
      const tool = loaded.registry.get("pid");
      const outcomes = await Promise.all(
        Array.from({ length: 200 }, async () => await own.run(tool, requestOf({}), begin)),
      );
      await own.close();
      const processes = new Set(
        outcomes.map((outcome) => (outcome.ok ? outcome.result : outcome.error)),
      );
      // The warm one, and those that are started while it answers no call: how many depends on the machine's load. With
      // one for each call that may run, there would be 64.
      expect(processes.size).toBeLessThan(64);
    },
  );

  it.runIf(isLongRun)(
    "waits for a process no longer than its deadline, and does not begin then; no more are started than fit",
    async () => {
      const options = {
        loaded,
        environment,
        concurrency: 16,
        childrenAtMost: 1,
        onLine: () => {},
        onDropped: () => {},
      };
      const own = await openProcessLevel(options);
      const tool = loaded.registry.get("spin");
      let begun = 0;
      const counted = async (): Promise<undefined> => {
        begun += 1;
        return await Promise.resolve(undefined);
      };
      // Longer than the two processes that there is room for can need for more than one call each.
      const request = { ...requestOf({ timeoutMs: 6_000 }), endsWithinMs: 3_000 };
      const outcomes = await Promise.all(
        Array.from({ length: 8 }, async () => await own.run(tool, request, counted)),
      );
      await own.close();
      const waited = outcomes.filter(
        (outcome) => !outcome.ok && outcome.error.includes("it was not run"),
      );
      expect(begun).toBeGreaterThan(0);
      expect(begun).toBeLessThanOrEqual(2);
      expect(waited).toHaveLength(outcomes.length - begun);
    },
  );

  it("ends at its deadline, however late it has begun", { timeout: 60_000 }, async () => {
    const slowly = async (): Promise<undefined> => await delay(1_500);
    const request = { ...requestOf({ timeoutMs: 600_000 }), endsWithinMs: 3_000 };
    const outcome = await level.run(loaded.registry.get("spin"), request, slowly);
    expect(outcome).toMatchObject({ ok: false, error: expect.stringContaining("did not answer") });
  });

  it("sees none of the runner's variables but those that it names", async () => {
    const [bare, given] = [await call("variables"), await call("named_variable")];
    expect(JSON.stringify([bare, given, await call("arguments_of_process")])).not.toContain(
      "geheim",
    );
    expect(Object.keys(bare.ok ? Object(bare.result) : {}).sort()).toEqual([
      "LANG",
      "PATH",
      "PWD",
      "TZ",
    ]);
    expect(given).toMatchObject({ ok: true, result: { LARKLINE_GIVEN: "given" } });
    expect(given).not.toMatchObject({ result: { NOT_SET: expect.anything() } });
  });

  it("starts from code that was compiled before, and without what checks definitions: its runner has done that", async () => {
    expect(await call("start_of_process")).toEqual({
      ok: true,
      result: {
        codeCache: expect.stringContaining(join(tmpdir(), "larkline-code-")),
        checkers: [],
      },
    });
  });

  it("tells progress and lines while it runs; what it prints goes to the runner's log", async () => {
    expect(await call("talk")).toEqual({ ok: true, result: "done" });
    expect(told).toEqual([
      [0.25, "a quarter"],
      ["half way", { rows: 7 }],
      [1, undefined],
    ]);
    await until("the printed line", () => (lines.includes("a line on stderr") ? true : undefined));
  });

  it.runIf(isLongRun)("does not keep its runner busy by telling very much", async () => {
    const outcome = await call("chatter");
    expect(outcome).toEqual({ ok: true, result: "tired" });
    expect(told.length).toBeLessThan(1_200);
    expect(told).toContainEqual(["further lines are left out", undefined]);
  });

  it("EE-44: messages of an unknown kind are dropped and reported, without what they say", async () => {
    const dropped: string[] = [];
    const onDropped = (tool: string, reason: string): void =>
      void dropped.push(`${tool}: ${reason}`);
    const own = await openProcessLevel({
      loaded,
      environment,
      concurrency: 1,
      onLine: () => {},
      onDropped,
    });
    const outcome = await own.run(loaded.registry.get("gossip"), requestOf({}), begin);
    expect(outcome).toEqual({ ok: true, result: "said" });
    expect(told).toEqual([]);
    expect(dropped).toEqual(['gossip: messages of kind "gossip" do not exist']);
    await own.close();
  });

  it("saves files through its runner", async () => {
    const kept: number[] = [];
    const storeFile: StoreFile = async (bytes) => {
      kept.push(bytes.byteLength);
      return await Promise.resolve(`blob_${"x".repeat(43)}`);
    };
    expect(await call("draw", { storeFile })).toEqual({
      ok: true,
      result: `![p](blob:blob_${"x".repeat(43)})`,
    });
    expect(kept).toEqual([12]);
    expect(await call("draw")).toMatchObject({
      ok: false,
      error: expect.stringContaining("cannot be saved"),
    });
  });

  it("hands over large results", async () => {
    const outcome = await call("large");
    expect(outcome.ok && String(outcome.result).length).toBe(400_000);
  });
});

/** Each ends a process; `npm test` has one of each kind. */
const faults: [string, RegExp][] = [
  ["exit", /exit code 3/],
  ["spin", /did not answer within 300 ms/],
  ["heap", /out of memory/],
  ["abort", /SIGABRT/],
  ["late_throw", /ended before it had answered/],
  ["buffers", /out of memory/],
  ["shot", /ended before it had answered/],
  ["deep", /nested deeper/],
];

describe("the fault of a tool stays in its process", () => {
  it.each(isLongRun ? faults : faults.slice(0, 3))(
    "%s: an error that says so, and the next call is none the worse",
    async (name, error) => {
      expect(await call(name)).toEqual({ ok: false, error: expect.stringMatching(error) });
      await expectContained();
    },
  );

  it.each(isLongRun ? ["exit_once", "spin_once", "unsure"] : ["exit_once"])(
    "%s: of a `once` call it is unknown whether it took effect",
    async (name) => {
      expect(await call(name)).toMatchObject({ ok: false, unknown: true });
      await expectContained();
    },
  );

  it("a cancelled call is answered at once, whether its tool obeys or not, and its process ends", async () => {
    for (const name of ["obedient", "deaf"]) {
      const cancel = new AbortController();
      const calling = call(name, { signal: cancel.signal });
      setTimeout(() => cancel.abort(new Error("cancelled")), 200);
      const startedMs = performance.now();
      expect(await calling).toEqual({ ok: false, error: "cancelled" });
      expect(performance.now() - startedMs).toBeLessThan(15_000);
    }
    await expectContained();
  });

  it("a call that is cancelled before it starts is not run", async () => {
    const signal = AbortSignal.abort(new Error("cancelled"));
    expect(await call("count", { signal })).toEqual({ ok: false, error: "cancelled" });
  });

  it("what a tool started ends with its process", async () => {
    const own = await openProcessLevel({
      loaded,
      environment,
      concurrency: 1,
      onLine: () => {},
      onDropped: () => {},
    });
    const outcome = await own.run(loaded.registry.get("leave_behind"), requestOf({}), begin);
    const pid = outcome.ok ? Number(outcome.result) : 0;
    expect(() => process.kill(pid, 0)).not.toThrow();
    await own.close();
    await until("the end of what was left behind", () => {
      try {
        process.kill(pid, 0);
        return undefined;
      } catch {
        return true;
      }
    });
  });
});

describe("tools that share a process", () => {
  let own: ToolLevel;
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "shared-"));
    // One at a time: a machine that is busy would start a second one, and calls that should meet would not.
    const options = { loaded, environment, concurrency: 16, childrenAtMost: 1 };
    own = await openProcessLevel({ ...options, onLine: () => {}, onDropped: () => {} });
  });
  afterEach(async () => {
    await own.close();
    await rm(directory, { recursive: true });
  });

  async function run(
    name: string,
    input: object = {},
    changes: Changes = {},
  ): Promise<ToolOutcome> {
    const request = requestOf({ ...changes, argumentsText: JSON.stringify(input) });
    return await own.run(loaded.registry.get(name), request, begin);
  }

  /** Starts a call of `hold`, and gives its file when it runs. */
  async function holding(
    tool: string,
    runs: number,
  ): Promise<{ notes: string; outcome: Promise<ToolOutcome> }> {
    const notes = join(directory, `${tool}-${runs}`);
    const outcome = run(tool, { notes, until: runs });
    await vi.waitUntil(() => existsSync(notes), { timeout: 60_000, interval: 10 });
    return { notes, outcome };
  }

  it("run in it at once, as many calls as they say", async () => {
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, async () => await run("meet", { calls: 10 })),
    );
    expect(new Set(outcomes.map((outcome) => JSON.stringify(outcome))).size).toBe(1);
    expect(outcomes[0]).toMatchObject({ ok: true, result: expect.any(Number) });
  });

  it("lose it together: repeatable calls run once more in one that they do not share, outcomes of `once` calls are unknown", async () => {
    const [pure, once] = [await holding("hold", 2), await holding("hold_once", 2)];
    expect(await run("shared_exit")).toEqual({
      ok: false,
      error: expect.stringMatching(/exit code 3/),
    });
    expect(await once.outcome).toMatchObject({ ok: false, unknown: true });
    expect(await pure.outcome).toMatchObject({ ok: true, result: expect.stringMatching(/^2 /) });
    expect(await readFile(once.notes, "utf8")).toBe("run\n");
    expect(await run("meet", { calls: 1 })).toMatchObject({ ok: true });
  });

  it("leave it to the others when one is cancelled and does not obey: it ends after them", async () => {
    const pure = await holding("hold", 9);
    const cancel = new AbortController();
    const deaf = run("shared_deaf", {}, { signal: cancel.signal });
    await run("meet", { calls: 1 }); // it came after the deaf one
    cancel.abort(new Error("cancelled"));
    expect(await deaf).toEqual({ ok: false, error: "cancelled" });
    const next = await run("meet", { calls: 1 });
    await appendFile(pure.notes, "go\n");
    const held = await pure.outcome;
    expect(held).toMatchObject({ ok: true, result: expect.stringMatching(/^1 /) });
    // It took no further call.
    expect(held).not.toMatchObject({ result: `1 ${next.ok ? String(next.result) : ""}` });
  });

  it("are killed with it when one blocks it beyond its deadline, and run once more", async () => {
    const pure = await holding("hold", 2);
    expect(await run("shared_spin")).toMatchObject({
      ok: false,
      error: expect.stringMatching(/did not answer within/),
    });
    expect(await pure.outcome).toMatchObject({ ok: true, result: expect.stringMatching(/^2 /) });
  });
});

it.runIf(isLongRun)(
  "a process that was started for waiting calls ends when no call has needed it for a minute",
  async () => {
    const notes = join(await mkdtemp(join(tmpdir(), "larkline-level-")), "notes");
    let laterMs = 0;
    const looks = new Set<() => void>();
    const clock: Clock = {
      ...systemClock,
      monotonic: () => systemClock.monotonic() + laterMs,
      after: (ms, work) => {
        const cancel = systemClock.after(ms, work);
        if (ms === 15_000) looks.add(work);
        return () => {
          looks.delete(work);
          cancel();
        };
      },
    };
    const options = {
      loaded,
      environment,
      concurrency: 64,
      clock,
      onLine: () => {},
      onDropped: () => {},
    };
    const own = await openProcessLevel(options);
    const hold = async (count: number) => {
      const request = requestOf({ argumentsText: JSON.stringify({ notes, until: 20 }) });
      const calls = Array.from(
        { length: count },
        async () => await own.run(loaded.registry.get("hold"), request, begin),
      );
      const outcomes = await Promise.all(calls);
      return new Set(
        outcomes.map((outcome) => (outcome.ok ? Number(String(outcome.result).split(" ")[1]) : 0)),
      );
    };
    const lives = (pid: number): boolean => {
      try {
        return process.kill(pid, 0);
      } catch {
        return false;
      }
    };
    // One process takes 16 of them.
    const pids = await hold(20);
    expect(pids.size).toBe(2);
    laterMs = 61_000;
    for (const look of looks) look();
    await vi.waitUntil(() => [...pids].filter(lives).length === 1, {
      timeout: 60_000,
      interval: 10,
    });
    expect([...(await hold(1))]).toEqual([...pids].filter(lives));
    await own.close();
    await rm(dirname(notes), { recursive: true });
  },
);

describe("a runner without a call", () => {
  it("starts no process; the first call does", async () => {
    const own = createProcessLevel({
      loaded,
      environment,
      concurrency: 1,
      onLine: () => {},
      onDropped: () => {},
    });
    expect(await own.run(loaded.registry.get("pid"), requestOf({}), begin)).toMatchObject({
      ok: true,
    });
    await own.close();
  });
});

describe("a module that cannot be loaded in a process of its own", () => {
  it("is refused when the first one starts, with the reason", async () => {
    const modules = new Map(
      [...loaded.modules.keys()].map((name) => [name, "file:///nowhere/tools.ts"]),
    );
    const opening = openProcessLevel({
      loaded: { ...loaded, modules },
      environment,
      concurrency: 1,
      onLine: () => {},
      onDropped: () => {},
    });
    await expect(opening).rejects.toThrow(
      /file:\/\/\/nowhere\/tools\.ts cannot be loaded in a process of its own/,
    );
  });
});
