import type { Archive, ArchiveEnd, AuditPlace } from "@larkline/store";
import { apiApp, type SessionKey } from "@larkline/protocol";
import { pause, type Random } from "@larkline/protocol/clock";
import type { Services } from "./services.ts";

/** What became of stored data. */
export type KeptWhat =
  | "expired"
  | "helpers_expired"
  | "trimmed"
  | "audit_dropped"
  | "archived"
  | "audit_archived";

/** Pause between two rounds. */
const keepEveryMs = 10_000;
/** How long `close` lets end what is under way: all of it is done again by the worker that keeps the data next. */
const closeMs = 2_000;

/**
 * Looks after stored data: archives, bounds and expires it. Every worker may do it, one at a time does;
 * two at a time would do no harm. Nothing else waits for it, and what fails is tried again in the next round.
 */
export function startDataKeeper(
  services: Services,
  intervalMs = keepEveryMs,
): { close(): Promise<void> } {
  const { presence, owner, clock, log } = services;
  const closing = new AbortController();
  let round: Promise<void> = Promise.resolve();

  const keep = async (): Promise<void> => {
    try {
      if (await presence.takeDuty("keep", owner, intervalMs - 50)) {
        await new KeepingRound(services, closing.signal).run();
      }
    } catch (error) {
      log.warn({ error }, failed);
    }
    if (!closing.signal.aborted) cancelNext = clock.after(intervalMs, start);
  };
  const start = (): void => {
    round = keep();
  };
  let cancelNext = clock.after(intervalMs, start);
  return {
    close: async () => {
      closing.abort();
      cancelNext();
      const over = new AbortController();
      await Promise.race([round, pause(clock, closeMs, over.signal)]);
      over.abort();
    },
  };
}

const failed = "stored data was not looked after; it stays until it can be";

const dayMs = 86_400_000;
/** The name under which rules of expired sessions are revoked. */
const keeperName = "data keeper";
/** Sessions that old versions have left without a note of their end are looked for so often. */
const adoptEveryMs = dayMs;
/** How long the events of a session are kept after its last turn; a run can be read as long. */
const eventsKeptMs = dayMs;
/** Sessions looked after in one portion. */
const batch = 100;
/** Messages or records that go to the archive at once. */
const page = 500;
/** So many failures in a row are not about single sessions. */
const tooManyFailures = 3;

/** One round of looking after stored data. Everything in it can be done twice. */
export class KeepingRound {
  readonly #services: Services;
  readonly #signal: AbortSignal;
  /** Whether everything went well. */
  #isWhole = true;

  constructor(services: Services, signal: AbortSignal) {
    this.#services = services;
    this.#signal = signal;
  }

  async run(): Promise<void> {
    const { retention, presence, owner, counters } = this.#services;
    const steps = [
      async () => await this.#whileMore(async () => await this.tendSessions()),
      async () => await this.#whileMore(async () => await this.expireSessions()),
      async () => await this.#whileMore(async () => await this.expireHelpers()),
      async () => await this.keepAudit(),
      async () => {
        if (await presence.takeDuty("adopt", owner, adoptEveryMs)) {
          await retention.adopt(this.#signal);
        }
      },
    ];
    for (const step of steps) {
      if (this.#signal.aborted) return;
      // What fails in one step keeps no other from its work.
      await step().catch((error: unknown) => this.#failed(error));
    }
    counters.dataWaiting.record(await retention.unarchivedCount());
    counters.dataRounds.add(1, { outcome: this.#isWhole ? "ok" : "failed" });
  }

  async #whileMore(step: () => Promise<boolean>): Promise<void> {
    while (!this.#signal.aborted && (await step())) {
      // The next portion.
    }
  }

  #kept(what: KeptWhat, count: number): void {
    if (count > 0) this.#services.counters.dataKept.add(count, { what });
  }

  /** One session, or one part of the audit log, could not be looked after; the others are. */
  #failed(error: unknown): void {
    this.#isWhole = false;
    this.#services.log.warn({ error }, failed);
  }

  /** Archives what turns have added, and drops what is beyond the bounds of a session. Returns whether there may be more. */
  async tendSessions(): Promise<boolean> {
    const { retention, settings } = this.#services;
    const ended = await retention.unarchived(batch);
    const copy = await this.#archiving(ended.map(({ session }) => session));
    const isWell = await this.#eachUntilBroken(ended, async (each) => {
      const known = await copy(each.session);
      const bounds = {
        keep: settings.retention.historyMessages,
        endedAtMs: each.endedAtMs,
        ...known,
      };
      this.#kept("trimmed", await retention.trim(each.session, bounds));
    });
    return ended.length === batch && isWell;
  }

