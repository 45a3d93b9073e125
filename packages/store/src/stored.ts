import { createHmac, timingSafeEqual, hash } from "node:crypto";
import {
  ControlEntry,
  InboundMessage,
  jsonParserOf,
  parserOf,
  ReplyTarget,
  type ParseResult,
  type QueuedMessage,
  type SessionKey,
  turnIdOf,
} from "@larkline/protocol";
import { Approval, PermissionRule, type ApprovalDecision } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import { newEngineError, EngineError } from "@larkline/protocol/error";
import type { NewEvent, EngineEvent } from "@larkline/protocol/event";
import { checkpointForm, TurnState } from "@larkline/protocol/turn";
import {
  SessionTotals,
  type AppendResult,
  type ApprovalCard,
  type ApprovalStatus,
  type CardReply,
  type AskerAnswer,
  type OpenCall,
  type OutboxRecord,
  type SessionSettings,
  type CommitRequest,
  type FencedWrite,
  type SaveRequest,
  type SessionSummary,
  type StoredTurn,
  type Claim,
} from "./session-types.ts";
import type { ScriptReplies } from "./script-replies.ts";
import { approvalFactsOf, auditResultOf } from "./audit-log.ts";

// How sessions are stored: reading what scripts answer, a whole claim among it, and writing what they take. Content that
// workers believe is sealed; unreadable parts are reported as damaged, and the session survives.

const parseControl = jsonParserOf(ControlEntry);
const parseTurn = jsonParserOf(TurnState);
const parseTotals = jsonParserOf(SessionTotals);
const parseInbound = jsonParserOf(InboundMessage);
const parseApproval = jsonParserOf(Approval);
const parseRule = jsonParserOf(PermissionRule);

function required<T>(what: string, result: ParseResult<T>): T {
  if (result.ok) return result.value;
  throw newEngineError("internal_error", `stored ${what} is not readable: ${result.error}`, {
    suggestion: "Was it written by a newer version? Upgrade this process.",
  });
}

/** The attempt that an entry answers, if it names one. */
function answeredIn(text: string): string | undefined {
  try {
    const { type, callId } = JSON.parse(text) as Partial<Record<string, unknown>>; // null is caught below
    return type === "outcome" && typeof callId === "string" ? callId : undefined;
  } catch {
    return undefined;
  }
}

/** Shorter texts cannot hold values that are nested too deeply to be written again. */
const maxSafeCharacters = 10_000;

function canBeWritten(entry: ControlEntry, text: string): boolean {
  try {
    return text.length <= maxSafeCharacters || JSON.stringify(entry) !== "";
  } catch {
    return false; // it is recursive
  }
}

/**
 * An outcome comes from runners of any make. An unusable one is an error of its call:
 * the session must not wait for it without end.
 */
export function controlFrom(text: string): ControlEntry {
  const parsed = parseControl(text);
  if (parsed.ok && canBeWritten(parsed.value, text)) return parsed.value;
  const callId = answeredIn(text);
  if (callId === undefined) return required("control entry", parsed);
  const error =
    "internal_error: the runner's answer is not readable. The call may have taken effect.";
  return { type: "outcome", callId, outcome: { ok: false, error, unknown: true } };
}

/** The text of a message or entry, with `needs` where scripts look for it. */
export function needsFirst<T extends { needs?: string[] }>(given: T): string {
  if (given.needs === undefined) return JSON.stringify(given);
  const { needs, ...rest } = given;
  return JSON.stringify({ needs, ...rest });
}

/** Compiles the schemas of what every turn reads, before one has to wait for it. */
export function compileTurnSchemas(): void {
  for (const parse of [parseTurn, parseInbound, parseControl, parseTotals]) parse("null");
}

/** Refuses a checkpoint of another form by its number: none of its fields is believed. */
function turnFrom(text: string): TurnState {
  const parsed = parseTurn(text);
  const form = parsed.ok ? checkpointForm : formIn(text);
  if (form === undefined || form === checkpointForm) return required("turn", parsed);
  const writer = form < checkpointForm ? "an earlier" : "a later";
  throw newEngineError(
    "internal_error",
    `stored turn is not readable: ${writer} version has written it in form ${form}, and this version reads form ${checkpointForm}`,
    { suggestion: "Let the version that has written it finish its turns, or ask again." },
  );
}

