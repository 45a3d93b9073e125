import { parserOf } from "@larkline/protocol";
import type { Approval, PermissionRule } from "@larkline/protocol/approval";
import { newEngineError } from "@larkline/protocol/error";
import type { ToolOutcome } from "@larkline/protocol/tool";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";
import { Type, type Static } from "@larkline/protocol/type";

/**
 * What happened, for the record. Calls: `call_opened` before it can run (always), `call_started`
 * before it acts (unless `pure`), `call_ended`. Approvals: requested, decided (each person's word),
 * settled. Rules: added, revoked. `content_shown`: an operator opened content that is hidden by default.
 * `turn_cancelled`: an operator stopped it. `session_reset`: a person or an operator ended its turn and began a new conversation; `inbox_dropped`: its waiting messages
 * were taken out. `letter_retried`, `letter_discarded`: of something that was given up. `person_exported`,
 * `person_deleted`: what is stored of a person was handed out or taken away. `agent_paused`, `agent_resumed`,
 * `tool_paused`, `tool_resumed`, `schedule_paused`, `schedule_resumed`, `schedule_deleted`: an operator wanted it so.
 * `agent_changed`: an operator gave it another version. `provider_changed`, `provider_removed`: of a server of models. `grant_given`, `grant_refreshed`, `grant_ended`: what a person lets
 * a bot do as them, with the reason of the end; its use is in `call_started`. Never holds arguments, results or secrets.
 */
export const auditKinds = [
  "call_opened",
  "call_started",
  "call_ended",
  "approval_requested",
  "approval_decided",
  "approval_settled",
  "rule_added",
  "rule_revoked",
  "content_shown",
  "turn_cancelled",
  "session_reset",
  "inbox_dropped",
  "letter_retried",
  "letter_discarded",
  "person_exported",
  "person_deleted",
  "agent_paused",
  "agent_resumed",
  "tool_paused",
  "tool_resumed",
  "agent_changed",
  "provider_changed",
  "provider_removed",
  "schedule_paused",
  "schedule_resumed",
  "schedule_deleted",
  "grant_given",
  "grant_refreshed",
  "grant_ended",
] as const;

export const AuditRecord = Type.Object({
  kind: Type.Enum([...auditKinds]),
  /** Epoch ms, of the store's clock. */
  atMs: Type.Integer(),
  app: Type.Optional(Type.String()),
  tenant: Type.Optional(Type.String()),
  session: Type.Optional(Type.String()),
  turnId: Type.Optional(Type.String()),
  callId: Type.Optional(Type.String()),
  tool: Type.Optional(Type.String()),
  agent: Type.Optional(Type.String()),
  /** Whom it is done for, or who decided. */
  userId: Type.Optional(Type.String()),
  chatId: Type.Optional(Type.String()),
  argumentsHash: Type.Optional(Type.String()),
  /** As whom a call may act: `person`, `bot`, `either`, or `none` where its tool wants a person that is not known; absent: it gets no token. */
  as: Type.Optional(Type.String()),
  /** Permissions of the person that it needs. */
  scopes: Type.Optional(Type.Array(Type.String(), { maxItems: 20 })),
  approvalId: Type.Optional(Type.String()),
  ruleId: Type.Optional(Type.String()),
  scheduleId: Type.Optional(Type.String()),
  /** A server of models. */
  provider: Type.Optional(Type.String()),
  runner: Type.Optional(Type.String()),
  /** Which letter, or which failed job. */
  letterId: Type.Optional(Type.String()),
  /**
   * `ok`, `error` or `unknown` of a call, `cancelled` when its turn ended before it was started; the
   * decision or state of an approval.
   */
  result: Type.Optional(Type.String()),
  /** Versions of an agent; 0: the file. */
  from: Type.Optional(Type.Integer()),
  to: Type.Optional(Type.Integer()),
});
export type AuditRecord = Static<typeof AuditRecord>;

/** A place in a part of the audit log. */
export type AuditPlace = Pick<AuditEntry, "atMs" | "number">;

