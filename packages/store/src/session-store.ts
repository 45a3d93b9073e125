import {
  type SessionKey,
  type InboundMessage,
  type QueuedMessage,
  type ControlEntry,
  turnIdOf,
  knownFeatures,
} from "@larkline/protocol";
import { type Clock, type Random, systemClock, systemRandom } from "@larkline/protocol/clock";
import { type Message, textOf } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ToolOutcome, ToolEffect } from "@larkline/protocol/tool";
import { indexApprovals } from "./approval-store.ts";
import { keepAllAudits, auditResultOf } from "./audit-log.ts";
import type { Fate } from "./presence.ts";
import {
  HistoryCache,
  StateSeal,
  defaultDedupTtlMs,
  defaultMaxApprovals,
  needsFirst,
  appendResultFrom,
  queuedFrom,
  controlFrom,
  batchOf,
  cancelledRun,
  claimFrom,
  saveValues,
  commitValues,
  outboxFrom,
  messageFrom,
  summaryFrom,
} from "./stored.ts";
import { type RedisConnection, duePairs, oldestMembers } from "./connection.ts";
import { script, runScript } from "./lua.ts";
import {
  type StoreOptions,
  type SessionKeys,
  type Keyspace,
  createKeyspace,
  type CellKeys,
} from "./keys.ts";
import { Outbox } from "./outbox.ts";
import {
  type HandedIn,
  type AppendResult,
  type DeliverDetails,
  type DeliverResult,
  type ResetOptions,
  type ResetResult,
  type ClaimOptions,
  type Claim,
  deathsTogether,
  type UncountedRelease,
  maxUncounted,
  type SaveRequest,
  type SaveResult,
  type CommitRequest,
  type CommitResult,
  type ChildSession,
  childFrom,
  type FencedWrite,
  type BeginResult,
  type CallFacts,
  type SessionSummary,
  type StaleSession,
} from "./session-types.ts";
import { resetSession } from "./session-reset.ts";

/** A model step of a helper. */
export interface HelperStep {
  session: SessionKey;
  epoch: string;
  turnId: string;
  rootTurnId: string;
  step: number;
}

/** A claim was refused: no epoch was given, and the session waits for another claim. */
export class ClaimRefusedError extends Error {
  /**
   * `alone`: workers that ran the message have died beside other turns, and it may not take others along again.
   * `needs`: what is stored needs a newer process. `held`: the worker that has the session lives.
   */
  readonly reason: "alone" | "needs" | "held";

  constructor(reason: ClaimRefusedError["reason"], detail: string) {
    super(detail);
    this.name = "ClaimRefusedError";
    this.reason = reason;
  }
}

const append = script("append");
const deliver = script("deliver");
const cancelTurn = script("cancel");
const claim = script("claim");
const handOff = script("hand-off");
const fail = script("fail");
const noteAuthors = script("note-authors");
const releaseUncounted = script("release-uncounted");
const save = script("save");
const commit = script("commit");
const emitEvents = script("emit-events");
const report = script("report");
const begin = script("begin");
const giveBack = script("give-back");
const heal = script("heal");
const countStep = script("count-step");
const readChildren = script("read-children");
const summary = script("summary");
const wakeDue = script("wake-due");

interface SessionStoreOptions extends StoreOptions {
  /** Seals the state of sessions, see `stateKeyOf`: only with it sessions can be claimed, saved and committed. */
  stateKey?: string;
  /** How long message ids are remembered and parked messages are kept. Feishu redelivers for up to 7.1 h. Default 24 h. */
  dedupTtlMs?: number;
  /** Waiting messages a session may hold. Default 1,000. */
  maxWaiting?: number;
  /** How long a process may take to send one reply before another may try. Default 10 s. */
  outboxLeaseMs?: number;
  /** How many approvals of one session are kept, apart from those that are not finished. Default 200. */
  maxApprovals?: number;
  /** About how many audit records each cell keeps, such as 1,000,000. Default: all. */
  auditMaxRecords?: number;
}

