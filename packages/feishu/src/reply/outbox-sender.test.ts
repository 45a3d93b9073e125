import { startFeishuSimulator, type Fault } from "@larkline/simulator";
import { systemClock } from "@larkline/protocol/clock";
import type { OutboxLease, OutboxRecord, SessionStore } from "@larkline/store";
import type { RateGovernor } from "@larkline/store/platform";
import { openTestStores } from "@larkline/store/testing";
import { patientClock } from "@larkline/testkit";
import { describe, expect, it, onTestFinished } from "vitest";
import { FeishuApi } from "../feishu-api.ts";
import { OutboxSender, type OutboxSenderOptions } from "./outbox-sender.ts";

const appId = "cli_0123456789abcdef";
const hourMs = 3_600_000;

/** A store, a platform and a clock that a test can move. */
async function world({
  governor,
  ...options
}: Partial<OutboxSenderOptions> & { governor?: RateGovernor } = {}) {
  const { store, cards: ledger, tokens, now, advance } = openTestStores();
  const clock = { ...systemClock, now };
  const simulator = await startFeishuSimulator({
    apps: [{ appId, appSecret: "secret" }],
    limits: "off",
    clock,
  });
  onTestFinished(() => simulator.close());
  const api = new FeishuApi({
    appId,
    appSecret: "secret",
    domain: simulator.url,
    tokenCache: tokens,
    timeoutMs: 60_000,
    retry: { attempts: 2, minDelayMs: 1, maxDelayMs: 10 },
    ...(governor === undefined ? {} : { governor }),
  });
  onTestFinished(() => api.close());
  const lines: { level: string; fields: Record<string, unknown>; text: string }[] = [];
  const write = (level: string) => (fields: Record<string, unknown>, text: string) =>
    void lines.push({ level, fields, text });
  const logger = {
    debug: write("debug"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
  };
  const apis = new Map<string, FeishuApi>([[appId, api]]);
  const sender = new OutboxSender({
    outbox: store.outbox,
    ledger,
    apis,
    logger,
    clock,
    retryDelaysMs: [100, 200],
    ...options,
  });
  onTestFinished(() => sender.close());
  const user = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "group", members: [user.openId] });
  const say = async (text: string): Promise<string> =>
    (await simulator.sendMessage({ appId, chatId, from: user.openId, text })).messageId;
  const replies = (): string[] =>
    simulator
      .messages(chatId)
      .filter(({ senderType }) => senderType === "app")
      .map(({ text }) => text);
  return {
    simulator,
    store,
    ledger,
    sender,
    chatId,
    say,
    replies,
    lines,
    logger,
    now,
    clock,
    forward: (ms: number) => {
      void advance(ms);
    },
    fail: (action: Fault["action"], times?: number) =>
      simulator.faults.add({
        match: { path: /\/im\/v1\/messages(\/[^/]+\/reply)?$/, method: "POST" },
        action,
        ...(times === undefined ? {} : { times }),
      }),
    record: (messageId: string, text: string, id = "r1"): OutboxRecord => ({
      v: 1,
      id,
      uuid: `uuid-${id}`,
      session: "s1",
      target: { app: appId, chatId, messageId, inThread: false },
      text,
      createdAtMs: now(),
      attempts: 0,
      uncertainSinceMs: 0,
    }),
  };
}

async function pushed(store: SessionStore, record: OutboxRecord): Promise<OutboxLease> {
  const { lease } = await store.outbox.push(record, record.id);
  if (lease === undefined) throw new Error("the outbox is taken");
  return lease;
}

async function due(store: SessionStore, nowMs: number): Promise<OutboxLease | undefined> {
  const [session] = await store.dueOutboxes(nowMs, 10);
  return session === undefined ? undefined : await store.outbox.lease(session);
}

async function deliverDue(
  store: SessionStore,
  sender: OutboxSender,
  nowMs: number,
): Promise<OutboxLease> {
  const lease = await due(store, nowMs);
  if (lease === undefined) throw new Error("nothing is due");
  await sender.deliver(lease);
  return lease;
}

