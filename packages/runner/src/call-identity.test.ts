import { randomUUID } from "node:crypto";
import { argumentsHashOf, openIdentity, type ToolJob } from "@larkline/protocol/runner";
import { tokenDigestOf, type ToolIdentity } from "@larkline/protocol/tool";
import { createLogger, Metrics, silentTelemetry } from "@larkline/process/telemetry";
import type { CallIdentities, IdentityOfCall } from "@larkline/store/runners";
import { defineTool, GrantRefusedError, type Tool } from "@larkline/tool-kit";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { startRunner, type ToolRunner } from "./runner.ts";
import { createTestBed, keyOf, until } from "./test-bed.fixture.ts";
import { loadTools, toolsFrom, type LoadedTools } from "./tool-modules.ts";

type Facts = Parameters<CallIdentities["of"]>[0];

const scopes = ["task:task:read"];
const secret = "u-token-of-ann-0123456789abcdef";
const ann: ToolIdentity = {
  as: "person",
  token: secret,
  openId: "ou_ann",
  apiOrigin: "https://open.feishu.cn",
};
const facts = { app: "app", tenant: "t1", userId: "ou_ann", as: "person", scopes };

/** What the worker is asked, and what it answers. */
let asked: Facts[];
let refused: string[];
let identityOf: (facts: Facts) => Promise<IdentityOfCall>;
let bed: ReturnType<typeof createTestBed>;
let runners: ToolRunner[];
let lines: string;

beforeEach(() => {
  [asked, refused, runners, lines] = [[], [], [], ""];
  identityOf = async () => await Promise.resolve({ state: "identity", identity: ann });
  bed = createTestBed(inject("redisUrl"), {
    of: async (about) => {
      asked.push(about);
      return await identityOf(about);
    },
    tokenRefused: async (_about, digest) => await Promise.resolve(void refused.push(digest)),
    appLacks: async (_about, lacking) => await Promise.resolve(void refused.push(...lacking)),
  });
});
afterEach(async () => {
  await Promise.all(runners.map(async (runner) => await runner.close()));
  await bed.close();
});

async function start(loaded: LoadedTools): Promise<void> {
  const runner = await startRunner({
    config: {
      redisUrl: inject("redisUrl"),
      namespace: bed.namespace,
      runner: "r",
      runnerKey: keyOf("r"),
      concurrency: 8,
    },
    loaded,
    logger: createLogger({
      service: "test",
      level: "debug",
      destination: { write: (line) => void (lines += line) },
    }),
    metrics: new Metrics({ service: "test" }),
    telemetry: silentTelemetry,
    onRefused: (conflict) => {
      throw new Error(conflict);
    },
    graceMs: 300,
  });
  runners.push(runner);
}

async function startWith(...tools: Tool[]): Promise<void> {
  const loaded = toolsFrom(tools);
  if (!loaded.ok) throw new Error(loaded.error);
  await start(loaded.value);
}

function toolAs(
  name: string,
  run: (identity: ToolIdentity | undefined) => unknown,
  effect: Tool["effect"] = "pure",
) {
  return defineTool({
    name,
    description: "d",
    input: { type: "object" },
    effect,
    isolation: "inline",
    as: "person",
    scopes,
    run: (_input, { identity }) => run(identity),
  });
}

/** Everything that Redis has in the namespace, as text. */
async function everythingStored(): Promise<string> {
  const texts: string[] = [];
  for (const key of await bed.redis.keys(`*${bed.namespace}*`)) {
    texts.push(key, String(await bed.redis.dump(key)));
  }
  return texts.join("\n");
}

