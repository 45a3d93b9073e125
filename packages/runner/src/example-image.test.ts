import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { createTestBed, spawnRunner, until, type RunnerProcess } from "./test-bed.fixture.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../..", import.meta.url));
const bin = join(root, "node_modules", ".bin");
const PATH = `${bin}:${process.env["PATH"] ?? ""}`;

let folder: string;
let image: string;
let bed: ReturnType<typeof createTestBed>;
let runners: RunnerProcess[] = [];

/** What the Dockerfile does, by hand: prune, install with the packages that are here, copy. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "larkline-image-"));
  const env = { ...process.env, PATH, CI: "1" };
  const pruned = join(folder, "out");
  await run("turbo", ["prune", "@larkline/runner-example", "--docker", "--out-dir", pruned], {
    cwd: root,
    env,
  });
  image = join(folder, "app");
  await cp(join(pruned, "json"), image, { recursive: true });
  await run("pnpm", ["install", "--prod", "--frozen-lockfile", "--prefer-offline"], {
    cwd: image,
    env,
  });
  await cp(join(pruned, "full"), image, { recursive: true, force: true });
});
afterAll(async () => await rm(folder, { recursive: true, force: true }));
beforeEach(() => {
  bed = createTestBed(inject("redisUrl"));
});
afterEach(async () => {
  for (const { child } of runners) child.kill("SIGKILL");
  await Promise.all(runners.map(async ({ exited }) => await exited));
  runners = [];
  await bed.close();
});

function start(env: Record<string, string> = {}): RunnerProcess {
  const program = join(image, "infra/runner-example/weather.ts");
  const all = {
    REDIS_URL: inject("redisUrl"),
    REDIS_NAMESPACE: bed.namespace,
    RUNNER_NAME: "weather",
    ...env,
  };
  const runner = spawnRunner(all, { program, cwd: image });
  runners.push(runner);
  return runner;
}

describe("the image of a runner of its own", () => {
  it("is one file, which names nothing but the author's door and what its schema is written with", async () => {
    const source = await readFile(join(root, "infra/runner-example/weather.ts"), "utf8");
    expect([...source.matchAll(/from "(.*)"/g)].map(([, name]) => name)).toEqual([
      "@larkline/runner/create-runner",
      "@larkline/tool-kit",
      "typebox",
    ]);
    const files = await readdir(join(root, "infra/runner-example"));
    expect(files.filter((name) => name.endsWith(".ts"))).toEqual(["weather.ts"]);
    const dockerfile = await readFile(join(root, "infra/runner-example/Dockerfile"), "utf8");
    for (const step of [
      "turbo prune @larkline/runner-example --docker",
      "pnpm install --prod --frozen-lockfile",
    ]) {
      expect(dockerfile).toContain(step);
    }
  });

  it("starts with an address and a key, offers its tool, answers calls in a process of its own and stops", async () => {
    const runner = start();
    await runner.address();
    const tool = (await bed.directory.tools()).get("forecast");
    expect(tool).toMatchObject({
      runner: "weather",
      announcement: { risk: "low", subject: "city" },
    });
    const options = { limitedTools: new Set(["forecast"]) };
    const call = { name: "forecast", effect: "pure", arguments: '{"city":"上海"}' } as const;
    const job = await bed.send("weather", call, options);
    expect(await bed.outcomeOf(job)).toEqual({
      ok: true,
      result: { city: "上海", outlook: "cloudy", celsius: 16 },
    });
    const events = await bed.events(job);
    expect(events).toContainEqual(
      expect.objectContaining({ type: "tool_progress", detail: "looking at the sky over 上海" }),
    );
    runner.child.kill("SIGTERM");
    expect(await runner.exited).toBe(0);
  });

  it("says in one line what is wrong", async () => {
    const noKey = start({ RUNNER_KEY: "" });
    expect(await noKey.exited).toBe(1);
    expect(noKey.output()).toBe("RUNNER_KEY is not set.\n");
    const noRedis = start({ REDIS_URL: "redis://127.0.0.1:1" });
    expect(await noRedis.exited).toBe(1);
    await until("its last word", () => (noRedis.output() === "" ? undefined : true));
    expect(noRedis.output()).toMatch(
      /^Cannot start, is Redis at REDIS_URL running\? .*ECONNREFUSED.*\n$/,
    );
  });
});
