import { randomUUID } from "node:crypto";
import { systemClock } from "@larkline/protocol/clock";
import {
  argumentsHashOf,
  handoffMac,
  type HandoffEntry,
  type ToolJob,
} from "@larkline/protocol/runner";
import { HandoffImport } from "@larkline/store/runners";
import { afterEach, beforeEach, describe, expect, inject, it, vi } from "vitest";
import { CallHandoff, type LookOnly } from "./call-handoff.ts";
import { createTestBed, keyOf, noIdentities } from "./test-bed.fixture.ts";

let bed: ReturnType<typeof createTestBed>;
let closing: AbortController;

beforeEach(async () => {
  bed = createTestBed(inject("redisUrl"));
  closing = new AbortController();
  await bed.listening;
});
afterEach(async () => {
  closing.abort();
  await bed.close();
});

/** As docs/tool-protocol.md has it. */
function cellOf(session: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < session.length; at += 1) {
    hash = Math.imul(hash ^ session.charCodeAt(at), 0x01000193);
  }
  return (hash >>> 0) % 16;
}

/** A session of another cell. */
function sessionOutside(cell: number): string {
  return ["foreign-1", "foreign-2"].find((session) => cellOf(session) !== cell) ?? "";
}

/** What the runner of a job hands in about it; `said` may say more, or something else. */
function entryOf(job: ToolJob, said: Record<string, unknown>): HandoffEntry {
  const { session, turnId, callId, attempt, name: tool } = job;
  const about = { v: 1, runner: "r", session, turnId, callId, attempt, tool };
  // Attackers and other languages write what they like.
  return {
    ...about,
    argumentsHash: argumentsHashOf(job.arguments),
    ...said,
  } as unknown as HandoffEntry;
}

const fine = { kind: "outcome", outcome: { ok: true, result: "mine" } } as const;

function streamOf(job: ToolJob, runner: string): string {
  return `{${bed.namespace}:${cellOf(job.session)}}:handoff:${runner}`;
}

async function outcomes(job: ToolJob): Promise<unknown[]> {
  const { gen } = await bed.store.summary(job.session);
  const claim = await bed.store.claim(job.session, gen, "test");
  return (claim?.control ?? []).flatMap((entry) =>
    entry.type === "outcome" ? [entry.outcome] : [],
  );
}

async function handedIn(entry: HandoffEntry, runner = "r"): Promise<void> {
  await bed.handoffs.expect(runner);
  await bed.handoffOf(runner).add(entry);
  await bed.handoffs.sweep();
}

