import { randomUUID } from "node:crypto";
import { PassThrough } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { childSessionOf, turnIdOf, type InboundMessage, type SessionKey } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import type { Message } from "@larkline/protocol/content";
import { toolJobId, type ToolJob } from "@larkline/protocol/runner";
import { blankTurn } from "@larkline/protocol/turn";
import {
  createQueueCatalog,
  ToolQueues,
  createToolWorker,
  TurnQueue,
  createTurnWorker,
} from "@larkline/store/queues";
import { isKeptFor, noteKeptResponse, SessionStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { usageBy, UsageCounter } from "@larkline/store/operations";
import { runOf } from "@larkline/store/testing";
import { startPostgres, type TestPostgres } from "@larkline/testkit";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  inject,
  it,
  vi,
} from "vitest";
import { openWorkplace } from "./admin.fixture.ts";
import { readCommand } from "./command-line.ts";
import { deletePerson, type DeletionCounts, exportPerson, lookAfterPerson } from "./people.ts";
import { openPersonStores, type PersonStores } from "./person-data.ts";

const app = "cli_app";
const direct = `${app}.oc_direct`;
const group = `${app}.oc_group`;
const ann = { app, id: "ou_ann", chats: [] };
const quick = { clock: systemClock, patienceMs: 20_000, intervalMs: 10, settleMs: 0 };
const gone = {
  role: "user",
  content: [{ type: "text", text: "[此消息已删除 / message deleted]" }],
  atMs: expect.any(Number),
};

let postgres: TestPostgres;
let namespace: string;
let stores: PersonStores;
let written = 0;

beforeAll(async () => {
  postgres = await startPostgres();
});
afterAll(async () => {
  await postgres.close();
});
beforeEach(() => {
  namespace = `test-${randomUUID()}`;
  stores = open();
});
afterEach(async () => {
  await stores.close();
});

function open(): PersonStores {
  const redisUrl = inject("redisUrl");
  const opened = openPersonStores({
    redisUrl,
    namespace,
    archiveUrl: postgres.url,
    onError: () => undefined,
  });
  // What a worker has beside it: turns are run, too.
  const redis = connectRedis(redisUrl);
  return {
    ...opened,
    store: new SessionStore({ redis, namespace, stateKey: "0".repeat(64) }),
    close: async () => {
      await Promise.all([opened.close(), closeRedis(redis)]);
    },
  };
}

function messageFrom(session: SessionKey, sender: string): InboundMessage {
  written += 1;
  return {
    v: 1,
    session,
    id: `om_${written}`,
    app,
    sender: { id: sender },
    chatType: session === direct ? "p2p" : "group",
    parts: [{ type: "text", text: `${sender} writes ${written}` }],
    createdAtMs: Date.now(),
    reply: { channel: "none" },
  };
}

/** A whole turn. Returns the message that it answered. */
async function talk(
  session: SessionKey,
  sender: string,
  files: readonly string[] = [],
): Promise<InboundMessage> {
  const message = messageFrom(session, sender);
  const { wakeGen = 0 } = await stores.store.append(message);
  const claim = await stores.store.claim(session, wakeGen, "worker");
  const content = [
    ...message.parts,
    ...files.map(
      (blobId) =>
        ({
          type: "file",
          name: "x",
          mediaType: "text/plain",
          bytes: 1,
          state: "ready",
          blobId,
        }) as const,
    ),
  ];
  const question: Message =
    message.chatType === "group" ? { role: "user", content, sender } : { role: "user", content };
  await stores.store.commit({
    session,
    epoch: claim?.epoch ?? "",
    seq: claim?.head?.seq ?? 0,
    history: [
      question,
      { role: "assistant", content: [{ type: "text", text: `answer to ${sender}` }] },
    ],
    events: [],
    more: false,
  });
  return message;
}

/** Leaves a message behind a question. Returns what looks whether it still waits. */
async function park(message: InboundMessage): Promise<() => Promise<InboundMessage | undefined>> {
  const { session, id } = message;
  const target = { app, chatId: "oc_x", messageId: id, inThread: false };
  const facts = { createdAtMs: Date.now(), attempts: 0, uncertainSinceMs: 0 };
  await stores.store.outbox.push(
    { v: 1, id: `q-${id}`, uuid: `q-${id}`, session, target, text: "Shall I?", ...facts },
    id,
    { parked: message },
  );
  return async () => await stores.store.outbox.parked(session, id);
}

