import { turnIdOf, type SessionKey } from "@larkline/protocol";
import { traceIdOf, traceparentOf, type TraceId } from "@larkline/protocol/trace";
import {
  type FoundTrace,
  maxTracesOfSubject,
  type RunRecord,
  type SubjectKind,
  subjectKinds,
} from "@larkline/store/operations";
import { messagesOf, type MessageTrace } from "./message-trace.ts";
import type { Services } from "./services.ts";

// What an operator looks for: they paste what they have, from a card, a log, a link or their memory.

/** Of what is pasted: a link of the console with all filters of a list. */
export const longestSearch = 2_000;

const shortTrace = "[0-9a-f]{8,31}";

/** How ids look within other text, those that say most first. */
const idForms = [
  /(?<![\w.])(?:cli_[A-Za-z0-9]+|api)\.[\w.~-]*\w/,
  /(?<!\w)[0-9a-f]{32}(?!\w)/i,
  /(?<!\w)o[mcun]_[\w-]*\w/,
] as const;

/** How the bottom of a card names a trace, in both languages. */
const footer = new RegExp(`(?:trace|追踪)[^0-9a-z]{0,3}(${shortTrace})(?![0-9a-z])`, "i");

/** What is meant by a pasted text: the id in a link, or in a line of a card or of a log; otherwise the text as it is. */
export function meantBy(pasted: string): string {
  const text = pasted.trim();
  const asked = /\/(?:why|runs|sessions)\?(?:[^\s#]*&)?(?:q|search|key)=([^&\s#)\]"'>]+)/.exec(
    text,
  )?.[1];
  if (asked !== undefined) return meantBy(decoded(asked.replaceAll("+", " ")));
  // The host of a link may look like a session.
  const readable = decoded(text.replaceAll(/\b[a-z]+:\/\/[^/\s]+/g, " "));
  for (const form of idForms) {
    const [id] = form.exec(readable) ?? [];
    if (id !== undefined) return id;
  }
  const [, trace] = footer.exec(readable) ?? [];
  return trace?.toLowerCase() ?? text;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a percent sign of its own
  }
}

/** What the visitor looks for. */
export type Wanted =
  | { by: "trace"; traceId: TraceId }
  | { by: SubjectKind; id: string }
  /** Of one session, or one message of it. */
  | { by: "session"; id: string; readings: readonly SessionReading[] }
  | { by: "any"; id: string };

interface SessionReading {
  session: string;
  chat: string;
  seq?: number;
}

/** The form of an id shows its kind: ids of the platform begin with it ("Introduction of user ids", "Messages"). */
export function wantedIn(query: string): Wanted | undefined {
  const id = query.trim();
  if (id === "" || id.length > longestId) return undefined;
  if (/^[0-9a-f]{32}$/i.test(id)) return { by: "trace", traceId: id.toLowerCase() };
  if (id.startsWith("om_")) return { by: "message", id };
  if (/^oc_[^.]*$/.test(id)) return { by: "chat", id };
  if (/^o[un]_/.test(id)) return { by: "person", id };
  const readings = sessionReadings(id);
  if (readings.length > 0) return { by: "session", id, readings };
  return { by: "any", id };
}

const longestId = 240;

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

export interface Found {
  traceId: TraceId;
  message: MessageTrace;
}

/** People and chats that a name stands for. */
const maxNamed = 5;

/**
 * The messages that are meant, newest first, as far as their traces are kept. What the traces do not know may be in the
 * records of runs, such as the message that shows an answer or the run of a helper; the beginning of a trace id, as it
 * stands on a card; a card whose answer is still written; or the name of a person or chat.
 */
export async function findInTraces(services: Services, wanted: Wanted): Promise<Found[]> {
  const direct = await findMessages(services, wanted);
  if (direct.length > 0 || !("id" in wanted)) return direct;
  const { id } = wanted;
  const byRun = await findByRuns(services, id);
  if (byRun.length > 0) return byRun;
  if (wanted.by === "message") return await findByOpenCard(services, id);
  if (wanted.by !== "any") return [];
  if (isShortTrace(id)) {
    const traces = await services.traces.startingWith(id.toLowerCase(), maxListed);
    const found = await messagesIn(services, traces, () => true);
    if (found.length > 0) return newestFirst(found);
  }
  const named = await services.names.find(id, maxNamed);
  const all = await Promise.all(
    named.map(async (one) => await findMessages(services, { by: "any", id: one })),
  );
  // A person and their chat with the bot have one name, and the same messages.
  const found = new Map(all.flat().map((one) => [`${one.traceId} ${one.message.messageId}`, one]));
  return newestFirst([...found.values()]);
}

function isShortTrace(id: string): boolean {
  return new RegExp(`^${shortTrace}$`, "i").test(id);
}

/** The messages whose runs have a text in their records, or whose answers are shown by the message of this id. */
async function findByRuns(services: Services, text: string): Promise<Found[]> {
  const { runs } = await services.runs.page({ limit: maxListed, texts: [text] });
  return newestFirst(await messagesOfRuns(services, runs));
}

async function messagesOfRuns(services: Services, runs: readonly RunRecord[]): Promise<Found[]> {
  const traces = new Map(
    runs.map(({ trace, endedAtMs, ms }) => [trace, { traceId: trace, atMs: endedAtMs - ms }]),
  );
  const asked = new Set(runs.map(({ message = "" }) => message));
  return await messagesIn(
    services,
    [...traces.values()],
    ({ messageId }) => asked.has("") || asked.has(messageId),
  );
}

