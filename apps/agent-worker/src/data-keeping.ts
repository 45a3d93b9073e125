import { setTimeout as delay } from "node:timers/promises";
import type { Archive, ArchiveEnd, AuditLog, AuditPlace, SessionRetention } from "@larkline/store";
import type { RetentionSettings } from "@larkline/process/config";
import type { SessionKey } from "@larkline/protocol";
import type { Presence } from "./background-jobs.ts";

interface DataKeeperOptions extends Omit<DataKeepingDeps, "retention"> {
  retention: SessionRetention;
  presence: Pick<Presence, "takeDuty">;
  owner: string;
  intervalMs: number;
  /** Told after each round how many sessions the archive has yet to get, and whether the round went well. */
  onRound: (round: { waiting: number; isWhole: boolean }) => void;
}

/** How long `close` lets end what is under way: all of it is done again by whoever keeps the data next. */
const closeMs = 2_000;
/** Sessions that old versions have left without a note of their end are looked for so often. */
const adoptEveryMs = 24 * 3_600_000;

/**
 * Looks after stored data: archives, bounds and expires it. Every worker may do it, one at a time does;
 * two at a time would do no harm. Nothing else waits for it, and what fails is tried again in the next round.
 */
export function startDataKeeper(options: DataKeeperOptions): { close(): Promise<void> } {
  const { presence, owner, intervalMs } = options;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let round: Promise<void> = Promise.resolve();

  const keep = async (): Promise<void> => {
    try {
      if (await presence.takeDuty("keep", owner, intervalMs - 50)) await keepAll(options, closing.signal);
    } catch (error) {
      options.onError(error);
    }
    if (!closing.signal.aborted) timer = setTimeout(start, intervalMs);
  };
  const start = (): void => {
    round = keep();
  };
  timer = setTimeout(start, intervalMs);
  return {
    close: async () => {
      closing.abort();
      clearTimeout(timer);
      await Promise.race([round, delay(closeMs, undefined, { ref: false })]);
    },
  };
}

async function keepAll(options: DataKeeperOptions, signal: AbortSignal): Promise<void> {
  const { retention, presence, owner } = options;
  let isWhole = true;
  const deps: DataKeepingDeps = {
    ...options,
    onError: (error) => {
      isWhole = false;
      options.onError(error);
    },
  };
  const steps = [
    async () => await whileMore(async () => await tendSessions(deps, signal), signal),
    async () => await whileMore(async () => await expireSessions(deps, signal), signal),
    async () => await keepAudit(deps, signal),
    async () => {
      if (await presence.takeDuty("adopt", owner, adoptEveryMs)) await retention.adopt(signal);
    },
  ];
  for (const step of steps) {
    if (signal.aborted) return;
    // What fails in one step keeps no other from its work.
    await step().catch(deps.onError);
  }
  options.onRound({ waiting: await retention.untendedCount(), isWhole });
}

async function whileMore(step: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (await step())) {
    // The next portion.
  }
}

/** What became of stored data. */
export type KeptWhat = "expired" | "trimmed" | "audit_dropped" | "archived" | "audit_archived";

type ArchiveForSessions = Pick<Archive, "ends" | "addMessages">;

export interface DataKeepingDeps {
  retention: Pick<SessionRetention, "dormant" | "untended" | "tended" | "read" | "renumber" | "trim" | "expire">;
  audit: AuditLog;
  /** Where everything is before it goes; absent: what goes is gone. */
  archive?: (ArchiveForSessions & Pick<Archive, "lastAudit" | "addAudit">) | undefined;
  bounds: Pick<RetentionSettings, "conversationDays" | "historyMessages" | "auditDays" | "auditRecords">;
  now: () => number;
  onKept: (what: KeptWhat, count: number) => void;
  /** One session, or one part of the audit log, could not be looked after; the others are. */
  onError: (error: unknown) => void;
}

const dayMs = 86_400_000;
/** Sessions looked after in one portion. */
const batch = 100;
/** Messages or records that go to the archive at once. */
const page = 500;
/** So many failures in a row are not about single sessions. */
const tooManyFailures = 3;

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((one, other) => one.at - other.at)
    .map(({ item }) => item);
}

/**
 * Runs each, until so many fail one after the other that the next one would as well; false then. In no order: those
 * that fail every time must not stand before all others, every time.
 */
async function eachUntilBroken<T>(
  items: readonly T[],
  { signal, onError }: { signal: AbortSignal; onError: (error: unknown) => void },
  run: (item: T) => Promise<void>,
): Promise<boolean> {
  let inRow = 0;
  for (const item of shuffled(items)) {
    if (signal.aborted || inRow >= tooManyFailures) break;
    try {
      await run(item);
      inRow = 0;
    } catch (error) {
      onError(error);
      inRow += 1;
    }
  }
  return inRow < tooManyFailures;
}

