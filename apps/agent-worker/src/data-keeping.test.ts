import { randomUUID } from "node:crypto";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createLogger } from "@larkline/process/telemetry";
import type { InboundMessage } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import type { Message } from "@larkline/protocol/content";
import {
  type Archive,
  AuditLog,
  MemoryStore,
  PermissionRules,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  type OwnPresence,
  type RedisConnection,
} from "@larkline/store/redis";
import { Presence } from "@larkline/store/operations";
import { startPostgres, type TestPostgres } from "@larkline/testkit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { KeepingRound, startDataKeeper } from "./data-keeping.ts";
import type { Services } from "./services.ts";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";

const dayMs = 86_400_000;
const bounds = {
  conversationDays: 90,
  historyMessages: 2,
  auditDays: 365,
  auditRecords: 1_000_000,
};

let postgres: TestPostgres;
let redis: RedisConnection;
let namespace: string;
let store: SessionStore;
let archive: Archive;
let kept: Record<string, number>;
let errors: unknown[];
let rounds: number[];

beforeAll(async () => {
  postgres = await startPostgres();
});
afterAll(async () => {
  await postgres.close();
});
beforeEach(() => {
  namespace = `test-${randomUUID()}`;
  redis = connectRedis(inject("redisUrl"));
  store = new SessionStore({ redis, namespace, stateKey: "0".repeat(64) });
  archive = createPostgresArchive({ url: postgres.url, schema: namespace });
  [kept, errors, rounds] = [{}, [], []];
});
afterEach(async () => {
  await Promise.all([closeRedis(redis), archive.close()]);
});

function text(role: "user" | "assistant", words: string): Message {
  return { role, content: [{ type: "text", text: words }] };
}

const direct = { app: "cli_app", sender: { id: "ou_ann" }, chatType: "p2p" } as const;
const overHttp = { app: "api", sender: { id: "api:alice" }, chatType: "api" } as const;

function messageOf(
  session: string,
  words: string,
  from: Pick<InboundMessage, "app" | "sender" | "chatType"> = direct,
) {
  const parts: InboundMessage["parts"] = [{ type: "text", text: words }];
  const id = `om_${randomUUID()}`;
  return {
    v: 1,
    session,
    id,
    parts,
    createdAtMs: Date.now(),
    reply: { channel: "none" },
    ...from,
  } as const;
}

/** A whole turn of a session. */
async function talk(
  session: string,
  words: string,
  keep?: number,
  from?: typeof overHttp,
): Promise<void> {
  const { wakeGen = 0 } = await store.append(messageOf(session, words, from));
  const claim = await store.claim(session, wakeGen, "worker");
  await store.commit({
    session,
    epoch: claim?.epoch ?? "",
    seq: claim?.head?.seq ?? 0,
    history: [text("user", words), text("assistant", `answer to ${words}`)],
    events: [],
    more: false,
    ...(keep !== undefined && { context: { keep } }),
  });
}

/** `later`: how many days have passed since what the test did. */
/** Settings under which conversations do not expire. */
function unbounded(): Services["settings"] {
  const { settings } = keeping();
  return { ...settings, retention: { ...settings.retention, conversationDays: 0 } };
}

/** What a worker has `later` days from now. */
function keeping(later = 0, given: Partial<Services> = { archive }): Services {
  const world = newWorld();
  const destination = { write: (line: string) => errors.push(line) };
  const { dataKept, dataWaiting } = world.counters;
  dataKept.add = (count, { what = "" } = {}) =>
    void (kept[String(what)] = (kept[String(what)] ?? 0) + count);
  dataWaiting.record = (waiting) => void rounds.push(waiting);
  const base = servicesOf(world);
  const retention = { ...base.settings.retention, ...bounds };
  return {
    ...base,
    archive: undefined,
    retention: new SessionRetention({ redis, namespace }),
    auditLog: new AuditLog({ redis, namespace }),
    memories: new MemoryStore({ redis, namespace }),
    rules: new PermissionRules({ redis, namespace }),
    presence: new Presence({ redis, namespace }) as OwnPresence, // its duties alone are used
    settings: { ...base.settings, retention },
    log: createLogger({ service: "test", level: "warn", destination }),
    clock: { ...systemClock, now: () => Date.now() + later * dayMs },
    ...given,
  };
}

