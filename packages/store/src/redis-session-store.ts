import { randomUUID } from "node:crypto";
import {
  knownFeatures,
  turnIdOf,
  type ControlEntry,
  type InboundMessage,
  type QueuedMessage,
  type SessionKey,
  sharedNow,
} from "@larkline/protocol";
import { auditResultOf } from "./audit-facts.ts";
import { cancelledRun } from "./cancelled-run.ts";
import {
  ClaimRefusedError,
  type AppendResult,
  type BeginResult,
  type Claim,
  type CommitRequest,
  type CommitResult,
  type DeliverResult,
  type ExcuseResult,
  type HandedIn,
  type HandoffRefusal,
  type OutboxLease,
  type ResetOptions,
  type ResetResult,
  type SaveRequest,
  type SaveResult,
  type SessionStore,
  type SessionSummary,
  type StaleSession,
  deathsTogether,
  maxExcuses,
} from "./session-store.ts";
import { indexApprovals } from "./approval-index.ts";
import { keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { commitValues, defaultMaxApprovals, saveValues } from "./gate-args.ts";
import { HistoryCache } from "./history-cache.ts";
import { createKeyspace, defaultNamespace, type CellKeys, type Keyspace, type SessionKeys } from "./keys.ts";
import { duePairs, oldestMembers } from "./oldest-members.ts";
import { claimFrom, type ClaimReply } from "./claim-reply.ts";
import { RedisOutbox } from "./outbox.ts";
import { summaryFrom } from "./summary-reply.ts";
import { resetSession } from "./session-reset.ts";
import { runScript, script } from "./script.ts";
import { StateSeal } from "./state-seal.ts";
import { appendResultFrom, batchOf, controlFrom, messageFrom, needsFirst, outboxFrom, queuedFrom } from "./stored.ts";

const append = script("append");
const deliver = script("deliver");
const cancelTurn = script("cancel");
const claim = script("claim");
const handOff = script("hand-off");
const excuse = script("excuse");
const save = script("save");
const commit = script("commit");
const emitEvents = script("emit-events");
const report = script("report");
const begin = script("begin");
const giveBack = script("give-back");
const heal = script("heal");
const summary = script("summary");
const wakeDue = script("wake-due");

export interface RedisSessionStoreOptions {
  redis: RedisConnection;
  /** Seals the state of sessions, see `stateKeyOf`: only with it sessions can be claimed, saved and committed. */
  stateKey?: string;
  /** First part of every key; all processes of a deployment share it. */
  namespace?: string;
  /** How long message ids are remembered and parked messages are kept. Feishu redelivers for up to 7.1 h. Default 24 h. */
  dedupTtlMs?: number;
  /** Waiting messages a session may hold. Default 1,000. */
  maxWaiting?: number;
  /** How long a process may take to send one reply before another may try. Default 10 s. */
  outboxLeaseMs?: number;
  /** Characters of history JSON kept in memory. Default 64 million. */
  historyCacheCharacters?: number;
  /** How many approvals of one session are kept, apart from those that are not finished. Default 200. */
  maxApprovals?: number;
  /** About how many audit records each cell keeps, such as 1,000,000. Default: all. */
  auditMaxRecords?: number;
}

const dayMs = 24 * 60 * 60 * 1_000;
/** As long as the platform goes on delivering a message that was not acknowledged, and more. */
const recalledKeptMs = dayMs;
/** Longer than a runner waits for an answer, and asks again. */
const answerKeptMs = 600_000;
/** Runners ask again after 5 s at most. */
const questionFreshMs = 10_000;

function handoffOf(keys: SessionKeys, handed: HandedIn | undefined): string {
  return keys.handoffOf(handed?.runner ?? "");
}

/** An entry of a hand-off as the scripts take it, with what it has to say about its call. */
function handoffValues(handed: HandedIn | undefined): { handoffEntry: string; handoffClaims: string } {
  if (handed === undefined) return { handoffEntry: "", handoffClaims: "{}" };
  const { entry, ...claims } = handed;
  return { handoffEntry: entry, handoffClaims: JSON.stringify(claims) };
}

function accepted(reply: unknown): DeliverResult {
  const [ok, gen, refusal] = reply as [number, number | string, (HandoffRefusal | null)?]; // shape fixed by the script
  return withWake({ accepted: ok === 1, ...(refusal == null ? {} : { refusal }) }, Number(gen));
}

function withWake<T extends object>(result: T, gen: number): T & { wakeGen?: number } {
  return gen > 0 ? { ...result, wakeGen: gen } : result;
}

/** The session store on Redis. All state changes are Lua scripts, one round trip each. */
export function createRedisSessionStore(options: RedisSessionStoreOptions): SessionStore {
  return new RedisSessionStore(options);
}

class RedisSessionStore implements SessionStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #outbox: RedisOutbox;
  readonly #cache: HistoryCache;
  readonly #stateSeal: StateSeal | undefined;
  readonly #dedupTtlMs: number;
  readonly #maxWaiting: number;
  readonly #outboxLeaseMs: number;
  readonly #maxApprovals: number;
  readonly #auditMax: number;

  constructor(options: RedisSessionStoreOptions) {
    this.#redis = options.redis;
    this.#keys = createKeyspace(options.namespace ?? defaultNamespace);
    this.#stateSeal = options.stateKey === undefined ? undefined : new StateSeal(options.stateKey);
    this.#cache = new HistoryCache(options.historyCacheCharacters ?? 64_000_000);
    this.#dedupTtlMs = options.dedupTtlMs ?? dayMs;
    this.#maxWaiting = options.maxWaiting ?? 1_000;
    this.#outboxLeaseMs = options.outboxLeaseMs ?? 10_000;
    this.#maxApprovals = options.maxApprovals ?? defaultMaxApprovals;
    this.#auditMax = options.auditMaxRecords ?? keepAllAudits;
    this.#outbox = new RedisOutbox({
      redis: options.redis,
      keys: this.#keys,
      leaseMs: this.#outboxLeaseMs,
      rememberMs: this.#dedupTtlMs,
      maxWaiting: this.#maxWaiting,
    });
  }

  async append(message: InboundMessage, options: { maxWaiting?: number } = {}): Promise<AppendResult> {
    const sid = message.session;
    const keys = this.#keys.session(sid);
    const maxWaiting = Math.min(options.maxWaiting ?? this.#maxWaiting, this.#maxWaiting);
    const { app, id, sender, chatType } = message;
    const reply = await runScript(
      this.#redis,
      append,
      { ...keys, seen: keys.seenOf(app, id), recalled: keys.recalledOf(app, id) },
      { sid, message: needsFirst(message), seenTtlMs: this.#dedupTtlMs, maxWaiting, person: sender.id, chatType },
    );
    return appendResultFrom(sid, reply);
  }

  async recall(app: string, messageId: string): Promise<void> {
    // Into every cell: the session of a message that has not come yet may not be known.
    const marks = this.#keys.cells().map((cell) => cell.recalledOf(app, messageId));
    await Promise.all(marks.map(async (mark) => await this.#redis.set(mark, "1", "PX", recalledKeptMs)));
  }

  async recalled(session: SessionKey, app: string, messageId: string): Promise<boolean> {
    return (await this.#redis.exists(this.#keys.session(session).recalledOf(app, messageId))) === 1;
  }

  async seqOf(session: SessionKey, app: string, messageId: string): Promise<number | undefined> {
    const seq = await this.#redis.get(this.#keys.session(session).seenOf(app, messageId));
    // 0 stands for a message that was answered outside a turn.
    return Number(seq ?? 0) || undefined;
  }

  async seen(session: SessionKey, app: string, messageId: string): Promise<boolean> {
    return (await this.#redis.get(this.#keys.session(session).seenOf(app, messageId))) !== null;
  }

  async waiting(session: SessionKey, limit: number): Promise<QueuedMessage[]> {
    const entries = await this.#redis.lrange(this.#keys.session(session).inbox, 1, limit);
    return entries.map((entry) => queuedFrom(session, entry));
  }

  async deliver(...given: Parameters<SessionStore["deliver"]>): Promise<DeliverResult> {
    const [session, callId, outcome, details = {}] = given;
    const { timing, handed, runner = handed?.runner ?? "", unlessStarted = false, unstarted = false } = details;
    const keys = this.#keys.session(session);
    const facts = { ...(timing && { timing }), ...(unstarted && { unstarted }) };
    const entry: ControlEntry = { type: "outcome", callId, outcome, ...facts };
    const text = JSON.stringify(entry);
    const reply = await runScript(
      this.#redis,
      deliver,
      { ...keys, handoff: handoffOf(keys, handed) },
      {
        sid: session,
        callId,
        entry: text,
        result: auditResultOf(outcome),
        runner,
        unlessStarted: unlessStarted ? 1 : 0,
        ...handoffValues(handed),
        auditMax: this.#auditMax,
      },
    );
    const [, , , count = 0] = reply as [number, number, null, number?]; // shape fixed by the script
    // Read as a claim reads it, so that it makes no difference how a turn hears of it.
    return { ...accepted(reply), ...(count > 0 && { unread: { entry: controlFrom(text), count } }) };
  }

  async cancel(session: SessionKey, cancel: { turnId?: string; reason: string }): Promise<DeliverResult> {
    const keys = this.#keys.session(session);
    const entry: ControlEntry = { type: "cancel", ...cancel };
    const { turnId } = cancel;
    const seq = turnId === undefined ? "" : turnId.slice(turnId.lastIndexOf("-") + 1);
    if (turnId !== undefined && turnId !== turnIdOf(session, Number(seq))) return { accepted: false };
    return accepted(
      await runScript(this.#redis, cancelTurn, keys, {
        sid: session,
        seq,
        entry: JSON.stringify(entry),
        channel: keys.channel,
        doneBatch: batchOf([{ runId: turnId ?? "", event: cancelledRun }]),
      }),
    );
  }

  async cancelled(session: SessionKey, turnIds?: readonly string[]): Promise<boolean> {
    const { control, requests } = this.#keys.session(session);
    const lists = await Promise.all([this.#redis.lrange(control, 0, -1), this.#redis.lrange(requests, 0, -1)]);
    return lists.flat().some((text) => {
      const entry = controlFrom(text);
      if (entry.type !== "cancel") return false;
      return turnIds === undefined || entry.turnId === undefined || turnIds.includes(entry.turnId);
    });
  }

  async reset(session: SessionKey, options: ResetOptions): Promise<ResetResult> {
    const deps = { redis: this.#redis, keys: this.#keys, auditMax: this.#auditMax };
    return await resetSession(deps, session, options);
  }

  get #seal(): StateSeal {
    if (this.#stateSeal === undefined) throw new TypeError("only a store with a stateKey runs sessions");
    return this.#stateSeal;
  }

  async claim(...given: Parameters<SessionStore["claim"]>): Promise<Claim | undefined> {
    const [session, gen, owner, { alone = false, features = knownFeatures, hasDied } = {}] = given;
    const keys = this.#keys.session(session);
    const known = this.#cache.known(session);
    // Where it is not known whether the last worker lives, it counts as dead.
    let judged = hasDied === undefined ? { owner: "*", isDead: true } : { owner: "", isDead: false };
    for (;;) {
      const reply = (await runScript(this.#redis, claim, keys, {
        sid: session,
        gen,
        owner,
        knownVersion: known.version,
        knownLength: known.messages.length,
        knownLast: known.last,
        judgedOwner: judged.owner,
        judgedDead: judged.isDead ? 1 : 0,
        alone: alone ? 1 : 0,
        features: `,${features.join(",")},`,
        deathsTogether,
      })) as ClaimReply | null; // shape fixed by the script
      if (reply === null) return undefined;
      if (reply[0] === "claimed") {
        return claimFrom({ session, gen, known, cache: this.#cache, seal: this.#seal }, reply);
      }
      if (reply[0] === "alone") throw new ClaimRefusedError("alone", "it has taken others along");
      if (reply[0] === "needs") throw new ClaimRefusedError("needs", `it needs ${reply.slice(1).join(", ")}`);
      judged = { owner: reply[1], isDead: hasDied !== undefined && (await hasDied(reply[1])) };
    }
  }

  async handOff(session: SessionKey, epoch: string): Promise<boolean> {
    return (await runScript(this.#redis, handOff, this.#keys.session(session), { epoch, sid: session })) === 1;
  }

  async excuse(session: SessionKey, epoch: string): Promise<ExcuseResult> {
    const reply = await runScript(this.#redis, excuse, this.#keys.session(session), {
      sid: session,
      epoch,
      maxExcuses,
    });
    const [excused, gen] = reply as [number, number | string]; // shape fixed by the script
    return withWake({ excused: excused === 1 }, Number(gen));
  }

  async save(request: SaveRequest): Promise<SaveResult> {
    const keys = this.#keys.session(request.session);
    const seal = this.#seal;
    if (request.approvals !== undefined) await indexApprovals(this.#redis, this.#keys, request.approvals);
    const reply = await runScript(this.#redis, save, keys, {
      ...saveValues(request, seal),
      channel: keys.channel,
      maxKept: this.#maxApprovals,
      auditMax: this.#auditMax,
    });
    if (reply === -1) return { state: "fenced" };
    if (reply === 0) return { state: "suspended" };
    if (typeof reply === "string") return { state: "suspended", wakeGen: Number(reply) };
    return { state: "running", control: (reply as string[]).map(controlFrom) };
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const keys = this.#keys.session(request.session);
    const token = randomUUID();
    const reply = await runScript(this.#redis, commit, keys, {
      ...commitValues(request, this.#seal),
      channel: keys.channel,
      token,
      leaseMs: this.#outboxLeaseMs,
      auditMax: this.#auditMax,
    });
    const [state, record = "", rest = ""] = reply as [number, string?, (string | number)?];
    const toSend = record === "" ? {} : { deliver: { token, record: outboxFrom(record) } };
    if (state === -1) return { state: "fenced" };
    if (state === 0) return { state: "idle", ...toSend };
    if (state === 1) return { state: "next", head: queuedFrom(request.session, String(rest)), control: [], ...toSend };
    return { state: "requeue", wakeGen: Number(rest), ...toSend };
  }

  async emit(write: Parameters<SessionStore["emit"]>[0]): Promise<boolean> {
    const keys = this.#keys.session(write.session);
    const { epoch, events } = write;
    const values = { epoch, channel: keys.channel, batch: batchOf(events), batchSize: events.length };
    const reply = await runScript(this.#redis, emitEvents, keys, values);
    return reply === 1;
  }

  async report(...[session, callId, happened, handed]: Parameters<SessionStore["report"]>): Promise<boolean> {
    const keys = this.#keys.session(session);
    const values = { callId, channel: keys.channel, batch: batchOf([happened]), ...handoffValues(handed) };
    const reply = await runScript(this.#redis, report, { ...keys, handoff: handoffOf(keys, handed) }, values);
    return reply === 1;
  }

  async begin(...[session, callId, effect, by = {}]: Parameters<SessionStore["begin"]>): Promise<BeginResult> {
    const { handed, runner = handed?.runner ?? "", ask = "" } = by;
    const keys = this.#keys.session(session);
    const reply = await runScript(
      this.#redis,
      begin,
      { ...keys, handoff: handoffOf(keys, handed), answer: keys.answerOf(runner, ask) },
      {
        sid: session,
        callId,
        effect,
        runner,
        ...handoffValues(handed),
        ask,
        begun: this.#keys.global(`begun:${runner}`),
        answerMs: answerKeptMs,
        freshMs: questionFreshMs,
        auditMax: this.#auditMax,
      },
    );
    return reply as BeginResult; // the script answers nothing else
  }

  async giveBack(...[session, callId, { handed, ask }]: Parameters<SessionStore["giveBack"]>): Promise<boolean> {
    const keys = this.#keys.session(session);
    const reply = await runScript(
      this.#redis,
      giveBack,
      { ...keys, handoff: handoffOf(keys, handed), answer: keys.answerOf(handed.runner, ask) },
      { callId, ...handoffValues(handed), answerMs: answerKeptMs },
    );
    return reply === 1;
  }

  async history(session: SessionKey): Promise<Claim["history"]> {
    const texts = await this.#redis.lrange(this.#keys.session(session).history, 0, -1);
    return texts.map(messageFrom);
  }

  async summary(session: SessionKey): Promise<SessionSummary> {
    return summaryFrom(session, await runScript(this.#redis, summary, this.#keys.session(session)));
  }

  async dueDeadlines(nowMs: number, limit: number): Promise<{ session: SessionKey; callId: string }[]> {
    const indexes = this.#keys.cells().map((cell) => cell.deadlines);
    const pairs = await duePairs(this.#redis, indexes, { untilMs: nowMs, limit });
    return pairs.map(([session, callId]) => ({ session, callId }));
  }

  async wakeDue(session: SessionKey): Promise<DeliverResult> {
    return accepted(await runScript(this.#redis, wakeDue, this.#keys.session(session), { sid: session }));
  }

  async dueOutboxes(nowMs: number, limit: number): Promise<SessionKey[]> {
    return await this.#due((cell) => cell.due, nowMs, limit);
  }

  async stale(beforeMs: number, limit: number): Promise<StaleSession[]> {
    const sessions = await this.#due((cell) => cell.dirty, beforeMs, limit);
    return await Promise.all(
      sessions.map(async (session) => {
        const keys = this.#keys.session(session);
        const [[state, gen], [running, owner]] = await Promise.all([
          this.#redis.hmget(keys.session, "st", "gen"),
          this.#redis.hmget(keys.state, "rg", "own"),
        ]);
        return {
          session,
          state: (state ?? "idle") as StaleSession["state"],
          gen: Number((state === "running" ? running : gen) ?? 0),
          owner: owner ?? "",
        };
      }),
    );
  }

  async #due(index: (cell: CellKeys) => string, untilMs: number, limit: number): Promise<string[]> {
    return await oldestMembers(this.#redis, this.#keys.cells().map(index), { untilMs, limit });
  }

  async touch(session: SessionKey): Promise<void> {
    await this.#redis.zadd(this.#keys.session(session).dirty, "XX", sharedNow(), session);
  }

  async heal(session: SessionKey, deadGen: number): Promise<number | undefined> {
    const gen = Number(await runScript(this.#redis, heal, this.#keys.session(session), { sid: session, deadGen }));
    return gen > 0 ? gen : undefined;
  }

  async pushOutbox(...given: Parameters<SessionStore["pushOutbox"]>): Promise<OutboxLease | undefined> {
    return await this.#outbox.push(...given);
  }

  async parked(session: SessionKey, messageId: string): Promise<InboundMessage | undefined> {
    return await this.#outbox.parked(session, messageId);
  }

  async release(...given: Parameters<SessionStore["release"]>): Promise<AppendResult | undefined> {
    return await this.#outbox.release(...given);
  }

  async leaseOutbox(session: SessionKey): Promise<OutboxLease | undefined> {
    return await this.#outbox.lease(session);
  }

  async ackOutbox(session: SessionKey, token: string): Promise<OutboxLease | undefined> {
    return await this.#outbox.ack(session, token);
  }

  async retryOutbox(lease: OutboxLease, retryAtMs: number): Promise<void> {
    await this.#outbox.retry(lease, retryAtMs);
  }
}
