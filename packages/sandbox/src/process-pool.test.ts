import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  createProcessPool,
  ProcessCallError,
  type ProcessPool,
  type ProcessPoolOptions,
} from "./index.ts";
import { descendantsOf, isAlive } from "./process-table.fixture.ts";

const patience = { timeout: 120_000, interval: 20 };
const never = new AbortController().signal;
let pool: ProcessPool;

function open(options: Partial<ProcessPoolOptions> = {}): void {
  pool = createProcessPool({
    entry: new URL("./echo-child.fixture.ts", import.meta.url),
    size: 1,
    ...options,
  });
}
afterEach(async () => {
  await pool.close();
  await vi.waitFor(
    () =>
      expect(
        descendantsOf(process.pid).filter(({ command }) => command.includes("echo-child")),
      ).toEqual([]),
    patience,
  );
});

interface Extras {
  signal?: AbortSignal;
  timeoutMs?: number;
  events?: unknown[];
  onRequest?: (body: unknown) => Promise<unknown>;
}

async function call(deed: string, value?: unknown, extras: Extras = {}): Promise<unknown> {
  return await pool.call(
    { deed, value },
    {
      signal: extras.signal ?? never,
      timeoutMs: extras.timeoutMs ?? 20_000,
      onEvent: (body) => extras.events?.push(body),
      onRequest: extras.onRequest ?? (async () => null),
    },
  );
}

async function failure(
  deed: string,
  value?: unknown,
  extras: Extras = {},
): Promise<ProcessCallError> {
  const error = await call(deed, value, extras).catch((reason: unknown) => reason);
  if (!(error instanceof ProcessCallError)) {
    throw new Error(`no ProcessCallError: ${String(error)}`);
  }
  return error;
}

async function pidOf(): Promise<number> {
  return ((await call("facts")) as { pid: number }).pid;
}

describe("calls", () => {
  it("that a child could not read reach none: they would end it, and leave open what it did", async () => {
    open();
    const pid = await pidOf();
    const deep: unknown = JSON.parse("[".repeat(80) + "]".repeat(80));
    await expect(call("echo", deep)).rejects.toThrow("nested deeper");
    expect(await pidOf()).toBe(pid);
  });

  it("bodies, results and events are JSON values, and one child takes call after call", async () => {
    open();
    const value = { 城: "上海", list: [1, null, { deep: true }] };
    expect(await call("echo", value)).toEqual(value);
    expect(await call("echo")).toBeNull();
    const events: unknown[] = [];
    expect(await call("events", 3, { events })).toBe("done");
    expect(events).toEqual([{ i: 0 }, { i: 1 }, { i: 2 }]);
    expect(await call("facts")).toMatchObject({ calls: 4 });
  });

  it("a handler can ask its caller, and gets an error when the caller refuses", async () => {
    open();
    const onRequest = async (body: unknown): Promise<unknown> => {
      if (body === "secret") throw new Error("not yours");
      return { echoed: body };
    };
    expect(await call("ask", 7, { onRequest })).toEqual({ answered: { echoed: 7 } });
    expect(await failure("ask", "secret", { onRequest })).toMatchObject({
      failure: "handler",
      message: "not yours",
    });
  });

  it("what a call leaves behind does not reach the next one", async () => {
    open();
    await call("lateEvent");
    const events: unknown[] = [];
    await call("events", 1, { events });
    await call("waitAWhile", null, { events });
    expect(events).toEqual([{ i: 0 }]);
  });

  it("calls beyond the size wait in order, and leave the queue when they are cancelled", async () => {
    open();
    const stop = new AbortController();
    const gone = new AbortController();
    const first = failure("wait", null, { signal: stop.signal });
    const second = failure("echo", 2, { signal: gone.signal });
    const third = call("echo", 3);
    gone.abort();
    expect(await second).toMatchObject({ failure: "cancelled" });
    stop.abort();
    expect(await first).toMatchObject({ failure: "cancelled" });
    expect(await third).toBe(3);
  });

  it("a body that is no JSON is refused before a child sees it", async () => {
    open();
    await expect(call("echo", 1n)).rejects.toThrow(TypeError);
    expect(await call("echo", 1)).toBe(1);
  });

  it("a call that was cancelled before it began is not run", async () => {
    open();
    expect(await failure("echo", 1, { signal: AbortSignal.abort() })).toMatchObject({
      failure: "cancelled",
    });
    expect(await call("facts")).toMatchObject({ calls: 1 });
  });
});

describe("faults of a handler", () => {
  it.each([
    ["throw", { failure: "handler", message: "no such city", childFault: true }],
    ["notJson", { failure: "handler", childFault: true }],
    ["exit", { failure: "crashed", childFault: true, exitCode: 7 }],
    ["abort", { failure: "crashed", childFault: true, signal: "SIGABRT" }],
    ["garbage", { failure: "protocol", childFault: true }],
    ["strangeFrame", { failure: "protocol", childFault: true }],
    ["heap", { failure: "oom", childFault: true }],
    ["buffers", { failure: "oom", childFault: true }],
  ])("%s fails its own call and no other", async (deed, expected) => {
    open({ memoryMb: 64 });
    expect(await failure(deed)).toMatchObject(expected);
    expect(await call("echo", "next")).toBe("next");
  });

  it("a child that is killed from outside is no fault of the handler", async () => {
    open();
    const pid = await pidOf();
    const waiting = failure("ignoreCancel");
    process.kill(pid, "SIGKILL");
    expect(await waiting).toMatchObject({
      failure: "crashed",
      childFault: false,
      signal: "SIGKILL",
    });
  });

  it("a child that does not start is reported with its reason, and tried again", async () => {
    const lines: string[] = [];
    open({
      entry: new URL("./missing.fixture.ts", import.meta.url),
      onLog: (line) => lines.push(line),
    });
    expect(await failure("echo")).toMatchObject({ failure: "crashed", childFault: true });
    expect(lines.join("\n")).toContain("Cannot find module");
  });
});

