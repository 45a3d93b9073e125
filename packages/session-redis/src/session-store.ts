import { randomUUID } from "node:crypto";
import {
  turnIdOf,
  type ControlEntry,
  type InboundMessage,
  type QueuedMessage,
  type SessionKey,
} from "@larkline/protocol";
import {
  auditResultOf,
  cancelledRun,
  type AppendResult,
  type BeginResult,
  type Claim,
  type CommitRequest,
  type CommitResult,
  type DeliverResult,
  type OutboxLease,
  type ResetOptions,
  type ResetResult,
  type SaveRequest,
  type SaveResult,
  type SessionStore,
  type SessionSummary,
  type StaleSession,
} from "@larkline/session";
import { indexApprovals } from "./approval-index.ts";
import { keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { approvalKeysOf, commitArgs, defaultMaxApprovals, endingKeysOf, saveArgs } from "./gate-args.ts";
import { gateScripts, type GateScripts } from "./gate-scripts.ts";
import { HistoryCache } from "./history-cache.ts";
import { createKeyspace, defaultNamespace, type CellKeys, type Keyspace } from "./keys.ts";
import { duePairs, oldestMembers } from "./oldest-members.ts";
import { RedisOutbox } from "./outbox.ts";
import { resetSession } from "./session-reset.ts";
import {
  appendResultFrom,
  batchOf,
  controlFrom,
  messageFrom,
  outboxFrom,
  queuedFrom,
  settingsFrom,
  turnFrom,
} from "./stored.ts";

export interface RedisSessionStoreOptions {
  redis: RedisConnection;
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

function accepted(reply: unknown): DeliverResult {
  const [ok, gen] = reply as [number, number | string]; // shape fixed by the script
  return withWake({ accepted: ok === 1 }, Number(gen));
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
  readonly #dedupTtlMs: number;
  readonly #maxWaiting: number;
  readonly #outboxLeaseMs: number;
  readonly #maxApprovals: number;
  readonly #auditMax: number;

  constructor(options: RedisSessionStoreOptions) {
    this.#redis = options.redis;
    this.#scripts = gateScripts(options.redis);
    this.#keys = createKeyspace(options.namespace ?? defaultNamespace);
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
      [keys.session, keys.inbox, keys.dirty, keys.seenOf(message.app, message.id), keys.floor, keys.who, keys.people],
      [sid, JSON.stringify(message), this.#dedupTtlMs, maxWaiting, message.sender.id, message.chatType],
    );
    return appendResultFrom(reply);
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
    return entries.map(queuedFrom);
  }

  async deliver(...given: Parameters<SessionStore["deliver"]>): Promise<DeliverResult> {
    const [session, callId, outcome, { timing, runner = "", unlessStarted = false } = {}] = given;
    const keys = this.#keys.session(session);
    const entry: ControlEntry = { type: "outcome", callId, outcome, ...(timing && { timing }) };
    const deliver = unlessStarted ? this.#scripts.deliverUnstarted : this.#scripts.deliver;
    return accepted(
      await deliver(
        [keys.session, keys.control, keys.dirty, keys.calls, keys.deadlines, keys.audit],
        [session, callId, JSON.stringify(entry), auditResultOf(outcome), runner, this.#auditMax],
      ),
    );
  }

  async cancel(session: SessionKey, cancel: { turnId?: string; reason: string }): Promise<DeliverResult> {
    const keys = this.#keys.session(session);
    const entry: ControlEntry = { type: "cancel", ...cancel };
    const { turnId } = cancel;
    const seq = turnId === undefined ? "" : turnId.slice(turnId.lastIndexOf("-") + 1);
    if (turnId !== undefined && turnId !== turnIdOf(session, Number(seq))) return { accepted: false };
    return accepted(
      await this.#scripts.cancel(
        [keys.session, keys.inbox, keys.control, keys.dirty, keys.events],
        [session, seq, JSON.stringify(entry), keys.channel, batchOf([{ runId: turnId ?? "", event: cancelledRun }])],
      ),
    );
  }

  async cancelled(session: SessionKey): Promise<boolean> {
    const entries = await this.#redis.lrange(this.#keys.session(session).control, 0, -1);
    return entries.some((entry) => controlFrom(entry).type === "cancel");
  }

  async reset(session: SessionKey, options: ResetOptions): Promise<ResetResult> {
    const deps = { redis: this.#redis, scripts: this.#scripts, keys: this.#keys, auditMax: this.#auditMax };
    return await resetSession(deps, session, options);
  }

  async claim(session: SessionKey, gen: number, owner: string): Promise<Claim | undefined> {
    const keys = this.#keys.session(session);
    const known = this.#cache.known(session);
    const reply = await this.#scripts.claim(
      [keys.session, keys.inbox, keys.control, keys.history, keys.dirty],
      [session, gen, owner, known.version, known.messages.length, known.last],
    );
    if (reply === null) return undefined;
    const [epoch, turn, head, tries, version, from, tail, control, settings] = reply as [
      string,
      string,
      string,
      number,
      string,
      number | string,
      string[],
      string[],
      string,
    ];
    const history = this.#cache.extend(session, known, { version, from: Number(from), texts: tail });
    return {
      session,
      gen,
      epoch,
      ...(turn === "" ? {} : { turn: turnFrom(turn) }),
      ...(head === "" ? {} : { head: queuedFrom(head) }),
      tries,
      control: control.map(controlFrom),
      history,
      settings: settingsFrom(settings),
    };
  }

  async save(request: SaveRequest): Promise<SaveResult> {
    const keys = this.#keys.session(request.session);
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
      ],
      [...saveArgs(request, keys.channel, this.#maxApprovals), this.#auditMax],
    );
    if (reply === -1) return { state: "fenced" };
    if (reply === 0) return { state: "suspended" };
    return { state: "running", control: (reply as string[]).map(controlFrom) };
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const keys = this.#keys.session(request.session);
    const token = randomUUID();
    const reply = await this.#scripts.commit(endingKeysOf(keys), [
      ...commitArgs(request, keys.channel, { token, leaseMs: this.#outboxLeaseMs }),
      this.#auditMax,
    ]);
    const [state, record = "", rest = ""] = reply as [number, string?, (string | number)?];
    const deliver = record === "" ? {} : { deliver: { token, record: outboxFrom(record) } };
    if (state === -1) return { state: "fenced" };
    if (state === 0) return { state: "idle", ...deliver };
    if (state === 1) return { state: "next", head: queuedFrom(String(rest)), control: [], ...deliver };
    return { state: "requeue", wakeGen: Number(rest), ...deliver };
  }

  async emit(write: Parameters<SessionStore["emit"]>[0]): Promise<boolean> {
    const keys = this.#keys.session(write.session);
    const reply = await this.#scripts.emit(
      [keys.session, keys.events],
      [write.epoch, write.session, keys.channel, batchOf(write.events), write.events.length],
    );
    return reply === 1;
  }

  async report(...[session, callId, happened]: Parameters<SessionStore["report"]>): Promise<boolean> {
    const keys = this.#keys.session(session);
    const args = [session, callId, keys.channel, batchOf([happened])];
    return (await this.#scripts.report([keys.session, keys.calls, keys.events], args)) === 1;
  }

  async begin(...[session, callId, effect, runner = ""]: Parameters<SessionStore["begin"]>): Promise<BeginResult> {
    const { calls, audit } = this.#keys.session(session);
    const reply = await this.#scripts.begin([calls, audit], [session, callId, effect, runner, this.#auditMax]);
    return reply as BeginResult; // the script answers nothing else
  }

  async history(session: SessionKey): Promise<Claim["history"]> {
    const texts = await this.#redis.lrange(this.#keys.session(session).history, 0, -1);
    return texts.map(messageFrom);
  }

  async summary(session: SessionKey): Promise<SessionSummary> {
    const keys = this.#keys.session(session);
    const reply = await this.#scripts.summary([keys.session, keys.inbox, keys.history, keys.outbox], []);
    const [state, gen, waiting, messages, unsent, head, turn, settings, inContext, epoch] = reply as [
      SessionSummary["state"],
      ...[string | number, number, number, number, string, string, string, number, string], // shape fixed by the script
    ];
    return {
      state,
      gen: Number(gen),
      epoch,
      waiting,
      messages,
      inContext,
      unsent,
      ...(head === "" ? {} : { head: queuedFrom(head) }),
      ...(turn === "" ? {} : { turn: turnFrom(turn) }),
      settings: settingsFrom(settings),
    };
  }

  async dueDeadlines(nowMs: number, limit: number): Promise<{ session: SessionKey; callId: string }[]> {
    const indexes = this.#keys.cells().map((cell) => cell.deadlines);
    const pairs = await duePairs(this.#redis, indexes, { untilMs: nowMs, limit });
    return pairs.map(([session, callId]) => ({ session, callId }));
  }

  async dueOutboxes(nowMs: number, limit: number): Promise<SessionKey[]> {
    return await this.#due((cell) => cell.due, nowMs, limit);
  }

  async stale(beforeMs: number, limit: number): Promise<StaleSession[]> {
    const sessions = await this.#due((cell) => cell.dirty, beforeMs, limit);
    return await Promise.all(
      sessions.map(async (session) => {
        const [state, gen, running, owner] = await this.#redis.hmget(
          this.#keys.session(session).session,
          "st",
          "gen",
          "rg",
          "own",
        );
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
    await this.#redis.zadd(this.#keys.session(session).dirty, "XX", Date.now(), session);
  }

  async heal(session: SessionKey, deadGen: number): Promise<number | undefined> {
    const keys = this.#keys.session(session);
    const gen = Number(
      await this.#scripts.heal([keys.session, keys.inbox, keys.control, keys.dirty], [session, deadGen]),
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