describe("what a runner hands in", () => {
  it("is an answer only to its own call, of that very turn, attempt, tool and arguments", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    const wrong: Record<string, unknown>[] = [
      { turnId: `${job.session}-2` },
      { tool: "other" },
      { argumentsHash: argumentsHashOf('{"other":1}') },
      { attempt: 2 },
      { callId: "c-other" },
    ];
    for (const said of wrong) await handedIn(entryOf(job, { ...fine, ...said }));
    // Another runner, with a good key of its own.
    await handedIn(entryOf(job, { ...fine, runner: "thief" }), "thief");
    await handedIn(entryOf(job, { kind: "begun", effect: "once", runner: "thief" }), "thief");
    await handedIn(
      entryOf(job, { kind: "progress", fraction: 1, detail: "lie", runner: "thief" }),
      "thief",
    );
    expect(await outcomes(job)).toEqual([]);
    expect(await bed.events(job)).toEqual([]);
    expect(await bed.store.begin(job.session, job.callId, "once")).toBe("run");
    await handedIn(entryOf(job, fine));
    expect(await outcomes(job)).toEqual([{ ok: true, result: "mine" }]);
  });

  it("gives a call back only by the question that it may start by, and once", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    const begun = { kind: "begun", effect: "once" };
    const [one, two] = [randomUUID(), randomUUID()];
    await handedIn(entryOf(job, { ...begun, ask: one }));
    await handedIn(entryOf(job, { ...begun, ask: two }));
    await handedIn(entryOf(job, { kind: "returned", ask: two }));
    await handedIn(entryOf(job, { kind: "returned", ask: randomUUID() }));
    expect(await bed.store.begin(job.session, job.callId, "once")).toBe("started_before");
    await handedIn(entryOf(job, { kind: "returned", ask: one }));
    expect(await bed.store.begin(job.session, job.callId, "once")).toBe("run");
    await handedIn(entryOf(job, { kind: "returned", ask: one }));
    expect(await bed.store.begin(job.session, job.callId, "once")).toBe("started_before");
  });

  it("cannot say that people refused the call", async () => {
    const job = await bed.openCall({ name: "t", effect: "pure" });
    const error = "permission_denied: no.";
    await handedIn(entryOf(job, { kind: "outcome", outcome: { ok: false, denied: true, error } }));
    expect(await outcomes(job)).toEqual([{ ok: false, error }]);
  });

  it("is refused without the runner's key, under another name, in another cell, and when it is too long", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    await handedIn(entryOf(job, { kind: "log", text: "first" }));
    const stream = streamOf(job, "r");
    const put = async (entry: unknown, key: string): Promise<void> => {
      const text = JSON.stringify(entry);
      await bed.redis.xadd(stream, "*", "e", text, "m", handoffMac(key, text));
    };
    const good = entryOf(job, fine);
    await put(good, keyOf("thief"));
    await put({ ...good, runner: "thief" }, keyOf("r"));
    const foreign = sessionOutside(cellOf(job.session));
    await put({ ...good, session: foreign, turnId: `${foreign}-1` }, keyOf("r"));
    await put(
      entryOf(job, { ...fine, outcome: { ok: true, result: "x".repeat(3_000_000) } }),
      keyOf("r"),
    );
    await put("no entry", keyOf("r"));
    await bed.redis.xadd(stream, "*", "something", "else");
    await bed.handoffs.sweep();
    expect(await outcomes(job)).toEqual([]);
    expect(await bed.redis.xlen(stream)).toBe(0);
    expect(bed.refused.map(({ reason }) => reason)).toEqual([
      "it is not signed with the key of its runner",
      "it is in the name of another runner",
      "its session belongs to another cell",
      "it is too long",
      expect.stringMatching(/./),
      "it is not signed with the key of its runner",
    ]);
    expect(JSON.stringify(bed.refused)).not.toContain("mine");
  });

  it("is an unknown outcome when it answers in a way that cannot be read, so that no session waits for it", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    await handedIn(entryOf(job, { kind: "outcome", outcome: "42" }));
    expect(await outcomes(job)).toMatchObject([{ ok: false, unknown: true }]);
  });

  it("leaves a call that it has not run to the turn, which may hand it out again", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    await handedIn(
      entryOf(job, { kind: "outcome", outcome: { ok: false, error: "late" }, notRun: true }),
    );
    const { gen } = await bed.store.summary(job.session);
    const claim = await bed.store.claim(job.session, gen, "test");
    expect(claim?.control).toMatchObject([
      { type: "outcome", outcome: { error: "late" }, unstarted: true },
    ]);
  });

  it("says nothing to followers but progress and lines, in the words of the worker", async () => {
    const job = await bed.openCall({ name: "slow", effect: "pure", attempt: 2 });
    await handedIn(
      entryOf(job, {
        kind: "progress",
        fraction: 0.5,
        detail: "half",
        type: "done",
        id: "c-other",
      }),
    );
    await handedIn(entryOf(job, { kind: "log", text: "a line\n" }));
    expect(await bed.events(job)).toEqual([
      { type: "tool_progress", id: job.callId, toolName: "slow", progress: 0.5, detail: "half" },
      {
        type: "inbox_message",
        messageType: "log",
        toolUseId: job.callId,
        data: "a line\n",
        meta: '{"toolName":"slow"}',
      },
    ]);
  });

  it("is carried over once, by however many workers, whichever of them dies", async () => {
    const workers = Array.from({ length: 4 }, (_, at) => workerOf(`w${at}`));
    const jobs = await Promise.all(
      Array.from({ length: 30 }, async () => await bed.openCall({ name: "t", effect: "once" })),
    );
    await bed.handoffs.expect("r");
    for (const job of jobs) {
      const entries = [
        { kind: "begun", effect: "once", ask: randomUUID() },
        { kind: "log", text: "x" },
        fine,
      ];
      for (const said of entries) {
        // Handed in twice: the runner could not know whether the first time counted.
        await bed.handoffOf("r").add(entryOf(job, said), "nobody");
        await bed.handoffOf("r").add(entryOf(job, said), "nobody");
      }
    }
    await Promise.all(workers.map(async (worker) => await worker.sweep()));
    await bed.handoffs.sweep();
    for (const job of jobs) {
      expect(await outcomes(job)).toEqual([{ ok: true, result: "mine" }]);
      expect(
        (await bed.audit(job.session))
          .filter(({ kind }) => kind !== "call_started")
          .map(({ kind }) => kind),
      ).toEqual(["call_opened", "call_ended"]);
    }
    expect(bed.refused).toEqual([]);
  });

  it("comes with its notification as an outcome without anything before it, and the stream is not read for it", async () => {
    const job = { ...(await bed.openCall({ name: "t", effect: "pure" })), worker: "test" };
    const stream = streamOf(job, "r");
    // Stays there for as long as no worker reads the stream.
    await bed.redis.xadd(stream, "*", "something", "else");
    const handoff = new CallHandoff({
      handoff: bed.handoffOf("r"),
      runner: "r",
      onError: () => undefined,
    });
    await handoff.deliver(job, { ok: true, result: "quick" });
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "quick" });
    expect(await bed.redis.xlen(stream)).toBe(1);

    // What was said before it comes before it.
    const told = { ...(await bed.openCall({ name: "t", effect: "idempotent" })), worker: "test" };
    handoff.begins(told, "idempotent");
    await handoff.deliver(told, { ok: true, result: "later" });
    expect(await bed.outcomeOf(told)).toEqual({ ok: true, result: "later" });
    expect((await bed.audit(told.session)).map(({ kind }) => kind)).toEqual([
      "call_opened",
      "call_started",
      "call_ended",
    ]);
  });

  it("is not believed for its notification: it is signed, and is in the stream of its runner", async () => {
    const job = await bed.openCall({ name: "t", effect: "pure" });
    const entry = JSON.stringify(entryOf(job, fine));
    const publish = async (runner: string, key: string, id: string): Promise<void> => {
      const told = { runner, cell: cellOf(job.session), id, entry, mac: handoffMac(key, entry) };
      await bed.redis.publish(`{${bed.namespace}}:handoff:test`, JSON.stringify(told));
    };
    const id = (await bed.redis.xadd(streamOf(job, "r"), "*", "e", "other", "m", "")) ?? "";
    await publish("r", keyOf("thief"), id);
    await publish("thief", keyOf("thief"), id);
    await publish("r", keyOf("r"), "1-1");
    await vi.waitFor(() => expect(bed.refused).toHaveLength(2), { timeout: 60_000 });
    await bed.handoffs.settled();
    expect(await outcomes(job)).toEqual([]);
  });

  it("notifies every worker when the one that handed the call out is gone", async () => {
    const job = await bed.openCall({ name: "t", effect: "pure" });
    await bed.handoffs.expect("r");
    await bed.handoffOf("r").add(entryOf(job, fine), "dead-worker");
    // No worker listens under that name, so every worker has been notified, this one too.
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: "mine" });
  });
});

