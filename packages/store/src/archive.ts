import type { SessionKey } from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import type { AuditEntry, AuditPlace, AuditRecord } from "./audit-log.ts";
import type { Redaction } from "./retention.ts";

/** Messages of one session, with their numbers counted on from `first`. */
export interface ArchiveBatch {
  session: SessionKey;
  first: number;
  messages: readonly Message[];
  /** Who has written in the session, and in what kind of chat. */
  people: Readonly<Record<string, string>>;
}

export interface ArchivedMessage {
  number: number;
  message: Message;
}

/** Where a session ends in the archive. */
export interface ArchiveEnd {
  /** The number that its next message would have. */
  length: number;
  /** The message before that; absent when it was erased. */
  last?: Message;
}

/**
 * Keeps conversations and audit records for longer than Redis. Adding is idempotent: existing records stay as they are.
 * Every call rejects when the archive does not answer.
 */
export interface Archive {
  /** Where each session ends here; sessions that are not known are absent. */
  ends(sessions: readonly SessionKey[]): Promise<ReadonlyMap<SessionKey, ArchiveEnd>>;
  /** Adds messages; erased ones are not added again. */
  addMessages(batch: ArchiveBatch): Promise<void>;
  /** Messages of a session from a number on, oldest first. */
  read(session: SessionKey, from: number, limit: number): Promise<ArchivedMessage[]>;
  /** Who has written in a session, and in what kind of chat. */
  peopleOf(session: SessionKey): Promise<Readonly<Record<string, string>>>;

  /** The place of the newest record of a part of the audit log; undefined while there is none. */
  lastAudit(part: string): Promise<AuditPlace | undefined>;
  addAudit(part: string, entries: readonly AuditEntry[]): Promise<void>;
  /** Records about one person in one app, by time. */
  auditOf(app: string, person: string): AsyncIterable<AuditRecord>;

  /** Sessions of an app in which the person has written. */
  sessionsOf(app: string, person: string): Promise<SessionKey[]>;
  /** Removes everything of a session below the number `length`, for good: also messages that another process is about to add. */
  erase(session: SessionKey, length: number): Promise<void>;
  /** Puts a marker in place of messages, also of those that are not here yet. */
  redact(session: SessionKey, what: Redaction): Promise<void>;
  /** Removes the note that the person has written in the session; the last step of a deletion. */
  forget(session: SessionKey, person: string): Promise<void>;
  close(): Promise<void>;
}
