import { randomUUID } from "node:crypto";
import type { Message } from "@larkline/protocol/content";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace } from "./keys.ts";
import { SessionStore } from "./session-store.ts";
import type { FencedWrite } from "./session-types.ts";
import { messageOf, mustClaim, suspendOn } from "./suite-samples.ts";
import { openTestStores } from "./testing.ts";
import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished } from "vitest";

const session = "cli_app.oc_chat.main";

function said(text: string): Message {
  return { role: "user", content: [{ type: "text", text }] };
}

const stateKey = "0".repeat(64);
describe("history cache", () => {
  let redis: RedisConnection;
  let namespace: string;
  let store: SessionStore;
  let messages = 0;

  beforeEach(() => {
    redis = connectRedis(inject("redisUrl"));
    namespace = `test-${randomUUID()}`;
    store = new SessionStore({ redis, namespace, stateKey });
  });
  afterEach(async () => await closeRedis(redis));

  /** Runs one turn; returns the history that its claim showed. */
  async function turn(
    write: Partial<Pick<FencedWrite, "history" | "context">>,
    by = store,
  ): Promise<Message[]> {
    messages += 1;
    const { wakeGen } = await by.append({
      v: 1,
      session,
      id: `om_${messages}`,
      app: "cli_app",
      sender: { id: "ou_user" },
      chatType: "p2p",
      parts: [{ type: "text", text: "question" }],
      createdAtMs: 0,
      reply: { channel: "none" },
    });
    const claim = await by.claim(session, wakeGen ?? 0, "worker");
    if (!claim?.head) throw new Error("nothing to claim");
    const { epoch, head, history } = claim;
    await by.commit({
      session,
      epoch,
      history: [],
      events: [],
      seq: head.seq,
      more: false,
      ...write,
    });
    return history;
  }

  /**
   * Makes what is stored differ from what was read, so that a test sees what is read again. Not the
   * last message: by that one a claim tells whether what was read still stands.
   */
  async function markStored(): Promise<void> {
    const { history } = createKeyspace(namespace).session(session);
    for (let i = 0; i < (await redis.llen(history)) - 1; i += 1) {
      await redis.lset(history, i, JSON.stringify(said(`read again ${i}`)));
    }
  }

  it("a claim reads only what is new since this process last read the session", async () => {
    await turn({ history: [said("0"), said("1")] });
    expect(await turn({})).toEqual([said("0"), said("1")]);
    await markStored();
    await turn({ history: [said("2")] });
    expect(await turn({})).toEqual([said("0"), said("1"), said("2")]);
  });

  it("a claim reads only what is new after a summary, too", async () => {
    await turn({
      history: [said("0"), said("1"), said("2")],
      context: { keep: 2, summary: said("summary") },
    });
    expect(await turn({})).toEqual([said("summary"), said("1"), said("2")]);
    await markStored();
    await turn({ history: [said("3")] });
    expect(await turn({})).toEqual([said("summary"), said("1"), said("2"), said("3")]);
  });

  it("a process that has not read the session since reads the whole context, and no more", async () => {
    const other = new SessionStore({ redis, namespace, stateKey });
    await turn({ history: [said("0"), said("1")] });
    await turn({}, other);
    await turn({ history: [said("2")], context: { keep: 2, summary: said("summary") } });
    await markStored();
    expect(await turn({}, other)).toEqual([said("summary"), said("read again 1"), said("2")]);
  });

  it("a history whose end a failed-over server has lost is read anew, also when others have written since", async () => {
    const { history } = createKeyspace(namespace).session(session);
    await turn({ history: [said("0"), said("1")] });
    await turn({ history: [said("lost"), said("lost too")] });
    expect(await turn({})).toHaveLength(4);
    await redis.ltrim(history, 0, 1);
    expect(await turn({})).toEqual([said("0"), said("1")]);
    await turn({ history: [said("lost again")] });
    expect(await turn({})).toHaveLength(3);
    await redis.ltrim(history, 0, 1);
    await turn(
      { history: [said("2"), said("3")] },
      new SessionStore({ redis, namespace, stateKey }),
    );
    expect(await turn({})).toEqual([said("0"), said("1"), said("2"), said("3")]);
  });

  it("what follows a summary is read anew when its end was lost, too", async () => {
    const { history } = createKeyspace(namespace).session(session);
    await turn({ history: [said("0"), said("1")], context: { keep: 1, summary: said("summary") } });
    await turn({ history: [said("lost")] });
    expect(await turn({})).toEqual([said("summary"), said("1"), said("lost")]);
    await redis.ltrim(history, 0, 1);
    await turn({ history: [said("2")] }, new SessionStore({ redis, namespace, stateKey }));
    expect(await turn({})).toEqual([said("summary"), said("1"), said("2")]);
  });

  it("a context that was lost and written anew by a failed-over server is not taken for the one that was read", async () => {
    const { session: key } = createKeyspace(namespace).session(session);
    await turn({ history: [said("0")], context: { keep: 1, summary: said("lost") } });
    expect(await turn({})).toEqual([said("lost"), said("0")]);
    await redis.hdel(key, "contextVersion", "contextStart", "summary");
    await turn(
      { context: { keep: 1, summary: said("anew") } },
      new SessionStore({ redis, namespace, stateKey }),
    );
    expect(await turn({})).toEqual([said("anew"), said("0")]);
  });
});

it("a session that sleeps though there is something to read is woken by the sweep", async () => {
  const { redis, namespace, store, close } = openTestStores({}, inject("redisUrl"));
  onTestFinished(close);
  const { wakeGen = 0 } = await store.append(messageOf(session, "om_1"));
  await suspendOn(store, await mustClaim(store, session, wakeGen), "c1");
  expect(await store.heal(session, wakeGen)).toBeUndefined();
  // By a process that died before it could wake the session: others than workers may write to this list.
  await redis.rpush(
    createKeyspace(namespace).session(session).requests,
    JSON.stringify({ type: "cancel" }),
  );
  expect(await store.heal(session, wakeGen)).toBe(wakeGen + 1);
  expect(await store.summary(session)).toMatchObject({ state: "queued" });
});
