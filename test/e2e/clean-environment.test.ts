import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { startApp, type AppProcess } from "../system/app-process.ts";
import { writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";

// Every process of one user can read what another was started with: /proc/<pid>/environ and cmdline.

const modelKey = "sk-test-of-the-model";
const consolePassword = "password-of-the-console";
const apiToken = "token-of-the-http-api-0123456789";
const traceHeaders = "authorization=key-of-the-collector";
const prying = fileURLToPath(new URL("../fixtures/prying-tool.ts", import.meta.url));
const recording = fileURLToPath(new URL("../fixtures/recording-tools.ts", import.meta.url));

let users: RedisUsers;
let system: ProcessSystem;
let operators: AppProcess;

beforeAll(async () => {
  users = await writeRedisUsers(["recording"]);
  const secrets = {
    ANTHROPIC_API_KEY: modelKey,
    API_TOKEN: apiToken,
    OTEL_EXPORTER_OTLP_HEADERS: traceHeaders,
  };
  const env = { ...secrets, RUNNER_TOOLS: `${recording},${prying}` };
  system = await startProcesses({ redisUsers: users, env });
  operators = await startApp({
    program: { file: "apps/console/src/main.ts" },
    port: await freePort(),
    env: {
      REDIS_URL: users.urlAs(system.redis.port, "console"),
      FEISHU_APP_ID: system.appId,
      CONSOLE_PASSWORD: consolePassword,
      CONSOLE_VIEWER_PASSWORD: `${consolePassword}-viewer`,
    },
  });
});

afterAll(async () => {
  await operators?.kill();
  await system?.close();
  await users?.remove();
});

function everySecret(): string[] {
  const {
    FEISHU_APP_SECRET = "",
    FEISHU_ENCRYPT_KEY = "",
    FEISHU_VERIFICATION_TOKEN = "",
  } = system.env;
  const { CALL_SIGNING_KEY = "" } = keysFor("agent-worker", "recording");
  const { RUNNER_KEY = "" } = keysFor("tool-runner", "recording");
  const ofRedis = ["ingress", "agent-worker", "console", "runner-recording"].map(
    (user) => `of-${user}@`,
  );
  const ofFeishu = [FEISHU_APP_SECRET, FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN];
  const all = [
    ...ofRedis,
    ...ofFeishu,
    CALL_SIGNING_KEY,
    RUNNER_KEY,
    modelKey,
    apiToken,
    traceHeaders,
    consolePassword,
  ];
  expect(all).not.toContain("");
  return all;
}

/** What `read` finds; undefined where its process or thread has ended since it was listed, and shows nothing any more. */
function unlessEnded<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException; // of the file system
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
}

function tasksOf(pid: number): string[] {
  return unlessEnded(() => readdirSync(`/proc/${pid}/task`)) ?? [];
}

function textIn(file: string): string {
  return unlessEnded(() => readFileSync(file, "utf8")) ?? "";
}

/** What is shown of a process, its threads included. */
function shownOf(pid: number): string {
  const tasks = tasksOf(pid).map((task) => `/proc/${pid}/task/${task}/environ`);
  return [`/proc/${pid}/environ`, `/proc/${pid}/cmdline`, ...tasks].map(textIn).join("\n");
}

function withDescendants(pid: number): number[] {
  const children = tasksOf(pid)
    .map((task) => textIn(`/proc/${pid}/task/${task}/children`))
    .join(" ");
  const own = children.split(" ").filter((child) => child !== "");
  return [pid, ...own.flatMap((child) => withDescendants(Number(child)))];
}

function found(text: string): string[] {
  return everySecret().filter((secret) => text.includes(secret));
}

describe.runIf(process.platform === "linux")("what other processes can read", () => {
  it("no process of the deployment shows a secret, and neither does anything that it has started", async () => {
    expect(await system.ask(system.person("Ann"), 'warm\ncall note_pure {"key":"k"}')).toContain(
      "ok:",
    );
    for (const app of [...system.ingresses, ...system.workers, ...system.runners, operators]) {
      const pids = withDescendants(app.pid);
      expect([app.name, pids.flatMap((pid) => found(shownOf(pid)))]).toEqual([app.name, []]);
      expect(shownOf(app.pid)).toContain("src/main.ts");
    }
    // So that the line above can fail: the tools' processes are among them.
    expect(withDescendants(system.runners[0]?.pid ?? 0).length).toBeGreaterThan(1);
  });

  it("a tool in a process of its own finds nothing in the environment of its parents", async () => {
    const answer = await system.ask(system.person("Bob"), "pry\ncall pry {}");
    expect(answer).toBe(`[pry] ok:${system.runners[0]?.pid}`);
    const pried = readFileSync(`${system.env["RECORDING_FILE"]}.pried`, "utf8");
    expect(pried).toContain(`environ of ${system.runners[0]?.pid}:`);
    expect(found(pried)).toEqual([]);
  });

  it("signals, kills and freezes still hit the service, and its successor works", async () => {
    const [worker] = system.workers;
    worker?.signal("SIGSTOP");
    worker?.signal("SIGCONT");
    expect(await worker?.stop()).toBe(0);
    const successor = await system.start("agent-worker");
    expect(await system.ask(system.person("Cid"), "again")).toBe("[again]");
    successor.signal("SIGKILL");
    await vi.waitFor(() => expect(() => process.kill(successor.pid, 0)).toThrow(), {
      timeout: 60_000,
    });
  });
});
