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
} from "./session-store.ts";
import { indexApprovals } from "./approval-index.ts";
import { keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { approvalKeysOf, commitArgs, defaultMaxApprovals, endingKeysOf, saveArgs } from "./gate-args.ts";
import { gateScripts, type GateScripts } from "./gate-scripts.ts";
import { HistoryCache } from "./history-cache.ts";
import { createKeyspace, defaultNamespace, type CellKeys, type Keyspace, type SessionKeys } from "./keys.ts";
import { duePairs, oldestMembers } from "./oldest-members.ts";
import { claimFrom, type ClaimReply } from "./claim-reply.ts";
import { RedisOutbox } from "./outbox.ts";
import { summaryFrom } from "./summary-reply.ts";
import { resetSession } from "./session-reset.ts";
import { StateSeal } from "./state-seal.ts";
import { appendResultFrom, batchOf, controlFrom, messageFrom, needsFirst, outboxFrom, queuedFrom } from "./stored.ts";

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
/** Longer than a runner waits for an answer, and asks again. */
const answerKeptMs = 600_000;
/** Runners ask again after 5 s at most. */
const questionFreshMs = 10_000;

function handoffOf(keys: SessionKeys, handed: HandedIn | undefined): string {
  return keys.handoffOf(handed?.runner ?? "");
}

/** An entry of a hand-off as the scripts take it, with what it has to say about its call. */
function handoffArgs(handed: HandedIn | undefined): [entry: string, claims: string] {
  if (handed === undefined) return ["", "{}"];
  const { entry, ...claims } = handed;
  return [entry, JSON.stringify(claims)];
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
  readonly #scripts: GateScripts;
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
    this.#scripts = gateScripts(options.redis);
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
      scripts: this.#scripts,
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
    const reply = await this.#scripts.append(
      [
        keys.session,
        keys.inbox,
        keys.dirty,
        keys.seenOf(message.app, message.id),
        keys.floor,
        keys.who,
        keys.people,
        keys.state,
      ],
      [sid, needsFirst(message), this.#dedupTtlMs, maxWaiting, message.sender.id, message.chatType],
    );
    return appendResultFrom(sid, reply);
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
    const deliver = unlessStarted ? this.#scripts.deliverUnstarted : this.#scripts.deliver;
    const result = auditResultOf(outcome);
    const text = JSON.stringify(entry);
    const { session: gate, control, dirty, calls, deadlines, audit, requests } = keys;
    const reply = await deliver(
      [gate, control, dirty, calls, deadlines, audit, handoffOf(keys, handed), requests],
      [session, callId, text, result, runner, ...handoffArgs(handed), this.#auditMax],
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
      await this.#scripts.cancel(
        [keys.session, keys.inbox, keys.requests, keys.dirty, keys.events, keys.state],
        [session, seq, JSON.stringify(entry), keys.channel, batchOf([{ runId: turnId ?? "", event: cancelledRun }])],
      ),
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
    const deps = { redis: this.#redis, scripts: this.#scripts, keys: this.#keys, auditMax: this.#auditMax };
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
      const reply = (await this.#scripts.claim(
        [keys.session, keys.inbox, keys.control, keys.history, keys.dirty, keys.floor, keys.requests, keys.state],
        [
          session,
          gen,
          owner,
          known.version,
          known.messages.length,
          known.last,
          judged.owner,
          judged.isDead ? 1 : 0,
          alone ? 1 : 0,
          `,${features.join(",")},`,
        ],
      )) as ClaimReply | null; // shape fixed by the script
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
    const { session: gate, dirty, state } = this.#keys.session(session);
    return (await this.#scripts.handOff([gate, dirty, state], [epoch, session])) === 1;
  }

  async excuse(session: SessionKey, epoch: string): Promise<ExcuseResult> {
    const keys = this.#keys.session(session);
    const reply = await this.#scripts.excuse([keys.session, keys.dirty, keys.state], [session, epoch]);
    const [excused, gen] = reply as [number, number | string]; // shape fixed by the script
    return withWake({ excused: excused === 1 }, Number(gen));
  }

  async save(request: SaveRequest): Promise<SaveResult> {
    const keys = this.#keys.session(request.session);
    const seal = this.#seal;
    if (request.approvals !== undefined) await indexApprovals(this.#redis, this.#keys, request.approvals);
    const reply = await this.#scripts.save(
      [
        keys.session,
        keys.control,
        keys.calls,
        keys.deadlines,
        keys.dirty,
        keys.history,
        keys.events,
        keys.inbox,
        ...approvalKeysOf(keys),
        keys.requests,
        keys.state,
      ],
      [...saveArgs(request, { seal, channel: keys.channel, maxApprovals: this.#maxApprovals }), this.#auditMax],
    );
    if (reply === -1) return { state: "fenced" };
    if (reply === 0) return { state: "suspended" };
    if (typeof reply === "string") return { state: "suspended", wakeGen: Number(reply) };
    return { state: "running", control: (reply as string[]).map(controlFrom) };
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const keys = this.#keys.session(request.session);
    const token = randomUUID();
    const reply = await this.#scripts.commit(
      [...endingKeysOf(keys), keys.state],
      [
        ...commitArgs(request, { seal: this.#seal, channel: keys.channel, token, leaseMs: this.#outboxLeaseMs }),
        this.#auditMax,
      ],
    );
    const [state, record = "", rest = ""] = reply as [number, string?, (string | number)?];
    const deliver = record === "" ? {} : { deliver: { token, record: outboxFrom(record) } };
    if (state === -1) return { state: "fenced" };
    if (state === 0) return { state: "idle", ...deliver };
    if (state === 1) return { state: "next", head: queuedFrom(request.session, String(rest)), control: [], ...deliver };
    return { state: "requeue", wakeGen: Number(rest), ...deliver };
  }

  async emit(write: Parameters<SessionStore["emit"]>[0]): Promise<boolean> {
    const keys = this.#keys.session(write.session);
    const reply = await this.#scripts.emit(
      [keys.session, keys.events, keys.state],
      [write.epoch, write.session, keys.channel, batchOf(write.events), write.events.length],
    );
    return reply === 1;
  }

  async report(...[session, callId, happened, handed]: Parameters<SessionStore["report"]>): Promise<boolean> {
    const keys = this.#keys.session(session);
    const args = [session, callId, keys.channel, batchOf([happened]), ...handoffArgs(handed)];
    const reply = await this.#scripts.report([keys.session, keys.calls, keys.events, handoffOf(keys, handed)], args);
    return reply === 1;
  }

  async begin(...[session, callId, effect, by = {}]: Parameters<SessionStore["begin"]>): Promise<BeginResult> {
    const { handed, runner = handed?.runner ?? "", ask = "" } = by;
    const keys = this.#keys.session(session);
    const channel = this.#keys.global(`begun:${runner}`);
    const reply = await this.#scripts.begin(
      [keys.calls, keys.audit, handoffOf(keys, handed), keys.answerOf(runner, ask)],
      [
        session,
        callId,
        effect,
        runner,
        ...handoffArgs(handed),
        ask,
        channel,
        answerKeptMs,
        questionFreshMs,
        this.#auditMax,
      ],
    );
    return reply as BeginResult; // the script answers nothing else
  }

  async giveBack(...[session, callId, { handed, ask }]: Parameters<SessionStore["giveBack"]>): Promise<boolean> {
    const keys = this.#keys.session(session);
    const reply = await this.#scripts.giveBack(
      [keys.calls, handoffOf(keys, handed), keys.answerOf(handed.runner, ask)],
      [callId, ...handoffArgs(handed), answerKeptMs],
    );
    return reply === 1;
  }

  async history(session: SessionKey): Promise<Claim["history"]> {
    const texts = await this.#redis.lrange(this.#keys.session(session).history, 0, -1);
    return texts.map(messageFrom);
  }

  async summary(session: SessionKey): Promise<SessionSummary> {
    const keys = this.#keys.session(session);
    const reply = await this.#scripts.summary([keys.session, keys.inbox, keys.history, keys.outbox, keys.state], []);
    return summaryFrom(session, reply);
  }

  async dueDeadlines(nowMs: number, limit: number): Promise<{ session: SessionKey; callId: string }[]> {
    const indexes = this.#keys.cells().map((cell) => cell.deadlines);
    const pairs = await duePairs(this.#redis, indexes, { untilMs: nowMs, limit });
    return pairs.map(([session, callId]) => ({ session, callId }));
  }

  async wakeDue(session: SessionKey): Promise<DeliverResult> {
    const keys = this.#keys.session(session);
    return accepted(await this.#scripts.wakeDue([keys.session, keys.dirty, keys.deadlines], [session]));
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
    const keys = this.#keys.session(session);
    const gen = Number(
      await this.#scripts.heal(
        [keys.session, keys.inbox, keys.control, keys.dirty, keys.requests, keys.state],
        [session, deadGen],
      ),
    );
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
