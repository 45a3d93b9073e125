import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { ControlEntry, InboundMessage } from "@larkline/protocol";
import type { EngineEvent } from "@larkline/protocol/event";
import {
  argumentsHashOf,
  attemptIdOf,
  runnerKeyOf,
  signCall,
  type CallClaims,
  type ToolJob,
} from "@larkline/protocol/runner";
import { blankTurn, type TurnState } from "@larkline/protocol/turn";
import { codeCache } from "@larkline/testkit";
import {
  cancelChannelOf,
  createCancelBus,
  ToolQueues,
  type DispatchOptions,
} from "@larkline/store/queues";
import {
  AuditLog,
  EventLog,
  RedisBlobStore,
  SessionStore,
  type OpenCall,
  type AuditRecord,
} from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import {
  HandoffImport,
  type CallIdentities,
  type RefusedHandoff,
  RunnerDirectory,
  RunnerHandoff,
} from "@larkline/store/runners";
import { LookupCache } from "@larkline/store/platform";

/** Asks until the answer is there; fails loudly instead of waiting forever. */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined> | T | undefined,
  ms = 60_000,
): Promise<T> {
  const endMs = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (Date.now() > endMs) throw new Error(`not within ${ms} ms: ${what}`);
    await delay(15);
  }
}

function messageOf(session: string): InboundMessage {
  return {
    v: 1,
    session,
    id: randomUUID(),
    app: "app",
    sender: { id: "ou_1" },
    chatType: "p2p",
    parts: [{ type: "text", text: "hi" }],
    createdAtMs: Date.now(),
    reply: { channel: "none" },
  };
}

/** A call of a test; `claims` are what its envelope says otherwise than the job, `facts` what the ledger says besides. */
type Call = Pick<ToolJob, "name" | "effect"> &
  Partial<ToolJob> & {
    claims?: Partial<CallClaims>;
    runner?: string;
    facts?: Partial<OpenCall["facts"]>;
  };

const signingKey = randomBytes(32).toString("hex");

/** The key of a runner of the test bed. */
export function keyOf(runner: string): string {
  return runnerKeyOf(signingKey, runner);
}

function signed(
  job: ToolJob,
  { claims, runner = "r" }: { claims: Call["claims"]; runner: string | undefined },
): ToolJob {
  const { name: tool, session, turnId, callId, attempt, actor, deadlineMs } = job;
  const envelope = signCall(keyOf(runner), {
    v: 1,
    runner,
    tool,
    session,
    turnId,
    callId,
    attempt,
    actor,
    expiresAtMs: deadlineMs + 60_000,
    argumentsHash: argumentsHashOf(job.arguments),
    authority: { by: "policy" },
    ...claims,
  });
  return { ...job, envelope };
}

function jobOf(session: string, { claims, runner, facts: _facts, ...call }: Call): ToolJob {
  const job: ToolJob = {
    v: 1,
    session,
    turnId: `${session}-1`,
    callId: `c-${randomUUID()}`,
    arguments: "{}",
    attempt: 1,
    actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
    envelope: "",
    queuedAtMs: Date.now(),
    deadlineMs: Date.now() + 60_000,
    ...call,
  };
  return call.envelope === undefined ? signed(job, { claims, runner }) : job;
}

/** A session that is suspended on one open call. */
async function openCall(store: SessionStore, call: Call): Promise<ToolJob> {
  const session = `s-${randomUUID()}`;
  const message = messageOf(session);
  const { wakeGen = 0 } = await store.append(message);
  const claim = await store.claim(session, wakeGen, "test");
  const job = jobOf(session, call);
  const turn: TurnState = {
    ...blankTurn({ turnId: job.turnId, message, startedAtMs: Date.now() }),
    steps: 1,
  };
  const written = {
    session,
    epoch: claim?.epoch ?? "",
    history: [],
    events: [],
    consumed: 0,
    turn,
  };
  const { turnId, name: tool } = job;
  const facts = {
    turnId,
    tool,
    argumentsHash: argumentsHashOf(job.arguments),
    runner: call.runner ?? "r",
    ...call.facts,
  };
  const open = [{ callId: attemptIdOf(job), deadlineMs: job.deadlineMs, facts }];
  const saved = await store.save({ ...written, open, mode: "suspend" });
  if (saved.state !== "suspended") throw new Error(`the session is ${saved.state}`);
  return job;
}

/** The call's answer, once a wake-up job for it has come out of the queue. */
async function answerOf(
  { store, wakes }: { store: SessionStore; wakes: ReadonlyMap<string, number> },
  job: ToolJob,
  ms?: number,
): Promise<ControlEntry & { type: "outcome" }> {
  const gen = await until(`wake-up after ${job.name}`, () => wakes.get(job.session), ms);
  const claim = await store.claim(job.session, gen, "test");
  const entries = (claim?.control ?? []).flatMap((entry) =>
    entry.type === "outcome" ? [entry] : [],
  );
  const [first] = entries;
  if (entries.length !== 1 || first?.callId !== attemptIdOf(job)) {
    throw new Error(`outcomes: ${JSON.stringify(entries)}`);
  }
  return first;
}

/** What carries over what the runners hand in. */
function importer(parts: {
  redis: RedisConnection;
  namespace: string;
  store: SessionStore;
  lookups: LookupCache;
  wakes: Map<string, number>;
  refused: RefusedHandoff[];
  identities: CallIdentities;
}): HandoffImport {
  const { redis, namespace, store, lookups, wakes, refused, identities } = parts;
  return new HandoffImport({
    redis,
    namespace,
    worker: "test",
    runnerKeys: { of: keyOf },
    store,
    identities,
    lookups,
    delivered: async (session, { wakeGen }) => {
      if (wakeGen !== undefined) wakes.set(session, wakeGen);
      await Promise.resolve();
    },
    onRefused: (one) => refused.push(one),
    onError: () => undefined,
  });
}

