import { randomUUID } from "node:crypto";
import { turnIdOf, type ControlEntry, type SessionKey, type ToolOutcome } from "@larkline/protocol";
import type {
  AppendResult,
  BeginResult,
  Claim,
  CommitRequest,
  CommitResult,
  DeliverResult,
  OutboxLease,
  OutboxRecord,
  SaveRequest,
  SaveResult,
  SessionStore,
  SessionSummary,
  StaleSession,
} from "@larkline/session";
import type { RedisConnection } from "./connection.ts";
import { gateScripts, type GateScripts } from "./gate-scripts.ts";
import { HistoryCache } from "./history-cache.ts";
import { createKeyspace, defaultNamespace, type CellKeys, type Keyspace } from "./keys.ts";
import { batchOf, controlFrom, messageFrom, outboxFrom, queuedFrom, turnFrom } from "./stored.ts";

export interface RedisSessionStoreOptions {
  redis: RedisConnection;
  /** First part of every key; all processes of a deployment share it. */
  namespace?: string;
  /** How long message ids are remembered. Feishu redelivers for up to 7.1 h. Default 24 h. */
  dedupTtlMs?: number;
  /** Waiting messages a session may hold. Default 1,000. */
  maxWaiting?: number;
  /** How long a process may take to send one reply before another may try. Default 10 s. */
  outboxLeaseMs?: number;
  /** Characters of history JSON kept in memory. Default 64 million. */
  historyCacheCharacters?: number;
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
  readonly #cache: HistoryCache;
  readonly #dedupTtlMs: number;
  readonly #maxWaiting: number;
  readonly #outboxLeaseMs: number;

  constructor(options: RedisSessionStoreOptions) {
    this.#redis = options.redis;
    this.#scripts = gateScripts(options.redis);
    this.#keys = createKeyspace(options.namespace ?? defaultNamespace);
    this.#cache = new HistoryCache(options.historyCacheCharacters ?? 64_000_000);
    this.#dedupTtlMs = options.dedupTtlMs ?? dayMs;
    this.#maxWaiting = options.maxWaiting ?? 1_000;
    this.#outboxLeaseMs = options.outboxLeaseMs ?? 10_000;
  }

  async append(message: Parameters<SessionStore["append"]>[0]): Promise<AppendResult> {
    const sid = message.session;
    const keys = this.#keys.session(sid);
    const reply = await this.#scripts.append(
      [keys.session, keys.inbox, keys.dirty, `${keys.seen}${sid}:${message.app}:${message.id}`],
      [sid, JSON.stringify(message), this.#dedupTtlMs, this.#maxWaiting],
    );
    const [result, seq, gen, eventSeq] = reply as [AppendResult["result"], ...(number | string)[]];
    const known = eventSeq === undefined ? {} : { eventSeq: Number(eventSeq) };
    return withWake({ result, seq: Number(seq), ...known }, Number(gen));
  }

