import { jsonParserOf, parserOf } from "@larkline/protocol";
import { systemClock, systemRandom, type Clock } from "@larkline/protocol/clock";
import { TraceEntry, type TraceId } from "@larkline/protocol/trace";
import { type Static, Type } from "@larkline/protocol/type";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions, type TraceWindowKeys } from "./keys.ts";

// What was done for each message, for people who ask why there is no answer. Writing is cheap, because every message
// pays for it: a process writes one record for all traces that it has something new of, and one line that says which
// traces these are. Reading is for a person now and then: it looks through the lines for the traces that are meant.

/**
 * What traces are found by, besides their ids: the platform's ids of message, chat and person. The chat of a message
 * of the HTTP API is `api.<session id>`.
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

/** How long the entries of a trace are kept, where nothing else is said. */
const defaultTraceTtlMs = 3 * 86_400_000;

/** Entries of one trace that are read: of a longer one the first and the newest. */
export const maxTraceEntries = 1_000;
/** The first entries of a trace say what it is about. */
const headEntries = 50;

/** Traces that can be found by one message, chat or person: the newest ones. */
export const maxTracesOfSubject = 300;

export interface TraceLogOptions extends StoreOptions {
  /** How long entries are kept, ms. Readers look no further back. */
  ttlMs?: number;
}

/** Lines are kept in lists of so much time, ms. Writers and readers have to agree on it. */
const windowMs = 600_000;
/** Windows that are read at once: about 1 MB at 100,000 messages a day. */
const windowsAtOnce = 36;
/** Clocks of processes may differ by less than this, ms. */
const clockSlackMs = 10_000;

/** A line holds so many digits of a trace id: enough to tell which records are worth reading. */
const prefixLength = 16;

const NamedTrace = Type.Object({
  traceId: Type.String(),
  message: Type.Optional(Type.String()),
  chat: Type.Optional(Type.String()),
  person: Type.Optional(Type.String()),
});
type NamedTrace = Static<typeof NamedTrace>;

/** Says which traces a record has entries of, and what these are about as far as its writer knows. */
const Line = Type.Object({
  record: Type.String(),
  atMs: Type.Integer(),
  traces: Type.Array(Type.String()),
  subjects: Type.Optional(Type.Array(NamedTrace)),
});
const parseLine = jsonParserOf(Line);

/** What a process has written at once, by trace. Entries of the process itself do not repeat who has written them. */
const StoredRecord = Type.Object({
  service: Type.String(),
  instance: Type.String(),
  traces: Type.Record(Type.String(), Type.Array(Type.Record(Type.String(), Type.Unknown()))),
});
const parseRecord = jsonParserOf(StoredRecord);
const parseEntry = parserOf(TraceEntry);

/** Traces on Redis. Losing an entry is harmless, and nothing may wait for it. Expiry is Redis's. */
export class TraceLog {
  readonly #redis: RedisConnection;
  readonly #windowAt: (atMs: number) => TraceWindowKeys;
  readonly #ttlMs: number;
  readonly #clock: Clock;
  /** A number distinguishes the records of this process. */
  readonly #writer: string;
  #records = 0;
  /** The lists of lines whose expiry this process has set, of the window it last wrote to. */
  readonly #expiring = new Set<string>();

  constructor(options: TraceLogOptions) {
    const {
      redis,
      namespace,
      ttlMs = defaultTraceTtlMs,
      clock = systemClock,
      random = systemRandom,
    } = options;
    this.#writer = random.id();
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#clock = clock;
    this.#windowAt = (atMs) => keys.traceWindow(Math.floor(atMs / windowMs));
    this.#ttlMs = ttlMs;
  }

  /**
   * A trace log on a connection of its own: observing must not delay the work, nor be delayed by it. Problems of the
   * connection are those of its commands.
   */
  static connect({
    redisUrl,
    ...rest
  }: Omit<TraceLogOptions, "redis"> & { redisUrl: string }): TraceLog {
    return new TraceLog({ redis: connectRedis(redisUrl, rest), ...rest });
  }

