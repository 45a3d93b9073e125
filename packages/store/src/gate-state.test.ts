import { randomUUID } from "node:crypto";
import type { InboundMessage } from "@larkline/protocol";
import { blankTurn, type TurnState } from "@larkline/protocol/turn";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { SessionIndex } from "./session-index.ts";
import { SessionStore } from "./session-store.ts";
import type { Claim } from "./session-types.ts";
import { afterEach, beforeEach, expect, inject, it } from "vitest";

let redis: RedisConnection;
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
});
afterEach(async () => await closeRedis(redis));

const minuteMs = 60_000;

function messageOf(session: string, createdAtMs: number): InboundMessage {
  return {
    v: 1,
    session,
    id: randomUUID(),
    app: "cli_app",
    sender: { id: "ou_user" },
    chatType: "p2p",
    // What people write must not be taken for a time.
    parts: [{ type: "text", text: '"createdAtMs":1, ' }],
    createdAtMs,
    reply: { channel: "none" },
  };
}

function turnOf({ session, head }: Claim): TurnState {
  if (head === undefined) throw new Error("the claim has no message");
  const { seq, message } = head;
  const turnId = `${session}-${seq}`;
  return { ...blankTurn({ turnId, message, startedAtMs: message.createdAtMs }), steps: 1 };
}

function start() {
  const on = { redis, namespace: `test-${randomUUID()}` };
  const store = new SessionStore({ ...on, stateKey: "0".repeat(64) });
  const append = async (session: string, createdAtMs: number) => {
    const { wakeGen = 0 } = await store.append(messageOf(session, createdAtMs));
    return wakeGen;
  };
  const claim = async (session: string, createdAtMs: number): Promise<Claim> => {
    const claimed = await store.claim(session, await append(session, createdAtMs), "w1");
    if (claimed === undefined) throw new Error("nothing to claim");
    return claimed;
  };
  return { store, append, claim, read: async () => await new SessionIndex(on).gateState() };
}

it("a session of an older version does not say which of its messages have waited: any may have", async () => {
  const { store, append } = start();
  const wakeGen = await append("cli_app.oc_old.main", 1);
  for (const key of await redis.keys("*oc_old*")) {
    if ((await redis.type(key)) === "hash") await redis.hdel(key, "behind");
  }
  expect(await store.claim("cli_app.oc_old.main", wakeGen, "w1")).toMatchObject({
    mayHaveWaited: true,
  });
});

it("a deployment in which nothing has happened has nothing", async () => {
  const { read } = start();
  expect(await read()).toEqual({
    sessions: { queued: 0, running: 0, suspended: 0 },
    oldestMessageAtMs: {},
    outboxes: 0,
    openCalls: 0,
    openApprovals: 0,
  });
});

it("sessions of all cells are counted by their state, with the oldest message of each, open calls and unsent replies", async () => {
  const { store, append, claim, read } = start();
  const nowMs = Date.now();
  for (let index = 0; index < 20; index += 1) {
    await append(`app.queued${index}`, nowMs - index * minuteMs);
  }
  await claim("app.running", nowMs - 5 * minuteMs);
  const waiting = await claim("app.suspended", nowMs - 90 * minuteMs);
  const write = {
    session: waiting.session,
    epoch: waiting.epoch,
    history: [],
    events: [],
    consumed: 0,
  };
  const facts = {
    app: "cli_app",
    turnId: "t",
    tool: "pay",
    userId: "ou_user",
    argumentsHash: "0".repeat(64),
  };
  const open = ["c1", "c2"].map((callId) => ({ callId, deadlineMs: nowMs + minuteMs, facts }));
  const saved = await store.save({ ...write, turn: turnOf(waiting), open, mode: "suspend" });
  expect(saved.state).toBe("suspended");
  const target = { app: "cli_app", chatId: "oc_chat", messageId: "", inThread: false };
  const unsent = {
    v: 1,
    id: "r1",
    uuid: "u1",
    session: "app.unsent",
    target,
    text: '"createdAtMs":1,',
  } as const;
  const ages = { createdAtMs: nowMs - 7 * minuteMs, attempts: 0, uncertainSinceMs: 0 };
  await store.outbox.push({ ...unsent, ...ages }, "om_1");
  expect(await read()).toEqual({
    sessions: { queued: 20, running: 1, suspended: 1 },
    oldestMessageAtMs: { queued: nowMs - 19 * minuteMs, running: nowMs - 5 * minuteMs },
    outboxes: 1,
    oldestReplyAtMs: nowMs - 7 * minuteMs,
    openCalls: 2,
    openApprovals: 0,
  });
});