describe("cancellation", () => {
  it("a handler that obeys its signal keeps its child", async () => {
    // Nothing is killed here: a child of a slow machine has the time that it takes to obey.
    const after: Clock["after"] = (ms, work) =>
      ms === 2_000 ? () => undefined : systemClock.after(ms, work);
    open({ clock: { ...systemClock, after } });
    const pid = await pidOf();
    expect(await failure("wait", null, { timeoutMs: 50 })).toMatchObject({
      failure: "timeout",
      childFault: true,
    });
    expect(await pidOf()).toBe(pid);
  });

  it.each(["ignoreCancel", "loop", "blockInProgram"])(
    "%s is killed two seconds later and replaced",
    async (deed) => {
      open();
      const pid = await pidOf();
      const startedMs = performance.now();
      expect(await failure(deed, null, { timeoutMs: 50 })).toMatchObject({ failure: "timeout" });
      expect(() => process.kill(pid, 0)).not.toThrow(); // the caller does not wait for its end
      expect(await pidOf()).not.toBe(pid);
      expect(performance.now() - startedMs).toBeGreaterThan(2_000);
      await vi.waitFor(() => expect(isAlive(pid)).toBe(false), patience);
    },
  );

  it("what the handler has started is killed with it", async () => {
    open();
    const events: number[] = [];
    const stop = new AbortController();
    const cancelled = failure("startAndWait", null, { signal: stop.signal, events });
    await vi.waitFor(() => expect(events).toHaveLength(1), patience);
    const [started = 0] = events;
    expect(isAlive(started)).toBe(true);
    stop.abort();
    expect(await cancelled).toMatchObject({ failure: "cancelled" });
    await vi.waitFor(() => expect(isAlive(started)).toBe(false), patience);
  });
});

describe("children", () => {
  it("have no environment, descriptors or standard input of this process", async () => {
    vi.stubEnv("REDIS_URL", "redis://secret");
    open({ env: { CITY_KEY: "k" } });
    const { environment } = (await call("facts")) as { environment: Record<string, string> };
    vi.unstubAllEnvs();
    expect(Object.keys(environment).sort()).toEqual(["CITY_KEY", "LANG", "PATH", "PWD", "TZ"]);
  });

  it("that have booted live on: the deadline of the boot is none of theirs", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      open();
      const pid = await pidOf();
      vi.advanceTimersByTime(3_600_000);
      expect(await pidOf()).toBe(pid);
    } finally {
      vi.useRealTimers();
    }
  });

  it("that have several calls at once are replaced when all of those have ended, without a call failing", async () => {
    open({ size: 1, callsAtOnce: 4, maxCalls: 6 });
    const pids = await Promise.all(Array.from({ length: 20 }, async () => await pidOf()));
    expect(new Set(pids).size).toBeGreaterThan(1);
  });

  it("are replaced after so many calls, without a call failing", async () => {
    open({ maxCalls: 3 });
    const pids = new Set<number>();
    for (let i = 0; i < 7; i += 1) pids.add(await pidOf());
    expect(pids.size).toBe(3);
  });

  it("write lines to the log", async () => {
    const lines: string[] = [];
    open({ onLog: (line, stream) => lines.push(`${stream}: ${line}`) });
    await call("log");
    await vi.waitFor(
      () => expect(lines.sort()).toEqual(["stderr: three 城", "stdout: one", "stdout: two"]),
      patience,
    );
  });

  it("end when the pool is closed, which rejects what runs and waits, and can be done twice", async () => {
    open();
    await call("echo");
    const running = failure("loop");
    const waiting = failure("echo");
    await pool.close();
    expect(await running).toMatchObject({ failure: "closed" });
    expect(await waiting).toMatchObject({ failure: "closed" });
    expect(await failure("echo")).toMatchObject({ failure: "closed" });
    await pool.close();
  });

  it("end with their parent, idle, in a loop or waiting for a program", async () => {
    open();
    const parent = spawn(process.execPath, [
      fileURLToPath(new URL("./pool-parent.fixture.ts", import.meta.url)),
    ]);
    await once(parent.stdout, "data");
    const family = await vi.waitFor(() => {
      const rows = descendantsOf(parent.pid ?? 0);
      if (!rows.some(({ command }) => command.includes("sleep 3600"))) {
        throw new Error("not there yet");
      }
      return rows.map(({ id }) => id);
    }, patience);
    parent.kill("SIGKILL");
    await vi.waitFor(() => expect(family.filter(isAlive)).toEqual([]), patience);
  });

  it("leave no descriptor behind", async () => {
    open({ maxCalls: 1 });
    for (let i = 0; i < 3; i += 1) await call("echo");
    await vi.waitFor(
      () => expect(descendantsOf(process.pid).filter(({ state }) => state === "Z")).toEqual([]),
      patience,
    );
    const count = (): number => readdirSync("/proc/self/fd").length;
    const before = count();
    for (let i = 0; i < 10; i += 1) await call("echo");
    await vi.waitFor(() => expect(count()).toBeLessThanOrEqual(before + 4), patience);
  });
});
