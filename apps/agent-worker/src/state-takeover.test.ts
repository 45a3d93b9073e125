import { randomUUID } from "node:crypto";
import {
  closeRedis,
  connectRedis,
  InstanceDirectory,
  Presence,
  type RedisConnection,
  StateMigration,
} from "@larkline/store";
import { createLogger } from "@larkline/process/telemetry";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { takeOverState, untilStateIsTakenOver } from "./worker.ts";

let redis: RedisConnection;
let on: { redis: RedisConnection; namespace: string };
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
  on = { redis, namespace: `test-${randomUUID()}` };
});
afterEach(async () => await closeRedis(redis));

function options(owner: string, lines: string[] = []) {
  return {
    migration: new StateMigration({ ...on, stateKey: "5".repeat(64) }),
    instances: new InstanceDirectory(on),
    presence: new Presence(on),
    owner,
    logger: createLogger({
      service: "test",
      level: "info",
      destination: { write: (line: string) => void lines.push(line) },
    }),
    signal: AbortSignal.timeout(20_000),
  };
}

const old = { service: "ingress", host: "h", version: "1", startedAtMs: 1, apps: [], feeds: [] };

it("nothing is taken over while a process of the version before lives, and everything once it has gone", async () => {
  const lines: string[] = [];
  const one = options("one", lines);
  await one.instances.announce({ ...old, id: "old-1" }, 60_000);
  await one.instances.announce({ ...old, id: "new-1", stateVersion: 2 }, 60_000);
  expect(await takeOverState(one)).toBe(false);
  expect(lines.join("\n")).toContain("ingress h old-1");
  expect(lines.join("\n")).not.toContain("new-1");
  const others = [untilStateIsTakenOver(options("two")), untilStateIsTakenOver(options("three"))];
  await one.instances.withdraw("old-1");
  expect(await Promise.all(others)).toEqual([true, true]);
});

it("a process of the version before that comes after it has no part in it", async () => {
  const one = options("one");
  expect(await takeOverState(one)).toBe(true);
  await one.instances.announce({ ...old, id: "old-1" }, 60_000);
  expect(await takeOverState(options("two"))).toBe(true);
});

it("one that died without a word is waited for no longer than it is believed to live", async () => {
  const one = options("one");
  await one.instances.announce({ ...old, id: "old-1" }, 600);
  expect(await takeOverState(one)).toBe(false);
  expect(await untilStateIsTakenOver(one)).toBe(true);
});
