import { traceIdOf, traceparentOf, type TraceId } from "@larkline/protocol";
import { maxTracesOfSubject, subjectKinds, type FoundTrace, type SubjectKind, type TraceLog } from "@larkline/store";
import { messagesOf, type MessageTrace } from "./message-trace.ts";

/** What somebody looks for. */
export type Wanted =
  | { by: "trace"; traceId: TraceId }
  | { by: SubjectKind; id: string }
  /** Of one session, or one message of it. */
  | { by: "session"; readings: readonly SessionReading[] }
  | { by: "any"; id: string };

interface SessionReading {
  session: string;
  chat: string;
  seq?: number;
}

const longestQuery = 240;

/** A session, or one turn of it; the id of an API session may end like the number of a turn. */
function sessionReadings(id: string): SessionReading[] {
  const [, chat] = /^(?:cli_[^.]+|api)\.([^.]+)(?:\.[^.]+)?$/.exec(id) ?? [];
  if (chat === undefined) return [];
  const [, session = "", seq] = /^(.+)-(\d{1,15})$/.exec(id) ?? [];
  if (session === "") return [{ session: id, chat }];
  const chatOfTurn = session.split(".")[1] ?? "";
  return [
    { session: id, chat },
    { session, chat: chatOfTurn, seq: Number(seq) },
  ];
}

/** The kind is told by the form: ids of the platform begin with it ("Introduction of user ids", "Messages"). */
export function wantedIn(query: string): Wanted | undefined {
  const id = query.trim();
  if (id === "" || id.length > longestQuery) return undefined;
  if (/^[0-9a-f]{32}$/.test(id)) return { by: "trace", traceId: id };
  if (/^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(id)) return { by: "trace", traceId: traceIdOf(id) };
  if (id.startsWith("om_")) return { by: "message", id };
  if (/^oc_[^.]*$/.test(id)) return { by: "chat", id };
  if (/^o[un]_/.test(id)) return { by: "person", id };
  const readings = sessionReadings(id);
  if (readings.length > 0) return { by: "session", readings };
  return { by: "any", id };
}

export interface Found {
  traceId: TraceId;
  message: MessageTrace;
}

/** Messages of a list. */
const maxListed = 30;
const readAtOnce = 30;
/** A message may have come so long before it was found last ("Event subscription overview": 7 hours), ms. */
const redeliveredMs = 8 * 3_600_000;

/** What the chat of a session is found by: sessions of the HTTP API are apart from chats of the platform. */
function placeOf({ session, chat }: SessionReading): string {
  return session.startsWith("api.") ? `api.${chat}` : chat;
}

/** The traces that may have it, newest first; without a time when nothing is known about when they began. */
async function tracesOf(traces: TraceLog, wanted: Wanted): Promise<FoundTrace[]> {
  const found = async (kind: SubjectKind, id: string, limit = maxListed) => await traces.find(kind, id, limit);
  const all = async (): Promise<FoundTrace[][]> => {
    switch (wanted.by) {
      case "trace":
        return [[{ traceId: wanted.traceId, atMs: 0 }]];
      case "session": {
        const chats = [...new Set(wanted.readings.map(placeOf))];
        return await Promise.all(chats.map(async (chat) => await found("chat", chat, maxTracesOfSubject)));
      }
      case "any":
        return await Promise.all([
          ...subjectKinds.map(async (kind) => await found(kind, wanted.id)),
          found("chat", `api.${wanted.id}`),
        ]);
      default:
        return [await found(wanted.by, wanted.id)];
    }
  };
  const newest = (await all()).flat().toSorted((one, other) => other.atMs - one.atMs);
  return newest.filter(({ traceId }, at) => newest.findIndex((one) => one.traceId === traceId) === at);
}

function isIn({ session, chat, seq }: SessionReading, { chat: itsChat, place }: MessageTrace): boolean {
  if (place === undefined) return seq === undefined && itsChat === chat;
  return place.session === session && (seq === undefined || place.seq === seq);
}

function fits(wanted: Wanted, message: MessageTrace): boolean {
  const { messageId, chat, person } = message;
  switch (wanted.by) {
    case "trace":
      return true;
    case "message":
      return messageId === wanted.id;
    case "chat":
      return chat === wanted.id;
    case "person":
      return person === wanted.id;
    case "session":
      return wanted.readings.some((reading) => isIn(reading, message));
    case "any":
      return [messageId, chat, person].includes(wanted.id);
  }
}

/** Whether the trace is made from this message; clients of the HTTP API can put others into it. */
function isOwn({ traceId, message: { app, messageId: id } }: Found): boolean {
  return traceIdOf(traceparentOf({ app, id })) === traceId;
}

/** The messages that are meant, newest first, as far as their traces are kept; of a trace its own one first. */
export async function findMessages(traces: TraceLog, wanted: Wanted): Promise<Found[]> {
  const found: Found[] = [];
  const meant = await tracesOf(traces, wanted);
  for (let at = 0; at < meant.length && found.length < maxListed; at += readAtOnce) {
    const some = meant.slice(at, at + readAtOnce);
    const sinceMs = Math.min(...some.map(({ atMs }) => atMs)) - redeliveredMs;
    const all = await traces.read(
      some.map(({ traceId }) => traceId),
      sinceMs,
    );
    for (const [index, { traceId }] of some.entries()) {
      const messages = messagesOf(all[index] ?? []).filter((message) => fits(wanted, message));
      found.push(...messages.map((message) => ({ traceId, message })));
    }
  }
  const newest = found.toSorted((one, other) => other.message.atMs - one.message.atMs);
  const shown = wanted.by === "trace" ? [...newest.filter(isOwn), ...newest.filter((one) => !isOwn(one))] : newest;
  return shown.slice(0, maxListed);
}
