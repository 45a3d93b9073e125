import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AuditLog } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { openWorkplace, type Workplace } from "./admin.fixture.ts";

let workplace: Workplace;
let namespace: string;

beforeEach(async () => {
  workplace = await openWorkplace();
  namespace = `test-${randomUUID()}`;
});

afterEach(async () => {
  await workplace.close();
});

async function note(count: number): Promise<void> {
  const redis = connectRedis(inject("redisUrl"));
  const audit = new AuditLog({ redis, namespace });
  for (let index = 0; index < count; index += 1) {
    await audit.append({ kind: "rule_added", ruleId: `rule-${index}` });
  }
  await closeRedis(redis);
}

async function exported(args: string[], env: Record<string, string>) {
  const run = workplace.run(["audit", ...args], { REDIS_NAMESPACE: namespace, ...env });
  const code = await run.exitCode();
  return { code, output: run.output(), lines: run.output().trimEnd().split("\n") };
}

describe("npm run audit", () => {
  it("prints every record as one line of JSON, oldest first", async () => {
    await note(450);
    const { code, lines } = await exported([], { REDIS_URL: inject("redisUrl") });
    expect(lines).toHaveLength(450);
    expect(code).toBe(0);
    const records = lines.map((line) => JSON.parse(line) as { ruleId: string });
    expect(records.map(({ ruleId }) => ruleId)).toEqual(
      Array.from({ length: 450 }, (_, index) => `rule-${index}`),
    );
    expect(records[0]).toEqual({ kind: "rule_added", ruleId: "rule-0", atMs: expect.any(Number) });
  });

  it("keeps to the time that is asked for", async () => {
    await note(1);
    const env = { REDIS_URL: inject("redisUrl") };
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
    expect(await exported(["--from", tomorrow], env)).toMatchObject({ code: 0, output: "" });
    expect(await exported(["--to", "2026-01-01"], env)).toMatchObject({ code: 0, output: "" });
    expect((await exported(["--to", tomorrow], env)).lines).toHaveLength(1);
  });

  it("finds the Redis that npm start runs", async () => {
    await note(1);
    await writeFile(join(workplace.folder, "redis.url"), `${inject("redisUrl")}\n`);
    expect((await exported([], { LARKLINE_DATA_DIR: workplace.folder })).lines).toHaveLength(1);
  });

  it.each([
    [[], {}, [1, "It is not known where Redis is"]],
    [[], { REDIS_URL: "redis://:geheim@127.0.0.1:1" }, [1, "ECONNREFUSED"]],
    [["--from", "yesterday"], {}, [2, "--from and --to must be times"]],
    [["--from", "2026-02-31T99:00"], {}, [2, "--from and --to must be times"]],
    [["--from", "2026-02-02", "--to", "2026-02-01"], {}, [2, "--from must be before --to"]],
  ] as const)("with %j and %j it ends in words", async (args, env, [code, words]) => {
    const ended = await exported([...args], env);
    expect(ended.code).toBe(code);
    expect(ended.output).toContain(words);
    expect(ended.output).not.toContain("geheim");
  });
});