/** As older versions have left a session: Redis does not know who has written in it. */
async function nameNobody(session: SessionKey): Promise<void> {
  const { people } = await stores.sessions.read(session, 0, 0);
  for (const person of Object.keys(people)) await stores.sessions.forget(session, person, 1_000);
}

/** What the keeper of a worker does. */
async function archiveAll(session: SessionKey): Promise<void> {
  const { first, messages, people } = await stores.sessions.read(session, 0, 10_000);
  await stores.archive?.addMessages({ session, first, messages, people });
}

function callOf(session: SessionKey, userId: string): ToolJob {
  return {
    v: 1,
    session,
    turnId: `${session}-1`,
    callId: "c1",
    name: "deploy",
    arguments: "{}",
    effect: "pure",
    attempt: 1,
    actor: { app, userId, chatId: "oc_1" },
    envelope: "",
    queuedAtMs: Date.now(),
    deadlineMs: Date.now() + 60_000,
  };
}

async function ruleOf(
  number: number,
  fields: { author?: { id: string }; person?: string },
): Promise<void> {
  await stores.rules.add({
    v: 1,
    id: number.toString(16).padStart(32, "0"),
    app,
    chatId: "oc_group",
    tool: "shell",
    pattern: "*",
    author: { id: "ou_boss" },
    createdAtMs: Date.now(),
    expiresAtMs: Date.now() + 60_000,
    ...fields,
  });
}

/** Ann in a direct chat and in a group with Ben, everything archived but the last messages. */
async function world(): Promise<{ blob: string; first: InboundMessage }> {
  const blob = await stores.blobs.put(new TextEncoder().encode(namespace), {
    mediaType: "text/plain",
  });
  const first = await talk(direct, "ou_ann", [blob]);
  await talk(group, "ou_ann");
  await talk(group, "ou_ben");
  for (const session of [direct, group]) await archiveAll(session);
  await talk(group, "ou_ann");
  await talk(direct, "ou_ann");
  await stores.lookups.set(`name:${app}:ou_ann`, "Ann", 60_000);
  await stores.lookups.set(`lang:${app}:ou_ann`, "zh", 60_000);
  await stores.runs.append([
    runOf({ turn: `${direct}-1`, person: "ou_ann", endedAtMs: Date.now() }),
    runOf({ turn: `${group}-1`, person: "ou_ann", endedAtMs: Date.now() }),
    runOf({ turn: `${group}-2`, person: "ou_ben", endedAtMs: Date.now() }),
  ]);
  const counter = new UsageCounter("UTC");
  for (const person of ["ou_ann", "ou_ben"]) {
    counter.countRun(runOf({ person, endedAtMs: Date.now() }));
  }
  await stores.usage.add(randomUUID(), counter.take());
  await stores.names.keep(
    new Map([
      ["ou_ann", "Ann"],
      ["ou_ben", "Ben"],
    ]),
    Date.now(),
  );
  await ruleOf(1, { author: { id: "ou_ann" } });
  await ruleOf(2, { person: "ou_ann" });
  await ruleOf(3, { person: "ou_ben" });
  const remember = async (
    owner: { kind: "person" | "chat"; id: string },
    text: string,
    by: string,
  ) => await stores.memories.remember({ app, tenant: "t1", ...owner }, { call: text, text, by });
  await remember({ kind: "person", id: "ou_ann" }, "Ann likes tea", "ou_ann");
  await remember({ kind: "chat", id: "oc_group" }, "Ann said Mondays", "ou_ann");
  await remember({ kind: "chat", id: "oc_group" }, "Ben said Fridays", "ou_ben");
  await remember({ kind: "person", id: "ou_ben" }, "Ben has a cat", "ou_ben");
  return { blob, first };
}

async function exported(): Promise<Record<string, unknown>[]> {
  const facts: Record<string, unknown>[] = [];
  for await (const fact of exportPerson(stores, ann)) facts.push(fact);
  return facts;
}

function ofType(facts: Record<string, unknown>[], type: string): Record<string, unknown>[] {
  return facts.filter((fact) => fact["type"] === type);
}

