import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import { afterEach, beforeEach, describe, expect, inject, it, vi } from "vitest";
import { openWorkplace, type Workplace } from "./admin.fixture.ts";
import { grantKeyFindings, keyFindings, readStoredKey } from "./local-checks.ts";

const key = "0123456789abcdef".repeat(2);
let workplace: Workplace;

beforeEach(async () => {
  workplace = await openWorkplace();
});

afterEach(async () => {
  await workplace.close();
});

/** The key as `npm start` keeps it. */
async function store(mode = 0o600): Promise<void> {
  const path = join(workplace.folder, "signing-key");
  await writeFile(path, `${key}\n`);
  await chmod(path, mode);
}

async function runnerKey(args: string[], env: Record<string, string> = {}) {
  const run = workplace.run(["runner-key", ...args], env);
  return { code: await run.exitCode(), output: run.output() };
}

describe("npm run runner-key", () => {
  it("prints the key of that runner and nothing else", async () => {
    const printed = await runnerKey(["gpu_1"], { CALL_SIGNING_KEY: key });
    expect(printed).toEqual({ code: 0, output: `${runnerKeyOf(key, "gpu_1")}\n` });
  });

  it("takes the key that npm start has made", async () => {
    await store();
    const printed = await runnerKey(["gpu_1"], { LARKLINE_DATA_DIR: workplace.folder });
    expect(printed).toEqual({ code: 0, output: `${runnerKeyOf(key, "gpu_1")}\n` });
  });

  it.each([
    [["gpu_1"], {}, [1, "There is no key: set CALL_SIGNING_KEY"]],
    [["gpu_1"], { CALL_SIGNING_KEY: "s3cret" }, [1, "There is no key"]],
    [[], { CALL_SIGNING_KEY: key }, [2, "Name the runner"]],
    [["a b"], { CALL_SIGNING_KEY: key }, [2, "Name the runner"]],
    [["a", "b"], { CALL_SIGNING_KEY: key }, [2, "nothing else follows it"]],
  ] as const)("with %j and %j it says what to do", async (args, env, [code, words]) => {
    const printed = await runnerKey([...args], env);
    expect(printed.code).toBe(code);
    expect(printed.output).toContain(words);
    expect(printed.output).not.toContain("s3cret");
  });
});

describe("npm run runner -- add", () => {
  const dice = `import { defineTool } from "@larkline/tool-kit";
export default defineTool({
  name: "roll_dice", description: "Rolls a die.", input: { type: "object" }, effect: "pure", run: () => 4,
});
`;

  it(
    "prints a line that starts that runner, with its file and its key",
    { timeout: 60_000 },
    async () => {
      await writeFile(join(workplace.folder, "it's dice.ts"), dice);
      const namespace = `test-${randomUUID()}`;
      const given = {
        CALL_SIGNING_KEY: key,
        REDIS_URL: inject("redisUrl"),
        REDIS_NAMESPACE: namespace,
      };
      const printed = workplace.run(["runner", "add", "games", "it's dice.ts"], given);
      expect(await printed.exitCode()).toBe(0);
      expect(printed.output()).toContain(`RUNNER_KEY=${runnerKeyOf(key, "games")} `);
      const redis = connectRedis(inject("redisUrl"));
      const directory = new RunnerDirectory({ redis, namespace });
      const runner = spawn("sh", ["-c", `exec env ${printed.output()}`], {
        cwd: workplace.folder,
        env: { PATH: process.env["PATH"] },
        stdio: "ignore",
      });
      try {
        await vi.waitFor(
          async () =>
            expect(await directory.runners()).toMatchObject([
              { runner: "games", tools: [{ spec: { name: "roll_dice" } }] },
            ]),
          { timeout: 50_000 },
        );
      } finally {
        const ended = once(runner, "exit");
        runner.kill("SIGTERM");
        await ended;
        await closeRedis(redis);
      }
    },
  );

  it.each([
    [
      ["add", "games"],
      [1, "games.ts is not there: save a tool in it"],
    ],
    [["add"], [2, "Name the runner"]],
    [
      ["add", "a b"],
      [2, "Name the runner"],
    ],
    [
      ["remove", "games", "dice.ts"],
      [2, "add <name> [file] or remove <name>"],
    ],
    [
      ["start", "games"],
      [2, "add <name> [file] or remove <name>"],
    ],
  ] as const)("with %j it says what to do", async (args, [code, words]) => {
    const env = { CALL_SIGNING_KEY: key, REDIS_URL: inject("redisUrl") };
    const printed = workplace.run(["runner", ...args], env);
    expect(await printed.exitCode()).toBe(code);
    expect(printed.output()).toContain(words);
  });
});

describe("the keys of a deployment", () => {
  const found = async (read: Partial<Parameters<typeof keyFindings>[0]>) =>
    keyFindings({ runner: "local", ...read }, await readStoredKey(workplace.folder)).map(
      ({ status, text, advice }) =>
        `${status}: ${text.en}${advice === undefined ? "" : ` -> ${advice.en}`}`,
    );

  it("may be left to npm start", async () => {
    expect(await found({})).toEqual(["skipped: CALL_SIGNING_KEY is not set: npm start makes one"]);
    await store();
    expect(await found({})).toEqual([
      expect.stringMatching(/^ok: Calls are signed with .*signing-key$/),
    ]);
  });

  it("are a warning when others may read them", async () => {
    await store(0o644);
    expect(await found({})).toEqual([
      expect.stringMatching(/^warning: Others .* -> Run chmod 600 /),
    ]);
  });

  it("are a problem when they are short, or the runner's is that of another one", async () => {
    expect(await found({ signingKey: "short" })).toEqual([
      expect.stringMatching(/^problem: CALL_SIGNING_KEY has fewer/),
    ]);
    const other = runnerKeyOf(key, "other");
    expect(await found({ signingKey: key, runnerKey: other })).toEqual([
      expect.stringMatching(/^problem: RUNNER_KEY is not that of local.* -> .*runner-key -- local/),
    ]);
    expect(await found({ signingKey: key, runnerKey: other, runner: "other" })).toEqual([
      "ok: Calls are signed with CALL_SIGNING_KEY",
    ]);
  });
});

describe("the key of people's grants", () => {
  it.each([
    [{}, []],
    [{ signingKey: key }, ["skipped"]],
    [{ grantKey: `${"a1".repeat(32)}, ${"B2".repeat(32)}` }, ["ok"]],
    [{ grantKey: "a1" }, ["problem"]],
    [{ grantKey: `${"a1".repeat(32)},` }, ["problem"]],
  ])("%# is judged by its form", (deployment, statuses) => {
    expect(grantKeyFindings(deployment).map(({ status }) => status)).toEqual(statuses);
  });
});