/** For tools without an identity. */
export const noIdentities: CallIdentities = {
  of: async () => await Promise.resolve({ state: "unavailable" }),
  tokenRefused: async () => await Promise.resolve(),
  appLacks: async () => await Promise.resolve(),
};

/** The worker's side of a runner, in a namespace of its own. */
export function createTestBed(redisUrl: string, identities: CallIdentities = noIdentities) {
  const namespace = `runner-test-${randomUUID()}`;
  const redis = connectRedis(redisUrl);
  const queueRedis = connectRedis(redisUrl, { role: "worker" });
  const store = new SessionStore({ redis, namespace, stateKey: "0".repeat(64) });
  const log = new EventLog({ redis, namespace });
  const audit = new AuditLog({ redis, namespace });
  const queueOptions = { connection: queueRedis, prefix: `{${namespace}}` };
  const queues = new ToolQueues(queueOptions);
  const lookups = new LookupCache({ redis, namespace, owner: "worker" });
  const wakes = new Map<string, number>();
  const refused: RefusedHandoff[] = [];
  const handoffs = importer({ redis, namespace, store, lookups, wakes, refused, identities });
  const closing = new AbortController();
  const listening = handoffs.listen(closing.signal);
  return {
    redis,
    handoffs,
    /** What was handed in and not believed. */
    refused,
    /** A way of runner `r` to hand something in. */
    handoffOf: (runner: string) =>
      new RunnerHandoff({ redis, namespace, runner, runnerKey: keyOf(runner) }),
    /** Resolves when workers receive notifications. */
    listening,
    namespace,
    store,
    blobs: new RedisBlobStore({ redis, namespace }),
    lookups,
    queues,
    directory: new RunnerDirectory({ redis, namespace }),
    busOf: (runner: string) =>
      createCancelBus({ connection: redis, channel: cancelChannelOf(namespace, runner) }),
    openCall: async (call: Call) => await openCall(store, call),
    send: async (runner: string, call: Call, options?: DispatchOptions) => {
      const job = await openCall(store, { runner, ...call });
      await handoffs.expect(runner);
      await queues.dispatch(runner, [job], options);
      return job;
    },
    answerOf: async (job: ToolJob, ms?: number) => await answerOf({ store, wakes }, job, ms),
    outcomeOf: async (job: ToolJob, ms?: number) =>
      (await answerOf({ store, wakes }, job, ms)).outcome,
    events: async (job: ToolJob): Promise<EngineEvent[]> =>
      (await log.read(job.session, 0, 1_000)).map((record) => record.event),
    audit: async (session: string): Promise<AuditRecord[]> => {
      const records: AuditRecord[] = [];
      for await (const record of audit.export(0, Date.now() + 60_000)) records.push(record);
      return records.filter((record) => record.session === session);
    },
    close: async () => {
      closing.abort();
      await Promise.allSettled([listening, handoffs.settled()]);
      await queues.close();
      await Promise.all([closeRedis(redis), closeRedis(queueRedis)]);
    },
  };
}

/** One run of a tool, as it noted it down. */
export interface NotedRun {
  callId: string;
  pid: number;
}

function runOf(line: string): NotedRun {
  const [callId = "", pid] = line.split(" ");
  return { callId, pid: Number(pid) };
}

/** A file in which tools note their runs. `letSlowEnd`: the calls of `slow`, those that come later too. */
export function createNotes(): { file: string; runs(): NotedRun[]; letSlowEnd(): void } {
  const file = join(mkdtempSync(join(tmpdir(), "larkline-runner-")), "runs");
  return {
    file,
    letSlowEnd: () => writeFileSync(`${file}.go`, ""),
    runs: () => {
      try {
        // A line counts when it is complete: a process may be killed between opening and writing.
        const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
        return lines.map(runOf);
      } catch {
        return []; // nothing ran yet
      }
    },
  };
}

const main = fileURLToPath(new URL("../../../apps/tool-runner/src/main.ts", import.meta.url));
const probes = fileURLToPath(new URL("probe-tools.fixture.ts", import.meta.url));

export interface RunnerProcess {
  child: ChildProcess;
  /** Everything printed so far. */
  output(): string;
  /** The address of its HTTP server; waits until it is ready. */
  address(): Promise<string>;
  exited: Promise<number | string | null>;
}

/** Starts the real process, or another program, with the probe tools. */
export function spawnRunner(
  env: Record<string, string>,
  { program = main, cwd }: { program?: string; cwd?: string } = {},
): RunnerProcess {
  const RUNNER_KEY = keyOf(env["RUNNER_NAME"] ?? "default");
  const child = spawn(process.execPath, [program], {
    env: {
      HOST: "127.0.0.1",
      PORT: "0",
      NODE_COMPILE_CACHE: codeCache,
      RUNNER_TOOLS: probes,
      RUNNER_KEY,
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
    cwd,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on("line", (line) => {
      output += `${line}\n`;
    });
  }
  const exited = new Promise<number | string | null>((resolve) => {
    child.once("close", (code, signal) => resolve(code ?? signal));
  });
  return {
    child,
    exited,
    output: () => output,
    address: async () =>
      await until("tool-runner ready", () => {
        if (child.exitCode !== null) throw new Error(`the runner exited: ${output}`);
        const port = /"port":(\d+).*tool-runner ready/.exec(output)?.[1];
        return port === undefined ? undefined : `http://127.0.0.1:${port}`;
      }),
  };
}