async function expectGone(blob: string): Promise<void> {
  const { store, sessions, archive, rules, blobs, lookups } = stores;
  expect(await store.history(direct)).toEqual([]);
  expect(await archive?.read(direct, 0, 100)).toEqual([]);
  const left = await store.history(group);
  expect(left).toHaveLength(6);
  expect([left[0], left[4]]).toEqual([gone, gone]);
  expect(left[2]).toMatchObject({ sender: "ou_ben" });
  const archived = (await archive?.read(group, 0, 100)) ?? [];
  expect(archived.map(({ number }) => number)).toEqual([0, 1, 2, 3, 4]);
  expect([archived[0]?.message, archived[4]?.message]).toEqual([gone, gone]);
  expect(JSON.stringify([left, archived])).not.toContain("ou_ann writes");
  expect(await sessions.sessionsOf(app, "ou_ann")).toEqual([]);
  expect(await archive?.sessionsOf(app, "ou_ann")).toEqual([]);
  expect(await sessions.sessionsOf(app, "ou_ben")).toEqual([group]);
  expect((await rules.list(app)).map(({ person }) => person)).toEqual(["ou_ben"]);
  expect(await blobs.get(blob)).toBeUndefined();
  const kept = async (kind: "person" | "chat", id: string) =>
    (await stores.memories.everything({ app, kind, id })).memories.map(({ text }) => text);
  expect(await kept("person", "ou_ann")).toEqual([]);
  expect(await kept("chat", "oc_group")).toEqual(["Ben said Fridays"]);
  expect(await kept("person", "ou_ben")).toEqual(["Ben has a cat"]);
  expect((await stores.runs.page({ limit: 10 })).runs.map(({ person }) => person)).toEqual([
    "ou_ben",
  ]);
  for (const size of ["minute", "hour", "day"] as const) {
    expect(
      usageBy(await stores.usage.people(size, 3, 10), "person").map(({ name }) => name),
    ).toEqual(["ou_ben"]);
  }
  expect([...(await stores.names.of(["ou_ann", "ou_ben"]))]).toEqual([["ou_ben", "Ben"]]);
  expect(await lookups.get(`name:${app}:ou_ann`)).toBeUndefined();
  expect(await lookups.get(`lang:${app}:ou_ann`)).toBeUndefined();
}

