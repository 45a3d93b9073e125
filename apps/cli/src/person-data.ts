import { apiApp, isChildSession, type InboundMessage, type SessionKey } from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import { createQueueCatalog, type QueueCatalog } from "@larkline/store/queues";
import {
  forgetGrant,
  ApprovalStore,
  type Archive,
  AuditLog,
  type BlobStore,
  DeadLetters,
  MemoryStore,
  ScheduleStore,
  SessionFiles,
  PermissionRules,
  RedisBlobStore,
  removeParkedMessages,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { resultHandlesIn } from "@larkline/store/runners";
import { NameBook, RatingStore, RunLog, UsageStore } from "@larkline/store/operations";
import { LookupCache } from "@larkline/store/platform";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";

/** Whose data is meant. */
export interface Person {
  app: string;
  id: string;
  /** Direct chats, or sessions of the HTTP API, by what the operator knows: for those that no index has. */
  chats: readonly string[];
}

/** A message and where it is kept. */
export interface KeptMessage {
  number: number;
  message: Message;
  where: "redis" | "archive";
}

const page = 500;

/** Sessions of callers of the HTTP API without a name are those of no person: the operator names them one by one. */
function hasIndex({ app, id }: Person): boolean {
  return app !== apiApp || id.startsWith(`${apiApp}:`);
}

/** Sessions in which the person has written, as far as they are known. Rejects when a named chat is another person's. */
export async function sessionsOfPerson(
  stores: PersonStores,
  person: Person,
): Promise<SessionKey[]> {
  const { sessions, archive, lookups } = stores;
  const { app, id, chats: named } = person;
  // Which chat with the bot is theirs is remembered while they write in it.
  const direct = await lookups.get(`direct:${app}:${id}`);
  const chats = new Set([...named, ...(direct === undefined ? [] : [direct])]);
  const indexes = !hasIndex(person) ? [] : [sessions, ...(archive === undefined ? [] : [archive])];
  const found = await Promise.all([
    ...indexes.map(async (index) => await index.sessionsOf(app, id)),
    ...[...chats].map(async (chat) => await theirsOfChat(stores, person, chat)),
  ]);
  return [...new Set(found.flat())].sort();
}

/**
 * The person's sessions of one chat: an operator may name a wrong one. A session that names no person, as older versions
 * have left it, is theirs, and so is one of a caller of the HTTP API without a name.
 */
async function theirsOfChat(
  stores: PersonStores,
  { app, id }: Person,
  chat: string,
): Promise<SessionKey[]> {
  const found: SessionKey[] = [];
  for (const session of await stores.sessions.sessionsOfChat(app, chat)) {
    const kinds = await peopleIn(stores, session);
    const people = [...kinds.keys()];
    const isTheirs =
      people.length === 0 ||
      people.some((each) => each === id || (app === apiApp && each === apiApp));
    if (isTheirs) found.push(session);
    // In a group others may have threads of their own.
    else if (![...kinds.values()].includes("group")) {
      throw new ForeignSessionError(session, people, id);
    }
  }
  return found;
}

/** The operator has named the chat of another person. */
class ForeignSessionError extends Error {
  override readonly name = "ForeignSessionError";

  constructor(session: SessionKey, people: readonly string[], person: string) {
    super(
      `${session} is a conversation of ${people.join(", ")}, not of ${person}. Check --chat, or name that person.`,
    );
  }
}

/** Who has written in a session, and in what kind of chat, as Redis and the archive know. */
async function peopleIn(
  { sessions, archive }: PersonStores,
  session: SessionKey,
): Promise<Map<string, string>> {
  const { people } = await sessions.read(session, 0, 0);
  return new Map(Object.entries({ ...(await archive?.peopleOf(session)), ...people }));
}

/** Under which keys the language of a person is looked up: over HTTP that of a session. */
export function languageKeysOf({ app, id, chats }: Person): string[] {
  return (app === apiApp ? chats : [id]).map((name) => `lang:${app}:${name}`);
}

async function* archivedOf(
  { archive }: PersonStores,
  session: SessionKey,
): AsyncIterable<KeptMessage> {
  let next = 0;
  for (let more = archive !== undefined; more;) {
    const kept = (await archive?.read(session, next, page)) ?? [];
    for (const { number, message } of kept) yield { number, message, where: "archive" };
    next = (kept.at(-1)?.number ?? next) + 1;
    more = kept.length === page;
  }
}

async function* storedOf(
  { sessions }: PersonStores,
  session: SessionKey,
  from: number,
): AsyncIterable<KeptMessage> {
  let next = from;
  for (;;) {
    const { first, messages } = await sessions.read(session, next, page);
    for (const [at, message] of messages.entries()) {
      yield { number: first + at, message, where: "redis" };
    }
    next = first + messages.length;
    if (messages.length < page) return;
  }
}

/** All messages of a session that are kept: those of the archive, then those that are in Redis only. */
export async function* messagesOf(
  stores: PersonStores,
  session: SessionKey,
): AsyncIterable<KeptMessage> {
  let next = 0;
  for await (const kept of archivedOf(stores, session)) {
    next = kept.number + 1;
    yield kept;
  }
  yield* storedOf(stores, session, next);
}

/** The same, and what is in both places twice: it may be gone from one of them. */
export async function* copiesOf(
  stores: PersonStores,
  session: SessionKey,
): AsyncIterable<KeptMessage> {
  yield* archivedOf(stores, session);
  yield* storedOf(stores, session, 0);
}

/** Whether the message is the person's own: in groups it says so; elsewhere all of the session is theirs. */
export function isOwn(message: Message, person: Person): boolean {
  return message.role === "user" && message.sender === person.id;
}

/**
 * Whether the session as a whole is the person's: a direct chat, a session of the HTTP API, or a
 * conversation in a group in which only this person has written.
 */
export async function isWholly(
  stores: PersonStores,
  session: SessionKey,
  person: Person,
): Promise<boolean> {
  const kinds = await peopleIn(stores, session);
  if (![...kinds.values()].includes("group")) return true;
  if (kinds.size > 1) return false;
  if (isChildSession(session)) return true; // helpers have worked for this person alone
  for await (const { message } of messagesOf(stores, session)) {
    if (message.role === "user" && !isOwn(message, person)) return false;
  }
  return true;
}

/** Ids of the files and images that a message refers to. */
export function blobsIn(message: Message): string[] {
  return message.content.flatMap((part) => {
    if (part.type === "file") return part.blobId === undefined ? [] : [part.blobId];
    if (part.type === "image") return part.source.sourceType === "blob" ? [part.source.blobId] : [];
    if (part.type !== "tool_result" || typeof part.content === "string") return [];
    return part.content.flatMap((each) =>
      each.type === "image" && each.source.sourceType === "blob" ? [each.source.blobId] : [],
    );
  });
}

/** Handles of the results that were too large for a message. */
export function storedResultsIn(message: Message): string[] {
  return message.content.flatMap((part) => {
    if (part.type !== "tool_result") return [];
    const texts = typeof part.content === "string" ? [part.content] : part.content.map(textIn);
    return texts.flatMap(resultHandlesIn);
  });
}

function textIn(part: { type: string; text?: string }): string {
  return part.text ?? "";
}

/** As many days as a deployment can keep records of runs (`retention.traceDays`). */
const longestRunDays = 30;

/** Where data of a person can be. */
export interface PersonStores {
  store: SessionStore;
  sessions: SessionRetention;
  approvals: ApprovalStore;
  rules: PermissionRules;
  memories: MemoryStore;
  schedules: ScheduleStore;
  /** Erases what a person lets a bot do as them. */
  forgetGrant(app: string, openId: string): Promise<void>;
  files: SessionFiles;
  audit: AuditLog;
  lookups: LookupCache;
  /** What workers have looked up. */
  workerLookups: LookupCache;
  blobs: BlobStore;
  letters: DeadLetters;
  /** How runs have ended. */
  runs: RunLog;
  /** Who has used what. */
  usage: UsageStore;
  /** What people and chats are called. */
  names: NameBook;
  /** What people have said of answers. */
  ratings: RatingStore;
  /** What queues keep of finished jobs. */
  jobs: Pick<QueueCatalog, "erase">;
  /** Removes messages that wait behind a question, of all sessions; returns how many. */
  removeParked(isMeant: (message: InboundMessage) => boolean): Promise<number>;
  archive: Archive | undefined;
  close(): Promise<void>;
}

export interface PersonStoresOptions {
  redisUrl: string;
  namespace: string;
  /** The PostgreSQL of the archive; absent: there is none. */
  archiveUrl?: string | undefined;
  /** The folder of files; absent: they are in Redis. */
  blobDirectory?: string | undefined;
  onError: (error: Error) => void;
}

export function openPersonStores(options: PersonStoresOptions): PersonStores {
  const { redisUrl, namespace, archiveUrl: url, blobDirectory: directory, onError } = options;
  const redis = connectRedis(redisUrl, { onError });
  const on = { redis, namespace };
  const jobs = createQueueCatalog({ connection: redis, prefix: `{${namespace}}`, onError });
  const archive = url === undefined ? undefined : createPostgresArchive({ url, schema: namespace });
  return {
    store: new SessionStore(on),
    sessions: new SessionRetention(on),
    approvals: new ApprovalStore(on),
    rules: new PermissionRules(on),
    memories: new MemoryStore(on),
    schedules: new ScheduleStore(on),
    files: new SessionFiles(on),
    audit: new AuditLog(on),
    lookups: new LookupCache({ ...on, owner: "ingress" }),
    workerLookups: new LookupCache({ ...on, owner: "worker" }),
    blobs: directory === undefined ? new RedisBlobStore(on) : createFileBlobStore({ directory }),
    letters: new DeadLetters(on),
    runs: new RunLog({ ...on, ttlMs: longestRunDays * 86_400_000 }),
    // Days of other time zones have the same numbers, or begin a day apart: all that are kept are looked at.
    usage: new UsageStore({ ...on, timeZone: "UTC" }),
    names: new NameBook(on),
    ratings: new RatingStore(on),
    jobs,
    forgetGrant: async (app, openId) => await forgetGrant(on, { app, openId }),
    removeParked: async (isMeant) => await removeParkedMessages(on, isMeant),
    archive,
    close: async () => {
      await jobs.close();
      await Promise.all([closeRedis(redis), archive?.close()]);
    },
  };
}
