import { turnIdOf, type SessionKey } from "@larkline/protocol";
import type { TraceEntry } from "@larkline/protocol/trace";

/** What a trace says of one message. Most traces have one; a client may give the same to several. */
export interface MessageTrace {
  /** Empty when nothing says which. */
  messageId: string;
  app: string;
  chat: string;
  person: string;
  /** When it was first received, or the first thing that is known of it. */
  atMs: number;
  /** Absent: it has not reached a session, as far as the trace knows. */
  place?: { session: SessionKey; seq: number };
  /** By time. */
  entries: readonly TraceEntry[];
}

type Data = TraceEntry["data"];

export function textIn(data: Data, name: string): string {
  const value = data[name];
  return typeof value === "string" ? value : "";
}

export function numberIn(data: Data, name: string): number | undefined {
  const value = data[name];
  return typeof value === "number" ? value : undefined;
}

function placeIn(entries: readonly TraceEntry[]): MessageTrace["place"] {
  const appended = entries.find(({ name }) => name === "message.appended");
  if (appended === undefined) return undefined;
  const session = textIn(appended.data, "session");
  const seq = numberIn(appended.data, "seq");
  return session === "" || seq === undefined ? undefined : { session, seq };
}

function belongsTo(messageId: string, turnId: string | undefined, { data }: TraceEntry): boolean {
  const message = textIn(data, "message");
  if (message !== "") return message === messageId;
  const turn = textIn(data, "turn") || textIn(data, "reply");
  // Calls of the platform name neither.
  return turn === "" || turnId === undefined || turn === turnId || !turn.includes("-");
}

function traceOfMessage(messageId: string, all: readonly TraceEntry[]): MessageTrace {
  const own = all.filter(({ data }) => textIn(data, "message") === messageId);
  const place = placeIn(messageId === "" ? all : own);
  const turnId = place === undefined ? undefined : turnIdOf(place.session, place.seq);
  const entries = all.filter((entry) => belongsTo(messageId, turnId, entry));
  const received = own.find(({ name }) => name === "message.received")?.data ?? {};
  return {
    messageId,
    app: textIn(received, "app"),
    chat: textIn(received, "chat"),
    person: textIn(received, "person"),
    atMs: entries[0]?.atMs ?? 0,
    ...(place === undefined ? {} : { place }),
    entries,
  };
}

/** Within a millisecond: what happens comes before what begins with it. */
function rank({ kind }: TraceEntry): number {
  return kind === "event" ? 0 : 1;
}

/** Separates the messages of a trace, oldest first. */
export function messagesOf(stored: readonly TraceEntry[]): MessageTrace[] {
  const all = stored.toSorted((one, other) => one.atMs - other.atMs || rank(one) - rank(other));
  const ids = new Set(all.map(({ data }) => textIn(data, "message")).filter((id) => id !== ""));
  if (all.length === 0) return [];
  return ids.size === 0 ? [traceOfMessage("", all)] : [...ids].map((id) => traceOfMessage(id, all));
}

/** One line of a timeline. */
export interface TimelineRow {
  atMs: number;
  /** Of the last of several that stand together. */
  untilMs: number;
  name: string;
  service: string;
  instance: string;
  /** Absent of what takes no time, and of what has no end. */
  ms?: number;
  /** It began and did not end, as far as is known. */
  isOpen: boolean;
  failed?: string;
  data: Data;
  /** How many of a kind stand together in it. */
  count: number;
}

function rowOf(entry: TraceEntry): TimelineRow {
  const { atMs, name, service, instance, ms, failed, data, kind } = entry;
  return {
    atMs,
    untilMs: atMs + (ms ?? 0),
    name,
    service,
    instance,
    ...(ms === undefined ? {} : { ms }),
    isOpen: kind === "begin",
    ...(failed === undefined ? {} : { failed }),
    data,
    count: 1,
  };
}

function spanKey({ service, instance, span = "" }: TraceEntry): string {
  return `${service} ${instance} ${span}`;
}

/** Beginnings with their ends. */
function rowsOf(entries: readonly TraceEntry[]): TimelineRow[] {
  const ends = new Map(
    entries.filter(({ kind }) => kind === "end").map((entry) => [spanKey(entry), entry]),
  );
  return entries
    .filter(({ kind }) => kind !== "end")
    .map((entry) => {
      const end = entry.kind === "begin" ? ends.get(spanKey(entry)) : undefined;
      if (end === undefined) return rowOf(entry);
      const { ms = 0, failed } = end;
      const whole = { ...entry, kind: "span" as const, ms, data: { ...entry.data, ...end.data } };
      return rowOf(failed === undefined ? whole : { ...whole, failed });
    });
}

/** Frames of cards that stand together in one line. */
const crowd = 3;

function isFrame({ name, failed, isOpen, data }: TimelineRow): boolean {
  return (
    name === "card.write" &&
    failed === undefined &&
    !isOpen &&
    textIn(data, "operation").startsWith("cardkit.")
  );
}

function together(rows: readonly TimelineRow[]): TimelineRow[] {
  const [first] = rows;
  const last = rows.at(-1);
  if (first === undefined || last === undefined || rows.length < crowd) return [...rows];
  const ms = Math.round(rows.reduce((sum, row) => sum + (row.ms ?? 0), 0) / rows.length);
  return [{ ...first, untilMs: last.untilMs, ms, count: rows.length }];
}

/** What happened, by time; frames of a card that follow each other are one line. */
export function timelineOf(
  entries: readonly TraceEntry[],
  { everyFrame }: { everyFrame: boolean },
): TimelineRow[] {
  const rows = rowsOf(entries);
  if (everyFrame) return rows;
  const shown: TimelineRow[] = [];
  let frames: TimelineRow[] = [];
  for (const row of rows) {
    const [first] = frames;
    if (
      isFrame(row) &&
      (first === undefined || first.data["operation"] === row.data["operation"])
    ) {
      frames.push(row);
    } else {
      shown.push(...together(frames));
      frames = isFrame(row) ? [row] : [];
      if (frames.length === 0) shown.push(row);
    }
  }
  return [...shown, ...together(frames)];
}