/** The archive with some of its methods replaced. */
function archiveWith(replaced: Partial<Archive>): Archive {
  return new Proxy(archive, {
    get(target, name) {
      const own: unknown = Reflect.get(replaced, name);
      const value: unknown = own ?? Reflect.get(target, name);
      return typeof value === "function"
        ? value.bind(own === undefined ? target : replaced)
        : value;
    },
  });
}

function roundOf(services: Services): KeepingRound {
  return new KeepingRound(services, new AbortController().signal);
}

async function archivedTexts(session: string): Promise<string[]> {
  const messages = await archive.read(session, 0, 10_000);
  return messages.map(({ message }) => JSON.stringify(message.content));
}

describe("looking after stored data", () => {
  it("removes conversations that are older than the bound, and no other", async () => {
    await talk("cli_app.oc_old", "hello");
    await roundOf(keeping(89, {})).expireSessions();
    expect((await store.summary("cli_app.oc_old")).messages).toBe(2);
    await roundOf(keeping(91, {})).expireSessions();
    expect(await store.summary("cli_app.oc_old")).toMatchObject({ messages: 0, gen: 0 });
    expect(kept).toEqual({ expired: 1 });
    await talk("cli_app.oc_old", "again");
    await roundOf(keeping(400, { settings: unbounded() })).expireSessions();
    expect((await store.summary("cli_app.oc_old")).messages).toBe(2);
  });

  /** A session of the HTTP API, a chat of Feishu, and what is kept of each outside of it. */
  async function remembered({
    memories,
    rules,
  }: Services): Promise<() => Promise<Record<string, readonly number[]>>> {
    const places = { "api.s": ["api", "api.s"], "cli_app.oc_1": ["cli_app", "oc_1"] } as const;
    await talk("api.s", "hello", undefined, overHttp);
    await talk("cli_app.oc_1", "hello");
    for (const [app, id] of Object.values(places)) {
      await memories.remember(
        { kind: "chat", app, id },
        { call: "c1", text: "The door opens at 8.", by: "x" },
      );
      const facts = { tool: "shell", pattern: "*", author: { id: "x" }, createdAtMs: Date.now() };
      const expiresAtMs = Date.now() + dayMs;
      await rules.add({
        v: 1,
        id: randomUUID().replaceAll("-", ""),
        app,
        chatId: id,
        ...facts,
        expiresAtMs,
      });
    }
    return async () => {
      const entries = Object.entries(places).map(async ([session, [app, id]]) => {
        const inForce = await rules.inForce(app, id);
        return [
          session,
          [await memories.count({ kind: "chat", app, id }), inForce.length],
        ] as const;
      });
      return Object.fromEntries(await Promise.all(entries));
    };
  }
  const gone = { "api.s": [0, 0], "cli_app.oc_1": [1, 1] };

  it("removes notes and rules with a session of the HTTP API, whose id another caller may choose", async () => {
    const services = keeping(91);
    const left = await remembered(services);
    await roundOf(services).expireSessions();
    expect(await left()).toEqual(gone);
    expect(await store.ownerOf("api.s")).toBeUndefined();
    expect(kept).toMatchObject({ expired: 2 });
    expect(await services.retention.dormant(Date.now() + dayMs, 10)).toEqual([]);
  });

  it.each(["notes", "rules"])(
    "does it again after a round that ended before the %s were gone",
    async (which) => {
      const services = keeping(91);
      const left = await remembered(services);
      const died = async () => await Promise.reject(new Error("killed"));
      const memories = new MemoryStore({ redis, namespace });
      const rules = new PermissionRules({ redis, namespace });
      if (which === "notes") memories.forget = died;
      else rules.revoke = died;
      await roundOf({ ...services, memories, rules }).expireSessions();
      expect(errors).toHaveLength(1);
      expect((await store.summary("api.s")).messages).toBe(0);
      // Until then no other caller gets in.
      expect(await store.ownerOf("api.s")).toBe("api:alice");
      const bobs = messageOf("api.s", "hello", { ...overHttp, sender: { id: "api:bob" } });
      expect((await store.append(bobs)).result).toBe("foreign");
      await roundOf(services).expireSessions();
      expect(await left()).toEqual(gone);
      expect((await store.append(bobs)).result).toBe("accepted");
      expect(await archivedTexts("api.s")).toHaveLength(2);
    },
  );

  it("keeps notes of a session of the HTTP API that is in use, and its owner when they come back meanwhile", async () => {
    const services = keeping(91);
    const left = await remembered(services);
    const memories = new MemoryStore({ redis, namespace });
    const forget = memories.forget.bind(memories);
    memories.forget = async (owner, ids) => {
      await store.append(messageOf("api.s", "again", overHttp));
      return await forget(owner, ids);
    };
    await roundOf({ ...services, memories }).expireSessions();
    expect(await store.ownerOf("api.s")).toBe("api:alice");
    expect(await store.summary("api.s")).toMatchObject({
      head: { message: { parts: [{ text: "again" }] } },
    });
    await services.memories.remember(
      { kind: "chat", app: "api", id: "api.s" },
      { call: "c2", text: "New.", by: "x" },
    );
    await roundOf(services).expireSessions();
    expect(await left()).toMatchObject({ "api.s": [1, 0] });
  });

  it("keeps a bounded number of messages that no model sees any more", async () => {
    for (let turn = 0; turn < 5; turn += 1) {
      await talk("cli_app.oc_long", `turn ${turn}`, turn === 4 ? 2 : undefined);
    }
    await roundOf(keeping(0, {})).tendSessions();
    const left = await store.history("cli_app.oc_long");
    expect(left).toHaveLength(4);
    expect(left.at(-1)).toEqual(text("assistant", "answer to turn 4"));
    expect(kept).toMatchObject({ trimmed: 6 });
    await roundOf(keeping(0, {})).tendSessions();
    expect(kept).toMatchObject({ trimmed: 6 });
  });

  it("has all of a conversation in the archive before any of it goes", async () => {
    const session = "cli_app.oc_whole";
    for (let turn = 0; turn < 3; turn += 1) await talk(session, `turn ${turn}`, 1);
    const whole = (await store.history(session)).map(({ content }) => JSON.stringify(content));
    await roundOf(keeping()).tendSessions();
    expect(await store.history(session)).toHaveLength(3);
    expect(await archivedTexts(session)).toEqual(whole);
    await talk(session, "last");
    await roundOf(keeping(91)).expireSessions();
    expect((await store.summary(session)).messages).toBe(0);
    expect(await archivedTexts(session)).toHaveLength(8);
    expect(await archive.peopleOf(session)).toEqual({ ou_ann: "p2p" });
    await talk(session, "another life");
    await roundOf(keeping()).tendSessions();
    expect(await archivedTexts(session)).toHaveLength(10);
    expect(kept).toMatchObject({ archived: 10 });
  });

  it("removes nothing while PostgreSQL is away, and catches up when it is back", async () => {
    const session = "cli_app.oc_outage";
    await talk(session, "hello", 0);
    await new AuditLog({ redis, namespace }).append({ kind: "rule_added", ruleId: "r1" });
    await postgres.stop();
    const outage = keeping(400);
    await expect(roundOf(outage).tendSessions()).rejects.toThrow();
    await expect(roundOf(outage).expireSessions()).rejects.toThrow();
    await roundOf(outage).keepAudit();
    expect(errors).not.toEqual([]);
    expect(kept).toEqual({});
    expect(await store.history(session)).toHaveLength(2);
    expect(await outage.retention.unarchived(10)).toHaveLength(1);
    await postgres.start();
    const back = keeping(400);
    await expect
      .poll(
        async () =>
          await roundOf(back)
            .tendSessions()
            .then(
              () => "done",
              () => "away",
            ),
        { timeout: 60_000 },
      )
      .toBe("done");
    await roundOf(back).expireSessions();
    await roundOf(back).keepAudit();
    expect(await archivedTexts(session)).toHaveLength(2);
    expect(kept).toMatchObject({ archived: 2, expired: 1, audit_archived: 1, audit_dropped: 1 });
  });

  it("archives what is said after Redis has lost the end of a conversation", async () => {
    const session = "cli_app.oc_failover";
    for (let turn = 0; turn < 3; turn += 1) await talk(session, `turn ${turn}`);
    await roundOf(keeping()).tendSessions();
    const [history = ""] = await redis.keys(`{${namespace}:*}:h:${session}`);
    await redis.ltrim(history, 0, 3);
    await talk(session, "said instead");
    await roundOf(keeping()).tendSessions();
    const texts = await archivedTexts(session);
    expect(texts).toHaveLength(12);
    expect(texts.join()).toContain("turn 2");
    expect(texts.slice(-2).join()).toContain("said instead");
    await redis.ltrim(history, 0, 1);
    await roundOf(keeping(91)).expireSessions();
    expect(await store.history(session)).toEqual([]);
    expect((await archivedTexts(session)).join()).toContain("said instead");
  });

  it("copies nothing twice when a message is deleted while it looks", async () => {
    const session = "cli_app.oc_deleted";
    await talk(session, "hello");
    await roundOf(keeping()).tendSessions();
    await talk(session, "and more");
    const before = await archive.ends([session]);
    const redaction = { person: "ou_ann", numbers: [0, 1], marker: text("user", "[deleted]") };
    await archive.redact(session, redaction);
    await new SessionRetention({ redis, namespace }).redact(session, redaction);
    let asked = 0;
    const late = archiveWith({
      ends: async (sessions) => {
        asked += 1;
        return asked === 1 ? before : await archive.ends(sessions);
      },
    });
    await roundOf(keeping(0, { archive: late })).tendSessions();
    expect(await archivedTexts(session)).toHaveLength(4);
  });

  it("lets one session that cannot be archived keep no other from it", async () => {
    for (const name of ["a", "b", "c"]) await talk(`cli_app.oc_${name}`, name);
    const choosy = keeping(91, {
      archive: archiveWith({
        addMessages: async (batch) => {
          if (batch.session.endsWith("_b")) throw new Error("cannot be written");
          await archive.addMessages(batch);
        },
      }),
    });
    await roundOf(choosy).expireSessions();
    expect(errors).toHaveLength(1);
    expect((await store.summary("cli_app.oc_a")).messages).toBe(0);
    expect((await store.summary("cli_app.oc_b")).messages).toBe(2);
    expect((await store.summary("cli_app.oc_c")).messages).toBe(0);
  });

  it("lets sessions that can never be archived keep no other from it, though they are the oldest ones", async () => {
    for (const name of ["a", "b", "c", "d", "e"]) await talk(`cli_app.oc_${name}`, name);
    for (const name of ["a", "b", "c"]) {
      const [history = ""] = await redis.keys(`{${namespace}:*}:h:cli_app.oc_${name}`);
      await redis.rpush(history, "no message");
    }
    const keep = async () => {
      await roundOf(keeping()).tendSessions();
      return await Promise.all(
        ["d", "e"].map(async (name) => (await archivedTexts(`cli_app.oc_${name}`)).length),
      );
    };
    await expect.poll(keep, { timeout: 60_000 }).toEqual([2, 2]);
    expect(errors).not.toEqual([]);
    expect(await keeping().retention.unarchived(10)).toHaveLength(3);
  });

  it("archives the audit log once, and drops records by age", async () => {
    const audit = new AuditLog({ redis, namespace });
    for (let at = 0; at < 1_200; at += 1) {
      await audit.append({ kind: "rule_added", app: "cli_app", userId: "ou_ann" });
    }
    await roundOf(keeping()).keepAudit();
    await roundOf(keeping()).keepAudit();
    expect(kept).toEqual({ audit_archived: 1_200 });
    await roundOf(keeping(366)).keepAudit();
    expect(kept).toMatchObject({ audit_dropped: 1_200 });
    let count = 0;
    for await (const record of archive.auditOf("cli_app", "ou_ann")) {
      if (record.kind === "rule_added") count += 1;
    }
    expect(count).toBe(1_200);
  });

  it("is done by one worker at a time, and finds what old versions left", async () => {
    for (let at = 0; at < 30; at += 1) await talk(`cli_app.oc_${at}`, "hello");
    // As a version that knows nothing of this leaves a session.
    for (let cell = 0; cell < 16; cell += 1) {
      await redis.del(`{${namespace}:${cell}}:ended`, `{${namespace}:${cell}}:untended`);
    }
    const keepers = ["one", "two"].map((owner) => startDataKeeper({ ...keeping(), owner }, 100));
    await expect
      .poll(async () => (await archive.sessionsOf("cli_app", "ou_ann")).length, { timeout: 60_000 })
      .toBe(30);
    await expect.poll(() => rounds.at(-1), { timeout: 60_000 }).toBe(0);
    await Promise.all(keepers.map(async (keeper) => await keeper.close()));
    expect(errors).toEqual([]);
  });
});