/**
 * Whether the archive has what comes before the messages in Redis, under these numbers. A failover or a
 * backup may have taken the end of a conversation away, and others were counted as those were, since.
 */
async function isContinued(
  { retention }: DataKeepingDeps,
  session: SessionKey,
  { length, last }: ArchiveEnd,
): Promise<boolean> {
  if (length === 0) return true;
  const { first, messages } = await retention.read(session, length - 1, 1);
  // Erased there, or gone from here.
  if (last === undefined || first >= length) return true;
  return JSON.stringify(messages[0]) === JSON.stringify(last);
}

/** Copies what the archive does not have of a session. Returns the number that its next message will have. */
async function copyRest(
  deps: DataKeepingDeps,
  archive: ArchiveForSessions,
  [session, end]: readonly [SessionKey, ArchiveEnd],
): Promise<number> {
  const { retention, onKept } = deps;
  let next = end.length;
  if (!(await isContinued(deps, session, end))) {
    // Asked for with those of many sessions, the end may be an old one: a message may have been deleted since.
    const now = (await archive.ends([session])).get(session) ?? { length: 0 };
    next = now.length;
    // Kept twice is better than not at all.
    if (!(await isContinued(deps, session, now))) await retention.renumber(session, now.length);
  }
  for (;;) {
    const { first, messages, people } = await retention.read(session, next, page);
    if (messages.length > 0) await archive.addMessages({ session, first, messages, people });
    onKept("archived", messages.length);
    next = first + messages.length;
    if (messages.length < page) return next;
  }
}

/** For each session the number up to which it is archived; undefined without an archive. */
async function archived(
  deps: DataKeepingDeps,
  sessions: readonly SessionKey[],
): Promise<(session: SessionKey) => Promise<{ archived?: number }>> {
  const { archive } = deps;
  if (archive === undefined) return async () => ({});
  const ends = await archive.ends(sessions);
  return async (session) => ({
    archived: await copyRest(deps, archive, [session, ends.get(session) ?? { length: 0 }]),
  });
}

/** Archives what turns have added, and drops what is beyond the bounds of a session. Returns whether there may be more. */
export async function tendSessions(deps: DataKeepingDeps, signal: AbortSignal): Promise<boolean> {
  const { retention, bounds, onKept, onError } = deps;
  const ended = await retention.untended(batch);
  const copy = await archived(
    deps,
    ended.map(({ session }) => session),
  );
  const isWell = await eachUntilBroken(ended, { signal, onError }, async (each) => {
    const known = await copy(each.session);
    onKept("trimmed", await retention.trim(each.session, { keep: bounds.historyMessages, ...known }));
    await retention.tended(each);
  });
  return ended.length === batch && isWell;
}

/** Removes conversations that nobody has gone on with. Returns whether there may be more. */
export async function expireSessions(deps: DataKeepingDeps, signal: AbortSignal): Promise<boolean> {
  const { retention, bounds, now, onKept, onError } = deps;
  if (bounds.conversationDays === 0) return false;
  const beforeMs = now() - bounds.conversationDays * dayMs;
  const dormant = await retention.dormant(beforeMs, batch);
  const copy = await archived(deps, dormant);
  const isWell = await eachUntilBroken(dormant, { signal, onError }, async (session) => {
    const result = await retention.expire(session, { beforeMs, ...(await copy(session)) });
    onKept("expired", result === "removed" ? 1 : 0);
  });
  return dormant.length === batch && isWell;
}

/** Archives the audit log, and drops what is too old or too much. */
export async function keepAudit(deps: DataKeepingDeps, signal: AbortSignal): Promise<void> {
  const { audit, archive, bounds, now, onKept, onError } = deps;
  const parts = audit.parts();
  const beforeMs = bounds.auditDays === 0 ? 0 : now() - bounds.auditDays * dayMs;
  const maxRecords = Math.ceil(bounds.auditRecords / parts.length);
  await eachUntilBroken(parts, { signal, onError }, async (part) => {
    const upTo = archive && { upTo: await copyAudit(deps, archive, part) };
    onKept("audit_dropped", await audit.trim(part, { beforeMs, maxRecords, ...(upTo && { archived: upTo }) }));
  });
}

/** Returns the place of the last record that is archived. */
async function copyAudit(
  { audit, onKept }: DataKeepingDeps,
  archive: Pick<Archive, "lastAudit" | "addAudit">,
  part: string,
): Promise<AuditPlace | undefined> {
  let place = await archive.lastAudit(part);
  for (;;) {
    const entries = await audit.page(part, place, page);
    if (entries.length > 0) await archive.addAudit(part, entries);
    onKept("audit_archived", entries.length);
    place = entries.at(-1) ?? place;
    if (entries.length < page) return place;
  }
}
