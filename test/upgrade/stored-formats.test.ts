import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { stateKeyOf } from "@larkline/protocol/runner";
import { AuditLog, SessionStore, type AuditRecord } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import { startRedis, type TestRedis } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { shownAnswer } from "../system/answer.ts";
import { openQuestions } from "../system/approvals.ts";
import { answerTo, send } from "../system/sending.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";
import { addPeople, askingSession, chatOf, recordedApp, type Scene } from "./scenes.ts";
import { restoreSnapshot, type Snapshot } from "./snapshot.ts";

const patience = { timeout: 120_000, interval: 50 };
/** Less was left to the call when it was recorded than a busy machine takes to start everything. */
async function giveCallsAnHour(url: string): Promise<void> {
  const connection = connectRedis(url);
  for (const key of await connection.keys("*:deadlines")) {
    for (const call of await connection.zrange(key, "0", "-1")) {
      await connection.zincrby(key, 3_600_000, call);
    }
  }
  await closeRedis(connection);
}

const fixture = (name: string): string =>
  fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

// Written by record.ts: sessions in all their states, as the previous version left them when it was killed.
// What wakes a session is not added here: that is lost, and found by a sweeper.
describe("what the previous version has stored", () => {
  let redis: TestRedis;
  let connection: RedisConnection;
  let store: SessionStore;
  let system: ProcessSystem;

  beforeAll(async () => {
    redis = await startRedis();
    // Before any process of this version runs: they take over what is stored once.
    const text = await readFile(new URL("stored.json", import.meta.url), "utf8");
    const { CALL_SIGNING_KEY = "" } = keysFor("agent-worker", "");
    await restoreSnapshot(redis.url, JSON.parse(text) as Snapshot, stateKeyOf(CALL_SIGNING_KEY)); // record.ts has written it
    await giveCallsAnHour(redis.url);
    system = await startProcesses({
      appId: recordedApp,
      redisUrl: redis.url,
      workers: 0,
      env: { RUNNER_TOOLS: `${fixture("recording-tools.ts")},${fixture("approval-tools.ts")}` },
    });
    // Workers send what is stored as soon as they run; Feishu refuses it for good where it knows no such chat.
    addPeople(system);
    await system.start("agent-worker");
    connection = connectRedis(redis.url);
    store = new SessionStore({ redis: connection });
  });
  afterAll(async () => {
    if (connection !== undefined) await closeRedis(connection);
    await system?.close();
    await redis?.stop();
  });

  function sessionOf(scene: Scene): string {
    return `${recordedApp}.${chatOf(scene).chatId}`;
  }

  /** Waits until the bot has said it in the chat, as a card or a text. */
  async function untilSaid(scene: Scene, text: string): Promise<void> {
    await vi.waitFor(() => {
      const messages = system.feishu
        .messages(chatOf(scene).chatId)
        .filter(({ senderType }) => senderType === "app");
      const said = messages.map((message) => shownAnswer(message) ?? message.text ?? "");
      expect(said.filter((each) => each.includes(text))).toHaveLength(1);
    }, patience);
  }

  async function untilIdle(session: string): Promise<void> {
    await vi.waitFor(
      async () => expect(await store.summary(session)).toMatchObject({ state: "idle", unsent: 0 }),
      patience,
    );
  }

  it("a conversation continues with its history, and with what people have allowed", async () => {
    const written = await send(system, chatOf("idle"), {
      text: 'third\ncall ask_once {"key":"idle"}',
    });
    expect(await answerTo(system, written)).toBe('[third] ok:{"key":"idle"}');
    expect(openQuestions(system, chatOf("idle").chatId)).toEqual([]);
    const asked = system.model.requests.findLast(({ messages }) =>
      messages.some(({ text }) => text.startsWith("third")),
    );
    const texts = asked?.messages.map(({ text }) => text.split("\n")[0]);
    expect(texts).toEqual(expect.arrayContaining(["first", "second", "third"]));
  });

  it("what waited for its turn, was in the middle of it or was not sent yet is answered, once", async () => {
    await untilSaid("queued", "[queued]");
    await untilSaid("running", '[unfinished] ok:{"key":"running"}');
    await untilSaid("unsent", "[unsent]");
    for (const scene of ["queued", "running", "unsent"] as const) await untilIdle(sessionOf(scene));
  });

  it("a turn that waits for a call takes its outcome", async () => {
    const session = sessionOf("calling");
    const { turn } = await store.summary(session);
    const callId = turn?.calls[0]?.id ?? "";
    const { accepted } = await store.deliver(session, callId, {
      ok: true,
      result: { key: "calling" },
    });
    expect(accepted).toBe(true);
    await untilSaid("calling", '[calling] ok:{"key":"calling"}');
    await untilIdle(session);
  });

  it("a turn that waits for people takes their decision", async () => {
    const url = system.ingresses[0]?.url ?? "";
    const response = await fetch(`${url}/v1/approvals?session_id=${askingSession}`);
    const { approvals } = (await response.json()) as { approvals: { id: string }[] }; // our own server wrote it
    expect(approvals).toHaveLength(1);
    const decided = await fetch(`${url}/v1/approvals/${approvals[0]?.id ?? ""}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ decision: "approve" }),
    });
    expect(decided.status).toBe(200);
    await vi.waitFor(async () => expect(await system.recorded()).toContain("pure asked"), patience);
    await untilIdle(`api.${askingSession}`);
    const last = (await store.history(`api.${askingSession}`)).at(-1);
    expect(JSON.stringify(last)).toContain("[ask] ok:");
  });

  it("a message that was parked runs when its writer says so", async () => {
    const session = sessionOf("parked");
    const [key = ""] = await connection.keys("*:parked:*");
    const messageId = key.slice(key.lastIndexOf(":") + 1);
    expect(await store.outbox.parked(session, messageId)).toMatchObject({ id: messageId });
    expect(await store.outbox.release(session, messageId, "append")).toMatchObject({
      result: "accepted",
    });
    await untilSaid("parked", "[parked]");
  });

  it("the audit log has both versions' records", async () => {
    const records: AuditRecord[] = [];
    for await (const record of new AuditLog({ redis: connection }).export(
      0,
      Number.MAX_SAFE_INTEGER,
    )) {
      records.push(record);
    }
    const kinds = new Set(records.map(({ kind }) => kind));
    expect([...kinds]).toEqual(
      expect.arrayContaining([
        "call_opened",
        "call_started",
        "call_ended",
        "approval_requested",
        "rule_added",
      ]),
    );
  });
});
