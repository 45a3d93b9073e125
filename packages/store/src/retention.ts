import type { AuditRecord, Message, SessionKey } from "@larkline/protocol";

/**
 * What is stored of a history. The messages of a session are numbered from 0; one that comes back after
 * it was removed goes on with higher numbers than it ever had, so a number never means two messages.
 */
export interface StoredHistory {
  /** Number of the first of `messages`: that which was asked for, or the first that is still there. */
  first: number;
  messages: Message[];
  /** Who has written in the session, by id, and in what kind of chat: `p2p`, `group` or `api`. */
  people: Readonly<Record<string, string>>;
}

/** A session and when its last turn ended, epoch ms. */
export interface EndedSession {
  session: SessionKey;
  endedAtMs: number;
}

/**
 * `removed`: nothing is left of it but the remembered ids of its messages. `in_use`: it is being answered,
 * or something is still to be sent or decided. `changed`: it is not as the caller believed.
 */
export type RemovalResult = "removed" | "in_use" | "changed";

/** Looking after stored conversations: what nobody needs any more goes, what is in use stays. */
export interface SessionRetention {
  /** Sessions whose last turn ended before `beforeMs`, longest ago first. */
  dormant(beforeMs: number, limit: number): Promise<SessionKey[]>;
  /** Sessions with a turn that ended after they were last `tended`, longest ago first. */
  untended(limit: number): Promise<EndedSession[]>;
  /** How many sessions are untended. */
  untendedCount(): Promise<number>;
  /** The session was looked after, as it was at that end of a turn. */
  tended(ended: EndedSession): Promise<void>;
  /** At most `limit` messages from the number `from` on. */
  read(session: SessionKey, from: number, limit: number): Promise<StoredHistory>;
  /** Counts the messages of a session from `first` on, if that is higher than they are counted now. */
  renumber(session: SessionKey, first: number): Promise<void>;
  /**
   * Drops the oldest messages that no claim hands out any more, but for the last `keep` of them. Only
   * messages below the number `archived` go, where it is given. Returns how many went.
   */
  trim(session: SessionKey, bounds: { keep: number; archived?: number }): Promise<number>;
  /**
   * Removes a session whose last turn ended before `beforeMs`; with `archived` only if all of its messages
   * have lower numbers.
   */
  expire(session: SessionKey, condition: { beforeMs: number; archived?: number }): Promise<RemovalResult>;
  /** Finds sessions that older versions left without a note of their end, and counts them as ended now. Returns how many. */
  adopt(signal: AbortSignal): Promise<number>;
}

/** Where one person's data is, and taking it away. Everything here may be done twice. */
export interface PersonalData {
  /** Sessions of an app in which the person has written. */
  sessionsOf(app: string, person: string): Promise<SessionKey[]>;
  /** Sessions of one chat, found by looking through all: for those that no index knows. */
  sessionsOfChat(app: string, chatId: string): Promise<SessionKey[]>;
  /**
   * Removes a session whatever its age, with replies that are not sent yet, if all of its messages have
   * numbers lower than `length`. `in_use` while it is being answered.
   */
  erase(session: SessionKey, length: number): Promise<RemovalResult>;
  /**
   * Puts `marker` in place of the messages with these numbers, takes the summary of the older messages,
   * the events, and the settled approvals of that person away. Returns how many messages were replaced.
   */
  redact(session: SessionKey, what: Redaction): Promise<number>;
  /**
   * The last step: the session is not found under the person any more. False, and nothing happens, when
   * there are messages with the number `length` or higher, or one of the person's waits.
   */
  forget(session: SessionKey, person: string, length: number): Promise<boolean>;
}

export interface Redaction {
  person: string;
  numbers: readonly number[];
  marker: Message;
}

/** One record of the audit log and its place: time (epoch ms), then a number within it. */
export interface AuditEntry {
  atMs: number;
  number: number;
  record: AuditRecord;
}

/** A place in a part of the audit log. */
export type AuditPlace = Pick<AuditEntry, "atMs" | "number">;

/** The audit log as its keeper sees it: some parts, each in the order of its places. */
export interface AuditRetention {
  parts(): readonly string[];
  /** Records after a place, oldest first. */
  page(part: string, after: AuditPlace | undefined, limit: number): Promise<AuditEntry[]>;
  /**
   * Drops records from before `beforeMs`, and the oldest beyond about `maxRecords`; none after the place
   * `archived`, where it is given (`undefined` in it: none is archived yet). Returns how many went, about.
   */
  trim(part: string, bounds: AuditBounds): Promise<number>;
}

export interface AuditBounds {
  beforeMs: number;
  maxRecords: number;
  archived?: { upTo: AuditPlace | undefined };
}
