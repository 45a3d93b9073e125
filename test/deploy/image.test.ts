import { randomBytes } from "node:crypto";
import type { ChildProcess } from "node:child_process";
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, inject, it, vi } from "vitest";
import { Redis } from "ioredis";
import { instruction, openWorkshop, type Image, type Workshop } from "./image.ts";

let workshop: Workshop;
let worker: Image;
let runner: Image;
let settings: string;
const children: ChildProcess[] = [];

beforeAll(async () => {
  workshop = await openWorkshop();
  worker = await workshop.build("agent-worker", false);
  runner = await workshop.build("tool-runner", true);
  settings = await mkdtemp(join(tmpdir(), "larkline-settings-"));
  await chmod(settings, 0o755);
  await writeFile(
    join(settings, "larkline.config.ts"),
    'import { defineConfig } from "@larkline/process/config";\nexport default defineConfig({});\n',
  );
});
afterAll(async () => {
  const ended = children.map(async (child) => {
    if (child.exitCode === null && child.signalCode === null) {
      const exit = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await exit;
    }
  });
  await Promise.all(ended);
  await workshop.close();
  await rm(settings, { recursive: true, force: true });
});

interface Ready {
  port: number;
  answer: Record<string, unknown>;
  /** Settles with the code when the process has ended. */
  exited: Promise<number | null>;
}

/** Starts the image and waits until it says that it is ready. */
async function startReady(
  image: Image,
  env: Record<string, string>,
): Promise<Ready & { child: ChildProcess }> {
  const port = await freePort();
  const config = { LARKLINE_CONFIG: join(settings, "larkline.config.ts") };
  const redis = {
    REDIS_URL: inject("redisUrl"),
    REDIS_NAMESPACE: `image-${randomBytes(4).toString("hex")}`,
  };
  const child = image.start({ PORT: String(port), ...redis, ...config, ...env });
  children.push(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (data: Buffer) => (output += data.toString()));
  }
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const answer = await vi.waitUntil(
    async () => {
      if (child.exitCode !== null) throw new Error(`it ended: ${output}`);
      const response = await fetch(`http://127.0.0.1:${port}/ready`).catch(() => undefined);
      return response?.ok === true
        ? ((await response.json()) as Record<string, unknown>)
        : undefined;
    },
    { timeout: 60_000, interval: 50 },
  );
  return { child, port, answer, exited };
}

describe("what a builder is sent", () => {
  it("holds no hidden files, such as secrets, no packages and no tests", async () => {
    const names = await readdir(workshop.context, { recursive: true });
    expect(names).toContain("pnpm-lock.yaml");
    expect(
      names.filter((name) =>
        /(?:^|\/)(?:\.|node_modules(?:\/|$))|\.(?:test|suite|fixture)\.ts$/.test(name),
      ),
    ).toEqual([]);
  });
});

describe("the image of agent-worker", () => {
  it("has what the app needs and nothing that it is developed with", async () => {
    const packages = await readdir(join(worker.folder, "packages"));
    expect(packages).toContain("agent");
    expect(packages).not.toContain("testkit");
    const installed = (await readdir(join(worker.folder, "node_modules/.pnpm"))).join("\n");
    expect(installed).toMatch(/^bullmq@/m);
    expect(installed).not.toMatch(/^(?:vitest|typescript|turbo|oxlint|oxfmt|knip|vite|node)@/m);
  });

  it("is ready as an ordinary user who may write nothing there, is found healthy, and stops at a signal", async () => {
    const { child, port, answer, exited } = await startReady(worker, {
      MODEL: "anthropic/claude-sonnet-4-6",
      ANTHROPIC_API_KEY: "none",
      CALL_SIGNING_KEY: "k".repeat(32),
    });
    expect(Object.values(answer)).not.toContain(false);
    const health = ["infra/docker/health.mjs"];
    expect(await worker.node(health, { PORT: String(port) })).toBe(0);
    for (const place of [".", "apps/agent-worker", "packages/agent/src", "node_modules"]) {
      const write = `require("node:fs").writeFileSync(${JSON.stringify(`${place}/left`)}, "")`;
      expect(await worker.node(["-e", write])).toBe(1);
    }
    // The signal reaches Node: there is no shell between.
    child.kill("SIGTERM");
    expect(await exited).toBe(0);
    expect(await worker.node(health, { PORT: String(port) })).toBe(1);
  });
});

describe("the image of a runner with a sandbox", () => {
  it("has the launcher, and is ready with a sandbox that holds", async () => {
    const { mode } = await stat(join(runner.folder, "packages/sandbox/src/sbx/build/sbx"));
    expect(mode & 0o111).toBe(0o111);
    const { child, answer, exited } = await startReady(runner, {
      RUNNER_NAME: "default",
      RUNNER_KEY: "a".repeat(64),
      RUNNER_TOOLS: "@larkline/example-tools,@larkline/example-tools/code",
    });
    expect(JSON.stringify(answer)).toMatch(/"sandbox \(\w+\)":true/);
    child.kill("SIGTERM");
    expect(await exited).toBe(0);
  });
});

describe("the image of the runner of Feishu's work tools", () => {
  it("is ready with the environment that its stage gives, and announces the tools", async () => {
    const given = (await instruction("ENV RUNNER_NAME")).replace(/^ENV /, "").split(" ");
    const env = Object.fromEntries(given.map((pair) => pair.split("=")));
    expect(env).toEqual({ RUNNER_NAME: "feishu", RUNNER_TOOLS: "@larkline/feishu-tools" });
    const namespace = `image-${randomBytes(4).toString("hex")}`;
    const { child, answer, exited } = await startReady(runner, {
      ...env,
      RUNNER_KEY: "a".repeat(64),
      REDIS_NAMESPACE: namespace,
    });
    expect(Object.values(answer)).not.toContain(false);
    const redis = new Redis(inject("redisUrl"));
    const [announced = "{}"] = await redis.hvals(`{${namespace}}:runners:feishu`);
    await redis.quit();
    const { digests } = JSON.parse(announced) as { digests: object };
    expect(Object.keys(digests)).toEqual(
      expect.arrayContaining(["read_document", "add_picture", "create_event", "send_mail"]),
    );
    child.kill("SIGTERM");
    expect(await exited).toBe(0);
  });
});