  /** Closes its connection. */
  async close(): Promise<void> {
    await closeRedis(this.#redis, this.#clock);
  }

  /** Adds entries to traces, in one write. Rejects when that is not certain: some may be there. */
  async append(writes: readonly TraceWrite[]): Promise<void> {
    const [first] = writes.flatMap(({ entries }) => entries);
    const subjects = writes.flatMap(({ traceId, subject }) =>
      subject === undefined ? [] : [{ traceId, ...subject }],
    );
    if (first === undefined && subjects.length === 0) return;
    const atMs = this.#clock.now();
    const keys = this.#windowAt(atMs);
    const record = `${this.#writer}-${(this.#records += 1)}`;
    const traces = writes.map(({ traceId }) => prefixOf(traceId));
    const line = { record, atMs, traces, ...(subjects.length === 0 ? {} : { subjects }) };
    // Only those who receive messages may say what traces are about: their lines are in a list of their own.
    const list = subjects.length === 0 ? keys.records : keys.names;
    const pipeline = this.#redis.pipeline();
    if (first !== undefined) {
      pipeline.set(keys.recordOf(record), recordText(first, writes), "PX", this.#ttlMs);
    }
    pipeline.rpush(list, JSON.stringify(line));
    if (!this.#expiring.has(list)) pipeline.pexpire(list, this.#ttlMs + windowMs);
    for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
    this.#remember(list, keys);
  }

  /**
   * The entries of traces, each in the order in which they were added; none when nothing is known of a trace.
   * `sinceMs`: nothing older is looked for.
   */
  async read(traceIds: readonly TraceId[], sinceMs = 0): Promise<TraceEntry[][]> {
    const records = await this.#recordsOf(traceIds, sinceMs);
    return await Promise.all(
      traceIds.map(async (traceId) => {
        const texts = await Promise.all(
          ends(records.get(traceId) ?? []).map(async (key) => this.#redis.get(key)),
        );
        return ends(texts.flatMap((text) => (text === null ? [] : entriesIn(text, traceId))));
      }),
    );
  }

  /** Traces by what they are about, newest first. */
  async find(kind: SubjectKind, id: string, limit: number): Promise<FoundTrace[]> {
    const most = Math.min(limit, maxTracesOfSubject);
    const found = await this.#findNamed(
      JSON.stringify(id),
      most,
      (subject) => subject[kind] === id,
    );
    return found.slice(0, most);
  }

  /** Traces whose ids begin with a text, newest first. */
  async startingWith(text: string, limit: number): Promise<FoundTrace[]> {
    const found = await this.#findNamed(`"${text}`, limit, ({ traceId }) =>
      traceId.startsWith(text),
    );
    return found.slice(0, limit);
  }

  /** Traces of the lines that say what traces are about, the newest first, until there are enough. */
  async #findNamed(
    part: string,
    most: number,
    isMeant: (subject: NamedTrace) => boolean,
  ): Promise<FoundTrace[]> {
    const sinceMs = this.#clock.now() - this.#ttlMs;
    const found = new Map<TraceId, FoundTrace>();
    for (const starts of this.#windowsSince(sinceMs).toReversed()) {
      const lists = await Promise.all(
        starts.map(async (start) => this.#linesIn(this.#windowAt(start).names, [part])),
      );
      for (const { atMs, subjects = [] } of lists.flat().toReversed()) {
        for (const { traceId } of atMs < sinceMs ? [] : subjects.filter(isMeant).toReversed()) {
          if (!found.has(traceId)) found.set(traceId, { traceId, atMs });
        }
      }
      if (found.size >= most) break;
    }
    return [...found.values()];
  }

  /** The keys of the records in which the traces have entries, oldest first. */
  async #recordsOf(traceIds: readonly TraceId[], sinceMs: number): Promise<Map<TraceId, string[]>> {
    const places = new Map(traceIds.map((traceId): [TraceId, string[]] => [traceId, []]));
    const keptSinceMs = Math.max(sinceMs, this.#clock.now() - this.#ttlMs);
    for (const starts of this.#windowsSince(keptSinceMs)) {
      const found = await Promise.all(starts.map(async (start) => this.#placesIn(start, traceIds)));
      for (const { traceId, key } of found.flat()) places.get(traceId)?.push(key);
    }
    return places;
  }

  async #placesIn(
    startMs: number,
    traceIds: readonly TraceId[],
  ): Promise<{ traceId: TraceId; key: string }[]> {
    const keys = this.#windowAt(startMs);
    const lists = [keys.names, keys.records].map(async (list) =>
      this.#linesIn(list, traceIds.map(prefixOf)),
    );
    const lines = (await Promise.all(lists)).flat().toSorted((one, other) => one.atMs - other.atMs);
    return lines.flatMap(({ record, traces }) =>
      traceIds
        .filter((traceId) => traces.includes(prefixOf(traceId)))
        .map((traceId) => ({ traceId, key: keys.recordOf(record) })),
    );
  }

  /** The lines of a list in which one of the texts stands. */
  async #linesIn(list: string, texts: readonly string[]) {
    const lines = await this.#redis.lrange(list, 0, -1);
    const meant = lines.filter((line) => texts.some((text) => line.includes(text)));
    // Lines that a newer version writes in another way are left out: the rest is still of use.
    return meant.map(parseLine).flatMap((parsed) => (parsed.ok ? [parsed.value] : []));
  }

  /** The beginnings of all windows from then until now, oldest first, in groups that are read at once. */
  #windowsSince(sinceMs: number): number[][] {
    const endMs = this.#clock.now() + clockSlackMs;
    const groups: number[][] = [];
    for (let startMs = sinceMs - clockSlackMs; startMs < endMs + windowMs; startMs += windowMs) {
      const group = groups.at(-1);
      if (group === undefined || group.length >= windowsAtOnce) groups.push([startMs]);
      else group.push(startMs);
    }
    return groups;
  }

  #remember(list: string, { names, records }: TraceWindowKeys): void {
    for (const known of this.#expiring) {
      if (known !== names && known !== records) this.#expiring.delete(known);
    }
    this.#expiring.add(list);
  }
}

function prefixOf(traceId: TraceId): string {
  return traceId.slice(0, prefixLength);
}

function recordText({ service, instance }: TraceEntry, writes: readonly TraceWrite[]): string {
  const traces: Record<TraceId, unknown[]> = {};
  for (const { traceId, entries } of writes) {
    if (entries.length > 0) {
      traces[traceId] = entries.map((entry) => shortened(entry, service, instance));
    }
  }
  return JSON.stringify({ service, instance, traces });
}

/** Without the fields that the record has already. */
function shortened(entry: TraceEntry, service: string, instance: string): object {
  if (entry.service !== service || entry.instance !== instance) return entry;
  return { ...entry, service: undefined, instance: undefined }; // JSON leaves them out
}

function entriesIn(text: string, traceId: TraceId): TraceEntry[] {
  const record = parseRecord(text);
  if (!record.ok) return [];
  const { service, instance, traces } = record.value;
  const parsed = (traces[traceId] ?? []).map((entry) =>
    parseEntry({ service, instance, ...entry }),
  );
  return parsed.flatMap((one) => (one.ok ? [one.value] : []));
}

/** The first and the newest of many. */
function ends<T>(all: readonly T[]): T[] {
  if (all.length <= maxTraceEntries) return [...all];
  return [...all.slice(0, headEntries), ...all.slice(headEntries - maxTraceEntries)];
}