const dayMs = 24 * 60 * 60 * 1_000;
/** Longer than the platform repeats a message that was not acknowledged. */
const recalledKeptMs = dayMs;
/** Longer than a runner waits for an answer, and asks again. */
const answerKeptMs = 600_000;
/** Runners ask again after 5 s at most. */
const questionFreshMs = 10_000;

function handoffOf(keys: SessionKeys, handed: HandedIn | undefined): string {
  return keys.handoffOf(handed?.runner ?? "");
}

/** An entry of a hand-off as the scripts take it, with what it has to say about its call. */
function handoffValues(handed: HandedIn | undefined): {
  handoffEntry: string;
  handoffClaims: string;
} {
  if (handed === undefined) return { handoffEntry: "", handoffClaims: "{}" };
  const { entry, ...claims } = handed;
  return { handoffEntry: entry, handoffClaims: JSON.stringify(claims) };
}

/** Without a generation where no session is to be woken. */
function withWake<T extends object>({
  wakeGen,
  ...result
}: T & { wakeGen: number }): Omit<T, "wakeGen"> & { wakeGen?: number } {
  return wakeGen > 0 ? { ...result, wakeGen } : result;
}

/** How many messages one look reads when a history is searched from its end. */
const messagesAtOnce = 100;

/**
 * The durable state of all conversations. Writers without an epoch may append, deliver and cancel;
 * everything else belongs to the worker that holds the claim.
 */
export class SessionStore {
  /** Outgoing replies, and messages that are parked behind one. */
  readonly outbox: Outbox;
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #cache = new HistoryCache();
  readonly #stateSeal: StateSeal | undefined;
  readonly #dedupTtlMs: number;
  readonly #maxWaiting: number;
  readonly #outboxLeaseMs: number;
  readonly #maxApprovals: number;
  readonly #auditMax: number;
  readonly #clock: Clock;
  readonly #random: Random;