describe("the outbox sender", () => {
  it("sends everything that waits, in order", async () => {
    const { store, sender, say, record, replies, now } = await world();
    const messageId = await say("hi");
    const lease = await pushed(store, record(messageId, "one", "r1"));
    for (const id of ["r2", "r3"]) {
      await store.outbox.push(record(messageId, `answer ${id}`, id), id);
    }
    await sender.deliver(lease);
    expect(replies()).toEqual(["one", "answer r2", "answer r3"]);
    expect(await due(store, now() + hourMs)).toBeUndefined();
  });

  it("ends a delivery before its lease does, however late it began, and begins none under a lease that is over", async () => {
    // The lease has as much time left as the test says, whenever the sender looks.
    const nowMs = systemClock.monotonic();
    const clock = { ...systemClock, monotonic: () => nowMs };
    const { store, sender, say, record, replies, now, forward, fail } = await world({ clock });
    const lease = await pushed(store, record(await say("hi"), "one"));
    await sender.deliver({ ...lease, untilMs: nowMs + 500 });
    expect(replies()).toEqual([]);
    forward(hourMs);
    const next = (await due(store, now())) ?? expect.fail();
    expect(next.record.attempts).toBe(0);
    const heal = fail({ kind: "hang" });
    await sender.deliver({ ...next, untilMs: nowMs + 1_100 });
    heal();
    forward(hourMs);
    const again = await due(store, now());
    expect(again?.record).toMatchObject({ attempts: 1, problem: "cancelled" });
  });

  it("keeps a reply through an outage of hours and sends it once", async () => {
    const { store, sender, say, record, replies, now, forward, fail } = await world();
    const heal = fail({ kind: "respond", status: 503 });
    const lease = await pushed(store, record(await say("hi"), "one"));
    const beforeMs = now();
    await sender.deliver(lease);
    expect(await due(store, beforeMs)).toBeUndefined();
    for (let hours = 0; hours < 5; hours += 1) {
      forward(hourMs);
      const { record: tried } = await deliverDue(store, sender, now());
      expect(tried.attempts).toBe(hours + 1);
      expect(tried.uncertainSinceMs).toBeGreaterThan(0);
    }
    expect(replies()).toEqual([]);
    heal();
    forward(hourMs);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
  });

  it("is as patient as at first with a reply that only our own limits hold back, however often", async () => {
    const { governor, advance } = openTestStores();
    const { store, sender, say, record, replies, now, forward } = await world({
      governor,
      retryDelaysMs: [100, hourMs],
    });
    await governor.pause(`${appId}:api:im.message.reply`, 30_000);
    await sender.deliver(await pushed(store, record(await say("hi"), "one")));
    for (let rounds = 0; rounds < 3; rounds += 1) {
      forward(31_000);
      expect((await deliverDue(store, sender, now())).record.attempts).toBe(0);
    }
    expect(replies()).toEqual([]);
    await advance(30_001);
    forward(31_000);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
  });

  it("finds an answer that got through although its attempt failed, when the uuid no longer protects", async () => {
    const { store, sender, say, record, replies, now, forward, fail } = await world();
    fail({ kind: "lose_response" }, 2);
    await sender.deliver(await pushed(store, record(await say("hi"), "one")));
    expect(replies()).toEqual(["one"]);
    forward(2 * hourMs);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
    expect(await due(store, now() + hourMs)).toBeUndefined();
  });

  it("relies on the uuid within the hour", async () => {
    const { simulator, store, sender, say, record, replies, now, forward, fail } = await world();
    fail({ kind: "lose_response" }, 2);
    await sender.deliver(await pushed(store, record(await say("hi"), "one")));
    forward(60_000);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
    expect(
      simulator.apiCalls.filter(
        ({ method, path }) => method === "GET" && path.includes("/messages"),
      ),
    ).toEqual([]);
  });

  it("finds the answer of a sender that died without a note", async () => {
    const { store, sender, say, record, replies, now, forward } = await world();
    const lease = await pushed(store, record(await say("hi"), "one"));
    await sender.deliver({ ...lease, token: "of a dead sender" });
    expect(replies()).toEqual(["one"]);
    forward(2 * hourMs);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
  });

  it("sends again when it may not read the chat: a repeated answer is better than none", async () => {
    const { simulator, store, sender, say, record, replies, now, forward, fail, lines } =
      await world();
    const heal = fail({ kind: "respond", status: 503 });
    await sender.deliver(await pushed(store, record(await say("hi"), "one")));
    heal();
    simulator.faults.add({
      match: { method: "GET" },
      action: { kind: "respond", status: 400, body: { code: 230027, msg: "no" } },
    });
    forward(2 * hourMs);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
    expect(lines.map(({ text }) => text)).toContain(
      "cannot check for an earlier answer, sending again",
    );
  });

  it("writes to the chat when the message was recalled", async () => {
    const { simulator, store, sender, say, record, chatId } = await world();
    const messageId = await say("hi");
    await simulator.recall(messageId);
    await sender.deliver(await pushed(store, record(messageId, "one")));
    const answer = simulator.messages(chatId).find(({ senderType }) => senderType === "app");
    expect(answer).toMatchObject({ text: "one" });
    expect(answer?.parentId).toBeUndefined();
  });

  it("gives up a chat it may not write to, logs no content, and continues with the next reply", async () => {
    const { store, sender, say, record, replies, fail, lines } = await world();
    const messageId = await say("hi");
    const lease = await pushed(store, record(messageId, "private words", "r1"));
    await store.outbox.push(record(messageId, "two", "r2"), "r2");
    fail({ kind: "respond", status: 400, body: { code: 230002, msg: "private words" } }, 1);
    await sender.deliver(lease);
    expect(replies()).toEqual(["two"]);
    const dead = lines.find(({ fields }) => fields["deadLetter"] === true);
    expect(dead).toMatchObject({
      level: "error",
      fields: { code: 230002, outboxId: "r1", kind: "forbidden" },
    });
    expect(JSON.stringify(lines)).not.toContain("private words");
  });

  it("sends plain text when the post is refused, and a note when the content is", async () => {
    const { store, sender, say, record, replies, fail } = await world();
    const messageId = await say("hi");
    fail({ kind: "respond", status: 400, body: { code: 230001, msg: "bad" } }, 1);
    await sender.deliver(await pushed(store, record(messageId, "# Title", "r1")));
    fail({ kind: "respond", status: 400, body: { code: 230028, msg: "dlp" } }, 1);
    await sender.deliver(await pushed(store, record(messageId, "secret", "r2")));
    expect(replies()).toEqual(["# Title", expect.stringContaining("content policy")]);
  });

  it("AL-49: waits for the operator when the app lost its rights or has no credentials", async () => {
    const { store, sender, say, record, replies, now, forward, fail } = await world();
    const messageId = await say("hi");
    const heal = fail({ kind: "respond", status: 400, body: { code: 99991672, msg: "scope" } });
    await sender.deliver(await pushed(store, record(messageId, "one")));
    heal();
    forward(1_000);
    await deliverDue(store, sender, now());
    expect(replies()).toEqual(["one"]);
    const foreign = { ...record(messageId, "two", "r2"), session: "s2" };
    foreign.target = { ...foreign.target, app: "cli_ffffffffffffffff" };
    const lease = await pushed(store, foreign);
    const beforeMs = now();
    await sender.deliver(lease);
    expect(replies()).toEqual(["one"]);
    expect(await due(store, beforeMs + 9_000)).toBeUndefined();
    // Another worker may have them: that this one has none is no failed try.
    forward(10_000);
    expect((await due(store, now()))?.record.attempts).toBe(0);
  });

  it("waits at least as long as the platform asks", async () => {
    const { store, sender, say, record, now, fail } = await world();
    const headers = { "x-ogw-ratelimit-reset": "30" };
    fail({ kind: "respond", status: 429, body: { code: 99991400, msg: "limit" }, headers });
    const lease = await pushed(store, record(await say("hi"), "one"));
    const beforeMs = now();
    await sender.deliver(lease);
    expect(await due(store, beforeMs + 29_000)).toBeUndefined();
    expect(await store.dueOutboxes(now() + 31_000, 10)).toEqual(["s1"]);
  });

  it("gives up an unknown failure after some tries, and an outage after days", async () => {
    const { store, sender, say, record, now, forward, fail, lines } = await world({
      retryDelaysMs: [1],
    });
    const messageId = await say("hi");
    const heal = fail({ kind: "respond", status: 200, body: { code: 4242, msg: "?" } });
    await sender.deliver(await pushed(store, record(messageId, "one")));
    for (let tries = 0; tries < 11; tries += 1) {
      forward(10);
      await deliverDue(store, sender, now());
    }
    forward(hourMs);
    expect(await due(store, now())).toBeUndefined();
    heal();
    fail({ kind: "respond", status: 503 });
    await sender.deliver(await pushed(store, record(messageId, "two", "r2")));
    forward(73 * hourMs);
    await deliverDue(store, sender, now());
    forward(hourMs);
    expect(await due(store, now())).toBeUndefined();
    expect(lines.filter(({ fields }) => fields["deadLetter"] === true)).toHaveLength(2);
  });

  it("never throws, also when the store fails", async () => {
    const { store, ledger, say, record, lines, logger, clock } = await world();
    const failing = {
      ack: () => Promise.reject(new Error("redis")),
      retry: () => Promise.reject(new Error("redis")),
      lease: () => Promise.reject(new Error("redis")),
    };
    const broken = new OutboxSender({ outbox: failing, ledger, apis: new Map(), logger, clock });
    await expect(
      broken.deliver(await pushed(store, record(await say("hi"), "one"))),
    ).resolves.toBeUndefined();
    expect(lines.at(-1)).toMatchObject({ level: "error", text: "outbox could not be updated" });
  });

  it("lets a running send finish at close and gives the rest back", async () => {
    // A stall of this process does not end the 5 s that a close waits.
    const { store, sender, say, record, replies, now, fail } = await world({ clock: patientClock });
    const messageId = await say("hi");
    const lease = await pushed(store, record(messageId, "one", "r1"));
    await store.outbox.push(record(messageId, "two", "r2"), "r2");
    fail({ kind: "delay", delayMs: 150 }, 1);
    const delivering = sender.deliver(lease);
    await sender.close();
    await delivering;
    expect(replies()).toEqual(["one"]);
    expect((await due(store, now()))?.record.id).toBe("r2");
  });
});