describe("the data of one person", () => {
  it("is exported whole: own conversations, own messages in groups, rules, what the audit log has", async () => {
    await world();
    await stores.audit.append({ kind: "call_opened", app, userId: "ou_ann", tool: "shell" });
    await stores.audit.append({ kind: "call_opened", app, userId: "ou_ben", tool: "shell" });
    const facts = await exported();
    expect(ofType(facts, "person")).toEqual([
      { type: "person", app, id: "ou_ann", name: "Ann", language: "zh" },
    ]);
    expect(ofType(facts, "session")).toEqual([
      { type: "session", session: direct, whole: true },
      { type: "session", session: group, whole: false },
    ]);
    const messages = ofType(facts, "message");
    expect(
      messages.filter(({ session }) => session === direct).map(({ number }) => number),
    ).toEqual([0, 1, 2, 3]);
    expect(messages.filter(({ session }) => session === group).map(({ number }) => number)).toEqual(
      [0, 4],
    );
    expect(ofType(facts, "rule")).toHaveLength(2);
    expect(ofType(facts, "memory").map(({ text }) => text)).toEqual([
      "Ann said Mondays",
      "Ann likes tea",
    ]);
    expect(ofType(facts, "audit").filter(({ kind }) => kind === "call_opened")).toHaveLength(1);
    expect(JSON.stringify(facts)).not.toContain("ou_ben writes");
    expect(ofType(await exported(), "audit")).toContainEqual(
      expect.objectContaining({ kind: "person_exported" }),
    );
  });

  it("is counted before anything is deleted", async () => {
    const { blob } = await world();
    const counts = await deletePerson(stores, ann, { act: false, ...quick });
    const expected: DeletionCounts = {
      sessions: 1,
      groups: 1,
      messages: 6,
      archived: 3,
      files: 1,
      rules: 2,
      memories: 2,
    };
    expect(counts).toEqual(expected);
    expect(await stores.store.history(direct)).toHaveLength(4);
    expect(await stores.blobs.get(blob)).toBeDefined();
    expect(await deletePerson(stores, ann, { act: true, ...quick })).toEqual(expected);
    await expectGone(blob);
    const nothing = {
      sessions: 0,
      groups: 0,
      messages: 0,
      archived: 0,
      files: 0,
      rules: 0,
      memories: 0,
    };
    expect(await deletePerson(stores, ann, { act: true, ...quick })).toEqual(nothing);
  });

  it("does not come back: not with a redelivery, nor from a worker that is archiving", async () => {
    const { blob, first } = await world();
    const read = await stores.sessions.read(direct, 0, 100);
    await deletePerson(stores, ann, { act: true, ...quick });
    expect(await stores.store.append(first)).toMatchObject({ result: "duplicate" });
    await stores.archive?.addMessages({ session: direct, ...read, people: {} });
    await expectGone(blob);
    await talk(direct, "ou_ann");
    expect(await stores.store.history(direct)).toHaveLength(2);
    expect(await stores.sessions.sessionsOf(app, "ou_ann")).toEqual([direct]);
  });

  it("is deleted to the end by another run, wherever the first one was killed", async () => {
    let steps = 0;
    for (let died = true; died; steps += 1) {
      namespace = `test-${randomUUID()}`;
      stores = open();
      const { blob } = await world();
      const mortal = mortalStores(stores, steps);
      died = await deletePerson(mortal, ann, { act: true, ...quick }).then(
        () => false,
        () => true,
      );
      if (died) await deletePerson(stores, ann, { act: true, ...quick });
      await expectGone(blob);
      if (died) await stores.close();
    }
    expect(steps).toBeGreaterThan(10);
  });

  it("is deleted when its runs are stopped, not before", async () => {
    await talk(direct, "ou_ann");
    const running = messageFrom(direct, "ou_ann");
    const { wakeGen = 0 } = await stores.store.append(running);
    await stores.store.append(messageFrom(direct, "ou_ann"));
    const claim = await stores.store.claim(direct, wakeGen, "worker");
    const hasty = { clock: systemClock, act: true, patienceMs: 100, intervalMs: 10, settleMs: 0 };
    await expect(deletePerson(stores, ann, hasty)).rejects.toThrow("still being answered");
    expect(await stores.store.history(direct)).toHaveLength(2);
    expect(await stores.store.cancelled(direct)).toBe(true);
    expect(await stores.store.summary(direct)).toMatchObject({ waiting: 1 });
    const deleting = deletePerson(stores, ann, { act: true, ...quick });
    await stores.store.commit({
      session: direct,
      epoch: claim?.epoch ?? "",
      seq: claim?.head?.seq ?? 0,
      history: [{ role: "user", content: running.parts }],
      events: [{ runId: turnIdOf(direct, 2), event: { type: "text_delta", text: "cancelled" } }],
      more: false,
    });
    expect(await deleting).toMatchObject({ sessions: 1, messages: 3 });
    expect(await stores.store.history(direct)).toEqual([]);
  });

  it("goes from a group with a note that quotes it, when people had to answer first, and with what was called then", async () => {
    await talk(group, "ou_ann");
    const ben = await talk(group, "ou_ben");
    const { wakeGen = 0 } = await stores.store.append(messageFrom(group, "ou_ann"));
    const claim = await stores.store.claim(group, wakeGen, "worker");
    const text = (words: string) => [{ type: "text", text: words }] as const;
    await stores.store.commit({
      session: group,
      epoch: claim?.epoch ?? "",
      seq: claim?.head?.seq ?? 0,
      history: [
        { role: "user", content: [...text("It was: ou_ann's wages")], sender: "ou_ann" },
        {
          role: "assistant",
          content: [
            { type: "tool_use", id: "c1", name: "pay", arguments: { to: "ou_ann's wages" } },
          ],
        },
        {
          role: "tool",
          content: [
            {
              type: "tool_result",
              toolCallId: "c1",
              content: "ou_ann's wages are paid",
              isError: false,
            },
          ],
        },
        { role: "assistant", content: [...text("done")] },
      ],
      events: [],
      more: false,
    });
    await deletePerson(stores, ann, { act: true, ...quick });
    const left = JSON.stringify(await stores.store.history(group));
    expect(left).not.toContain("wages");
    expect(left).toContain(ben.parts[0]?.type === "text" ? ben.parts[0].text : "?");
  });

  it("is not left in messages that wait behind a question, also where nothing else was ever stored", async () => {
    await world();
    const left = [
      await park(messageFrom(direct, "ou_ann")),
      await park(messageFrom(group, "ou_ann")),
      await park(messageFrom(`${app}.oc_other`, "ou_ann")),
    ];
    const ofBen = await park(messageFrom(group, "ou_ben"));
    const all = async () => await Promise.all(left.map(async (look) => await look()));
    await deletePerson(stores, ann, { act: false, ...quick });
    expect((await all()).every((message) => message?.sender.id === "ou_ann")).toBe(true);
    await deletePerson(stores, ann, { act: true, ...quick });
    expect(await all()).toEqual([undefined, undefined, undefined]);
    expect(await ofBen()).toMatchObject({ sender: { id: "ou_ben" } });
  });

  it("is not kept with what was given up, in a group its own messages alone", async () => {
    const letterOf = async (message: InboundMessage) => {
      const { session, id: messageId } = message;
      const about = {
        id: `turn:${messageId}`,
        session,
        app,
        messageId,
        reason: "its runs crashed 3 times",
        atMs: 1,
      };
      await stores.letters.add({ v: 1, kind: "message", ...about, message });
      return about.id;
    };
    await letterOf(await talk(direct, "ou_ann"));
    await letterOf(await talk(group, "ou_ann"));
    const others = await letterOf(await talk(group, "ou_ben"));
    await deletePerson(stores, ann, { act: true, ...quick });
    expect((await stores.letters.list(10)).map(({ id }) => id)).toEqual([others]);
  });

  it.each(["has begun before", "begins meanwhile"])(
    "goes from a group when the turn of another person is over, who has read it: one that %s",
    async (when) => {
      await talk(group, "ou_ann");
      const { wakeGen = 0 } = await stores.store.append(messageFrom(group, "ou_ben"));
      const begin = async () => await stores.store.claim(group, wakeGen, "worker");
      let claim = when === "has begun before" ? await begin() : undefined;
      const { sessions } = stores;
      const redact = sessions.redact.bind(sessions);
      sessions.redact = async (...given) => {
        claim ??= await begin();
        return await redact(...given);
      };
      const deleting = deletePerson(stores, ann, { act: true, ...quick });
      await expect
        .poll(async () => (await stores.store.history(group))[0], { timeout: 60_000 })
        .toEqual(gone);
      const summary: Message = {
        role: "user",
        content: [{ type: "text", text: "Ann has written" }],
      };
      await stores.store.commit({
        session: group,
        epoch: claim?.epoch ?? "",
        seq: claim?.head?.seq ?? 0,
        history: [{ role: "user", content: [{ type: "text", text: "hi" }], sender: "ou_ben" }],
        events: [],
        more: false,
        context: { keep: 1, summary },
      });
      await deleting;
      const next = await stores.store.append(messageFrom(group, "ou_ben"));
      const { history } = (await stores.store.claim(group, next.wakeGen ?? 0, "worker")) ?? {};
      expect(JSON.stringify(history)).not.toContain("Ann has written");
    },
  );

  it("is not kept with finished jobs, those of others are", async () => {
    const prefix = `{${namespace}}`;
    const connection = connectRedis(inject("redisUrl"), { role: "worker" });
    const [turns, tools] = [
      new TurnQueue({ connection, prefix }),
      new ToolQueues({ connection, prefix }),
    ];
    const catalog = createQueueCatalog({ connection, prefix });
    const handled = { redact: (text: string) => text, concurrency: 1, onFailed: async () => {} };
    await talk(direct, "ou_ann");
    await talk(group, "ou_bob");
    await talk(group, "ou_ann");
    for (const session of [direct, group]) {
      await turns.wake(session, 1);
      await tools.dispatch("ops", [callOf(session, "ou_ann")]);
    }
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const workers = [
      createTurnWorker({ connection, prefix, ...handled, handle: async () => "done" }),
      createToolWorker({
        connection,
        prefix,
        ...handled,
        runner: "ops",
        handle: async ({ session }) => {
          if (session === direct) await held;
          return "done";
        },
      }),
    ];
    // A failed job of the version before, with all that it was given.
    const old = callOf(group, "ou_ann");
    await connection.hset(`${prefix}:tools-ops:old`, {
      name: "deploy",
      data: JSON.stringify(old),
      opts: "{}",
    });
    await connection.zadd(`${prefix}:tools-ops:failed`, 1, "old");
    await vi.waitFor(
      async () => expect(await catalog.open("turns").getCompletedCount()).toBe(2),
      60_000,
    );
    const deleting = deletePerson(stores, ann, { ...quick, act: true });
    // One that still runs would leave its ids afterwards: it is waited for.
    expect(
      await Promise.race([deleting.then(() => "deleted"), delay(300).then(() => "waits")]),
    ).toBe("waits");
    release();
    await deleting;
    await Promise.all(workers.map(async (worker) => await worker.close()));
    const ids = async (name: string) => {
      const jobs: ({ id?: string | undefined } | undefined)[] = await catalog
        .open(name)
        .getJobs(["completed", "failed"]);
      return jobs.map((job) => job?.id);
    };
    expect(await ids("turns")).toEqual([`${group}-1`]);
    expect(await ids("tools-ops")).toEqual([toolJobId(`${group}-1`, "c1")]);
    for (const name of ["turns", "tools-ops"]) {
      const events = JSON.stringify(await connection.xrange(`${prefix}:${name}:events`, "-", "+"));
      expect(events).not.toContain(direct);
    }
    await Promise.all([turns.close(), tools.close(), catalog.close()]);
    await closeRedis(connection);
  });

  it.each([
    ["", ann, direct],
    [" of a session that was named", { app: "api", id: "api", chats: ["one"] }, "api.one"],
  ])(
    "AT-16: is gone with what conversations of helpers refer to%s",
    async (_which, person, session) => {
      const { store, blobs } = stores;
      const message = { ...messageFrom(session, person.id), app: person.app };
      const { wakeGen = 0 } = await store.append(message);
      const { epoch = "", head } = (await store.claim(session, wakeGen, "worker")) ?? {};
      const turnId = turnIdOf(session, head?.seq ?? 0);
      const child = childSessionOf(session, turnId, "c1");
      const facts = {
        parentRunId: turnId,
        callId: "c1",
        as: "dig",
        agent: "digger",
        beganAtMs: Date.now(),
      };
      const task = { ...message, session: child, id: child };
      const call = { callId: "c1", deadlineMs: Date.now() + 60_000, facts: { turnId, child } };
      const turn = { ...blankTurn({ turnId, message, startedAtMs: Date.now() }), steps: 1 };
      const write = { events: [], consumed: 0 };
      const opened = [{ ...call, child: { message: task, facts } }];
      await store.save({
        ...write,
        session,
        epoch,
        history: [],
        turn,
        open: opened,
        mode: "continue",
      });
      const blobId = await blobs.put(new TextEncoder().encode(namespace), {
        mediaType: "text/plain",
      });
      const file = {
        type: "file",
        name: "x",
        mediaType: "text/plain",
        bytes: 1,
        state: "ready",
        blobId,
      } as const;
      const own = await store.claim(child, 1, "worker");
      const ending = {
        ...write,
        history: [{ role: "user" as const, content: [file] }],
        seq: 1,
        more: false,
      };
      await store.commit({ ...ending, session: child, epoch: own?.epoch ?? "" });
      await store.commit({ ...ending, session, epoch, history: [] });
      expect(await deletePerson(stores, person, { act: true, ...quick })).toMatchObject({
        sessions: 2,
        files: 1,
      });
      expect(await blobs.get(blobId)).toBeUndefined();
      expect(await store.children(session)).toEqual([]);
    },
  );

  it("AT-16: stops the runs that people have asked for before those of their helpers, which end with them", async () => {
    const { store } = stores;
    const message = messageFrom(direct, ann.id);
    const { wakeGen = 0 } = await store.append(message);
    const { epoch = "", head } = (await store.claim(direct, wakeGen, "worker")) ?? {};
    const turnId = turnIdOf(direct, head?.seq ?? 0);
    const child = childSessionOf(direct, turnId, "c1");
    const facts = {
      parentRunId: turnId,
      callId: "c1",
      as: "dig",
      agent: "digger",
      beganAtMs: Date.now(),
    };
    const task = { ...message, session: child, id: child };
    const opened = [
      {
        callId: "c1",
        deadlineMs: Date.now() + 60_000,
        facts: { turnId, child },
        child: { message: task, facts },
      },
    ];
    const turn = { ...blankTurn({ turnId, message, startedAtMs: Date.now() }), steps: 1 };
    const write = { events: [], consumed: 0, history: [] };
    await store.save({ ...write, session: direct, epoch, turn, open: opened, mode: "continue" });
    const deleting = deletePerson(stores, ann, { act: true, ...quick });
    await vi.waitUntil(
      async () => (await store.cancelled(direct)) || (await store.cancelled(child)),
      {
        timeout: 60_000,
        interval: 5,
      },
    );
    expect(await store.cancelled(direct)).toBe(true);
    expect(await store.cancelled(child)).toBe(false);
    const own = await store.claim(child, 1, "worker");
    const ending = { ...write, seq: 1, more: false };
    await store.commit({ ...ending, session: child, epoch: own?.epoch ?? "" });
    await store.commit({ ...ending, session: direct, epoch, seq: head?.seq ?? 0 });
    expect(await deleting).toMatchObject({ sessions: 2 });
    expect(await store.children(direct)).toEqual([]);
  });

  it("is in sessions of the HTTP API only if they are named: all of them have the same writer", async () => {
    for (const session of ["api.one", "api.two"]) {
      const { wakeGen = 0 } = await stores.store.append({
        ...messageFrom(session, "api"),
        app: "api",
        chatType: "api",
      });
      const claim = await stores.store.claim(session, wakeGen, "worker");
      const { epoch = "", head } = claim ?? {};
      const history: Message[] = [{ role: "user", content: [{ type: "text", text: session }] }];
      await stores.store.commit({
        session,
        epoch,
        seq: head?.seq ?? 0,
        history,
        events: [],
        more: false,
      });
    }
    const api = { app: "api", id: "api", chats: [] };
    expect(await deletePerson(stores, api, { act: true, ...quick })).toMatchObject({ sessions: 0 });
    expect(
      await deletePerson(stores, { ...api, chats: ["one"] }, { act: true, ...quick }),
    ).toMatchObject({
      sessions: 1,
    });
    expect(await stores.store.history("api.one")).toEqual([]);
    expect(await stores.store.history("api.two")).toHaveLength(1);
  });

  it("AT-29: is in the sessions of a named caller of the HTTP API, and in no other's", async () => {
    for (const name of ["alice", "bob"]) {
      const session = `api.of-${name}`;
      const from = { app: "api", chatType: "api", sender: { id: `api:${name}` } } as const;
      const { wakeGen = 0 } = await stores.store.append({
        ...messageFrom(session, "api"),
        ...from,
      });
      const { epoch = "", head } = (await stores.store.claim(session, wakeGen, "worker")) ?? {};
      const history: Message[] = [{ role: "user", content: [{ type: "text", text: name }] }];
      await stores.store.commit({
        session,
        epoch,
        seq: head?.seq ?? 0,
        history,
        events: [],
        more: false,
      });
      const kept = {
        responseId: `resp_${name}`,
        caller: `api:${name}`,
        session,
        atMs: Date.now(),
        conversationMs: 60_000,
      };
      await noteKeptResponse(stores.lookups, kept);
    }
    const alice = { app: "api", id: "api:alice", chats: [] };
    expect(await deletePerson(stores, alice, { act: true, ...quick })).toMatchObject({
      sessions: 1,
      messages: 1,
    });
    expect(await stores.store.history("api.of-alice")).toEqual([]);
    expect(await stores.store.ownerOf("api.of-alice")).toBeUndefined();
    expect(await isKeptFor(stores.lookups, "resp_alice", "api:alice")).toBe(false);
    expect(await stores.store.history("api.of-bob")).toHaveLength(1);
    expect(await isKeptFor(stores.lookups, "resp_bob", "api:bob")).toBe(true);
  });

  it("is found in a direct chat of an older version, which names no person, when the operator names it", async () => {
    await talk(direct, "ou_somebody");
    await nameNobody(direct);
    const named = { ...ann, chats: ["oc_direct"] };
    expect(await deletePerson(stores, named, { act: true, ...quick })).toMatchObject({
      sessions: 1,
      messages: 2,
    });
  });

  it.each([
    ["Redis", async () => undefined],
    [
      "the archive",
      async (session: SessionKey) => {
        await archiveAll(session);
        await nameNobody(session);
      },
    ],
  ])(
    "is not what another person has written in a named chat, as %s knows",
    async (_where, prepare) => {
      const bobs = "api.of-bob";
      await talk(direct, "ou_ben");
      const message = { ...messageFrom(bobs, "api:bob"), app: "api", chatType: "api" } as const;
      const { wakeGen = 0 } = await stores.store.append(message);
      const { epoch = "", head } = (await stores.store.claim(bobs, wakeGen, "worker")) ?? {};
      const history: Message[] = [{ role: "user", content: message.parts }];
      await stores.store.commit({
        session: bobs,
        epoch,
        seq: head?.seq ?? 0,
        history,
        events: [],
        more: false,
      });
      const wrong = [
        [direct, { ...ann, chats: ["oc_direct"] }],
        [bobs, { app: "api", id: "api:alice", chats: ["of-bob"] }],
        [bobs, { app: "api", id: "api", chats: ["of-bob"] }],
      ] as const;
      for (const session of [direct, bobs]) await prepare(session);
      for (const [session, person] of wrong) {
        const refusal = new RegExp(
          `^${session} is a conversation of .*(ou_ben|api:bob).* not of ${person.id}`,
        );
        await expect(exportPerson(stores, person)[Symbol.asyncIterator]().next()).rejects.toThrow(
          refusal,
        );
        for (const act of [false, true]) {
          await expect(deletePerson(stores, person, { act, ...quick })).rejects.toThrow(refusal);
        }
      }
      expect(await stores.store.history(direct)).toHaveLength(2);
      expect(await stores.store.history(bobs)).toHaveLength(1);
    },
  );

  it("is not what others have written in conversations of a group that the operator names", async () => {
    const thread = `${group}.omt_1`;
    await talk(thread, "ou_ben");
    await talk(group, "ou_ann");
    const parked = messageFrom(thread, "ou_ben");
    await park(parked);
    const named = { ...ann, chats: ["oc_group"] };
    expect(await deletePerson(stores, named, { act: true, ...quick })).toMatchObject({
      sessions: 1,
      groups: 0,
    });
    expect(await stores.store.history(thread)).toHaveLength(2);
    expect(await stores.store.outbox.parked(parked.session, parked.id)).toMatchObject({
      sender: { id: "ou_ben" },
    });
  });
});