it("a call gets the token of the person of whom the ledger says it, in a process of its own and nowhere else", async () => {
  const loaded = await loadTools(["identity-tools.fixture.ts"], { directory: import.meta.dirname });
  if (!loaded.ok) throw new Error(loaded.error);
  await start(loaded.value);
  const job = await bed.send("r", { name: "whoami", effect: "pure", facts });
  const result = { as: "person", openId: "ou_ann", digest: tokenDigestOf(secret), isShown: false };
  expect(await bed.outcomeOf(job)).toEqual({ ok: true, result });
  expect(asked).toEqual([expect.objectContaining(facts)]);
  expect(await everythingStored()).not.toContain(secret);
  expect(
    JSON.stringify([await bed.events(job), await bed.audit(job.session)]) + lines,
  ).not.toContain(secret);
});

/** The answer with an identity that Redis has. */
async function identityStored() {
  for (const key of await bed.redis.keys(`*${bed.namespace}*:begun:r:*`)) {
    const [word, sealed] = ((await bed.redis.get(key)) ?? "").split(" ");
    const ask = key.slice(key.lastIndexOf(":") + 1);
    if (word === "run" && sealed !== undefined) return { key, ask, sealed };
  }
  return undefined;
}

it("an answer opens for its runner, its call and its question alone", async () => {
  const go = Promise.withResolvers<void>();
  await startWith(toolAs("whoami", async () => await go.promise));
  const job = await bed.send("r", { name: "whoami", effect: "pure", facts });
  const { ask, sealed } = await until("the call may begin", identityStored);
  go.resolve();
  const place = { session: job.session, callId: job.callId, ask };
  expect(openIdentity(keyOf("r"), place, sealed)).toEqual(ann);
  expect(openIdentity(keyOf("other"), place, sealed)).toBeUndefined();
  expect(openIdentity(keyOf("r"), { ...place, callId: "c2" }, sealed)).toBeUndefined();
  expect(openIdentity(keyOf("r"), { ...place, ask: "another" }, sealed)).toBeUndefined();
  expect(openIdentity(keyOf("r"), { ...place, session: "s2" }, sealed)).toBeUndefined();
});

it("a call whose person has not agreed ends with what is missing, before its tool runs", async () => {
  let runs = 0;
  const outcome = {
    ok: false,
    error: "grant_needed: x",
    grant: { kind: "scopes", scopes },
  } as const;
  identityOf = async () => await Promise.resolve({ state: "refused", outcome });
  await startWith(toolAs("write", () => (runs += 1), "once"));
  const job = await bed.send("r", { name: "write", effect: "once", facts });
  expect(await bed.outcomeOf(job)).toEqual(outcome);
  expect(runs).toBe(0);
});

describe("a call whose runner has died, of a tool that can look", () => {
  const gave = async (run: (beganAtMs: number | undefined) => unknown) => {
    const seen: unknown[] = [];
    const loaded = toolsFrom([
      defineTool({
        name: "write",
        description: "d",
        input: { type: "object" },
        effect: "once",
        isolation: "inline",
        as: "person",
        scopes,
        looks: true,
        run: (_input, { beganAtMs, identity }) => {
          seen.push(identity?.openId);
          return run(beganAtMs);
        },
      }),
    ]);
    if (!loaded.ok) throw new Error(loaded.error);
    const job = await bed.openCall({ name: "write", effect: "once", runner: "r", facts });
    const { session, callId } = job;
    expect(await bed.store.begin(session, callId, "once", { looks: true })).toBe("run");
    await start(loaded.value);
    await bed.handoffs.expect("r");
    await bed.queues.dispatch("r", [job]);
    return { outcome: await bed.outcomeOf(job), seen };
  };

  it("looks under its person, and gives what it finds", async () => {
    const { outcome, seen } = await gave((beganAtMs) => ({ isLook: beganAtMs !== undefined }));
    expect(outcome).toEqual({ ok: true, result: { isLook: true } });
    expect(seen).toEqual(["ou_ann"]);
  });

  it("is of unknown outcome whatever else comes of it, and never asks for a grant", async () => {
    const { outcome } = await gave(() => {
      throw new GrantRefusedError({ kind: "scopes", scopes });
    });
    expect(outcome).toMatchObject({ ok: false, unknown: true });
    expect(outcome).not.toHaveProperty("grant");
  });

  it("is of unknown outcome where its person has withdrawn the grant, and does not run", async () => {
    const refusal = { ok: false, error: "x", grant: { kind: "scopes", scopes } } as const;
    identityOf = async () => await Promise.resolve({ state: "refused", outcome: refusal });
    const { outcome, seen } = await gave(() => "found");
    expect(outcome).toMatchObject({ ok: false, unknown: true });
    expect(seen).toEqual([]);
  });
});

