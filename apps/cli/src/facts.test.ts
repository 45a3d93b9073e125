import type { RedisServerFacts } from "@larkline/store/operations";
import { describe, expect, it } from "vitest";
import { clockFindings, redisFindings, runningFindings, shownRedis } from "./service-checks.ts";
import { linesOf, ok } from "./finding.ts";
import { checkNode } from "./local-checks.ts";

const facts: RedisServerFacts = {
  product: "redis",
  version: "7.2.4",
  evictionPolicy: "noeviction",
  appendOnly: true,
  appendFsync: "everysec",
  replicas: 0,
  needsReplica: false,
  pingMs: 0.3,
  clockOffsetMs: 0,
};

function complaints(changed: Partial<RedisServerFacts>): string[] {
  return redisFindings({ ...facts, ...changed }).flatMap(({ check, status }) =>
    status === "ok" ? [] : [`${check} ${status}`],
  );
}

it("names that runners offer although they belong to others are warned of, with both and what to do", () => {
  const clashes = [{ tool: "deploy", owner: "main", runner: "stolen" }];
  const found = runningFindings({ workers: 1, clashes }, undefined).filter(
    ({ check }) => check === "running.owners",
  );
  expect(found).toMatchObject([{ status: "warning" }]);
  const text = JSON.stringify(found);
  for (const words of [
    "stolen offers deploy, a name that belongs to main",
    "npm run runner -- remove main",
  ]) {
    expect(text).toContain(words);
  }
});

describe("the facts of a Redis server", () => {
  it("are fine for Redis 7 and 8 and for Valkey 8", () => {
    expect(complaints({})).toEqual([]);
    expect(complaints({ version: "8.2.0" })).toEqual([]);
    expect(complaints({ product: "valkey", version: "8.1.0" })).toEqual([]);
    expect(complaints({ replicas: 2, needsReplica: true })).toEqual([]);
  });

  it("are fine when the server hides how it syncs", () => {
    const { appendFsync: _hidden, ...rest } = facts;
    expect(redisFindings(rest).every(({ status }) => status === "ok")).toBe(true);
  });

  it.each([
    [{ version: "6.2.14" }, "redis.version problem"],
    [{ version: "" }, "redis.version problem"],
    [{ evictionPolicy: "volatile-lru" }, "redis.eviction problem"],
    [{ appendOnly: false }, "redis.persistence warning"],
    [{ appendFsync: "no" }, "redis.persistence warning"],
    [{ replicas: 2 }, "redis.replicas warning"],
    [{ pingMs: 25 }, "redis.latency warning"],
  ])("are complained about: %o", (changed, complaint) => {
    expect(complaints(changed)).toEqual([complaint]);
  });

  it("are shown without user and password", () => {
    expect(shownRedis("rediss://user:p@ss@redis.example.com:6380/0")).toBe(
      "redis.example.com:6380/0",
    );
    expect(shownRedis("redis+cluster://one:1,two:2")).toBe("one:1,two:2");
    expect(shownRedis("redis://redis.example.com:6380?username=user&password=secret")).toBe(
      "redis.example.com:6380",
    );
  });
});

describe("clocks", () => {
  it("may differ by 5 s, in both directions", () => {
    expect(clockFindings({ redisMs: 2_400, feishuMs: -2_400 })).toMatchObject([{ status: "ok" }]);
    expect(clockFindings({ redisMs: 3_000, feishuMs: -3_000 })).toMatchObject([
      { status: "problem", text: { en: "The clocks of Redis and Feishu differ by 6 s" } },
    ]);
    expect(clockFindings({ redisMs: -5_001 })).toMatchObject([{ status: "problem" }]);
  });

  it("that could not be read are not judged", () => {
    expect(clockFindings({})).toEqual([]);
  });
});

describe("Node", () => {
  it("has to be the version that runs TypeScript as this code needs it", () => {
    expect(checkNode("24.0.0").status).toBe("ok");
    const old = checkNode("22.12.0");
    expect(linesOf(old, "zh")).toEqual(["[问题] Node 22.12.0", expect.stringContaining("Node 24")]);
  });
});

describe("a line of the report", () => {
  it("holds nothing that a terminal would obey or hide, whatever an app is called", () => {
    const name = "\u001B]0;owned\u0007\u009B2J\u202Egnp\r";
    const [line] = linesOf(
      ok("feishu.bot", { zh: name, en: `The bot "${name}" is enabled` }),
      "en",
    );
    expect(line).toBe('[ok] The bot "\uFFFD]0;owned\uFFFD\uFFFD2J\uFFFDgnp\uFFFD" is enabled');
  });
});
