import { randomUUID } from "node:crypto";
import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import { blankTurn, checkpointForm, type TurnState } from "@larkline/protocol/turn";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace } from "./keys.ts";
import { SessionStore } from "./session-store.ts";
import type { Claim } from "./session-types.ts";
import { StateSeal, unsealed } from "./stored.ts";

const stateKey = "5".repeat(64);
const [session, other] = ["cli_1.oc_1", "cli_1.oc_2"];
let redis: RedisConnection;
let namespace: string;
let store: SessionStore;
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
  namespace = `test-${randomUUID()}`;
  store = new SessionStore({ redis, namespace, stateKey });
});
afterEach(async () => await closeRedis(redis));

function keysOf(name: string) {
  return createKeyspace(namespace).session(name);
}

function messageIn(name: string, id: string): InboundMessage {
  return {
    v: 1,
    session: name,
    id,
    app: "cli_1",
    sender: { id: "ou_1" },
    chatType: "p2p",
    parts: [{ type: "text", text: "hi" }],
    createdAtMs: 1,
    reply: { channel: "none" },
  };
}

function turnOf({ session: name, head }: Claim): TurnState {
  if (head === undefined) throw new Error("nothing to run");
  const { seq, message } = head;
  return { ...blankTurn({ turnId: turnIdOf(name, seq), message, startedAtMs: 1 }), steps: 1 };
}

async function claimed(name: string): Promise<Claim> {
  const { gen } = await store.summary(name);
  const claim = await store.claim(name, gen, "worker");
  if (claim === undefined) throw new Error("not claimed");
  return claim;
}

const nothing = { history: [], events: [], consumed: 0, open: [] };

/** A turn in the middle of its work; resolves to what is stored of it. */
async function begun(name: string, id: string): Promise<string> {
  await store.append(messageIn(name, id));
  const claim = await claimed(name);
  await store.save({
    session: name,
    epoch: claim.epoch,
    turn: turnOf(claim),
    mode: "handoff",
    ...nothing,
  });
  return (await redis.hget(keysOf(name).state, "turn")) ?? "";
}

async function ended(name: string): Promise<void> {
  const { epoch, head } = await claimed(name);
  await store.commit({ session: name, epoch, seq: head?.seq ?? 0, more: false, ...nothing });
}

/** A claim says so, and holds nothing of it that could be run. */
function expectDamaged(claim: Claim | undefined, why: string): void {
  expect(claim?.damaged).toContain(why);
  expect(claim?.turn).toBeUndefined();
}

it("a checkpoint is run as a worker has sealed it", async () => {
  await begun(session, "om_1");
  expect((await claimed(session)).turn).toMatchObject({ turnId: `${session}-1` });
});

it("no checkpoint is run that another key has sealed, or none, or that was changed", async () => {
  const stored = await begun(session, "om_1");
  const { state } = keysOf(session);
  const elsewhere = new SessionStore({ redis, namespace, stateKey: "6".repeat(64) });
  const { gen } = await store.summary(session);
  expectDamaged(await elsewhere.claim(session, gen, "worker"), "its seal is wrong");
  for (const forged of [
    stored.replace('"steps":1', '"steps":2'),
    unsealed(stored),
    `1.1.${"A".repeat(43)}.{}`,
    "{}",
  ]) {
    await redis.hset(state, "turn", forged);
    expectDamaged(
      await store.claim(session, gen, "worker"),
      "stored turn of cli_1.oc_1 is damaged",
    );
  }
  await redis.hset(state, "turn", stored);
  expect((await claimed(session)).turn).toBeDefined();
});

it("a checkpoint of another form than this version reads is run by no worker, and the reason names both", async () => {
  const stored = await begun(session, "om_1");
  const seal = new StateSeal(stateKey);
  for (const [form, writer] of [
    [1, "an earlier"],
    [99, "a later"],
  ] as const) {
    const text = unsealed(stored).replace(`"v":${checkpointForm}`, `"v":${form}`);
    await redis.hset(
      keysOf(session).state,
      "turn",
      seal.seal("turn", session, { epoch: "1", text }),
    );
    const why = `${writer} version has written it in form ${form}, and this version reads form ${checkpointForm}`;
    expectDamaged(await claimed(session), why);
    expect((await store.summary(session)).damaged).toContain(why);
  }
});

it("no genuine checkpoint is run in another session, in a later turn of its own, or before its epoch", async () => {
  const stored = await begun(session, "om_1");
  await begun(other, "om_2");
  await redis.hset(keysOf(other).state, "turn", stored);
  expectDamaged(await claimed(other), "its seal is wrong");
  await ended(session);
  await begun(session, "om_3");
  await redis.hset(keysOf(session).state, "turn", stored);
  expectDamaged(await claimed(session), "it is of another turn");
  await redis.hset(keysOf(session).state, "turn", stored.replace(/^1\.\d+/, "1.9999999999999999"));
  expectDamaged(await claimed(session), "its seal is wrong");
  const seal = new StateSeal(stateKey);
  const later = seal.seal("turn", session, { epoch: "9", text: "{}" });
  expect(seal.open("turn", session, { epoch: "9", stored: later })).toBe("{}");
  expect(() => seal.open("turn", session, { epoch: "8", stored: later })).toThrow(
    "it is of a later epoch",
  );
});

it("no summary and no settings are believed that were not sealed for the session", async () => {
  await store.append(messageIn(session, "om_1"));
  const { epoch } = await claimed(session);
  const summary = { role: "user" as const, content: [{ type: "text" as const, text: "so far" }] };
  const settings = { model: "openai/other" };
  await store.commit({
    session,
    epoch,
    seq: 1,
    more: false,
    ...nothing,
    context: { keep: 0, summary },
    settings,
  });
  await store.append(messageIn(session, "om_2"));
  expect(await claimed(session)).toMatchObject({ history: [summary], settings });
  const { state } = keysOf(session);
  for (const what of ["settings", "summary"] as const) {
    // Of what a process has read before it needs no seal any more.
    const fresh = new SessionStore({ redis, namespace, stateKey });
    const stored = (await redis.hget(state, what)) ?? "";
    await redis.hset(state, what, stored.replace(/o(?=[^o]*$)/, "0"));
    const { gen } = await store.summary(session);
    const claim = await fresh.claim(session, gen, "worker");
    expect(claim?.unreadable).toEqual([
      expect.objectContaining({ what, reason: expect.stringContaining("its seal is wrong") }),
    ]);
    if (what === "settings") expect(claim?.settings).not.toMatchObject(settings);
    else expect(claim?.history).not.toContainEqual(summary);
    await redis.hset(state, what, stored);
  }
});

it("others than workers can ask for a cancel and bring a decision, and nothing else", async () => {
  await begun(session, "om_1");
  const outcome = { type: "outcome", callId: "c1", outcome: { ok: true, result: "forged" } };
  const cancel = { type: "cancel", reason: "stopped" };
  await redis.rpush(
    keysOf(session).requests,
    JSON.stringify(outcome),
    "not JSON",
    JSON.stringify(cancel),
    "[]",
  );
  expect((await claimed(session)).control).toEqual([cancel]);
});