/** Stores whose owner dies at the step with this number, of those that change something. */
function mortalStores(alive: PersonStores, steps: number): PersonStores {
  const changing = new Set([
    "erase",
    "redact",
    "forget",
    "delete",
    "revoke",
    "cancel",
    "append",
    "discard",
    "eraseBy",
  ]);
  let left = steps;
  const mortal = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(held, name) {
        const value: unknown = Reflect.get(held, name);
        if (typeof value !== "function") return value;
        return async (...given: unknown[]): Promise<unknown> => {
          if (changing.has(String(name))) {
            if (left === 0) throw new Error("killed");
            left -= 1;
          }
          return (await Reflect.apply(value, held, given)) as unknown;
        };
      },
    });
  // Reads are streams as well; none of them changes anything.
  const { audit } = alive;
  const { sessions, memories, rules, blobs, lookups, store, letters, archive, runs, usage, names } =
    alive;
  return {
    ...alive,
    audit,
    sessions: mortal(sessions),
    runs: mortal(runs),
    usage: mortal(usage),
    names: mortal(names),
    memories: mortal(memories),
    rules: mortal(rules),
    blobs: mortal(blobs),
    lookups: mortal(lookups),
    store: mortal(store),
    letters: mortal(letters),
    archive: archive && mortal(archive),
  };
}

