import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ToolJob } from "@larkline/protocol/runner";
import { isLongRun } from "@larkline/testkit";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import {
  createNotes,
  createTestBed,
  spawnRunner,
  until,
  type RunnerProcess,
} from "./test-bed.fixture.ts";

// Starting processes takes its time on a busy machine.

let bed: ReturnType<typeof createTestBed>;
let processes: RunnerProcess[] = [];

beforeEach(() => {
  bed = createTestBed(inject("redisUrl"));
});
afterEach(async () => {
  for (const { child } of processes) child.kill("SIGKILL");
  await Promise.all(processes.map(async ({ exited }) => await exited));
  processes = [];
  await bed.close();
});

/** The processes that a process has started. */
function childrenOf(pid: number): number[] {
  const tasks = readdirSync(`/proc/${pid}/task`);
  const text = tasks
    .map((task) => readFileSync(`/proc/${pid}/task/${task}/children`, "utf8"))
    .join(" ");
  return text.split(" ").flatMap((child) => (child === "" ? [] : [Number(child)]));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function start(env: Record<string, string> = {}): RunnerProcess {
  const runner = spawnRunner({
    REDIS_URL: inject("redisUrl"),
    REDIS_NAMESPACE: bed.namespace,
    RUNNER_NAME: "probe",
    ...env,
  });
  processes.push(runner);
  return runner;
}

/** The calls that a worker has let begin, by what runners have handed in so far: they may not have noted that yet. */
async function begunOf(jobs: readonly ToolJob[]): Promise<Set<string>> {
  await bed.handoffs.settled();
  await bed.handoffs.sweep();
  const records = (
    await Promise.all(jobs.map(async ({ session }) => await bed.audit(session)))
  ).flat();
  return new Set(
    records.flatMap(({ kind, callId = "" }) => (kind === "call_started" ? [callId] : [])),
  );
}

async function started(env: Record<string, string> = {}): Promise<RunnerProcess & { url: string }> {
  const runner = start(env);
  return { ...runner, url: await runner.address() };
}

describe("the tool-runner process", () => {
  it("announces its tools, answers calls, and serves health, readiness and metrics", async () => {
    const { url } = await started();
    expect([...(await bed.directory.tools()).keys()].sort()).toEqual([
      "alone",
      "block",
      "echo",
      "hold_once",
      "hold_pure",
      "slow",
    ]);
    const job = await bed.send("probe", {
      name: "echo",
      effect: "pure",
      arguments: '{"城":"上海"}',
    });
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: { 城: "上海" } });
    expect((await fetch(`${url}/health`)).status).toBe(200);
    const readiness = async (): Promise<unknown> => await (await fetch(`${url}/ready`)).json();
    await expect.poll(readiness).toMatchObject({ checks: { redis: true, worker: true } });
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toMatch(/larkline_tool_calls_total\{tool="echo",outcome="ok",.*\} 1/);
  });

  it("works at an object with one call at a time, in two processes", async () => {
    const notes = createNotes();
    const runners = [await started(), await started()];
    const jobs = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const input = JSON.stringify({ file: notes.file });
        return await bed.send("probe", { name: "alone", effect: "pure", arguments: input });
      }),
    );
    for (const job of jobs) expect(await bed.outcomeOf(job)).toMatchObject({ ok: true });
    const lines = readFileSync(notes.file, "utf8").trim().split("\n");
    expect(lines).toHaveLength(80);
    // Each end follows its own begin.
    for (let at = 0; at < lines.length; at += 2) {
      expect(lines[at + 1]).toBe((lines[at] ?? "").replace("begin", "end"));
    }
    const pids = new Set(lines.map((line) => Number(line.split(" ")[1])));
    expect(pids).toEqual(new Set(runners.map(({ child }) => child.pid)));
  });

  it("does not run a `once` call again after kill -9: its outcome is unknown", async () => {
    const notes = createNotes();
    const first = await started();
    const job = await bed.send("probe", {
      name: "hold_once",
      effect: "once",
      arguments: JSON.stringify({ file: notes.file }),
    });
    await until("the first run", () => (notes.runs().length === 1 ? true : undefined));
    first.child.kill("SIGKILL");
    await first.exited;
    await started();
    const outcome = await bed.outcomeOf(job);
    expect(outcome).toMatchObject({
      ok: false,
      unknown: true,
      error: expect.stringContaining("outcome unknown"),
    });
    expect(notes.runs().map(({ callId }) => callId)).toEqual([job.callId]);
  });

  it("finishes running calls after SIGTERM, takes no new ones, withdraws at once and exits with 0", async () => {
    const notes = createNotes();
    const runner = await started({ RUNNER_DRAIN_MS: "60000" });
    const job = await bed.send("probe", {
      name: "slow",
      effect: "once",
      arguments: JSON.stringify({ file: notes.file }),
    });
    await until("the run", () => (notes.runs().length === 1 ? true : undefined));
    runner.child.kill("SIGTERM");
    await until("the withdrawal", async () =>
      (await bed.directory.runners()).length === 0 ? true : undefined,
    );
    const late = await bed.send("probe", { name: "echo", effect: "pure" });
    notes.letSlowEnd();
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "finished" });
    expect(await runner.exited).toBe(0);
    expect((await bed.store.summary(late.session)).state).toBe("suspended");
    await started();
    expect(await bed.outcomeOf(late)).toEqual({ ok: true, result: {} });
  });

  it("EE-12: names every wrong variable, and every module it cannot load", async () => {
    const wrong = start({ RUNNER_NAME: "no spaces", RUNNER_CONCURRENCY: "many", PORT: "x" });
    expect(await wrong.exited).toBe(1);
    for (const name of ["RUNNER_NAME", "RUNNER_CONCURRENCY", "PORT"]) {
      expect(wrong.output()).toContain(name);
    }
    const missing = start({ RUNNER_TOOLS: "./nowhere.ts,larkline-no-such-package" });
    expect(await missing.exited).toBe(1);
    expect(missing.output()).toMatch(
      /plugin_load_error: RUNNER_TOOLS: cannot load "\.\/nowhere\.ts"[^]*cannot load "larkline-no-such-package"/,
    );
  });
});

