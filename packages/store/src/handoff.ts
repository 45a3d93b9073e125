import type { SessionKey } from "@larkline/protocol";
import { systemRandom, type Random } from "@larkline/protocol/clock";
import type { EngineEvent } from "@larkline/protocol/event";
import {
  handoffMac,
  openIdentity,
  sealIdentity,
  parseHandoffAnswer,
  type HandoffAnswer,
  type HandoffEntry,
  attemptIdOf,
  maxHandoffBytes,
  parseHandoffNotification,
  type HandoffNotification,
  readHandoff,
} from "@larkline/protocol/runner";
import { type ToolIdentity, type ToolOutcome, reportedOutcome } from "@larkline/protocol/tool";
import { type RedisConnection, subscriberOf, streamLengths } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { cellOf, createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import type { LookupCache } from "./platform.ts";
import type { SessionStore } from "./session-store.ts";
import type { CallFacts, DeliverResult, HandedIn } from "./session-types.ts";
import { nameResult } from "./stored-result.ts";

// Runners reach no key of a session. A runner adds signed entries to a stream of its own in the session's cell; a
// worker checks them and moves them into the session.

const handIn = script("hand-in");
const handInOutcome = script("hand-in-outcome");

/** Longer entries are not published with the notification, because other workers would receive them in vain. */
const maxPublishedBytes = 16_384;

export interface RunnerHandoffOptions {
  redis: RedisConnection;
  namespace?: string;
  runner: string;
  runnerKey: string;
}

/** The channels on which workers are notified of entries: one worker, or all. */
function notificationChannel(keys: Keyspace, worker?: string): string {
  return worker === undefined ? keys.handoffs : keys.handoffsTo(worker);
}

/** The runner's side of the hand-off. */
export class RunnerHandoff {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #runner: string;
  readonly #runnerKey: string;

  constructor({ redis, namespace = defaultNamespace, runner, runnerKey }: RunnerHandoffOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#runner = runner;
    this.#runnerKey = runnerKey;
  }

  /**
   * Hands an entry in, and notifies workers. Resolves with the entry's id once Redis has stored it. `isFirst`: nothing
   * was handed in about the call before, so that the entry may overtake others in the stream.
   */
  async add(entry: HandoffEntry, worker?: string, isFirst = false): Promise<string> {
    const text = JSON.stringify(entry);
    const notification = JSON.stringify({ runner: this.#runner, cell: cellOf(entry.session) });
    const isPublished =
      isFirst &&
      entry.kind === "outcome" &&
      worker !== undefined &&
      text.length <= maxPublishedBytes;
    const id = await runScript(
      this.#redis,
      isPublished ? handInOutcome : handIn,
      { handoff: this.#streamOf(entry.session) },
      {
        entry: text,
        mac: handoffMac(this.#runnerKey, text),
        ring: notification,
        workerChannel: worker === undefined ? "" : notificationChannel(this.#keys, worker),
        channel: notificationChannel(this.#keys),
      },
    );
    return String(id);
  }

  /** Notifies every worker once more, in case the first notification was lost. */
  async notify(session: SessionKey): Promise<void> {
    const notification = JSON.stringify({ runner: this.#runner, cell: cellOf(session) });
    await this.#redis.publish(notificationChannel(this.#keys), notification);
  }

  /** The answer to a question, once there is one; kept for ten minutes. */
  async answerTo(session: SessionKey, ask: string): Promise<HandoffAnswer | undefined> {
    const kept =
      (await this.#redis.get(this.#keys.session(session).answerOf(this.#runner, ask))) ?? "";
    const [word = "", identity] = kept.split(" ");
    const [answer, at] = word.split(":");
    const beganAtMs = at === undefined ? {} : { beganAtMs: Number(at) };
    const parsed = parseHandoffAnswer(JSON.stringify({ ask, answer, identity, ...beganAtMs }));
    return parsed.ok ? parsed.value : undefined;
  }

  /** As whom the call acts that an answer lets begin; undefined where it was sealed for another runner, call or question. */
  identityIn(
    { ask, identity = "" }: HandoffAnswer,
    { session, callId }: { session: SessionKey; callId: string },
  ): ToolIdentity | undefined {
    return openIdentity(this.#runnerKey, { session, callId, ask }, identity);
  }

  /** Calls `listener` with each answer to this runner, best effort, until `signal` aborts. */
  async followAnswers(
    listener: (answer: HandoffAnswer) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const subscriber = subscriberOf(this.#redis);
    subscriber.on("error", () => undefined); // reconnects and subscribes again by itself
    subscriber.on("message", (_channel: string, text: string) => {
      const parsed = parseHandoffAnswer(text);
      if (parsed.ok && !signal.aborted) listener(parsed.value);
    });
    signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
    await subscriber.subscribe(this.#keys.answersTo(this.#runner));
    if (signal.aborted) subscriber.disconnect();
  }

  #streamOf(session: SessionKey): string {
    return this.#keys.session(session).handoffOf(this.#runner);
  }
}

const readHandoffs = script("read-handoff");

/** Entries read at once. */
const batch = 20;

/** What is left of an outcome that no worker can read. */
const unreadableOutcome = {
  ok: false,
  error: "internal_error: the runner's answer is not readable. The call may have taken effect.",
  unknown: true,
} as const;

/** An entry that is dropped, and why. Holds no secret and nothing of the entry's content. */
export interface RefusedHandoff {
  runner: string;
  reason: string;
  session?: SessionKey;
  callId?: string;
}

export interface HandoffImportOptions {
  redis: RedisConnection;
  namespace?: string;
  /** Name of this worker in its jobs: it is notified first about calls that it has handed out. */
  worker: string;
  /** The key that a runner's entries are signed with. */
  runnerKeys: { of(runner: string): string };
  store: Pick<SessionStore, "begin" | "deliver" | "giveBack" | "openCall" | "report">;
  /** As whom calls act. */
  identities: CallIdentities;
  /** Seals what goes to runners. */
  random?: Random;
  lookups: Pick<LookupCache, "get" | "set">;
  /** Called when an outcome is in its session: adds the wake-up job. */
  delivered(session: SessionKey, delivered: DeliverResult): Promise<void>;
  /** Called with the progress of a call, on the worker that has handed the call out. */
  onProgress?(progress: HandoffProgress): void;
  onRefused(refused: RefusedHandoff): void;
  onError(error: unknown): void;
}

/**
 * As whom a call acts, by what the ledger says of it. `refused`: it may not begin, and this is its outcome;
 * `unavailable`: it cannot be known now, and its runner asks again.
 */
export type IdentityOfCall =
  | { state: "identity"; identity: ToolIdentity }
  | { state: "refused"; outcome: ToolOutcome }
  | { state: "unavailable" };

/** Gives calls the tokens with which they act. */
export interface CallIdentities {
  of(facts: CallFacts): Promise<IdentityOfCall>;
  /** The platform has refused the token that has this digest: the next call gets another one. */
  tokenRefused(facts: CallFacts, digest: string): Promise<void>;
  /** The platform has refused the call because the app itself lacks these permissions. */
  appLacks(facts: CallFacts, scopes: readonly string[]): Promise<void>;
}

/** Progress of a call, as its runner has reported it. */
export interface HandoffProgress {
  turnId: string;
  callId: string;
  fraction: number;
  detail: string;
}

interface StoredEntry {
  id: string;
  /** Absent when it is too long. */
  text?: { entry: string; mac: string };
}

/**
 * A worker's side of the hand-off: moves the entries of runners into sessions. Any number of workers may do it at once,
 * in the order of each stream: an entry leaves the stream in the step that writes what it says, so the second one
 * changes nothing, and a worker that dies leaves the entry to the next one.
 */
export class HandoffImport {
  readonly #options: HandoffImportOptions;
  readonly #keys: Keyspace;
  /** Streams that are being read; `again`: another notification has arrived. */
  readonly #reading = new Map<string, { again: boolean; done: Promise<void> }>();
  /** Entries that came with their notification. */
  readonly #carrying = new Set<Promise<void>>();
  readonly #expected = new Set<string>();
  /** Entries that wait for a token: a refresh may take long, and holds nothing else up. */
  readonly #waiting = new Map<string, Promise<void>>();
  #stopping: AbortSignal | undefined;

  constructor(options: HandoffImportOptions) {
    this.#options = options;
    this.#keys = createKeyspace(options.namespace);
  }

  /** Follows notifications until `signal` aborts. */
  async listen(signal: AbortSignal): Promise<void> {
    const { redis, worker, onError } = this.#options;
    this.#stopping = signal;
    const subscriber = subscriberOf(redis);
    subscriber.on("error", () => undefined); // reconnects and subscribes again by itself
    subscriber.on("message", (_channel: string, text: string) => {
      const notification = parseHandoffNotification(text);
      if (notification.ok && !signal.aborted) {
        void this.#onNotification(notification.value).catch(onError);
      }
    });
    signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
    await subscriber.subscribe(
      notificationChannel(this.#keys),
      notificationChannel(this.#keys, worker),
    );
    if (signal.aborted) subscriber.disconnect();
  }

  /** Notes for all workers that this runner gets calls, so that they find its entries without a notification. */
  async expect(runner: string): Promise<void> {
    if (this.#expected.has(runner)) return;
    await this.#options.redis.sadd(this.#keys.handoffRunners, runner);
    this.#expected.add(runner);
  }

  /**
   * Moves all waiting entries, because notifications get lost and workers die. `announced`: runners whose streams are
   * read as well.
   */
  async sweep(announced: readonly string[] = []): Promise<void> {
    const expected = await this.#options.redis.smembers(this.#keys.handoffRunners);
    await Promise.all(
      [...new Set([...expected, ...announced])].map(async (runner) => await this.#sweepOf(runner)),
    );
  }

  /** Most streams are empty; a cheap question finds that out. */
  async #sweepOf(runner: string): Promise<void> {
    const { redis, onError } = this.#options;
    try {
      const streams = this.#keys.cells().map(({ handoffOf }) => handoffOf(runner));
      const lengths = await streamLengths(redis, streams);
      const drains = lengths.map(async (length, cell) => {
        if (length > 0) await this.#drain(runner, cell).catch(onError);
      });
      await Promise.all(drains);
    } catch (error) {
      onError(error);
    }
  }

  /** Waits for what is on its way. */
  async settled(): Promise<void> {
    await Promise.allSettled([
      ...this.#waiting.values(),
      ...this.#carrying,
      ...[...this.#reading.values()].map(async ({ done }) => await done),
    ]);
  }

  async #onNotification({ runner, cell, id, entry, mac }: HandoffNotification): Promise<void> {
    if (id === undefined || entry === undefined || mac === undefined) {
      return await this.#drain(runner, cell);
    }
    const carried = this.#carry(runner, cell, { id, text: { entry, mac } });
    this.#carrying.add(carried);
    try {
      await carried;
    } finally {
      this.#carrying.delete(carried);
    }
  }

  async #drain(runner: string, cell: number): Promise<void> {
    const stream = this.#keys.cells()[cell]?.handoffOf(runner);
    if (stream === undefined) return;
    const reading = this.#reading.get(stream);
    if (reading !== undefined) {
      reading.again = true;
      return await reading.done;
    }
    const mine = { again: false, done: Promise.resolve() };
    this.#reading.set(stream, mine);
    mine.done = (async () => {
      try {
        do {
          mine.again = false;
          await this.#carryAll(runner, cell, stream);
        } while (mine.again);
      } finally {
        this.#reading.delete(stream);
      }
    })();
    await mine.done;
  }

  /** From the first entry to the last; one that cannot be carried over now is left for later. */
  async #carryAll(runner: string, cell: number, stream: string): Promise<void> {
    let from = "-";
    for (;;) {
      const stored = await this.#entriesOf(stream, from);
      const last = stored.at(-1);
      if (last === undefined) return;
      // The scripts go out in this order, and Redis runs them in it.
      const work = stored.map(async (each) => await this.#carry(runner, cell, each));
      for (const end of await Promise.allSettled(work)) {
        if (end.status === "rejected") this.#options.onError(end.reason);
      }
      if (stored.length < batch) return;
      from = `(${last.id}`;
    }
  }

  async #entriesOf(stream: string, from: string): Promise<StoredEntry[]> {
    const found = await runScript(
      this.#options.redis,
      readHandoffs,
      { handoff: stream },
      {
        from,
        count: batch,
        maxBytes: maxHandoffBytes,
      },
    );
    return (found as [string, string?, string?][]) // shape fixed by the script
      .map(([id, entry, mac]) =>
        entry === undefined ? { id } : { id, text: { entry, mac: mac ?? "" } },
      );
  }

  async #carry(runner: string, cell: number, { id, text }: StoredEntry): Promise<void> {
    const { runnerKeys, store } = this.#options;
    const refuse = async (
      reason: string,
      about: { session?: SessionKey; callId?: string } = {},
    ): Promise<void> => {
      this.#options.onRefused({ runner, reason, ...about });
      await this.#options.redis.xdel(this.#keys.cells()[cell]?.handoffOf(runner) ?? "", id);
    };
    if (text === undefined) return await refuse("it is too long");
    const read = readHandoff({ runner, runnerKey: runnerKeys.of(runner) }, text);
    const about = read.ok ? read.value : "about" in read ? read.about : undefined;
    if (about === undefined) return await refuse(read.ok ? "" : read.error);
    const { session, turnId, tool, argumentsHash } = about;
    const callId = attemptIdOf(about);
    if (cellOf(session) !== cell) {
      return await refuse("its session belongs to another cell", { session, callId });
    }
    const handed: HandedIn = { entry: id, runner, turnId, tool, argumentsHash };
    if (read.ok) return await this.#apply(read.value, handed);
    if (about.kind !== "outcome") return await refuse(read.error, { session, callId });
    // The entry cannot be read, although the runner has answered: end the call now, not at its deadline.
    this.#options.onRefused({ runner, reason: read.error, session, callId });
    await this.#delivered(
      { runner, session, callId },
      await store.deliver(session, callId, unreadableOutcome, { handed }),
    );
  }

  async #apply(entry: HandoffEntry, handed: HandedIn): Promise<void> {
    const { store } = this.#options;
    const { session, runner } = entry;
    const callId = attemptIdOf(entry);
    if (entry.kind === "begun") {
      const { ask, identity = false } = entry;
      if (identity && ask !== undefined) {
        this.#inBackground(entry, handed, async () => await this.#beginAs(entry, handed, ask));
      } else {
        await this.#begin(entry, handed);
      }
    } else if (entry.kind === "returned") {
      await store.giveBack(session, callId, { handed, ask: entry.ask });
    } else if (entry.kind === "outcome") {
      const deliver = async (): Promise<void> =>
        await this.#delivered({ runner, session, callId }, await this.#deliver(entry, handed));
      if (entry.refusedToken === undefined) await deliver();
      else this.#inBackground(entry, handed, deliver);
    } else {
      const known = await store.report(
        session,
        callId,
        { runId: entry.turnId, event: eventOf(entry) },
        handed,
      );
      if (!known || entry.kind !== "progress") return;
      const { turnId, fraction, detail } = entry;
      this.#options.onProgress?.({ turnId, callId: entry.callId, fraction, detail });
    }
  }

  async #begin(
    { session, runner, effect, ask, repeatMs, looks, ...names }: HandoffEntry & { kind: "begun" },
    handed: HandedIn,
    identity?: string,
  ): Promise<void> {
    const callId = attemptIdOf(names);
    const by = {
      handed,
      ...(ask === undefined ? {} : { ask }),
      ...(repeatMs === undefined ? {} : { repeatMs }),
      ...(looks === undefined ? {} : { looks }),
      ...(identity === undefined ? {} : { identity }),
    };
    const begun = await this.#options.store.begin(session, callId, effect, by);
    if (begun === "foreign") this.#refusedAsForeign({ runner, session, callId });
  }

  /** Nothing waits for it. Where it fails or the process ends, the entry stays where the next one finds it. */
  #inBackground(
    { runner, session }: HandoffEntry,
    { entry }: HandedIn,
    work: () => Promise<void>,
  ): void {
    const place = `${runner} ${cellOf(session)} ${entry}`;
    if (this.#waiting.has(place) || this.#waiting.size >= mostWaiting) return;
    const working = work()
      .catch(this.#options.onError)
      .finally(() => this.#waiting.delete(place));
    this.#waiting.set(place, working);
  }

  /** The person is the one of whom the ledger says it; what the runner says chooses the call, and only one of its own. */
  async #beginAs(
    entry: HandoffEntry & { kind: "begun" },
    handed: HandedIn,
    ask: string,
  ): Promise<void> {
    const { store, redis, runnerKeys, random = systemRandom } = this.#options;
    const { session, runner, effect, repeatMs, looks, ...rest } = entry;
    const callId = attemptIdOf(entry);
    const call = await store.openCall(session, callId);
    const hasBegun = call?.isStarted === true && effect === "once";
    const isOver = hasBegun && repeatMs === undefined && looks !== true;
    const mayBegin = call !== undefined && isAbout(call.facts, handed) && !isOver;
    if (!mayBegin || call.facts.as === undefined) return await this.#begin(entry, handed);
    const found = await this.#identityOf(call.facts);
    if (found === undefined) return;
    if (found.state === "identity") {
      const sealed = sealIdentity(
        runnerKeys.of(runner),
        { session, callId, ask },
        found.identity,
        random,
      );
      return await this.#begin(entry, handed, sealed);
    }
    if (found.state === "unavailable") {
      await redis.xdel(this.#keys.session(session).handoffOf(runner), handed.entry);
      return;
    }
    // A call that asks for a grant runs anew when it has one, which one that has begun must not.
    if (hasBegun) return await this.#begin({ ...rest, session, runner, effect }, handed);
    await this.#delivered(
      { runner, session, callId },
      await store.deliver(session, callId, found.outcome, { handed }),
    );
    await store.begin(session, callId, effect, { runner, ask }); // its call is closed by now, which is the answer
  }

  /** Undefined when this process stops before it is known. */
  async #identityOf(facts: CallFacts): Promise<IdentityOfCall | undefined> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const stop = (): void => resolve(undefined);
    this.#stopping?.addEventListener("abort", stop, { once: true });
    if (this.#stopping?.aborted === true) stop();
    try {
      return await Promise.race([this.#options.identities.of(facts), promise]);
    } finally {
      this.#stopping?.removeEventListener("abort", stop);
    }
  }

  async #deliver(
    entry: HandoffEntry & { kind: "outcome" },
    handed: HandedIn,
  ): Promise<DeliverResult> {
    const { store, lookups, identities } = this.#options;
    const { session, timing, notRun = false, blobId, refusedToken } = entry;
    const outcome = reportedOutcome(entry.outcome);
    const refusal = outcome.ok ? undefined : outcome.grant;
    if (refusal?.kind === "token" || refusal?.kind === "app-scopes") {
      const call = await store.openCall(session, attemptIdOf(entry));
      const facts = call !== undefined && isAbout(call.facts, handed) ? call.facts : undefined;
      if (facts !== undefined && refusal.kind === "app-scopes") {
        await identities.appLacks(facts, refusal.scopes);
      } else if (facts !== undefined && refusedToken !== undefined) {
        await identities.tokenRefused(facts, refusedToken);
      }
    }
    if (outcome.ok && outcome.stored !== undefined && blobId !== undefined) {
      await nameResult(lookups, session, { handle: outcome.stored.handle, blobId });
    }
    const untouched = { unlessStarted: notRun, unstarted: notRun };
    const details = { handed, ...untouched, ...(timing === undefined ? {} : { timing }) };
    return await store.deliver(
      session,
      attemptIdOf(entry),
      canBeWritten(outcome) ? outcome : unreadableOutcome,
      details,
    );
  }

  async #delivered(
    about: { runner: string; session: SessionKey; callId: string },
    delivered: DeliverResult,
  ): Promise<void> {
    if (delivered.refusal === "foreign") this.#refusedAsForeign(about);
    await this.#options.delivered(about.session, delivered);
  }

  #refusedAsForeign({
    runner,
    session,
    callId,
  }: {
    runner: string;
    session: SessionKey;
    callId: string;
  }): void {
    this.#options.onRefused({
      runner,
      reason: "it is not about a call of this runner",
      session,
      callId,
    });
  }
}

/** Entries of one process that wait at once; further ones stay in their streams. */
const mostWaiting = 1_000;

/** Whether the ledger has that very call for that very runner. */
function isAbout(facts: CallFacts, { runner, turnId, tool, argumentsHash }: HandedIn): boolean {
  return (
    facts.runner === runner &&
    facts.turnId === turnId &&
    facts.tool === tool &&
    facts.argumentsHash === argumentsHash
  );
}

/** Values that are nested too deeply can be read and not be written again. */
function canBeWritten(value: unknown): boolean {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}

/** What followers of the session see: made here, so that a runner can say nothing else. */
function eventOf(entry: HandoffEntry & { kind: "progress" | "log" }): EngineEvent {
  const { tool: toolName, callId: id } = entry;
  return entry.kind === "progress"
    ? { type: "tool_progress", id, toolName, progress: entry.fraction, detail: entry.detail }
    : {
        type: "inbox_message",
        messageType: "log",
        toolUseId: id,
        data: entry.text.toWellFormed(),
        meta: JSON.stringify({ toolName }),
      };
}