/** Sessions whose cards are looked through: those in which something happens now. */
const maxBusy = 500;

/** The message whose answer, or a question about it, is on this card at this moment. */
async function findByOpenCard(services: Services, cardMessage: string): Promise<Found[]> {
  const { index, store, cards, approvals } = services;
  const isOn = async (session: SessionKey, turnId: string): Promise<boolean> => {
    const reply = await cards.load(session, turnId).catch(() => undefined); // of a newer version
    return reply?.cards.some(({ messageId }) => messageId === cardMessage) === true;
  };
  const turnOn = async (session: SessionKey): Promise<string | undefined> => {
    const [summary, { unsent }] = await Promise.all([
      store.summary(session).catch(() => undefined), // damaged
      index.ledger(session),
    ]);
    const heads = [summary, ...(summary?.setAside ?? [])].flatMap((one) => one?.head?.seq ?? []);
    for (const turnId of [
      ...heads.map((seq) => turnIdOf(session, seq)),
      ...unsent.map(({ id }) => id),
    ]) {
      if (await isOn(session, turnId)) return turnId;
    }
    const asked = await approvals.shownBy(session, cardMessage);
    return asked?.turnId;
  };
  const turns = await Promise.all((await index.busy(maxBusy)).map(turnOn));
  const found = turns.flatMap((turnId) => (turnId === undefined ? [] : (wantedIn(turnId) ?? [])));
  return (
    await Promise.all(found.map(async (wanted) => await findMessages(services, wanted)))
  ).flat();
}

/** The messages that are meant, newest first, as far as their traces are kept; of a trace its own one first. */
async function findMessages(services: Services, wanted: Wanted): Promise<Found[]> {
  const meant = await tracesOf(services, wanted);
  const found = await messagesIn(services, meant, (message) => fits(wanted, message));
  if (wanted.by !== "trace") return newestFirst(found);
  return [...found.filter(isOwn), ...newestFirst(found.filter((one) => !isOwn(one)))].slice(
    0,
    maxListed,
  );
}

function newestFirst(found: readonly Found[]): Found[] {
  return found.toSorted((one, other) => other.message.atMs - one.message.atMs).slice(0, maxListed);
}

/** Messages of a list. */
const maxListed = 30;

const readAtOnce = 30;

/** A message may have come so long before it was found last ("Event subscription overview": 7 hours), ms. */
const redeliveredMs = 8 * 3_600_000;

/** Reads traces, the newest first, until there are enough messages that fit. */
async function messagesIn(
  { traces }: Services,
  meant: readonly FoundTrace[],
  isMeant: (message: MessageTrace) => boolean,
): Promise<Found[]> {
  const found: Found[] = [];
  for (let at = 0; at < meant.length && found.length < maxListed; at += readAtOnce) {
    const some = meant.slice(at, at + readAtOnce);
    const sinceMs = Math.min(...some.map(({ atMs }) => atMs)) - redeliveredMs;
    const all = await traces.read(
      some.map(({ traceId }) => traceId),
      sinceMs,
    );
    for (const [index, { traceId }] of some.entries()) {
      const messages = messagesOf(all[index] ?? []).filter(isMeant);
      found.push(...messages.map((message) => ({ traceId, message })));
    }
  }
  return found;
}

/** The traces that may have it, newest first; without a time when nothing is known about when they began. */
async function tracesOf({ traces }: Services, wanted: Wanted): Promise<FoundTrace[]> {
  const found = async (kind: SubjectKind, id: string, limit = maxListed) =>
    await traces.find(kind, id, limit);
  const all = async (): Promise<FoundTrace[][]> => {
    switch (wanted.by) {
      case "trace":
        return [[{ traceId: wanted.traceId, atMs: 0 }]];
      case "session": {
        const chats = [...new Set(wanted.readings.map(placeOf))];
        return await Promise.all(
          chats.map(async (chat) => await found("chat", chat, maxTracesOfSubject)),
        );
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
  return newest.filter(
    ({ traceId }, at) => newest.findIndex((one) => one.traceId === traceId) === at,
  );
}

/** What the chat of a session is found by: sessions of the HTTP API are apart from chats of the platform. */
function placeOf({ session, chat }: SessionReading): string {
  return session.startsWith("api.") ? `api.${chat}` : chat;
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

function isIn(
  { session, chat, seq }: SessionReading,
  { chat: itsChat, place }: MessageTrace,
): boolean {
  if (place === undefined) return seq === undefined && itsChat === chat;
  return place.session === session && (seq === undefined || place.seq === seq);
}

/** Whether the trace is made from this message; clients of the HTTP API can put others into it. */
function isOwn({ traceId, message: { app, messageId: id } }: Found): boolean {
  return traceIdOf(traceparentOf({ app, id })) === traceId;
}

/** Sessions in which messages are, that are meant by an id which is not of a session. */
export async function sessionsOf(services: Services, wanted: Wanted): Promise<SessionKey[]> {
  const isShort = wanted.by === "any" && isShortTrace(wanted.id);
  if (!isShort && wanted.by !== "trace" && wanted.by !== "message" && wanted.by !== "session") {
    return [];
  }
  const found = await findInTraces(services, wanted);
  return [...new Set(found.flatMap(({ message }) => message.place?.session ?? []))];
}