  constructor(options: SessionStoreOptions) {
    this.#redis = options.redis;
    this.#keys = createKeyspace(options.namespace);
    this.#stateSeal = options.stateKey === undefined ? undefined : new StateSeal(options.stateKey);
    this.#dedupTtlMs = options.dedupTtlMs ?? defaultDedupTtlMs;
    this.#maxWaiting = options.maxWaiting ?? 1_000;
    this.#outboxLeaseMs = options.outboxLeaseMs ?? 10_000;
    this.#maxApprovals = options.maxApprovals ?? defaultMaxApprovals;
    this.#auditMax = options.auditMaxRecords ?? keepAllAudits;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.outbox = new Outbox({
      redis: options.redis,
      keys: this.#keys,
      clock: this.#clock,
      random: this.#random,
      leaseMs: this.#outboxLeaseMs,
      rememberMs: this.#dedupTtlMs,
      maxWaiting: this.#maxWaiting,
    });
  }

  /**
   * Adds a user message. Append, then wake, then acknowledge: see the caller's duty on `wakeGen`.
   * With `maxWaiting` it is refused as `full` when that many messages are in the inbox.
   */
  async append(
    message: InboundMessage,
    options: {
      maxWaiting?: number;
      /** It may answer an open question. */ mayAnswer?: boolean;
    } = {},
  ): Promise<AppendResult> {
    const sid = message.session;
    const keys = this.#keys.session(sid);
    const maxWaiting = Math.min(options.maxWaiting ?? this.#maxWaiting, this.#maxWaiting);
    const { app, id, sender, chatType } = message;
    const reply = await runScript(
      this.#redis,
      append,
      { ...keys, seen: keys.seenOf(app, id), recalled: keys.recalledOf(app, id) },
      {
        sid,
        message: needsFirst(message),
        seenTtlMs: this.#dedupTtlMs,
        maxWaiting,
        person: sender.id,
        chatType,
        mayAnswer: options.mayAnswer === true ? 1 : 0,
      },
    );
    return appendResultFrom(sid, reply, this.#clock.now());
  }

  /**
   * A message was taken back, perhaps before it is appended: `append` refuses it as `recalled` for as long as the
   * platform may deliver it. What is appended already stays.
   */
  async recall(app: string, messageId: string): Promise<void> {
    // Into every cell: the session of a message that has not come yet may not be known.
    const marks = this.#keys.cells().map((cell) => cell.recalledOf(app, messageId));
    await Promise.all(
      marks.map(async (mark) => await this.#redis.set(mark, "1", "PX", recalledKeptMs)),
    );
  }

  async recalled(session: SessionKey, app: string, messageId: string): Promise<boolean> {
    return (await this.#redis.exists(this.#keys.session(session).recalledOf(app, messageId))) === 1;
  }

  /** The number that `append` gave to a message; undefined when it was never appended, or is forgotten. */
  async seqOf(session: SessionKey, app: string, messageId: string): Promise<number | undefined> {
    const seq = await this.#redis.get(this.#keys.session(session).seenOf(app, messageId));
    // 0 stands for a message that was answered outside a turn.
    return Number(seq ?? 0) || undefined;
  }

  /** Whether a message was appended, or answered outside a turn, within the time that ids are remembered. */
  async seen(session: SessionKey, app: string, messageId: string): Promise<boolean> {
    return (await this.#redis.get(this.#keys.session(session).seenOf(app, messageId))) !== null;
  }

  /** The one person that a session of the HTTP API belongs to; undefined while it belongs to none. */
  async ownerOf(session: SessionKey): Promise<string | undefined> {
    const [owner] = await this.#redis.hkeys(this.#keys.session(session).who);
    return owner;
  }

  /** The waiting messages after the one being answered, oldest first. */
  async waiting(session: SessionKey, limit: number): Promise<QueuedMessage[]> {
    const entries = await this.#redis.lrange(this.#keys.session(session).inbox, 1, limit);
    return entries.map((entry) => queuedFrom(session, entry, this.#clock.now()));
  }

  /**
   * Answers an open call (an attempt's id). The first answer wins, and is in the audit log with it. Calls
   * of `pure` tools need not say that they start, so they count as not started.
   */
  async deliver(
    session: SessionKey,
    callId: string,
    outcome: ToolOutcome,
    details: DeliverDetails = {},
  ): Promise<DeliverResult> {
    const {
      timing,
      handed,
      runner = handed?.runner ?? "",
      unlessStarted = false,
      unstarted = false,
    } = details;
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
    const { unread: count, ...result } = reply;
    // Read as a claim reads it, so that a turn gets the same either way.
    return {
      ...withWake(result),
      ...(count > 0 && { unread: { entry: controlFrom(text), count } }),
    };
  }

  /**
   * Asks the running turn to stop: without `turnId`, with its id, or with that of a message that has
   * become part of it. A message that still waits, named by its turn id, is dropped at once.
   */
  async cancel(
    session: SessionKey,
    cancel: { turnId?: string; reason: string },
  ): Promise<DeliverResult> {
    const keys = this.#keys.session(session);
    const entry: ControlEntry = { type: "cancel", ...cancel };
    const { turnId } = cancel;
    const seq = turnId === undefined ? "" : turnId.slice(turnId.lastIndexOf("-") + 1);
    if (turnId !== undefined && turnId !== turnIdOf(session, Number(seq))) {
      return { accepted: false };
    }
    return withWake(
      await runScript(this.#redis, cancelTurn, keys, {
        sid: session,
        seq,
        entry: JSON.stringify(entry),
        channel: keys.channel,
        doneBatch: batchOf([{ runId: turnId ?? "", event: cancelledRun }], this.#clock.now()),
      }),
    );
  }

  /**
   * Whether a turn has a cancel that it has not dealt with: for those who missed the broadcast. `turnIds` are its own
   * and those of messages that have joined it; absent: any turn of the session.
   */
  async cancelled(session: SessionKey, turnIds?: readonly string[]): Promise<boolean> {
    const { control, requests } = this.#keys.session(session);
    const lists = await Promise.all([
      this.#redis.lrange(control, 0, -1),
      this.#redis.lrange(requests, 0, -1),
    ]);
    return lists.flat().some((text) => {
      const entry = controlFrom(text);
      if (entry.type !== "cancel") return false;
      return turnIds === undefined || entry.turnId === undefined || turnIds.includes(entry.turnId);
    });
  }

  /**
   * Ends the turn that has begun, in any state and on any worker, and begins a new
   * conversation: a claim's history is empty and the session's settings are the defaults from then on. The worker that held the session is fenced, open
   * calls and questions are closed, the message leaves the inbox and its run is logged as done. Messages that
   * wait stay, and are answered in the new conversation. Works on stored state that no worker can read, too.
   */
  async reset(session: SessionKey, options: ResetOptions): Promise<ResetResult> {
    const own = { auditMax: this.#auditMax, clock: this.#clock };
    return await resetSession(this.#redis, this.#keys, session, { ...options, ...own });
  }

  get #seal(): StateSeal {
    if (this.#stateSeal === undefined) {
      throw new TypeError("only a store with a stateKey runs sessions");
    }
    return this.#stateSeal;
  }

  /**
   * Takes the session for the wake-up `gen`; undefined when there is nothing for it to do. What is stored and cannot
   * be read is reported as `damaged`. Throws a {@link ClaimRefusedError} when this process may not take it.
   */
  async claim(
    session: SessionKey,
    gen: number,
    owner: string,
    options: ClaimOptions = {},
  ): Promise<Claim | undefined> {
    const { alone = false, isHeld = false, features = knownFeatures, fateOf } = options;
    const keys = this.#keys.session(session);
    const known = this.#cache.known(session);
    let judged: { owner: string; fate: Fate } = {
      owner: fateOf === undefined ? "*" : "",
      fate: "died",
    };
    for (;;) {
      const reply = await runScript(this.#redis, claim, keys, {
        sid: session,
        gen,
        owner,
        knownVersion: known.version,
        knownLength: known.messages.length,
        knownLast: known.last,
        judgedOwner: judged.owner,
        judgedFate: judged.fate,
        alone: alone ? 1 : 0,
        isHeld: isHeld ? 1 : 0,
        features: `,${features.join(",")},`,
        deathsTogether,
      });
      if (reply === undefined) return undefined;
      if (reply.reply === "claimed") {
        return claimFrom(
          { session, gen, nowMs: this.#clock.now(), known, cache: this.#cache, seal: this.#seal },
          reply,
        );
      }
      if (reply.reply === "alone") {
        throw new ClaimRefusedError("alone", "it has taken others along");
      }
      if (reply.reply === "needs") {
        throw new ClaimRefusedError("needs", `it needs ${reply.features.join(", ")}`);
      }
      if (reply.reply === "held") throw new ClaimRefusedError("held", "its worker lives");
      judged = {
        owner: reply.owner,
        fate: fateOf === undefined ? "died" : await fateOf(reply.owner),
      };
    }
  }

  /** Gives the session back as it was claimed, under the same generation (shutdown). Returns false when fenced. */
  async handOff(session: SessionKey, epoch: string): Promise<boolean> {
    return (
      (await runScript(this.#redis, handOff, this.#keys.session(session), {
        epoch,
        sid: session,
      })) === 1
    );
  }

  /**
   * Counts a run under `epoch` that its own code has ended, and gives the session back under the same generation.
   * `way` says how it has failed, without anything of the conversation. Returns false where the session was given back
   * before, or another worker has it.
   */
  async fail(session: SessionKey, epoch: string, way: string): Promise<boolean> {
    return (
      (await runScript(this.#redis, fail, this.#keys.session(session), {
        sid: session,
        epoch,
        way,
      })) === 1
    );
  }

  /**
   * Gives a session back whose run under `epoch` has ended because the store failed it, as while Redis takes no writes:
   * nothing is counted. The session continues under the same generation. `uncounted` is false, and nothing is done,
   * once a message has had {@link maxUncounted} such ends.
   */
  async releaseUncounted(session: SessionKey, epoch: string): Promise<UncountedRelease> {
    const reply = await runScript(this.#redis, releaseUncounted, this.#keys.session(session), {
      sid: session,
      epoch,
      maxUncounted,
    });
    return withWake(reply);
  }

  async save(request: SaveRequest): Promise<SaveResult> {
    const keys = this.#keys.session(request.session);
    const seal = this.#seal;
    if (request.approvals !== undefined) {
      await indexApprovals(
        { redis: this.#redis, keys: this.#keys, nowMs: this.#clock.now() },
        request.approvals,
      );
    }
    const reply = await runScript(this.#redis, save, keys, {
      ...saveValues(request, seal, this.#clock.now()),
      channel: keys.channel,
      maxKept: this.#maxApprovals,
      auditMax: this.#auditMax,
    });
    if (reply.reply === "running") {
      return { state: "running", control: reply.control.map(controlFrom) };
    }
    const { reply: state, ...rest } = reply;
    return { state, ...rest };
  }

  /** Ends the turn. Its questions that are still pending become `cancelled`. */
  async commit(request: CommitRequest): Promise<CommitResult> {
    const keys = this.#keys.session(request.session);
    const token = this.#random.uuid();
    const untilMs = this.#clock.monotonic() + this.#outboxLeaseMs;
    const reply = await runScript(this.#redis, commit, keys, {
      ...commitValues(request, this.#seal, this.#clock.now()),
      channel: keys.channel,
      token,
      leaseMs: this.#outboxLeaseMs,
      auditMax: this.#auditMax,
    });
    if (reply.reply === "fenced") return { state: "fenced" };
    const { deliver: record } = reply;
    const toSend =
      record === undefined ? {} : { deliver: { token, record: outboxFrom(record), untilMs } };
    if (reply.reply === "idle") {
      return {
        state: "idle",
        ...toSend,
        ...(reply.askerGen > 0 ? { askerGen: reply.askerGen } : {}),
      };
    }
    if (reply.reply === "next") {
      return {
        state: "next",
        head: queuedFrom(request.session, reply.head, this.#clock.now()),
        ...toSend,
      };
    }
    return { state: "requeue", wakeGen: reply.wakeGen, ...toSend };
  }

  /** The generation to wake a session for that waits for a worker; undefined where it does not. */
  async queuedGeneration(session: SessionKey): Promise<number | undefined> {
    const [state, gen] = await this.#redis.hmget(
      this.#keys.session(session).session,
      "state",
      "generation",
    );
    return state === "queued" ? Number(gen) : undefined;
  }

  /**
   * A helper is about to take this model step, the first is 1. Returns how many steps all helpers of the root's run take
   * with it; a step that is announced again counts once. Undefined when fenced.
   */
  async countStep({ session, ...values }: HelperStep): Promise<number | undefined> {
    const counted = Number(
      await runScript(this.#redis, countStep, this.#keys.session(session), values),
    );
    return counted < 0 ? undefined : counted;
  }

  /** The child sessions of a root, in no order: those that work, and those that have ended and are kept. */
  async children(root: SessionKey): Promise<ChildSession[]> {
    const reply = await runScript(this.#redis, readChildren, this.#keys.session(root), {
      sid: root,
    });
    const stored = reply as string[]; // shape fixed by the script
    return stored.flatMap((session, at) =>
      at % 2 === 0 ? childFrom(session, stored[at + 1] ?? "") : [],
    );
  }

  /** Those that work. */
  async childrenAtWork(root: SessionKey): Promise<ChildSession[]> {
    const stored = await this.#redis.hgetall(this.#keys.session(root).children);
    const known = Object.entries(stored).flatMap(([session, text]) => childFrom(session, text));
    return known.filter(({ endedAtMs }) => endedAtMs === undefined);
  }

  /** Publishes events between saves. Returns false when fenced. */
  async emit(
    write: Pick<FencedWrite, "session" | "epoch" | "events"> & { number?: number },
  ): Promise<boolean> {
    const keys = this.#keys.session(write.session);
    const { epoch, events, number = "" } = write;
    const values = {
      epoch,
      channel: keys.channel,
      batch: batchOf(events, this.#clock.now()),
      batchSize: events.length,
      number,
    };
    const reply = await runScript(this.#redis, emitEvents, keys, values);
    return reply === 1;
  }

  /** Publishes what happens to a call while it runs. Returns false when it is answered, not known or refused. */
  async report(
    session: SessionKey,
    callId: string,
    happened: { runId: string; event: EngineEvent },
    handed?: HandedIn,
  ): Promise<boolean> {
    const keys = this.#keys.session(session);
    const values = {
      callId,
      channel: keys.channel,
      batch: batchOf([happened], this.#clock.now()),
      ...handoffValues(handed),
    };
    const reply = await runScript(
      this.#redis,
      report,
      { ...keys, handoff: handoffOf(keys, handed) },
      values,
    );
    return reply === 1;
  }

  /**
   * Marks the start of a call in the effect ledger, and in the audit log when the answer is `run`, atomically.
   * With `ask` the runner that asked gets the answer, and the same one if it asks again; beside `run` the `identity`
   * of the call, sealed for that runner.
   */
  async begin(
    session: SessionKey,
    callId: string,
    effect: ToolEffect,
    by: {
      runner?: string;
      handed?: HandedIn;
      ask?: string;
      identity?: string;
      repeatMs?: number;
      looks?: boolean;
    } = {},
  ): Promise<BeginResult> {
    const { handed, runner = handed?.runner ?? "", ask = "", identity = "" } = by;
    const { repeatMs = 0, looks = false } = by;
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
        begun: this.#keys.answersTo(runner),
        answerMs: answerKeptMs,
        freshMs: questionFreshMs,
        auditMax: this.#auditMax,
        identity,
        repeatMs,
        looks: looks ? "1" : "",
      },
    );
    return reply as BeginResult; // the script answers nothing else
  }

  /** What the effect ledger has of an attempt, as workers have opened it; undefined where it is answered or not known. */
  async openCall(
    session: SessionKey,
    callId: string,
  ): Promise<{ isStarted: boolean; facts: CallFacts } | undefined> {
    const entry = (await this.#redis.hget(this.#keys.session(session).calls, callId)) ?? "";
    const [, state, facts] = /^(open|started) (\{.*)$/s.exec(entry) ?? [];
    if (facts === undefined) return undefined;
    return { isStarted: state === "started", facts: JSON.parse(facts) as CallFacts }; // as they were opened
  }

  /**
   * Opens a call again that was started by the answer to `ask` and that its runner has not run. False when it was
   * answered meanwhile, or opened again before.
   */
  async giveBack(
    session: SessionKey,
    callId: string,
    { handed, ask }: { handed: HandedIn; ask: string },
  ): Promise<boolean> {
    const keys = this.#keys.session(session);
    const reply = await runScript(
      this.#redis,
      giveBack,
      { ...keys, handoff: handoffOf(keys, handed), answer: keys.answerOf(handed.runner, ask) },
      { callId, ...handoffValues(handed), answerMs: answerKeptMs },
    );
    return reply === 1;
  }

  /** The whole conversation, compacted parts included, oldest first; unknown sessions are empty. */
  async history(session: SessionKey): Promise<Message[]> {
    const texts = await this.#redis.lrange(this.#keys.session(session).history, 0, -1);
    return texts.map(messageFrom);
  }

  /**
   * The answer to the message of that number: what the model said last before the next message. Undefined where it is not
   * kept, or the message was stored without a number.
   */
  async answerTo(session: SessionKey, seq: number): Promise<string | undefined> {
    const { history } = this.#keys.session(session);
    let answer: string | undefined;
    for (let end = -1; ; end -= messagesAtOnce) {
      const texts = await this.#redis.lrange(history, end - messagesAtOnce + 1, end);
      for (const message of texts.map(messageFrom).toReversed()) {
        if (message.role === "assistant") answer ??= textOf(message) || undefined;
        if (message.role !== "user" || message.seq === undefined) continue;
        if (message.seq <= seq) return message.seq === seq ? answer : undefined;
        answer = undefined;
      }
      if (texts.length < messagesAtOnce) return undefined;
    }
  }

  async summary(session: SessionKey): Promise<SessionSummary> {
    const reply = await runScript(this.#redis, summary, this.#keys.session(session));
    return summaryFrom(session, reply, this.#clock.now());
  }

  /** Calls past their deadline, and with an empty `callId` sessions that asked to be woken by now; oldest first. */
  async dueDeadlines(
    nowMs: number,
    limit: number,
  ): Promise<{ session: SessionKey; callId: string }[]> {
    const indexes = this.#keys.cells().map((cell) => cell.deadlines);
    const pairs = await duePairs(this.#redis, indexes, { untilMs: nowMs, limit });
    return pairs.map(([session, callId]) => ({ session, callId }));
  }

  /** Gives an open call another deadline. */
  async postpone(session: SessionKey, callId: string, deadlineMs: number): Promise<void> {
    await this.#redis.zadd(
      this.#keys.session(session).deadlines,
      "XX",
      deadlineMs,
      `${session}|${callId}`,
    );
  }

  /** Wakes a suspended session whose time has come, and forgets the time. */
  async wakeDue(session: SessionKey): Promise<DeliverResult> {
    return withWake(
      await runScript(this.#redis, wakeDue, this.#keys.session(session), { sid: session }),
    );
  }

  /** Sessions whose outbox should be tried now. */
  async dueOutboxes(nowMs: number, limit: number): Promise<SessionKey[]> {
    return await this.#due((cell) => cell.due, nowMs, limit);
  }

  /** Sessions queued or running that were last touched before `beforeMs`. */
  async stale(beforeMs: number, limit: number): Promise<StaleSession[]> {
    const sessions = await this.#due((cell) => cell.dirty, beforeMs, limit);
    return await Promise.all(
      sessions.map(async (session) => {
        const keys = this.#keys.session(session);
        const [[state, gen], [running, owner]] = await Promise.all([
          this.#redis.hmget(keys.session, "state", "generation"),
          this.#redis.hmget(keys.state, "runningGeneration", "owner"),
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

  /** Notes that the session's job is alive. */
  async touch(session: SessionKey): Promise<void> {
    await this.#redis.zadd(this.#keys.session(session).dirty, "XX", this.#clock.now(), session);
  }

  /**
   * Makes a wake-up for a session whose job `deadGen` is gone; where it runs, only if its worker is the one that has
   * `ended` ("": none has, absent: whichever it is). Undefined when it needs none.
   */
  async heal(session: SessionKey, deadGen: number, ended = "*"): Promise<number | undefined> {
    const values = { sid: session, deadGen, ended };
    const gen = Number(await runScript(this.#redis, heal, this.#keys.session(session), values));
    return gen > 0 ? gen : undefined;
  }

  /** People whose words a turn is about to store are found by exports and deletions from now on. May be repeated. */
  async noteAuthors(session: SessionKey, persons: readonly string[]): Promise<void> {
    const keys = this.#keys.session(session);
    await runScript(this.#redis, noteAuthors, keys, {
      sid: session,
      persons: JSON.stringify(persons),
    });
  }
}
