import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace, type SessionKeys } from "./keys.ts";
import { ApprovalStore } from "./approval-store.ts";
import { SessionRetention } from "./retention.ts";
import { SessionStore } from "./session-store.ts";
import { StateMigration } from "./state-migration.ts";
import { messageOf } from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
let redis: RedisConnection;
let namespace: string;
let keys: SessionKeys;
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
  namespace = `test-${randomUUID()}`;
  keys = createKeyspace(namespace).session(session);
});
afterEach(async () => await closeRedis(redis));

/** Fields as `old=new|value`, or `name|value` where both versions have the same. */
function fields(text: string): { before: Record<string, string>; after: Record<string, string> } {
  const found = text
    .split(" ")
    .map((field) => /^([^=]+?)(?:=(.+?))?\|(.*?)(?:>(.*))?$/.exec(field) ?? []);
  return {
    before: Object.fromEntries(found.map(([, old = "", , value = ""]) => [old, value])),
    after: Object.fromEntries(
      found.map(([, old = "", name = old, value = "", became = value]) => [name, became]),
    ),
  };
}

it("what the version before has stored gets the names of this version, once", async () => {
  const hashes = [
    [
      keys.session,
      "st=state|queued gen=generation|4 seq|7 es=eventSeq|9 behind|7 olt=outboxLease|t ole=outboxLeaseUntil|5 ort=outboxRetryAt|6",
    ],
    [
      keys.state,
      "rg=runningGeneration|3 ep=epoch|12 hs=headSeq|6 try=tries|1 own=owner|w abs=absorbed|,7, hb=historyBase|2 sm=summary|s " +
        "cs=contextStart|3 hv=contextVersion|11 set=settings|t turn|u counted|12:6:try>12:6:tries asides|,5, aside:5|5:{} " +
        "aside:5:try=aside:5:tries|2 aside:5:abs=aside:5:absorbed|,6,",
    ],
    [keys.highest, "seq|1 gen=generation|2 es=eventSeq|3 hb=historyBase|4"],
    [
      keys.approvalOf("a1"),
      "a=approval|{} kind|call exp=expiresAtMs|8 need=needed|1 hash=argumentsHash|h hc=hasCards|1 f=facts|{}",
    ],
    [
      keys.saidOf("a1"),
      "st=state|approved at=settledAtMs|3 dec=decisions|{} n:approve=count:approve|1 v=changes|2 cv=seenChanges|1 ct=leaseToken|t cu=leaseUntil|4",
    ],
  ] as const;
  for (const [key, text] of hashes) await redis.hset(key, fields(text).before);
  await redis.zadd(keys.kept, 9e12, "a1");
  const migration = new StateMigration({ redis, namespace });
  expect(await migration.isDone()).toBe(false);
  for (const _ of ["first", "again"]) {
    expect(await migration.run(AbortSignal.timeout(60_000))).toBe(1);
  }
  expect(await migration.isDone()).toBe(true);
  for (const [key, text] of hashes) expect(await redis.hgetall(key)).toEqual(fields(text).after);
});

it("until then nothing is added to a session, so that its message is delivered again", async () => {
  const store = new SessionStore({ redis, namespace });
  await redis.hset(keys.session, { st: "idle", gen: 4, seq: 7 });
  await expect(store.append(messageOf(session, "om_1"))).rejects.toThrow(
    "Start an agent-worker of this version",
  );
  await expect(store.cancel(session, { reason: "stopped" })).rejects.toThrow("OLDFORM");
  const replyOf = async (): Promise<undefined> => await Promise.resolve(undefined);
  await expect(store.reset(session, { by: "ou_1", replyOf })).rejects.toThrow("OLDFORM");
  const retention = new SessionRetention({ redis, namespace });
  await expect(retention.erase(session, 100)).rejects.toThrow("OLDFORM");
  await redis.set(createKeyspace(namespace).approvalSessionOf("a1"), session);
  await redis.hset(keys.approvalOf("a1"), { a: "{}" });
  await expect(new ApprovalStore({ redis, namespace }).find("cli_app", "a1")).rejects.toThrow(
    "OLDFORM",
  );
  await new StateMigration({ redis, namespace }).run(AbortSignal.timeout(60_000));
  expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
    result: "accepted",
    seq: 8,
    wakeGen: 5,
  });
});
