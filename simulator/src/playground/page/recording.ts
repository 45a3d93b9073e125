import type { ChatView, PersonView, SimMessage } from "../routes.ts";
import { isPart, partsOf } from "./card-part.ts";
import { base64Of, byTime, type Store } from "./store.ts";

/** A conversation with its timing: what each message was, and how it changed. */
export interface Recording {
  version: 1;
  chat: ChatView;
  people: PersonView[];
  bots: { appId: string; name: string }[];
  /** Pictures as data addresses, by image key. */
  images: Record<string, string>;
  steps: RecordingStep[];
}

/** A message appeared, or changed. */
export interface RecordingStep {
  /** Since the start of the recording, never less than that of the step before. */
  atMs: number;
  messageId: string;
  changes: Change[];
}

/** Reads a recording; undefined when the text is none. What messages say is shown as text, whatever it is. */
export function parseRecording(text: string): Recording | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isRecording(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isRecording(value: unknown): value is Recording {
  if (!isPart(value) || value.version !== 1 || !isPart(value.images) || !isPart(value.chat)) return false;
  const { chat, people, bots, images, steps } = value;
  return (
    isPart(chat) &&
    typeof chat.chatId === "string" &&
    typeof chat.name === "string" &&
    Array.isArray(chat.members) &&
    areAll(people, (person) => typeof person.openId === "string" && typeof person.name === "string") &&
    areAll(bots, (bot) => typeof bot.appId === "string" && typeof bot.name === "string") &&
    Object.values(images).every((image) => typeof image === "string" && /^data:image\/[\w+.-]+;base64,/.test(image)) &&
    areAll(steps, isStep)
  );
}

function areAll(list: unknown, fits: (item: Readonly<Record<string, unknown>>) => boolean): boolean {
  return Array.isArray(list) && partsOf(list).length === list.length && partsOf(list).every(fits);
}

function isStep({ atMs, messageId, changes }: Readonly<Record<string, unknown>>): boolean {
  const timed = typeof atMs === "number" && atMs >= 0 && typeof messageId === "string";
  return timed && areAll(changes, ({ at }) => Array.isArray(at));
}

/** The message after a step; undefined when the step makes no message. */
export function messageAfter(before: SimMessage | undefined, { changes }: RecordingStep): SimMessage | undefined {
  const next = withChanges(before, changes);
  return isMessage(next) ? next : undefined;
}

function isMessage(value: unknown): value is SimMessage {
  if (!isPart(value) || !Array.isArray(value.reactions) || !Array.isArray(value.mentions)) return false;
  const texts = ["messageId", "chatId", "senderId", "messageType", "content", "text"];
  const card = value.card;
  return (
    texts.every((name) => typeof value[name] === "string") &&
    typeof value.createdAt === "number" &&
    Number.isFinite(new Date(value.createdAt).getTime()) &&
    (card === undefined || (isPart(card) && isPart(card.json)))
  );
}

/** One difference between two JSON values, at a path: `set`, `append` to a text, or removed. */
interface Change {
  at: readonly (string | number)[];
  set?: unknown;
  append?: string;
}

type Json = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What makes the next value of the old one. Texts that grow cost only what they grew by. */
export function changesBetween(old: unknown, next: unknown, at: readonly (string | number)[] = []): Change[] {
  if (Object.is(old, next)) return [];
  if (typeof old === "string" && typeof next === "string" && old !== "" && next.startsWith(old)) {
    return [{ at, append: next.slice(old.length) }];
  }
  if (Array.isArray(old) && Array.isArray(next) && old.length === next.length) {
    return next.flatMap((item: unknown, index) => changesBetween(old[index], item, [...at, index]));
  }
  if (!isObject(old) || !isObject(next)) return [{ at, set: next }];
  const gone = Object.keys(old).filter((name) => !Object.hasOwn(next, name));
  return [
    ...gone.map((name) => ({ at: [...at, name] })),
    ...Object.entries(next).flatMap(([name, value]) =>
      Object.hasOwn(old, name) ? changesBetween(old[name], value, [...at, name]) : [{ at: [...at, name], set: value }],
    ),
  ];
}

/** The value with the changes made; nothing within the old value is touched. */
export function withChanges(value: unknown, changes: readonly Change[]): unknown {
  return changes.reduce((current, change) => changed(current, change, change.at), value);
}

function changed(value: unknown, change: Change, at: Change["at"]): unknown {
  const [name, ...rest] = at;
  if (name === undefined) return change.append === undefined ? change.set : `${String(value)}${change.append}`;
  if (Array.isArray(value)) {
    return value.map((item: unknown, index) => (index === name ? changed(item, change, rest) : item));
  }
  const object = isObject(value) ? value : {};
  const removes = rest.length === 0 && change.append === undefined && !Object.hasOwn(change, "set");
  if (!removes) return { ...object, [name]: changed(object[name], change, rest) };
  return Object.fromEntries(Object.entries(object).filter(([key]) => key !== String(name)));
}

/* ---- Recording ---- */

/** Steps kept of a chat: beyond them nothing more is noted, so that what is kept has its beginning. */
const mostSteps = 20_000;

interface Notes {
  startedAt: number;
  steps: RecordingStep[];
  messages: Map<string, SimMessage>;
}

/** Notes how messages come and change, from the opening of the page on. */
export class Recorder {
  readonly #store: Store;
  readonly #chats = new Map<string, Notes>();

  constructor(store: Store) {
    this.#store = store;
  }

  note(message: SimMessage): void {
    const notes = this.#chats.get(message.chatId) ?? firstNotes(this.#store, message);
    this.#chats.set(message.chatId, notes);
    const changes = changesBetween(notes.messages.get(message.messageId), message);
    if (changes.length === 0 || notes.steps.length >= mostSteps) return;
    notes.messages.set(message.messageId, message);
    const atMs = Math.round(performance.now() - notes.startedAt);
    notes.steps.push({ atMs, messageId: message.messageId, changes });
  }

  /** What was noted of a chat; undefined when nothing was. */
  async recordingOf(chat: ChatView): Promise<Recording | undefined> {
    const notes = this.#chats.get(chat.chatId);
    if (notes === undefined) return undefined;
    const { people, apps } = this.#store.state;
    return {
      version: 1,
      chat,
      people: people.filter(({ openId }) => chat.members.includes(openId)),
      bots: apps.map(({ appId, name }) => ({ appId, name })),
      images: await imagesIn(JSON.stringify(notes.steps)),
      steps: [...notes.steps],
    };
  }
}

/** The messages that were there before stand at the beginning. */
function firstNotes(store: Store, first: SimMessage): Notes {
  const earlier = store.state.messages
    .filter(({ chatId, messageId }) => chatId === first.chatId && messageId !== first.messageId)
    .toSorted(byTime);
  return {
    startedAt: performance.now(),
    steps: earlier.map((message) => ({
      atMs: 0,
      messageId: message.messageId,
      changes: changesBetween(undefined, message),
    })),
    messages: new Map(earlier.map((message) => [message.messageId, message])),
  };
}

async function imagesIn(text: string): Promise<Record<string, string>> {
  const images: Record<string, string> = {};
  for (const key of new Set(text.match(/img_v3_[\w-]+/g))) {
    const response = await fetch(`/api/images/${key}`, { signal: AbortSignal.timeout(10_000) });
    if (!response.ok) continue;
    const blob = await response.blob();
    images[key] = `data:${blob.type};base64,${await base64Of(blob)}`;
  }
  return images;
}

/** Hands a recording to the person as a file. */
export function downloadRecording(recording: Recording, name: string): void {
  const url = URL.createObjectURL(new Blob([JSON.stringify(recording)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name.replaceAll(/[^\p{L}\p{N}]+/gu, "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