/** The number of the form of a checkpoint that was not parsed; undefined where it has none. */
function formIn(text: string): number | undefined {
  try {
    const { v } = JSON.parse(text) as Partial<Record<string, unknown>>; // null is caught below
    return typeof v === "number" ? v : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads a `seq:message` entry of an inbox of `session`. One that cannot be read still has its place in it, and
 * its sender is to learn that it is lost.
 */
export function queuedFrom(session: SessionKey, entry: string, nowMs: number): QueuedMessage {
  const colon = entry.indexOf(":");
  const seq = Number(entry.slice(0, colon));
  const text = entry.slice(colon + 1);
  const parsed = parseInbound(text);
  if (parsed.ok) return { seq, message: parsed.value };
  return { seq, message: remainsOf({ session, seq, nowMs }, text), unreadable: true };
}

const parseReply = parserOf(ReplyTarget);

/** A message that cannot be read, as far as it is known where its answer goes and whose it is. */
function remainsOf(
  { session, seq, nowMs }: { session: SessionKey; seq: number; nowMs: number },
  text: string,
): InboundMessage {
  const found = fieldsOf(text);
  const reply = parseReply(found["reply"]);
  const target = reply.ok ? reply.value : ({ channel: "none" } as const);
  const id =
    typeof found["id"] === "string" && found["id"] !== ""
      ? found["id"].slice(0, 200)
      : `unreadable-${seq}`;
  return {
    v: 1,
    session,
    id,
    app: target.channel === "feishu" ? target.app : (session.split(".", 1)[0] ?? ""),
    sender: { id: "unknown" },
    chatType: "p2p",
    parts: [{ type: "text", text: "[a message that cannot be read]" }],
    createdAtMs: nowMs,
    reply: target,
  };
}

function fieldsOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

export function inboundFrom(text: string): InboundMessage {
  return required("message", parseInbound(text));
}

/** Reads the settings of a session; empty text stands for none. */
function settingsFrom(text: string): SessionSettings {
  return text === "" ? {} : (JSON.parse(text) as SessionSettings); // written by commit from the same type
}

/** Reads what the scripts answer that append. */
export function appendResultFrom(
  session: SessionKey,
  { wakeGen, head = "", ...reply }: ScriptReplies["append"],
  nowMs: number,
): AppendResult {
  return {
    ...reply,
    ...(head === "" ? {} : { head: queuedFrom(session, head, nowMs) }),
    ...(wakeGen > 0 ? { wakeGen } : {}),
  };
}

/** History is written by the session's owner only and can be long: read without a schema check. */
export function messageFrom(text: string): Message {
  return JSON.parse(text) as Message; // written by save and commit from the same type
}

export function outboxFrom(text: string): OutboxRecord {
  return JSON.parse(text) as OutboxRecord; // written by commit, push and retry from the same type
}

export function cardsFrom(text: string): CardReply {
  return JSON.parse(text) as CardReply; // written by the card ledger from the same type
}

export function batchOf(events: readonly NewEvent[], atMs: number): string {
  if (events.length === 0) return "";
  return JSON.stringify(
    events.map((event) => (event.atMs === undefined ? { atMs, ...event } : event)),
  );
}

/** An approval as its hashes have it. */
interface StoredStatus {
  /** JSON. */
  approval: string;
  state: string;
  /** JSON objects joined by commas. */
  decisions: string;
  /** Absent while it is pending. */
  settledAtMs?: number;
}

export function approvalStatusFrom({
  approval,
  state,
  decisions,
  settledAtMs,
}: StoredStatus): ApprovalStatus {
  return {
    approval: required("approval", parseApproval(approval)),
    state: state as ApprovalStatus["state"], // written by the scripts only
    decisions: JSON.parse(`[${decisions}]`) as ApprovalDecision[], // written by decide from the same type
    ...(settledAtMs === undefined ? {} : { settledAtMs }),
  };
}

export function approvalCardsFrom(text = ""): ApprovalCard[] {
  return text === "" ? [] : (JSON.parse(text) as ApprovalCard[]); // written by saveCards from the same type
}

export function ruleFrom(text: string): PermissionRule {
  return required("permission rule", parseRule(text));
}

/** For whom an approval was asked. */
export function approvalRequester(text: string): string {
  return required("approval", parseApproval(text)).requester.id;
}

type Values = Record<string, string | number | string[]>;

/** How long the id of a message is remembered when nothing else is configured: platforms redeliver for hours. */
export const defaultDedupTtlMs = 86_400_000;

/** How many approvals of one session are kept when nothing else is configured. */
export const defaultMaxApprovals = 200;

/** What a write says about the context, as the scripts take it. */
function contextValues({ context, session, epoch }: FencedWrite, seal: StateSeal): Values {
  if (context === undefined) return { keep: "", summary: "" };
  const { keep, summary } = context;
  const sealed = summary && seal.seal("summary", session, { epoch, text: JSON.stringify(summary) });
  return { keep: String(keep), summary: sealed ?? "" };
}

/** One approval, as the scripts that create it take it. */
export function newApproval(approval: Approval): object {
  const { id, kind, turnId, callId, createdAtMs, expiresAtMs, deciders, argumentsHash, target } =
    approval;
  const asked = { id, kind, turnId, callId, createdAtMs, expiresAtMs };
  return {
    ...asked,
    approval: JSON.stringify(approval),
    need: deciders.count,
    hash: JSON.stringify(argumentsHash),
    hasCards: target.channel === "none" ? "0" : "1",
    /** How long the card of the reply may take to show it before it gets a card of its own. */
    cardsInMs: approval.inReply === true ? 10_000 : 0,
    facts: JSON.stringify(approvalFactsOf(approval)),
  };
}

/** A list as the scripts take it that is mostly empty. */
function listed(items: readonly unknown[]): string {
  return items.length === 0 ? "" : JSON.stringify(items);
}

/** What the script `save` takes beside its keys. */
export function saveValues(request: SaveRequest, seal: StateSeal, nowMs: number): Values {
  const {
    session,
    epoch,
    mode,
    open,
    events,
    turn,
    needs = [],
    approvals = [],
    absorbed = [],
  } = request;
  return {
    epoch,
    sid: session,
    turn: seal.seal("turn", session, { epoch, text: JSON.stringify(turn) }),
    consumed: request.consumed,
    mode,
    wakeAtMs: (mode === "suspend" ? request.wakeAtMs : undefined) ?? "",
    batch: batchOf(events, nowMs),
    batchSize: events.length,
    ...contextValues(request, seal),
    needs: listed([...new Set([...(turn.needs ?? []), ...needs])]),
    waits: request.waits ?? "",
    opened: listed(
      open.map(({ callId, deadlineMs, facts, child }) => ({
        callId,
        deadlineMs,
        facts: JSON.stringify(facts),
        ...(child === undefined ? {} : { child: newChild(child) }),
      })),
    ),
    newApprovals: listed(approvals.map(newApproval)),
    asker: request.asker === undefined ? "" : wordValue(request.asker),
    absorbed: listed(absorbed),
    messages: request.history.map((message) => JSON.stringify(message)),
  };
}

/** A child session as the script takes it. */
function newChild({ message, facts }: NonNullable<OpenCall["child"]>): object {
  const { session: sid, sender, chatType } = message;
  return {
    sid,
    message: needsFirst(message),
    facts: JSON.stringify(facts),
    person: sender.id,
    chatType,
  };
}

/** The end of a child session as the script takes it. */
export function askerValue({
  session: sid,
  turnId,
  callId,
  outcome,
  used,
  facts,
}: AskerAnswer): string {
  const entry: ControlEntry = { needs: ["helpers"], type: "outcome", callId, outcome, used };
  const result = auditResultOf(outcome);
  return JSON.stringify({
    sid,
    turnId,
    callId,
    entry: JSON.stringify(entry),
    result,
    facts: JSON.stringify(facts),
  });
}

/** What an asker gets before that end, as the script takes it. */
function wordValue({
  session: sid,
  turnId,
  callId,
  wait,
}: NonNullable<SaveRequest["asker"]>): string {
  const entry: ControlEntry = {
    needs: ["helper-waits"],
    type: "helper_waits",
    callId,
    ...(wait && { wait }),
  };
  return JSON.stringify({ sid, turnId, callId, entry: JSON.stringify(entry) });
}

/** What the script `commit` takes beside its keys. */
export function commitValues(request: CommitRequest, seal: StateSeal, nowMs: number): Values {
  const { session, epoch, outbox, settings, events, needs = [] } = request;
  return {
    epoch,
    sid: session,
    seq: request.seq,
    more: request.more ? 1 : 0,
    batch: batchOf(events, nowMs),
    batchSize: events.length,
    reply: outbox === undefined ? "" : JSON.stringify(outbox),
    ...contextValues(request, seal),
    settings:
      settings === undefined
        ? ""
        : seal.seal("settings", session, { epoch, text: JSON.stringify(settings) }),
    totals: request.totals === undefined ? "" : JSON.stringify(request.totals),
    needs: listed(needs),
    asker: request.asker === undefined ? "" : askerValue(request.asker),
    helpers: request.helpers === true ? 1 : 0,
    messages: request.history.map((message) => JSON.stringify(message)),
  };
}

/** What of a session's state is content that a worker believes: the checkpoint, the summary, the settings. */
type Sealed = "turn" | "summary" | "settings";

const format = "1";

/** `1.<epoch of the writer>.<HMAC-SHA-256, base64url>.<text>` */
const sealedText = /^1\.(\d+)\.([A-Za-z0-9_-]{43})\.(.*)$/s;

function damagedState(what: Sealed, session: SessionKey, problem: string): Error {
  return newEngineError("internal_error", `stored ${what} of ${session} is damaged: ${problem}`, {
    suggestion:
      "Do all workers have the same CALL_SIGNING_KEY? If so, something else has written to Redis: see docs/trust.md.",
  });
}

/** The text of a sealed value, unchecked: for processes that only show it. */
export function unsealed(stored: string): string {
  return sealedText.exec(stored)?.[3] ?? stored;
}

/**
 * Seals what workers store of a session, with a key that only workers have: a value that another process has
 * written, or that belongs to another session, is never run. The epoch of the writer is sealed, too: a value
 * from the future of the claim that reads it is none of this Redis.
 */
export class StateSeal {
  readonly #key: string;

  /** `key`: see `stateKeyOf`. */
  constructor(key: string) {
    this.#key = key;
  }

  seal(
    what: Sealed,
    session: SessionKey,
    { epoch, text }: { epoch: string; text: string },
  ): string {
    return `${format}.${epoch}.${this.#mac(what, session, { epoch, text }).toString("base64url")}.${text}`;
  }

  /** The sealed text; throws where it is not what a worker has sealed before `epoch`. */
  open(
    what: Sealed,
    session: SessionKey,
    { epoch, stored }: { epoch: string; stored: string },
  ): string {
    const [, writer = "", mac = "", text = ""] = sealedText.exec(stored) ?? [];
    if (writer === "") throw damagedState(what, session, "it is not sealed");
    const given = Buffer.from(mac, "base64url");
    const expected = this.#mac(what, session, { epoch: writer, text });
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
      throw damagedState(what, session, "its seal is wrong");
    }
    if (BigInt(writer) > BigInt(epoch)) throw damagedState(what, session, "it is of a later epoch");
    return text;
  }

  #mac(
    what: Sealed,
    session: SessionKey,
    { epoch, text }: { epoch: string; text: string },
  ): Buffer {
    return createHmac("sha256", this.#key)
      .update(JSON.stringify([what, session, epoch]))
      .update(text)
      .digest();
  }
}

/** The only event of a run that was cancelled before it began. */
export const cancelledRun: EngineEvent = {
  type: "done",
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCacheReadTokens: 0,
  totalCacheCreationTokens: 0,
  totalCostUsd: 0,
  turnCount: 0,
  reason: "cancelled",
  final: "",
};

/** Reads what the script `summary` answers. For those who look: a seal is not checked, and what is damaged is said to be so. */
export function summaryFrom(
  session: SessionKey,
  { waiting, head, turn, settings, totals, setAside, ...reply }: ScriptReplies["summary"],
  nowMs: number,
): SessionSummary {
  return {
    ...reply,
    waiting: waiting + setAside.length,
    ...(head === "" ? {} : { head: queuedFrom(session, head, nowMs) }),
    ...checkpointShown(turn),
    setAside: setAside.map(({ entry = "", turn: saved }) => ({
      head: queuedFrom(session, entry, nowMs),
      ...checkpointShown(saved),
    })),
    ...settingsShown(settings),
    ...totalsShown(totals),
  };
}

/** Empty and unreadable texts count as none. */
function totalsShown(text = ""): Pick<SessionSummary, "totals"> {
  const parsed = parseTotals(text);
  return parsed.ok ? { totals: parsed.value } : {};
}

function checkpointShown(turn = ""): StoredTurn {
  try {
    return turn === "" ? {} : { turn: turnFrom(unsealed(turn)) };
  } catch (error) {
    return { damaged: `${reasonOf(error)} (${Buffer.byteLength(turn)} bytes)` };
  }
}

/** Why stored state cannot be read, without a word of it: errors of JSON.parse repeat what they could not read. */
function reasonOf(error: unknown): string {
  return error instanceof EngineError ? error.message : "it is no JSON";
}

function settingsShown(settings = ""): Pick<SessionSummary, "settings" | "damagedSettings"> {
  try {
    return { settings: settingsFrom(unsealed(settings)) };
  } catch {
    return {
      settings: {},
      damagedSettings: `they are no JSON (${Buffer.byteLength(settings)} bytes)`,
    };
  }
}

type ClaimedReply = Extract<ScriptReplies["claim"], { reply: "claimed" }>;

interface ClaimedWith {
  session: SessionKey;
  gen: number;
  nowMs: number;
  /** What was known of the history before the claim. */
  known: KnownHistory;
  cache: HistoryCache;
  seal: StateSeal;
}

type Unreadable = NonNullable<Claim["unreadable"]>[number];

/** What a conversation can continue without: each is read, or named with the reason why it cannot be. */
function replaceableParts(
  { session, seal }: Pick<ClaimedWith, "session" | "seal">,
  { epoch, summary, settings }: Pick<ClaimedReply, "epoch" | "summary" | "settings">,
): {
  compacted: string | undefined;
  chosen: SessionSettings | undefined;
  unreadable: Unreadable[];
} {
  const unreadable: Unreadable[] = [];
  const readOf = <T>(
    what: Unreadable["what"],
    stored = "",
    read: (text: string) => T,
  ): T | undefined => {
    try {
      return stored === "" ? undefined : read(seal.open(what, session, { epoch, stored }));
    } catch (error) {
      unreadable.push({ what, bytes: Buffer.byteLength(stored), reason: reasonOf(error) });
      return undefined;
    }
  };
  const compacted = readOf("summary", summary, (text) => {
    messageFrom(text);
    return text;
  });
  return { compacted, chosen: readOf("settings", settings, settingsFrom), unreadable };
}

/** Unreadable parts are left out and named, so that the worker ends the turn in place of failing at it each time. */
export function claimFrom(
  { session, gen, nowMs, known, cache, seal }: ClaimedWith,
  claimed: ClaimedReply,
): Claim {
  const {
    epoch,
    turn,
    failures,
    context,
    summary,
    contextVersion: version,
    from,
    brokenOff,
    othersWait,
  } = claimed;
  const damaged: string[] = [];
  const readable = <T>(what: string, read: () => T): T | undefined => {
    try {
      return read();
    } catch (error) {
      return void damaged.push(`${what} (${reasonOf(error)})`);
    }
  };
  const head = claimed.head === "" ? undefined : queuedFrom(session, claimed.head, nowMs);
  if (head?.unreadable !== undefined) damaged.push("the message");
  const { compacted, chosen, unreadable } = replaceableParts({ session, seal }, claimed);
  const history = readable("the history", () => {
    // The cache counts the summary, and is to hold what is stored.
    if (compacted === undefined && summary !== undefined) return context.map(messageFrom);
    const texts = compacted === undefined ? context : [compacted, ...context];
    return cache.extend(session, known, { version, from, texts });
  });
  const checkpoint = readable("the checkpoint", () => {
    const state =
      turn === undefined
        ? undefined
        : turnFrom(seal.open("turn", session, { epoch, stored: turn }));
    // A genuine checkpoint of an earlier turn that was put back.
    if (state !== undefined && state.turnId !== turnIdOf(session, head?.seq ?? 0)) {
      throw damagedState("turn", session, "it is of another turn");
    }
    return state;
  });
  const entries = readable("a control entry", () => claimed.control.map(controlFrom));
  return {
    session,
    gen,
    epoch,
    ...(checkpoint === undefined ? {} : { turn: checkpoint }),
    ...(head === undefined ? {} : { head }),
    mayHaveWaited: head !== undefined && claimed.mayHaveWaited,
    failures: failures === "" ? {} : (JSON.parse(failures) as Record<string, number>), // written by fail.lua
    ranBefore: brokenOff,
    deaths: { together: claimed.deaths, alone: claimed.deathsAlone },
    ...(damaged.length === 0 ? {} : { damaged: damaged.join("; ") }),
    ...(unreadable.length === 0 ? {} : { unreadable }),
    othersWait,
    control: entries ?? [],
    history: history ?? [],
    settings: chosen ?? {},
    ...totalsShown(claimed.totals),
  };
}

/**
 * A history as it was read: what is in it stays true for its version, as long as its last message is
 * still where it was. Never changed after it was made.
 */
interface KnownHistory {
  readonly version: string;
  readonly messages: readonly Message[];
  /** SHA-1 of the last message's JSON, as Lua can make it; empty without messages. */
  readonly last: string;
  readonly characters: number;
}

/** What a claim read of a history; `from`: how many messages that were known come before it. */
interface ReadHistory {
  version: string;
  from: number;
  texts: readonly string[];
}

const nothing: KnownHistory = { version: "", messages: [], last: "", characters: 0 };

function lastOf(texts: readonly string[]): string | undefined {
  const text = texts.at(-1);
  return text === undefined ? undefined : hash("sha1", text);
}

/** Of history JSON kept in memory. */
const maxCachedCharacters = 64_000_000;

/**
 * Histories this process has read, so that a turn reads only what is new. History is append-only:
 * what was read under a version stays true for that version, unless a failover lost its end. Bounded
 * by characters of JSON; the longest unused goes first.
 */
export class HistoryCache {
  readonly #entries = new Map<SessionKey, KnownHistory>();
  #characters = 0;

  known(session: SessionKey): KnownHistory {
    return this.#entries.get(session) ?? nothing;
  }

  /**
   * Remembers what a read found after `base`; returns the whole history. `base` is what `known` gave
   * before the read: others may have read the session meanwhile.
   */
  extend(
    session: SessionKey,
    base: KnownHistory,
    { version, from, texts }: ReadHistory,
  ): Message[] {
    const kept = from > 0 ? base : nothing;
    const entry: KnownHistory = {
      version,
      messages: [...kept.messages, ...texts.map(messageFrom)],
      last: lastOf(texts) ?? kept.last,
      characters: texts.reduce((sum, text) => sum + text.length, kept.characters),
    };
    const known = this.known(session);
    const isLatest =
      known === base || known.version !== version || known.messages.length <= entry.messages.length;
    if (isLatest) this.#put(session, entry);
    return [...entry.messages];
  }

  #put(session: SessionKey, entry: KnownHistory): void {
    this.#characters += entry.characters - (this.#entries.get(session)?.characters ?? 0);
    this.#entries.delete(session);
    this.#entries.set(session, entry);
    for (const [oldest, { characters }] of this.#entries) {
      if (this.#characters <= maxCachedCharacters) break;
      this.#entries.delete(oldest);
      this.#characters -= characters;
    }
  }
}
