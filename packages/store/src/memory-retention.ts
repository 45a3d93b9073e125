import type { SessionKey } from "@larkline/protocol";
import type { MemoryApprovals } from "./memory-approvals.ts";
import type { MemoryCardLedger } from "./memory-card-ledger.ts";
import type { MemoryEventLog } from "./memory-event-log.ts";
import type { MemoryOutboxes } from "./memory-outbox.ts";
import { MemorySession } from "./memory-session.ts";
import type {
  EndedSession,
  PersonalData,
  Redaction,
  RemovalResult,
  SessionRetention,
  StoredHistory,
} from "./retention.ts";

interface MemoryRetentionParts {
  sessions: Map<SessionKey, MemorySession>;
  events: MemoryEventLog;
  outboxes: MemoryOutboxes;
  approvals: MemoryApprovals;
  cards: MemoryCardLedger;
  now: () => number;
}

const busyMs = 3_600_000;

/** Looking after the sessions of a memory store. Atomic because no method awaits. */
export class MemoryRetention implements SessionRetention, PersonalData {
  readonly #parts: MemoryRetentionParts;
  /** Sessions that were in use when they were to go, and when they come up again. */
  readonly #postponed = new Map<SessionKey, number>();
  #floor = { seq: 0, gen: 0, epoch: 0, messages: 0 };

  constructor(parts: MemoryRetentionParts) {
    this.#parts = parts;
  }

  /** A session that begins: above all numbers that removed ones ever had. */
  begin(key: SessionKey): MemorySession {
    const session = new MemorySession(key);
    const { seq, gen, epoch, messages } = this.#floor;
    return Object.assign(session, { lastSeq: seq, gen, epoch, historyBase: messages });
  }

  #endedAtMs({ key, finishedAtMs }: MemorySession): number {
    return Math.max(finishedAtMs, this.#postponed.get(key) ?? 0);
  }

  async dormant(beforeMs: number, limit: number): Promise<SessionKey[]> {
    return [...this.#parts.sessions.values()]
      .filter((session) => session.finishedAtMs > 0 && this.#endedAtMs(session) < beforeMs)
      .sort((one, other) => this.#endedAtMs(one) - this.#endedAtMs(other))
      .slice(0, limit)
      .map(({ key }) => key);
  }

  async untended(limit: number): Promise<EndedSession[]> {
    return this.#untended()
      .sort((one, other) => one.finishedAtMs - other.finishedAtMs)
      .slice(0, limit)
      .map(({ key, finishedAtMs }) => ({ session: key, endedAtMs: finishedAtMs }));
  }

  #untended(): MemorySession[] {
    return [...this.#parts.sessions.values()].filter(({ finishedAtMs, tendedAtMs }) => finishedAtMs > tendedAtMs);
  }

  async untendedCount(): Promise<number> {
    return this.#untended().length;
  }

  async tended({ session, endedAtMs }: EndedSession): Promise<void> {
    const stored = this.#parts.sessions.get(session);
    if (stored?.finishedAtMs === endedAtMs) stored.tendedAtMs = endedAtMs;
  }

  async read(key: SessionKey, from: number, limit: number): Promise<StoredHistory> {
    const session = this.#parts.sessions.get(key);
    const base = session?.historyBase ?? 0;
    const first = Math.max(from - base, 0);
    const messages = session?.history.slice(first, first + limit) ?? [];
    return structuredClone({ first: base + first, messages, people: Object.fromEntries(session?.people ?? []) });
  }

  async renumber(key: SessionKey, first: number): Promise<void> {
    const session = this.#parts.sessions.get(key);
    if (session) session.historyBase = Math.max(session.historyBase, first);
  }

  async trim(key: SessionKey, { keep, archived = Infinity }: { keep: number; archived?: number }): Promise<number> {
    const session = this.#parts.sessions.get(key);
    if (!session) return 0;
    const compacted = session.history.length - session.inContext;
    const count = Math.max(0, Math.min(compacted - keep, archived - session.historyBase));
    session.dropOldest(count);
    return count;
  }

  async expire(
    key: SessionKey,
    { beforeMs, archived }: { beforeMs: number; archived?: number },
  ): Promise<RemovalResult> {
    const session = this.#parts.sessions.get(key);
    if (!session || session.finishedAtMs === 0 || this.#endedAtMs(session) >= beforeMs) return "changed";
    const { outboxes, cards, approvals, now } = this.#parts;
    const isWaitedFor = outboxes.count(key) > 0 || cards.has(key) || (await approvals.pending(key)).length > 0;
    if (session.isInUse() || isWaitedFor) {
      this.#postponed.set(key, Math.min(now(), beforeMs + busyMs));
      return "in_use";
    }
    return this.#remove(session, archived);
  }

  async erase(key: SessionKey, length: number): Promise<RemovalResult> {
    const session = this.#parts.sessions.get(key);
    if (!session) return "removed";
    return session.isInUse() ? "in_use" : this.#remove(session, length);
  }

  #remove(session: MemorySession, expected?: number): RemovalResult {
    const { key, lastSeq, gen, epoch } = session;
    const messages = session.historyBase + session.history.length;
    if (expected !== undefined && expected < messages) return "changed";
    this.#floor = {
      seq: Math.max(this.#floor.seq, lastSeq),
      gen: Math.max(this.#floor.gen, gen),
      epoch: Math.max(this.#floor.epoch, epoch),
      messages: Math.max(this.#floor.messages, messages),
    };
    const { sessions, events, outboxes, approvals, cards } = this.#parts;
    events.clear(key);
    outboxes.clear(key);
    cards.clear(key);
    approvals.remove(key, () => true);
    this.#postponed.delete(key);
    sessions.delete(key);
    return "removed";
  }

  async adopt(): Promise<number> {
    return 0;
  }

  async sessionsOf(app: string, person: string): Promise<SessionKey[]> {
    const sessions = [...this.#parts.sessions.values()];
    return sessions.flatMap(({ key, people }) => (key.startsWith(`${app}.`) && people.has(person) ? [key] : []));
  }

  async sessionsOfChat(app: string, chatId: string): Promise<SessionKey[]> {
    const chat = `${app}.${chatId}`;
    return [...this.#parts.sessions.keys()].filter((key) => key === chat || key.startsWith(`${chat}.`));
  }

  async redact(key: SessionKey, { person, numbers, marker }: Redaction): Promise<number> {
    const session = this.#parts.sessions.get(key);
    if (!session) return 0;
    const places = numbers.map((number) => number - session.historyBase).filter((at) => at in session.history);
    for (const at of places) session.history[at] = structuredClone(marker);
    session.dropSummary();
    this.#parts.events.clear(key);
    this.#parts.approvals.remove(key, ({ approval, state }) => approval.requester.id === person && state !== "pending");
    return places.length;
  }

  async forget(key: SessionKey, person: string, length: number): Promise<boolean> {
    const session = this.#parts.sessions.get(key);
    if (!session) return true;
    const isWaiting =
      session.asideOfPerson(person) !== undefined || session.inbox.some(({ message }) => message.sender.id === person);
    if (isWaiting || session.historyBase + session.history.length > length) return false;
    session.people.delete(person);
    return true;
  }
}