  async deliver(session: SessionKey, callId: string, outcome: ToolOutcome): Promise<DeliverResult> {
    const keys = this.#keys.session(session);
    const entry: ControlEntry = { type: "outcome", callId, outcome };
    return accepted(
      await this.#scripts.deliver(
        [keys.session, keys.control, keys.dirty, keys.calls, keys.deadlines],
        [session, callId, JSON.stringify(entry)],
      ),
    );
  }

  async cancel(session: SessionKey, cancel: { turnId?: string; reason: string }): Promise<DeliverResult> {
    const keys = this.#keys.session(session);
    const entry: ControlEntry = { type: "cancel", ...cancel };
    const { turnId } = cancel;
    const seq = turnId === undefined ? "" : turnId.slice(turnId.lastIndexOf("-") + 1);
    if (turnId !== undefined && turnId !== turnIdOf(session, Number(seq))) return { accepted: false };
    const done = {
      type: "done",
      totalInputTokens: 0,
      totalOutputTokens: 0,
      totalCostUsd: 0,
      turnCount: 0,
      reason: "cancelled",
      final: "",
    } as const;
    return accepted(
      await this.#scripts.cancel(
        [keys.session, keys.inbox, keys.control, keys.dirty, keys.events],
        [session, seq, JSON.stringify(entry), keys.channel, batchOf([{ runId: turnId ?? "", event: done }])],
      ),
    );
  }

  async claim(session: SessionKey, gen: number, owner: string): Promise<Claim | undefined> {
    const keys = this.#keys.session(session);
    const known = this.#cache.known(session);
    const reply = await this.#scripts.claim(
      [keys.session, keys.inbox, keys.control, keys.history, keys.dirty],
      [session, gen, owner, known.version, known.messages.length],
    );
    if (reply === null) return undefined;
    const [epoch, turn, head, tries, version, from, tail, control] = reply as [
      string,
      string,
      string,
      number,
      string,
      number | string,
      string[],
      string[],
    ];
    const history = this.#cache.extend(session, known, {
      version,
      from: Number(from),
      messages: tail.map(messageFrom),
      characters: tail.reduce((sum, text) => sum + text.length, 0),
    });
    return {
      session,
      gen,
      epoch,
      ...(turn === "" ? {} : { turn: turnFrom(turn) }),
      ...(head === "" ? {} : { head: queuedFrom(head) }),
      tries,
      control: control.map(controlFrom),
      history,
    };
  }

  async save(request: SaveRequest): Promise<SaveResult> {
    const keys = this.#keys.session(request.session);
    const reply = await this.#scripts.save(
      [keys.session, keys.control, keys.calls, keys.deadlines, keys.dirty, keys.history, keys.events],
      [
        request.epoch,
        request.session,
        JSON.stringify(request.turn),
        request.consumed,
        request.mode,
        keys.channel,
        batchOf(request.events),
        request.events.length,
        request.history.length,
        request.open.length,
        ...request.history.map((message) => JSON.stringify(message)),
        ...request.open.flatMap(({ callId, deadlineMs }) => [callId, deadlineMs]),
      ],
    );
    if (reply === -1) return { state: "fenced" };
    if (reply === 0) return { state: "suspended" };
    return { state: "running", control: (reply as string[]).map(controlFrom) };
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const keys = this.#keys.session(request.session);
    const token = randomUUID();
    const reply = await this.#scripts.commit(
      [
        keys.session,
        keys.inbox,
        keys.control,
        keys.calls,
        keys.deadlines,
        keys.dirty,
        keys.history,
        keys.events,
        keys.outbox,
        keys.due,
      ],
      [
        request.epoch,
        request.session,
        request.seq,
        request.more ? 1 : 0,
        keys.channel,
        batchOf(request.events),
        request.events.length,
        request.outbox === undefined ? "" : JSON.stringify(request.outbox),
        token,
        this.#outboxLeaseMs,
        request.history.length,
        ...request.history.map((message) => JSON.stringify(message)),
      ],
    );
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

  async begin(session: SessionKey, callId: string, effect: string): Promise<BeginResult> {
    const reply = await this.#scripts.begin([this.#keys.session(session).calls], [callId, effect]);
    return reply as BeginResult; // the script answers nothing else
  }

  async history(session: SessionKey): Promise<Claim["history"]> {
    const texts = await this.#redis.lrange(this.#keys.session(session).history, 0, -1);
    return texts.map(messageFrom);
  }

  async summary(session: SessionKey): Promise<SessionSummary> {
    const keys = this.#keys.session(session);
    const [[state, gen], waiting, messages] = await Promise.all([
      this.#redis.hmget(keys.session, "st", "gen"),
      this.#redis.llen(keys.inbox),
      this.#redis.llen(keys.history),
    ]);
    return { state: (state ?? "idle") as SessionSummary["state"], gen: Number(gen ?? 0), waiting, messages };
  }

  async dueDeadlines(nowMs: number, limit: number): Promise<{ session: SessionKey; callId: string }[]> {
    const members = await this.#due((cell) => cell.deadlines, nowMs, limit);
    return members.map((member) => {
      const bar = member.indexOf("|");
      return { session: member.slice(0, bar), callId: member.slice(bar + 1) };
    });
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
    const lists = await Promise.all(
      this.#keys
        .cells()
        .map(async (cell) => await this.#redis.zrangebyscore(index(cell), "-inf", untilMs, "LIMIT", 0, limit)),
    );
    return lists.flat().slice(0, limit);
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

  async pushOutbox(record: OutboxRecord, messageId: string): Promise<OutboxLease | undefined> {
    const keys = this.#keys.session(record.session);
    return await this.#lease(async (token) => {
      const seen = `${keys.seen}${record.session}:${record.target.app}:${messageId}`;
      const args = [record.session, JSON.stringify(record), this.#dedupTtlMs, token, this.#outboxLeaseMs];
      return await this.#scripts.pushOutbox([keys.session, keys.outbox, keys.due, seen], args);
    });
  }

  async leaseOutbox(session: SessionKey): Promise<OutboxLease | undefined> {
    const keys = this.#keys.session(session);
    return await this.#lease(
      async (token) =>
        await this.#scripts.leaseOutbox([keys.session, keys.outbox, keys.due], [session, token, this.#outboxLeaseMs]),
    );
  }

  async ackOutbox(session: SessionKey, token: string): Promise<OutboxLease | undefined> {
    const keys = this.#keys.session(session);
    const args = [session, token, this.#outboxLeaseMs];
    const record = String(await this.#scripts.ackOutbox([keys.session, keys.outbox, keys.due], args));
    return record === "" ? undefined : { token, record: outboxFrom(record) };
  }

  async retryOutbox({ token, record }: OutboxLease, retryAtMs: number): Promise<void> {
    const keys = this.#keys.session(record.session);
    const args = [record.session, token, JSON.stringify(record), retryAtMs];
    await this.#scripts.retryOutbox([keys.session, keys.outbox, keys.due], args);
  }

  async #lease(take: (token: string) => Promise<unknown>): Promise<OutboxLease | undefined> {
    const token = randomUUID();
    const record = String(await take(token));
    return record === "" ? undefined : { token, record: outboxFrom(record) };
  }
}
