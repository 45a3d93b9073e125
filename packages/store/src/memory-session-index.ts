import type { SessionKey } from "@larkline/protocol";
import type { MemoryOutboxes } from "./memory-outbox.ts";
import type { MemorySession } from "./memory-session.ts";
import type { IndexedSession, SessionIndex } from "./session-index.ts";
import type { OutboxRecord } from "./session-store.ts";

/** Finds the sessions of a memory store: by looking at all of them. */
export class MemorySessionIndex implements SessionIndex {
  readonly #sessions: ReadonlyMap<SessionKey, MemorySession>;
  readonly #outboxes: MemoryOutboxes;

  constructor(sessions: ReadonlyMap<SessionKey, MemorySession>, outboxes: MemoryOutboxes) {
    this.#sessions = sessions;
    this.#outboxes = outboxes;
  }

  async busy(limit: number): Promise<SessionKey[]> {
    const moving = [...this.#sessions.values()].filter(({ state }) => state !== "idle").map(({ key }) => key);
    return [...new Set([...moving, ...this.#outboxes.sessions()])].slice(0, limit);
  }

  async recent(limit: number, prefixes: readonly string[] = [""]): Promise<IndexedSession[]> {
    return [...this.#sessions.values()]
      .filter(({ key, finishedAtMs }) => finishedAtMs > 0 && prefixes.some((prefix) => key.startsWith(prefix)))
      .sort((one, other) => other.finishedAtMs - one.finishedAtMs)
      .slice(0, limit)
      .map(({ key, finishedAtMs }) => ({ session: key, atMs: finishedAtMs }));
  }

  async ofPerson(person: string, limit: number): Promise<SessionKey[]> {
    const written = [...this.#sessions.values()].filter(({ people }) => people.has(person));
    return written.map(({ key }) => key).slice(0, limit);
  }

  async unsent(session: SessionKey, limit: number): Promise<OutboxRecord[]> {
    return this.#outboxes.unsent(session, limit);
  }
}