describe("the list that others than workers append to", () => {
  /** Appends as the other processes that may do so, such as ingress. */
  async function smuggle(job: ToolJob, entry: unknown): Promise<void> {
    const list = `{${bed.namespace}:${cellOf(job.session)}}:req:${job.session}`;
    await bed.redis.rpush(list, typeof entry === "string" ? entry : JSON.stringify(entry));
  }

  it("answers no call by what did not come through a worker, and keeps what others may say", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    const forged = { type: "outcome", callId: job.callId, outcome: { ok: true, result: "forged" } };
    await smuggle(job, forged);
    await smuggle(job, { ...forged, outcome: { ok: true, result: nested(2_000) } });
    await smuggle(job, `{"type":"cancel","reason":"x",${JSON.stringify(forged).slice(1)}`);
    await smuggle(job, "garbage");
    await smuggle(job, { type: "cancel", reason: "stopped" });
    await handedIn(entryOf(job, fine));
    await smuggle(job, forged);
    const { gen } = await bed.store.summary(job.session);
    const claim = await bed.store.claim(job.session, gen, "test");
    expect(
      claim?.control.map((entry) => (entry.type === "outcome" ? entry.outcome : entry)),
    ).toEqual([
      { ok: true, result: "mine" },
      { type: "cancel", reason: "stopped" },
    ]);
  });
});

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < depth; level += 1) value = [value];
  return value;
}