it("a call waits while the platform gives no token, and holds no other call up", async () => {
  const blocked = Promise.withResolvers<IdentityOfCall>();
  identityOf = async () => await blocked.promise;
  const plain = defineTool({
    name: "plain",
    description: "d",
    input: { type: "object" },
    effect: "once",
    isolation: "inline",
    run: () => "done",
  });
  await startWith(
    toolAs("write", (identity) => identity?.openId, "once"),
    plain,
  );
  const job = await bed.send("r", { name: "write", effect: "once", facts });
  await until("the worker is asked", () => asked[0]);
  const other = await bed.send("r", { name: "plain", effect: "once" });
  expect(await bed.outcomeOf(other)).toEqual({ ok: true, result: "done" });
  identityOf = async () => await Promise.resolve({ state: "identity", identity: ann });
  blocked.resolve({ state: "unavailable" });
  expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "ou_ann" });
});

it("a call that is cancelled while its token is fetched does not count as started", async () => {
  const blocked = Promise.withResolvers<IdentityOfCall>();
  identityOf = async () => await blocked.promise;
  await startWith(toolAs("write", () => "done", "once"));
  const job = await bed.send("r", { name: "write", effect: "once", facts });
  await until("the worker is asked", () => asked[0]);
  await bed.busOf("r").publish({ session: job.session, turnId: job.turnId });
  expect(await bed.outcomeOf(job)).toEqual({ ok: false, error: "cancelled" });
  blocked.resolve({ state: "identity", identity: ann });
  await bed.handoffs.settled();
  expect((await bed.audit(job.session)).map(({ kind }) => kind)).toEqual([
    "call_opened",
    "call_ended",
  ]);
});

it("a token that the platform refuses is named by its digest", async () => {
  await startWith(
    toolAs("write", () => {
      throw new GrantRefusedError({ kind: "token" });
    }),
  );
  const job = await bed.send("r", { name: "write", effect: "pure", facts });
  expect(await bed.outcomeOf(job)).toMatchObject({ ok: false, grant: { kind: "token" } });
  expect(refused).toEqual([tokenDigestOf(secret)]);
});

it("permissions that the app lacks are named to the worker, and the model reads a sentence", async () => {
  await startWith(
    toolAs("write", () => {
      throw new GrantRefusedError({ kind: "app-scopes", scopes: ["task:task:write"] });
    }),
  );
  const job = await bed.send("r", { name: "write", effect: "pure", facts });
  expect(await bed.outcomeOf(job)).toMatchObject({
    ok: false,
    error: expect.stringContaining("An administrator can add them"),
  });
  expect(refused).toEqual(["task:task:write"]);
});

