import type { TraceEntry, TraceId } from "@larkline/protocol";

/**
 * What traces are found by, besides their ids: the platform's ids of message, chat and person. For the chat of a
 * message of the HTTP API stands `api.<session id>`.
 */
export const subjectKinds = ["message", "chat", "person"] as const;
export type SubjectKind = (typeof subjectKinds)[number];

/** What a trace is about. */
export type TraceSubject = Readonly<Partial<Record<SubjectKind, string>>>;

/** What is added to one trace. */
export interface TraceWrite {
  traceId: TraceId;
  entries: readonly TraceEntry[];
  /** Given: the trace can be found by these from now on. */
  subject?: TraceSubject;
}

export interface FoundTrace {
  traceId: TraceId;
  /** When it was last made findable: about the time of its message. */
  atMs: number;
}

/** How long a trace is kept after its last entry, where nothing else is said. */
export const defaultTraceTtlMs = 3 * 86_400_000;

/** Entries kept per trace, about: of a longer one the first and the newest. */
export const maxTraceEntries = 1_000;

/** Traces that can be found by one message, chat or person: the newest ones. */
export const maxTracesOfSubject = 300;

/**
 * What was done for each message, by trace id, for people who ask why there is no answer. Bounded in
 * number and time; losing an entry is harmless, and nothing may wait for it.
 */
export interface TraceLog {
  /** Adds entries to traces. Rejects when that is not certain: some may be there. */
  append(writes: readonly TraceWrite[]): Promise<void>;
  /** All entries of a trace, in the order in which they were added; empty when nothing is known of it. */
  read(traceId: TraceId): Promise<TraceEntry[]>;
  /** Traces by what they are about, newest first. */
  find(kind: SubjectKind, id: string, limit: number): Promise<FoundTrace[]>;
}

/** The first entries of a trace, which say what it is about, stay when it gets too long. */
export const keptHeadEntries = 50;
