import type { SessionKey } from "@larkline/protocol";
import type { OutboxRecord } from "./session-store.ts";

/** A session in a list. */
export interface IndexedSession {
  session: SessionKey;
  /** Epoch ms at which something last happened to it, as far as the index knows. */
  atMs: number;
}

/** Finds sessions without going through all of them: for people who look. Every read is bounded. */
export interface SessionIndex {
  /** Those that are queued, running, wait for tools or people, or hold unsent replies; each once, in no certain order. */
  busy(limit: number): Promise<SessionKey[]>;
  /**
   * Those that finished a turn last, newest first; with `prefixes` only those whose key begins with one of them, as
   * far as they are among the newest few thousand.
   */
  recent(limit: number, prefixes?: readonly string[]): Promise<IndexedSession[]>;
  /** Those that somebody has written in, in no certain order. */
  ofPerson(person: string, limit: number): Promise<SessionKey[]>;
  /** Replies of a session that are not delivered, oldest first. */
  unsent(session: SessionKey, limit: number): Promise<OutboxRecord[]>;
}