it("a stolen runner's key begins no call that its runner was not given, and gets no token", async () => {
  const [given, othersCall] = await Promise.all([
    bed.openCall({ name: "t", effect: "pure", runner: "r", facts }),
    bed.openCall({ name: "t", effect: "pure", runner: "other", facts }),
  ]);
  const answered = await bed.openCall({ name: "t", effect: "pure", runner: "r", facts });
  await bed.store.deliver(answered.session, answered.callId, { ok: true, result: 1 });
  const began = async (job: ToolJob, claims: Partial<ToolJob> = {}) => {
    const { session, turnId, callId, attempt, name: tool, arguments: text } = { ...job, ...claims };
    const ask = randomUUID();
    const about = { runner: "r", session, turnId, callId, attempt, tool };
    const begun = { kind: "begun", effect: "pure", ask, identity: true } as const;
    const argumentsHash = argumentsHashOf(text);
    await bed.handoffOf("r").add({ v: 1, ...about, argumentsHash, ...begun });
  };
  await bed.handoffs.expect("r");
  await began(othersCall);
  await began(answered);
  for (const claims of [
    { session: othersCall.session },
    { turnId: `${given.session}-2` },
    { callId: othersCall.callId },
    { attempt: 2 },
    { name: "another" },
    { arguments: '{"to":"thief"}' },
  ]) {
    await began(given, claims);
  }
  await bed.handoffs.sweep();
  await bed.handoffs.settled();
  expect(asked).toEqual([]);
  expect(await identityStored()).toBeUndefined();
  // Of its own it gets it, as it should: the thief of a key is that runner.
  await began(given);
  await bed.handoffs.sweep();
  await bed.handoffs.settled();
  expect(asked).toHaveLength(1);
});

it("a call gets no token by its runner's word alone", async () => {
  await startWith(toolAs("write", () => "done"));
  const job = await bed.send("r", { name: "write", effect: "pure" });
  expect(await bed.outcomeOf(job)).toMatchObject({
    ok: false,
    error: expect.stringContaining("no token"),
  });
  expect(asked).toEqual([]);
});

describe("the answer with a token", () => {
  const [one, another] = [randomUUID(), randomUUID()];
  const replyOf: Parameters<typeof bed.store.reset>[1]["replyOf"] = async (id, { session, app }) =>
    await Promise.resolve({
      v: 1,
      id,
      uuid: id,
      session,
      text: "ended",
      createdAtMs: 0,
      attempts: 0,
      target: { app, chatId: "oc_1", messageId: "om_1", inThread: false },
      uncertainSinceMs: 0,
    });
  const begin = async (job: ToolJob, ask: string) => {
    const by = { runner: "r", ask, identity: `sealed-for-${ask}` };
    expect(await bed.store.begin(job.session, job.callId, "pure", by)).toBe("run");
  };

  it.each([
    [
      "its outcome",
      async ({ session, callId }: ToolJob) =>
        void (await bed.store.deliver(session, callId, { ok: true, result: 1 })),
    ],
    [
      "the end of its turn",
      async ({ session }: ToolJob) =>
        void (await bed.store.reset(session, { by: "console", replyOf })),
    ],
    ["a return of the call", async (job: ToolJob) => await giveBack(job, one)],
    ["another question about it", async (job: ToolJob) => await begin(job, another)],
  ])("is gone with %s", async (_end, end) => {
    const job = await bed.openCall({ name: "t", effect: "pure", runner: "r", facts });
    await begin(job, one);
    expect(await identityStored()).toMatchObject({ ask: one, sealed: `sealed-for-${one}` });
    await end(job);
    expect((await identityStored())?.ask).not.toBe(one);
  });

  it("ends with the deadline of its call, whatever becomes of the workers", async () => {
    const deadlineMs = Date.now() + 30_000;
    const job = await bed.openCall({ name: "t", effect: "pure", runner: "r", facts, deadlineMs });
    await begin(job, one);
    const { key = "" } = (await identityStored()) ?? {};
    expect(await bed.redis.pexpiretime(key)).toBeLessThanOrEqual(deadlineMs + 1_000);
  });
});

/** As its runner does that was stopped before the call began. */
async function giveBack(
  { session, turnId, callId, attempt, ...job }: ToolJob,
  ask: string,
): Promise<void> {
  const about = { runner: "r", session, turnId, callId, attempt, tool: job.name };
  const argumentsHash = argumentsHashOf(job.arguments);
  await bed.handoffOf("r").add({ v: 1, ...about, argumentsHash, kind: "returned", ask });
  await bed.handoffs.expect("r");
  await bed.handoffs.sweep();
}