export interface AuditBounds {
  beforeMs: number;
  maxRecords: number;
  archived?: { upTo: AuditPlace | undefined };
}

/** One record of the audit log and its place: time (epoch ms), then a number within it. */
export interface AuditEntry {
  atMs: number;
  number: number;
  record: AuditRecord;
}

/** Most records of a stream, as the scripts take it. */
export const keepAllAudits = 0;

const pageSize = 200;
const parseRecord = parserOf(AuditRecord);

/** Most records beyond the bound that go at once. */
const trimPage = 1_000;

/**
 * The append-only record of what was done for whom: one stream per cell, written by the scripts of the stores, and one
 * for everything else. Records of different streams come in the order of the servers' clocks.
 */
export class AuditLog {
  readonly #redis: RedisConnection;
  readonly #global: string;
  readonly #streams: readonly string[];
  readonly #maxRecords: number;

  /** `auditMaxRecords`: about how many records are kept of those that this log appends. Default: all. */
  constructor({
    redis,
    namespace,
    auditMaxRecords = keepAllAudits,
  }: StoreOptions & { auditMaxRecords?: number }) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#global = keys.audit;
    this.#streams = [...keys.cells().map(({ audit }) => audit), this.#global];
    this.#maxRecords = auditMaxRecords;
  }

  async append(record: Omit<AuditRecord, "atMs">): Promise<void> {
    const { kind, session = "", callId = "", runner = "", result = "", ...facts } = record;
    const kept = this.#maxRecords === keepAllAudits ? [] : ["MAXLEN", "~", this.#maxRecords];
    const named = {
      k: kind,
      s: session,
      c: callId,
      f: JSON.stringify(facts),
      r: runner,
      o: result,
      u: "",
    };
    await this.#redis.xadd(this.#global, ...kept, "*", ...Object.entries(named).flat());
  }

  /** Records from `fromMs` to before `toMs`, by time. */
  async *export(fromMs: number, toMs: number): AsyncIterable<AuditRecord> {
    if (toMs <= fromMs || toMs <= 0) return;
    const readers = this.#streams.map((key) => new Reader(this.#redis, key, [fromMs, toMs]));
    for (;;) {
      const heads = await Promise.all(
        readers.map(async (reader) => ({ reader, entry: await reader.next() })),
      );
      const [first] = heads
        .flatMap(({ reader, entry }) => (entry === undefined ? [] : [{ reader, entry }]))
        .sort(
          (one, other) =>
            one.entry.atMs - other.entry.atMs || one.entry.number - other.entry.number,
        );
      if (first === undefined) return;
      first.reader.take();
      yield first.entry.record;
    }
  }

  /** The streams, for archiving and trimming one by one: each is in the order of its places. */
  parts(): readonly string[] {
    return this.#streams;
  }

  /** Records after a place, oldest first. */
  async page(part: string, after: AuditPlace | undefined, limit: number): Promise<AuditEntry[]> {
    const from = after === undefined ? "-" : `(${idOf(after)}`;
    return (await this.#redis.xrange(part, from, "+", "COUNT", limit)).map(entryFrom);
  }

  /**
   * Drops records from before `beforeMs`, and the oldest beyond about `maxRecords`; none after the place
   * `archived`, where it is given (`undefined` in it: none is archived yet). Returns how many went, about.
   */
  async trim(part: string, { beforeMs, maxRecords, archived }: AuditBounds): Promise<number> {
    if (archived !== undefined && archived.upTo === undefined) return 0;
    const tooMany = Math.min((await this.#redis.xlen(part)) - maxRecords, trimPage);
    const first = tooMany > 0 ? await placeAfter(this.#redis, part, tooMany) : undefined;
    const kept = [
      { atMs: Math.max(0, Math.ceil(beforeMs)), number: 0 },
      ...(first === undefined ? [] : [first]),
    ];
    const wanted = kept.reduce((one, other) => (isBefore(one, other) ? other : one));
    const { upTo } = archived ?? {};
    // The record at the archived place itself may be dropped.
    const bound = upTo === undefined ? wanted : { atMs: upTo.atMs, number: upTo.number + 1 };
    return await this.#redis.xtrim(part, "MINID", idOf(isBefore(bound, wanted) ? bound : wanted));
  }
}

/** One stream, read page by page, with the next entry in view. */
class Reader {
  readonly #redis: RedisConnection;
  readonly #key: string;
  readonly #end: string;
  #from: string;
  #page: AuditEntry[] = [];
  #isAtEnd = false;

  constructor(redis: RedisConnection, key: string, [fromMs, toMs]: [number, number]) {
    this.#redis = redis;
    this.#key = key;
    this.#from = String(Math.max(0, Math.ceil(fromMs)));
    this.#end = Number.isSafeInteger(Math.ceil(toMs)) ? String(Math.ceil(toMs) - 1) : "+";
  }

  async next(): Promise<AuditEntry | undefined> {
    if (this.#page.length === 0 && !this.#isAtEnd) await this.#turn();
    return this.#page[0];
  }

  take(): void {
    this.#page.shift();
  }

  async #turn(): Promise<void> {
    const found = await this.#redis.xrange(this.#key, this.#from, this.#end, "COUNT", pageSize);
    this.#isAtEnd = found.length < pageSize;
    this.#from = `(${found.at(-1)?.[0] ?? ""}`;
    this.#page = found.map(entryFrom);
  }
}

function fieldsOf(values: readonly string[]): Partial<Record<string, string>> {
  return Object.fromEntries(
    values.flatMap((name, at) => (at % 2 === 0 ? [[name, values[at + 1] ?? ""]] : [])),
  );
}

/** A record and its place in its stream: ms, then a number within the ms. */
function entryFrom([id, values]: [string, string[]]): AuditEntry {
  const dash = id.indexOf("-");
  const atMs = Number(id.slice(0, dash));
  const {
    k: kind,
    s: session,
    c: callId,
    f = "",
    r: runner,
    o: result,
    u: userId,
  } = fieldsOf(values);
  const filled = Object.entries({ session, callId, runner, result, userId }).filter(
    ([, value]) => (value ?? "") !== "",
  );
  const facts: unknown = JSON.parse(f === "" ? "{}" : f);
  const parsed = parseRecord(Object.assign({ kind, atMs }, facts, Object.fromEntries(filled)));
  if (parsed.ok) return { atMs, number: Number(id.slice(dash + 1)), record: parsed.value };
  throw newEngineError("internal_error", `audit record ${id} is not readable: ${parsed.error}`, {
    suggestion: "Was it written by a newer version? Upgrade this process.",
  });
}

/** The place of the first entry after the `count` oldest ones. */
async function placeAfter(
  redis: RedisConnection,
  key: string,
  count: number,
): Promise<AuditPlace | undefined> {
  const found = await redis.xrange(key, "-", "+", "COUNT", count + 1);
  const last = found[count];
  return last === undefined ? undefined : entryFrom(last);
}

function idOf({ atMs, number }: AuditPlace): string {
  return `${atMs}-${number}`;
}

function isBefore(one: AuditPlace, other: AuditPlace): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.number < other.number);
}

/** What all audit records of an approval say. */
export function approvalFactsOf(
  approval: Approval,
): Omit<AuditRecord, "kind" | "atMs" | "session" | "callId"> {
  const { app, tenant, turnId, tool, requester, chatId, argumentsHash, id } = approval;
  return {
    app,
    ...(tenant === undefined ? {} : { tenant }),
    turnId,
    tool,
    userId: requester.id,
    chatId,
    argumentsHash,
    approvalId: id,
  };
}

/** What all audit records of a rule say. A rule has the id of the approval that it comes from. */
export function ruleFactsOf({
  app,
  chatId,
  tool,
  id,
}: PermissionRule): Omit<AuditRecord, "kind" | "atMs"> {
  return { app, chatId, tool, ruleId: id, approvalId: id };
}

/** How a call ended, as the audit log has it. */
export function auditResultOf(outcome: ToolOutcome): "ok" | "error" | "unknown" {
  if (outcome.ok) return "ok";
  return outcome.unknown === true ? "unknown" : "error";
}