  /** Removes conversations that were not continued for so long. Returns whether there may be more. */
  async expireSessions(): Promise<boolean> {
    const { retention, settings, clock } = this.#services;
    const { conversationDays } = settings.retention;
    if (conversationDays === 0) return false;
    const beforeMs = clock.now() - conversationDays * dayMs;
    const dormant = await retention.dormant(beforeMs, batch);
    const copy = await this.#archiving(dormant);
    const isWell = await this.#eachUntilBroken(dormant, async (session) => {
      const bounds = { beforeMs, ...(await copy(session)) };
      if (!session.startsWith(`${apiApp}.`)) {
        this.#kept("expired", (await retention.expire(session, bounds)) === "removed" ? 1 : 0);
        return;
      }
      if ((await retention.expire(session, { ...bounds, stays: "owner" })) !== "removed") return;
      await this.#forgetChat(session);
      this.#kept("expired", 1);
      // If its owner has come back meanwhile, nothing is deleted.
      await retention.expire(session, bounds);
    });
    return dormant.length === batch && isWell;
  }

  /**
   * Removes the notes and rules of a session of the HTTP API while it still belongs to its owner: its id is chosen by
   * clients, and the next caller who chooses the same one becomes its owner.
   */
  async #forgetChat(session: SessionKey): Promise<void> {
    const { memories, rules } = this.#services;
    const chat = { kind: "chat", app: apiApp, id: session } as const;
    const notes = (await memories.list(chat)).memories.map(({ id }) => id);
    await memories.forget(chat, notes);
    for (const { id } of await rules.inForce(apiApp, session)) {
      await rules.revoke(apiApp, id, { id: keeperName });
    }
  }

  /** Removes sessions of helpers that have ended, as soon as their events are gone. Returns whether there may be more. */
  async expireHelpers(): Promise<boolean> {
    const { retention, clock } = this.#services;
    const beforeMs = clock.now() - eventsKeptMs;
    const roots = await retention.withOldChildren(beforeMs, batch);
    const isWell = await this.#eachUntilBroken(roots, async (root) => {
      this.#kept("helpers_expired", await retention.trimChildren(root, beforeMs));
    });
    return roots.length === batch && isWell;
  }

  /** Archives a session and returns the number up to which it is archived; none without an archive. */
  async #archiving(
    sessions: readonly SessionKey[],
  ): Promise<(session: SessionKey) => Promise<{ archived?: number }>> {
    const { archive } = this.#services;
    if (archive === undefined) return async () => ({});
    const ends = await archive.ends(sessions);
    return async (session) => ({
      archived: await this.#copyRest(archive, session, ends.get(session) ?? { length: 0 }),
    });
  }

  /** Copies what the archive does not have of a session. Returns the number that its next message will have. */
  async #copyRest(archive: Archive, session: SessionKey, end: ArchiveEnd): Promise<number> {
    const { retention } = this.#services;
    let next = end.length;
    if (!(await isContinued(this.#services, session, end))) {
      // Asked for with those of many sessions, the end may be an old one: a message may have been deleted since.
      const now = (await archive.ends([session])).get(session) ?? { length: 0 };
      next = now.length;
      // Kept twice is better than not at all.
      if (!(await isContinued(this.#services, session, now))) {
        await retention.renumber(session, now.length);
      }
    }
    for (;;) {
      const { first, messages, people } = await retention.read(session, next, page);
      if (messages.length > 0) await archive.addMessages({ session, first, messages, people });
      this.#kept("archived", messages.length);
      next = first + messages.length;
      if (messages.length < page) return next;
    }
  }

  /** Archives the audit log, and drops what is too old or too much. */
  async keepAudit(): Promise<void> {
    const { auditLog: audit, archive, settings, clock } = this.#services;
    const { auditDays, auditRecords } = settings.retention;
    const parts = audit.parts();
    const beforeMs = auditDays === 0 ? 0 : clock.now() - auditDays * dayMs;
    const maxRecords = Math.ceil(auditRecords / parts.length);
    await this.#eachUntilBroken(parts, async (part) => {
      const upTo = archive && { upTo: await this.#copyAudit(archive, part) };
      this.#kept(
        "audit_dropped",
        await audit.trim(part, { beforeMs, maxRecords, ...(upTo && { archived: upTo }) }),
      );
    });
  }

  /** Returns the place of the last record that is archived. */
  async #copyAudit(archive: Archive, part: string): Promise<AuditPlace | undefined> {
    const { auditLog: audit } = this.#services;
    let place = await archive.lastAudit(part);
    for (;;) {
      const entries = await audit.page(part, place, page);
      if (entries.length > 0) await archive.addAudit(part, entries);
      this.#kept("audit_archived", entries.length);
      place = entries.at(-1) ?? place;
      if (entries.length < page) return place;
    }
  }

  /**
   * Runs each, until so many fail one after the other that the next one would as well; false then. In no order: those
   * that fail every time must not stand before all others, every time.
   */
  async #eachUntilBroken<T>(
    items: readonly T[],
    run: (item: T) => Promise<void>,
  ): Promise<boolean> {
    let inRow = 0;
    for (const item of shuffled(items, this.#services.random)) {
      if (this.#signal.aborted || inRow >= tooManyFailures) break;
      try {
        await run(item);
        inRow = 0;
      } catch (error) {
        this.#failed(error);
        inRow += 1;
      }
    }
    return inRow < tooManyFailures;
  }
}

function shuffled<T>(items: readonly T[], random: Random): T[] {
  return items
    .map((item) => ({ item, at: random.fraction() }))
    .sort((one, other) => one.at - other.at)
    .map(({ item }) => item);
}

/**
 * Whether the archive has what comes before the messages in Redis, under these numbers. A failover or a
 * backup may have taken the end of a conversation away, and others were counted as those were, since.
 */
async function isContinued(
  { retention }: Services,
  session: SessionKey,
  { length, last }: ArchiveEnd,
): Promise<boolean> {
  if (length === 0) return true;
  const { first, messages } = await retention.read(session, length - 1, 1);
  // Erased there, or gone from here.
  if (last === undefined || first >= length) return true;
  return JSON.stringify(messages[0]) === JSON.stringify(last);
}