describe.runIf(isLongRun)(
  "the tool-runner process, killed, stopped and refused in other ways",
  () => {
    it("takes a tool of a single file that lies anywhere", async () => {
      const file = join(mkdtempSync(join(tmpdir(), "larkline-tool-")), "greet.ts");
      writeFileSync(
        file,
        `import { defineTool } from "@larkline/tool-kit";
       import { Type } from "typebox";
       const input = Type.Object({ name: Type.String() });
       const run = ({ name }: { name: string }) => "hello " + name;
       export default defineTool({ name: "greet", description: "Greets.", input, effect: "pure", run });`,
      );
      await started({ RUNNER_TOOLS: file });
      const job = await bed.send("probe", {
        name: "greet",
        effect: "pure",
        arguments: '{"name":"Ann"}',
      });
      expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "hello Ann" });
    });

    it("asks about those calls alone that had begun, of many that waited for a process when it was killed", async () => {
      const notes = createNotes();
      const argumentsText = JSON.stringify({ file: notes.file });
      const first = await started({ RUNNER_CONCURRENCY: "24", RUNNER_CHILD_MB: "65536" });
      const jobs = await Promise.all(
        Array.from({ length: 24 }, async () => {
          const deadlineMs = Date.now() + 180_000;
          return await bed.send("probe", {
            name: "slow",
            effect: "once",
            arguments: argumentsText,
            deadlineMs,
          });
        }),
      );
      await until("the first run", () => (notes.runs().length > 0 ? true : undefined));
      first.child.kill("SIGKILL");
      await first.exited;
      const begun = await begunOf(jobs);
      notes.letSlowEnd();
      await started({ RUNNER_CONCURRENCY: "24" });
      const outcomes = await Promise.all(
        jobs.map(async (job) => ({ job, outcome: await bed.outcomeOf(job, 150_000) })),
      );
      const unknown = outcomes.filter(({ outcome }) => !outcome.ok && outcome.unknown === true);
      // With room for one more child, two calls at most had begun.
      expect(begun.size).toBeLessThanOrEqual(2);
      expect(unknown.map(({ job }) => job.callId).filter((callId) => !begun.has(callId))).toEqual(
        [],
      );
      expect(outcomes.filter(({ outcome }) => outcome.ok)).toHaveLength(
        jobs.length - unknown.length,
      );
      // No call ran twice, and those alone did not run that had just begun.
      const ran = notes.runs().map(({ callId }) => callId);
      expect(new Set(ran).size).toBe(ran.length);
      expect([...new Set([...ran, ...begun])].sort()).toEqual(
        jobs.map(({ callId }) => callId).sort(),
      );
    });

    it("runs a `pure` call again on another instance after kill -9, within seconds", async () => {
      const notes = createNotes();
      const instances = await Promise.all([started(), started()]);
      const job = await bed.send("probe", {
        name: "hold_pure",
        effect: "pure",
        arguments: JSON.stringify({ file: notes.file }),
      });
      const [run] = await until("the first run", () =>
        notes.runs().length === 1 ? notes.runs() : undefined,
      );
      const killedMs = Date.now();
      instances.find(({ child }) => child.pid === run?.pid)?.child.kill("SIGKILL");
      expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "second run" });
      expect(Date.now() - killedMs).toBeLessThan(25_000);
      expect(notes.runs().map(({ callId }) => callId)).toEqual([job.callId, job.callId]);
      expect(new Set(notes.runs().map(({ pid }) => pid)).size).toBe(2);
    });

    it("gives up calls that do not end: repeatable ones move to another instance, `once` ones are unknown", async () => {
      const pure = createNotes();
      const once = createNotes();
      const first = await started({ RUNNER_DRAIN_MS: "2000" });
      const repeatable = await bed.send("probe", {
        name: "hold_pure",
        effect: "pure",
        arguments: JSON.stringify({ file: pure.file }),
      });
      const single = await bed.send("probe", {
        name: "hold_once",
        effect: "once",
        arguments: JSON.stringify({ file: once.file }),
      });
      await until("both runs", () =>
        pure.runs().length + once.runs().length === 2 ? true : undefined,
      );
      await started();
      const stoppedMs = Date.now();
      first.child.kill("SIGTERM");
      expect(await bed.outcomeOf(single)).toMatchObject({ ok: false, unknown: true });
      expect(await bed.outcomeOf(repeatable)).toEqual({ ok: true, result: "second run" });
      expect(await first.exited).toBe(0);
      expect(Date.now() - stoppedMs).toBeGreaterThan(1_900);
      expect(Date.now() - stoppedMs).toBeLessThan(25_000);
      expect(once.runs()).toHaveLength(1);
    });

    it("leaves at once on a second signal", async () => {
      const notes = createNotes();
      const runner = await started();
      await bed.send("probe", {
        name: "hold_once",
        effect: "once",
        arguments: JSON.stringify({ file: notes.file }),
      });
      await until("the run", () => (notes.runs().length === 1 ? true : undefined));
      runner.child.kill("SIGTERM");
      await until("closing", () => (runner.output().includes('"closing"') ? true : undefined));
      const secondMs = Date.now();
      runner.child.kill("SIGTERM");
      expect(await runner.exited).toBe(1);
      expect(Date.now() - secondMs).toBeLessThan(25_000);
    });

    it("AL-18: a sync handler that blocks its process holds up neither its runner nor the other calls", async () => {
      const { url } = await started();
      const notes = createNotes();
      const blocking = {
        name: "block",
        effect: "pure",
        arguments: JSON.stringify({ file: notes.file, ms: 60_000 }),
      } as const;
      const blocked = await bed.send("probe", blocking);
      await until("the blocked process", () => (notes.runs().length === 1 ? true : undefined));
      const job = await bed.send("probe", { name: "echo", effect: "pure", arguments: '{"a":1}' });
      expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: { a: 1 } });
      expect((await fetch(`${url}/health`)).status).toBe(200);
      expect((await bed.store.summary(blocked.session)).state).toBe("suspended");
      const late = await bed.send("probe", { ...blocking, deadlineMs: Date.now() + 8_000 });
      expect(await bed.outcomeOf(late)).toMatchObject({
        ok: false,
        error: expect.stringContaining("did not answer"),
      });
    });

    it("leaves none of its processes behind after kill -9, busy ones neither", async () => {
      const runner = await started();
      const notes = createNotes();
      const blocking = {
        name: "block",
        effect: "pure",
        arguments: JSON.stringify({ file: notes.file, ms: 60_000 }),
      } as const;
      await bed.send("probe", blocking);
      await until("the blocked process", () => (notes.runs().length === 1 ? true : undefined));
      const children = childrenOf(runner.child.pid ?? 0);
      expect(children.length).toBeGreaterThan(0);
      runner.child.kill("SIGKILL");
      await runner.exited;
      await until("the end of its processes", () => (children.some(isAlive) ? undefined : true));
    });

    it("tells which sandbox holds, at its start, on /ready, in a metric and again on SIGHUP", async () => {
      const sandboxed = fileURLToPath(new URL("sandboxed-tools.fixture.ts", import.meta.url));
      const runner = await started({ RUNNER_TOOLS: sandboxed });
      const [, tier = ""] = /"tier":"(\w+)".*the sandbox holds/.exec(runner.output()) ?? [];
      const readiness = async (): Promise<unknown> =>
        await (await fetch(`${runner.url}/ready`)).json();
      await expect.poll(readiness).toMatchObject({ checks: { [`sandbox (${tier})`]: true } });
      const metrics = await (await fetch(`${runner.url}/metrics`)).text();
      expect(metrics).toMatch(new RegExp(`larkline_sandbox_holds\\{tier="${tier}".*\\} 1`));
      const job = await bed.send("probe", {
        name: "shell",
        effect: "once",
        arguments: '{"code":"exit 4"}',
      });
      expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: { exitCode: 4 } });
      runner.child.kill("SIGHUP");
      await until("another look", () =>
        runner.output().split("the sandbox holds").length === 3 ? true : undefined,
      );
    });

    it("exits with 1 and one line that names the tool where no sandbox holds", async () => {
      const sandboxed = fileURLToPath(new URL("sandboxed-tools.fixture.ts", import.meta.url));
      const runner = start({ RUNNER_TOOLS: sandboxed, TMPDIR: "/dev/null/nothing" });
      expect(await runner.exited).toBe(1);
      expect(runner.output()).toMatch(
        /^The tools are refused: tool "javascript" asks for isolation "sandbox": .*bwrap: .*\n$/,
      );
    });

    it("exits with 1 and one line when a program gives createRunner the same tool twice", async () => {
      const file = join(mkdtempSync(join(tmpdir(), "larkline-tool-")), "twice.ts");
      const [greet, kit] = ["./greet-tools.fixture.ts", "./create-runner.ts"].map((path) =>
        JSON.stringify(new URL(path, import.meta.url).href),
      );
      writeFileSync(
        file,
        `import { createRunner } from ${kit}; import greet from ${greet};
       await createRunner({ name: "probe", tools: [greet, greet] });`,
      );
      const runner = spawnRunner(
        { REDIS_URL: inject("redisUrl"), RUNNER_NAME: "probe" },
        { program: file },
      );
      processes.push(runner);
      expect(await runner.exited).toBe(1);
      expect(runner.output()).toBe('tool "greet" is registered twice\n');
    });

    it("exits with 1 and one line when another runner already offers its tools", async () => {
      await started();
      const second = start({ RUNNER_NAME: "other" });
      expect(await second.exited).toBe(1);
      expect(second.output()).toMatch(
        /^The tools are refused: a tool named '\w+' belongs to runner 'probe'.*\n$/,
      );
      expect((await bed.directory.runners()).map(({ runner }) => runner)).toEqual(["probe"]);
    });

    it("says what to do when Redis refuses its user or password", async () => {
      const url = new URL(inject("redisUrl"));
      url.username = "nobody";
      url.password = "geheim";
      const runner = start({ REDIS_URL: url.href });
      expect(await runner.exited).toBe(1);
      expect(runner.output()).toBe(
        "Redis refuses the user or password in REDIS_URL, or wants one: correct it.\n",
      );
    });

    it("says what to do when Redis is not there", async () => {
      const runner = start({ REDIS_URL: "redis://:geheim@127.0.0.1:1" });
      expect(await runner.exited).toBe(1);
      expect(runner.output()).toMatch(
        /^Cannot start, is Redis at REDIS_URL running\? .*ECONNREFUSED.*\n$/,
      );
      expect(runner.output()).not.toContain("geheim");
    });
  },
);
