import type { AuditRecord, Message, SessionKey } from "@larkline/protocol";
import type { Archive, ArchiveBatch, ArchivedMessage, ArchiveEnd } from "./archive.ts";
import type { AuditEntry, AuditPlace, Redaction } from "./retention.ts";

interface ArchivedSession {
  messages: Map<number, Message>;
  people: Map<string, string>;
  erasedBelow: number;
}

/** An archive in the memory of this process. */
export function createMemoryArchive(): Archive {
  return new MemoryArchive();
}

class MemoryArchive implements Archive {
  readonly #sessions = new Map<SessionKey, ArchivedSession>();
  readonly #audit = new Map<string, AuditEntry[]>();

  #open(key: SessionKey): ArchivedSession {
    const session = this.#sessions.get(key) ?? { messages: new Map(), people: new Map(), erasedBelow: 0 };
    this.#sessions.set(key, session);
    return session;
  }

  async ends(sessions: readonly SessionKey[]): Promise<ReadonlyMap<SessionKey, ArchiveEnd>> {
    return new Map(
      sessions.flatMap((key) => {
        const session = this.#sessions.get(key);
        if (session === undefined) return [];
        const length = Math.max(session.erasedBelow, ...[...session.messages.keys()].map((number) => number + 1));
        const last = structuredClone(session.messages.get(length - 1));
        return [[key, { length, ...(last && { last }) }]];
      }),
    );
  }

  async addMessages({ session: key, first, messages, people }: ArchiveBatch): Promise<void> {
    const session = this.#open(key);
    const isErased = first + messages.length <= session.erasedBelow;
    for (const [person, chatType] of isErased ? [] : Object.entries(people)) session.people.set(person, chatType);
    for (const [at, message] of messages.entries()) {
      const number = first + at;
      if (number < session.erasedBelow || session.messages.has(number)) continue;
      session.messages.set(number, structuredClone(message));
    }
  }

  async read(key: SessionKey, from: number, limit: number): Promise<ArchivedMessage[]> {
    return structuredClone(
      [...(this.#sessions.get(key)?.messages ?? [])]
        .filter(([number]) => number >= from)
        .sort(([one], [other]) => one - other)
        .slice(0, limit)
        .map(([number, message]) => ({ number, message })),
    );
  }

  async peopleOf(key: SessionKey): Promise<Readonly<Record<string, string>>> {
    return Object.fromEntries(this.#sessions.get(key)?.people ?? []);
  }

  async lastAudit(part: string): Promise<AuditPlace | undefined> {
    const last = this.#audit.get(part)?.at(-1);
    return last && { atMs: last.atMs, number: last.number };
  }

  async addAudit(part: string, entries: readonly AuditEntry[]): Promise<void> {
    const kept = this.#audit.get(part) ?? [];
    const isNew = ({ atMs, number }: AuditEntry): boolean =>
      !kept.some((each) => each.atMs === atMs && each.number === number);
    kept.push(...structuredClone(entries.filter(isNew)));
    kept.sort((one, other) => one.atMs - other.atMs || one.number - other.number);
    this.#audit.set(part, kept);
  }

  async *auditOf(app: string, person: string): AsyncIterable<AuditRecord> {
    const theirs = [...this.#audit.values()]
      .flat()
      .filter(({ record }) => record.app === app && record.userId === person);
    for (const { record } of theirs.sort((one, other) => one.atMs - other.atMs)) yield structuredClone(record);
  }

  async sessionsOf(app: string, person: string): Promise<SessionKey[]> {
    return [...this.#sessions].flatMap(([key, { people }]) =>
      key.startsWith(`${app}.`) && people.has(person) ? [key] : [],
    );
  }

  async erase(key: SessionKey, length: number): Promise<void> {
    const session = this.#open(key);
    session.erasedBelow = Math.max(session.erasedBelow, length);
    for (const number of session.messages.keys()) if (number < session.erasedBelow) session.messages.delete(number);
    session.people.clear();
  }

  async redact(key: SessionKey, { numbers, marker }: Redaction): Promise<void> {
    const session = this.#open(key);
    for (const number of numbers) {
      if (number >= session.erasedBelow) session.messages.set(number, structuredClone(marker));
    }
  }

  async forget(key: SessionKey, person: string): Promise<void> {
    this.#sessions.get(key)?.people.delete(person);
  }

  async close(): Promise<void> {}
}