describe("npm run people", () => {
  it("counts what it would delete, until it is asked to delete it", async () => {
    await talk(direct, "ou_ann");
    const output = new PassThrough().setEncoding("utf8");
    const places = { redisUrl: inject("redisUrl"), namespace, archiveUrl: postgres.url };
    await lookAfterPerson({
      clock: systemClock,
      action: "delete",
      person: ann,
      yes: false,
      language: "en",
      places,
      output,
    });
    expect(output.read()).toMatch(
      /^To delete: 1 conversations as a whole,.* Nothing is deleted yet.*\n  cli_app\.oc_direct\n$/,
    );
    expect(await stores.store.history(direct)).toHaveLength(2);
  });

  it.each([
    [["delete"], "export <id> or delete <id>"],
    [["remove", "ou_ann"], "export <id> or delete <id>"],
    [["export", "ou_ann", "--app", "a*"], "--app and --chat take ids"],
    [["delete", "ou_ann", "--chat", "oc_1", "--chat", "../x"], "--app and --chat take ids"],
  ])("with %j it ends in words", (words, expected) => {
    expect(readCommand(["people", ...words], {})).toEqual({
      ok: false,
      error: expect.stringContaining(expected),
    });
  });

  it("prints what is stored, and deletes it", async () => {
    await talk(direct, "ou_ann");
    const workplace = await openWorkplace();
    const env = {
      REDIS_URL: inject("redisUrl"),
      REDIS_NAMESPACE: namespace,
      ARCHIVE_URL: postgres.url,
    };
    const ended = async (...args: string[]): Promise<[unknown, string]> => {
      const run = workplace.run(["people", ...args], env);
      return [await run.exitCode(), run.output()];
    };
    const [code, lines] = await ended("export", "ou_ann", "--app", app);
    expect(code).toBe(0);
    expect(
      lines
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { type: string }).type),
    ).toEqual(["person", "session", "message", "message"]);
    expect(await ended("delete", "ou_ann", "--app", app, "--yes")).toEqual([
      0,
      expect.stringContaining("Deleted: 1 "),
    ]);
    expect(await stores.store.history(direct)).toEqual([]);
    await workplace.close();
  });

  it("ends with an error when the archive does not answer, and deletes nothing of what it may hold", async () => {
    await talk(direct, "ou_ann");
    const dead = createPostgresArchive({ url: "postgres://127.0.0.1:1/x", schema: namespace });
    await expect(
      deletePerson({ ...stores, archive: dead }, ann, { act: true, ...quick }),
    ).rejects.toThrow();
    expect(await stores.store.history(direct)).toHaveLength(2);
    await dead.close();
  });
});