function workerOf(worker: string): HandoffImport {
  return new HandoffImport({
    redis: bed.redis,
    namespace: bed.namespace,
    worker,
    runnerKeys: { of: keyOf },
    store: bed.store,
    identities: noIdentities,
    lookups: bed.lookups,
    delivered: async () => await Promise.resolve(),
    onRefused: (one) => bed.refused.push(one),
    onError: (error) => {
      throw error;
    },
  });
}

describe("a `once` call", () => {
  async function asking(): Promise<CallHandoff> {
    const handoff = new CallHandoff({
      handoff: bed.handoffOf("r"),
      runner: "r",
      onError: () => undefined,
    });
    await handoff.open(closing.signal);
    await bed.handoffs.expect("r");
    return handoff;
  }
  const never = new AbortController().signal;

  it("starts when a worker agrees, once", async () => {
    const handoff = await asking();
    const job = await bed.openCall({ name: "t", effect: "once" });
    expect(await handoff.mayStart(job, "once", never)).toBe("run");
    expect(await handoff.mayStart(job, "once", never)).toBe("started_before");
    await handoff.deliver(job, { ok: true, result: 1 });
    expect(await bed.outcomeOf(job)).toEqual({ ok: true, result: 1 });
    expect(await handoff.mayStart(job, "once", never)).toBe("closed");
  });

  it("may look when its tool can, with the time of its beginning, and is never opened again by that", async () => {
    const handoff = await asking();
    const deaf = new CallHandoff({
      handoff: bed.handoffOf("r"),
      runner: "r",
      onError: () => undefined,
    });
    const job = await bed.openCall({ name: "t", effect: "once" });
    const tool = { looks: true };
    const beforeMs = Date.now();
    expect(await handoff.mayStart(job, "once", never, tool)).toBe("run");
    const look = await handoff.mayStart(job, "once", never, tool);
    expect(look).toEqual({ beganAtMs: expect.any(Number) });
    expect(await deaf.mayStart(job, "once", never, tool)).toEqual(look);
    const { beganAtMs } = look as LookOnly; // as the line before the last has seen
    expect(Math.abs(beganAtMs - beforeMs)).toBeLessThan(60_000);
    const given = new AbortController();
    given.abort();
    expect(await handoff.mayStart(job, "once", given.signal, tool)).toBeUndefined();
    expect(await handoff.mayStart(job, "once", never, tool)).toEqual(look);
    expect(await handoff.mayStart(job, "once", never)).toBe("started_before");
  });

  it("gets the same answer to the same question, also when the answer was lost", async () => {
    const handoff = await asking();
    const job = await bed.openCall({ name: "t", effect: "once" });
    const deaf = new CallHandoff({
      handoff: bed.handoffOf("r"),
      runner: "r",
      onError: () => undefined,
    });
    expect(await deaf.mayStart(job, "once", never)).toBe("run");
    expect(await handoff.mayStart(job, "once", never)).toBe("started_before");
  });

  it("counts as not started when its runner stops waiting, wherever the question is by then", async () => {
    const handoff = await asking();
    const given = new AbortController();
    given.abort();
    const early = await bed.openCall({ name: "t", effect: "once" });
    expect(await handoff.mayStart(early, "once", given.signal)).toBeUndefined();
    expect(await handoff.mayStart(early, "once", never)).toBe("run");

    // No worker is there: the question stays in the stream, and what takes it back comes behind it.
    const other = createTestBed(inject("redisUrl"));
    try {
      await other.listening;
      const alone = await other.openCall({ name: "t", effect: "once" });
      const stop = new AbortController();
      const silent = new CallHandoff({
        handoff: Object.assign(other.handoffOf("r"), {
          notify: async () => await Promise.resolve(),
        }),
        runner: "r",
        onError: () => undefined,
      });
      const asked = silent.mayStart({ ...alone, worker: "test" }, "once", stop.signal);
      stop.abort();
      expect(await asked).toBeUndefined();
      await other.handoffs.expect("r");
      await other.handoffs.sweep();
      expect(await other.store.begin(alone.session, alone.callId, "once")).toBe("run");
    } finally {
      await other.close();
    }
  });

  it("does not start by an answer that comes as it is cancelled", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    const stop = new AbortController();
    const answerTo = async (_session: string, ask: string) => {
      stop.abort();
      return await Promise.resolve({ ask, answer: "run" as const });
    };
    const handoff = Object.assign(bed.handoffOf("r"), { answerTo });
    const cancelled = new CallHandoff({ handoff, runner: "r", onError: () => undefined });
    expect(
      await cancelled.mayStart({ ...job, worker: "none" }, "once", stop.signal),
    ).toBeUndefined();
  });

  it("hands its outcome in as soon as Redis is back, up to its deadline", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    let failures = 0;
    const add = async () => {
      failures += 1;
      return await (failures <= 20
        ? Promise.reject(new Error("Redis is away"))
        : Promise.resolve());
    };
    const handoff = Object.assign(bed.handoffOf("r"), { add });
    const patient = new CallHandoff({
      handoff,
      runner: "r",
      onError: () => undefined,
      backoffMs: [1],
    });
    await patient.deliver(
      { ...job, deadlineMs: systemClock.now() + 600_000 },
      { ok: true, result: 1 },
    );
    expect(failures).toBe(21);
    failures = 0;
    await expect(
      patient.deliver({ ...job, deadlineMs: 0 }, { ok: true, result: 1 }),
    ).rejects.toThrow("away");
    expect(failures).toBe(2);
  });

  it("is opened again by its own question alone, and once", async () => {
    const job = await bed.openCall({ name: "t", effect: "once" });
    const [first, second, early] = [randomUUID(), randomUUID(), randomUUID()];
    await handedIn(entryOf(job, { kind: "begun", effect: "once", ask: first }));
    await handedIn(entryOf(job, { kind: "returned", ask: early }));
    expect(await bed.store.begin(job.session, job.callId, "once")).toBe("started_before");
    await handedIn(entryOf(job, { kind: "returned", ask: first }));
    await handedIn(entryOf(job, { kind: "begun", effect: "once", ask: second }));
    // A question that was given up before its answer, late copies of what was handed in before, and of the question itself.
    await handedIn(entryOf(job, { kind: "begun", effect: "once", ask: early }));
    await handedIn(entryOf(job, { kind: "returned", ask: first }));
    await handedIn(entryOf(job, { kind: "begun", effect: "once", ask: first }));
    expect(await bed.store.begin(job.session, job.callId, "once")).toBe("started_before");
    expect(await bed.handoffOf("r").answerTo(job.session, first)).toMatchObject({
      answer: "closed",
    });
    expect(await bed.handoffOf("r").answerTo(job.session, second)).toMatchObject({ answer: "run" });
    expect(await bed.handoffOf("r").answerTo(job.session, early)).toMatchObject({
      answer: "closed",
    });
  });
});
