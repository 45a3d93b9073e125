import { jsonParserOf, rootSessionOf, type SessionKey } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { RatedRun } from "@larkline/protocol/reply-view";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// One short record for each run, for people who look for one. The worker that ends a turn writes it in batches and in
// the background, so that no turn waits for it. Records are in lists of ten minutes, by the time when they were written;
// a reader goes through them from the newest to the oldest and stops when it has enough.

/** How a run has ended: ids, names of agents, models and tools, and numbers; content only where the deployment keeps it. */
export const RunRecord = Type.Object({
  /** `<session>-<number>`. */
  turn: Type.String(),
  trace: Type.String(),
  /** The message that it answered; absent where its id is too long to be kept. */
  message: Type.Optional(Type.String()),
  person: Type.String(),
  agent: Type.String(),
  /** Number of the version of that agent; absent: it was as in the file. */
  version: Type.Optional(Type.Integer()),
  /** The one that answered last; empty when none was asked. */
  model: Type.String(),
  /** `answered`, or why it ended without an answer. */
  outcome: Type.String(),
  endedAtMs: Type.Integer(),
  /** From the receipt of the message until the end. */
  ms: Type.Integer(),
  /** From the receipt until a worker began. */
  queuedMs: Type.Integer(),
  /** From the receipt until its first text was visible. */
  firstMs: Type.Optional(Type.Integer()),
  /** How much of `ms` people were waited for. */
  waitedMs: Type.Optional(Type.Integer()),
  steps: Type.Integer(),
  input: Type.Integer(),
  output: Type.Integer(),
  usd: Type.Number(),
  /** Calls by tool, and those of them that failed. */
  tools: Type.Optional(Type.Record(Type.String(), Type.Integer())),
  failedTools: Type.Optional(Type.Record(Type.String(), Type.Integer())),
  /** What the vendor of the model said of the failure that ended the run, without secrets. */
  problem: Type.Optional(Type.String()),
  /** The first words that were asked. Content: kept only where the deployment says so. */
  asked: Type.Optional(Type.String()),
  /** The beginning of what the last failed call said. Content, as well. */
  toolProblem: Type.Optional(Type.String()),
});
export type RunRecord = Static<typeof RunRecord>;

/** Outcomes of runs that are answers. */
const answers: ReadonlySet<string> = new Set([
  "answered",
  "",
  "max_tokens",
  "refusal",
  "max_turns_reached",
]);

/** Outcomes that people have brought about; everything else is a failure. */
const stops: ReadonlySet<string> = new Set([
  "joined",
  "stopped",
  "recalled",
  "superseded",
  "cancelled",
  "client_disconnected",
  "agent_paused",
]);

export const outcomeKinds = ["answered", "stopped", "failed"] as const;
export type OutcomeKind = (typeof outcomeKinds)[number];

/** Whether a run has answered, was stopped by people, or has failed. */
export function outcomeKind(outcome: string): OutcomeKind {
  if (answers.has(outcome)) return "answered";
  return stops.has(outcome) ? "stopped" : "failed";
}

/** Which messages of the bot show the answer of a run. */
const SentReply = Type.Object({
  sent: Type.Array(Type.String(), { maxItems: 100 }),
  of: Type.String(),
});
export type SentReply = Static<typeof SentReply>;

/** What a list of runs is made from. */
export interface RunQuery {
  /** Nothing that ended before. Epoch ms. */
  sinceMs?: number;
  /** Nothing that ended after. */
  untilMs?: number;
  /**
   * Runs that have one of these in an id, a name, their outcome or what the vendor said, and those whose answer a message
   * shows with one in its id; small letters and capitals are the same. Absent: all.
   */
  texts?: readonly string[];
  /** Texts are looked for in content, too. */
  inContent?: boolean;
  matches?(run: RunRecord): boolean;
  limit: number;
  /** Where the page before has ended. */
  after?: string;
}

export interface RunPage {
  /** Newest first. */
  runs: RunRecord[];
  /** Where the next page begins; absent: there is nothing older. A page may be short and have a next one. */
  next?: string;
}

/** A record is no longer, in bytes of JSON. */
export const maxRunBytes = 1_400;

const windowMs = 600_000;
/** Clocks of processes may differ by less than this, ms. */
const clockSlackMs = 10_000;
const writtenLateMs = 3_600_000;
/** How long records are kept, where nothing else is said. */
const defaultRunTtlMs = 3 * 86_400_000;
/** Lists whose lengths are asked for at once. */
const windowsAtOnce = 144;
const linesAtOnce = 1_000;
/** Records that are looked at for one page: about 20 MB, and twice that where they have content. */
const maxLooked = 40_000;

const parseRun = jsonParserOf(RunRecord);
const parseSent = jsonParserOf(SentReply);
/** How lines of sent replies begin. */
const sentStart = '{"sent":';

/** The session of a run. */
export function sessionOfRun({ turn }: Pick<RunRecord, "turn">): SessionKey {
  return turn.slice(0, turn.lastIndexOf("-"));
}

/** The app and the chat of a run, or of the one it helps; of the HTTP API the app is `api`, the chat the session's id. */
export function placeOfRun(run: Pick<RunRecord, "turn">): { app: string; chat: string } {
  const [app = "", chat = ""] = rootSessionOf(sessionOfRun(run)).split(".");
  return { app, chat };
}

/** Records of runs on Redis. Losing one is harmless. Expiry is Redis's. */
export class RunLog {
  readonly #redis: RedisConnection;
  readonly #listAt: (window: number) => string;
  readonly #ttlMs: number;
  readonly #clock: Clock;
  /** Of the list whose expiry this process has set. */
  #expiring = -1;

  constructor({
    redis,
    namespace,
    ttlMs = defaultRunTtlMs,
    clock = systemClock,
  }: StoreOptions & { ttlMs?: number }) {
    this.#redis = redis;
    this.#listAt = createKeyspace(namespace).runsOf;
    this.#ttlMs = ttlMs;
    this.#clock = clock;
  }

  /**
   * Adds records in one write, oldest first, and the messages that show the answers of runs, which come after them.
   * Rejects when that is not certain: they may be there.
   */
  async append(runs: readonly RunRecord[], sent: readonly SentReply[] = []): Promise<void> {
    const lines = [
      ...runs.map(lineOf),
      ...sent.map(({ sent: ids, of }) => JSON.stringify({ sent: ids, of })),
    ];
    if (lines.length === 0) return;
    const window = Math.floor(this.#clock.now() / windowMs);
    const list = this.#listAt(window);
    const pipeline = this.#redis.pipeline().rpush(list, ...lines);
    if (this.#expiring !== window) pipeline.pexpire(list, this.#ttlMs + windowMs);
    for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
    this.#expiring = window;
  }

  /** One page, newest first. */
  async page(query: RunQuery): Promise<RunPage> {
    const { sinceMs = 0, untilMs, limit, after } = query;
    const runs: RunRecord[] = [];
    const oldestMs = Math.max(sinceMs, this.#clock.now() - this.#ttlMs);
    // A run is written a moment after its end, or when Redis is back.
    const newestMs =
      Math.min(untilMs ?? Number.MAX_SAFE_INTEGER, this.#clock.now()) + writtenLateMs;
    const search = new RunSearch(query, oldestMs);
    let looked = 0;
    for await (const { line, at } of this.#linesBack(oldestMs, newestMs, positionIn(after))) {
      looked += 1;
      const run = search.look(line);
      if (run !== undefined) runs.push(run);
      if (runs.length >= limit || looked >= maxLooked) return { runs, next: at };
    }
    return { runs };
  }

  /** Takes away the runs of a person, and those of sessions that are given up as a whole. Returns how many. */
  async erase(app: string, person: string, sessions: readonly SessionKey[] = []): Promise<number> {
    const whole = new Set(sessions);
    const texts = [person, ...sessions].map(quotedStart);
    let count = 0;
    const oldestMs = this.#clock.now() - this.#ttlMs - windowMs;
    for await (const { line, list, index } of this.#linesBack(
      oldestMs,
      this.#clock.now() + windowMs,
    )) {
      if (!texts.some((text) => line.includes(text))) continue;
      const parsed = parseRun(line);
      const sent = parseSent(line);
      const turn = parsed.ok ? parsed.value.turn : sent.ok ? sent.value.of : "";
      const isTheirs =
        parsed.ok && parsed.value.person === person && placeOfRun({ turn }).app === app;
      if (!isTheirs && !whole.has(sessionOfRun({ turn }))) continue;
      // An empty line in its place: where pages begin does not move.
      await this.#redis.lset(list, index, "");
      if (parsed.ok) count += 1;
    }
    return count;
  }

  /** All lines of a span of time, the last one first. */
  async *#linesBack(oldestMs: number, newestMs: number, from?: Position): AsyncIterable<Line> {
    const first = Math.floor((oldestMs - clockSlackMs) / windowMs);
    const last = Math.min(Math.floor(newestMs / windowMs), from?.window ?? Number.MAX_SAFE_INTEGER);
    for (let upper = last; upper >= first; upper -= windowsAtOnce) {
      const windows = Array.from(
        { length: Math.min(windowsAtOnce, upper - first + 1) },
        (_, at) => upper - at,
      );
      const lengths = await Promise.all(
        windows.map(async (window) => await this.#redis.llen(this.#listAt(window))),
      );
      for (const [at, window] of windows.entries()) {
        const length = lengths[at] ?? 0;
        yield* this.#linesIn(
          window,
          from?.window === window ? Math.min(from.index, length) : length,
        );
      }
    }
  }

  async *#linesIn(window: number, length: number): AsyncIterable<Line> {
    const list = this.#listAt(window);
    for (let end = length; end > 0; end -= linesAtOnce) {
      const start = Math.max(0, end - linesAtOnce);
      const lines = await this.#redis.lrange(list, start, end - 1);
      for (const [at, line] of [...lines.entries()].toReversed()) {
        const index = start + at;
        yield { line, list, index, at: `${window}.${index}` };
      }
    }
  }
}

/** Looks at one line after the other, the newest first, for the runs that are meant. */
class RunSearch {
  readonly #query: RunQuery;
  readonly #oldestMs: number;
  /** In small letters. */
  readonly #texts: readonly string[] | undefined;
  /** As they are within JSON, and turns whose answers are shown by a message that is looked for. */
  readonly #quoted: string[];
  readonly #shown = new Set<string>();
  readonly #known = new Set<string>();

  constructor(query: RunQuery, oldestMs: number) {
    this.#query = query;
    this.#oldestMs = oldestMs;
    this.#texts = query.texts?.map((text) => text.toLowerCase());
    this.#quoted = (this.#texts ?? []).map((text) => JSON.stringify(text).slice(1, -1));
  }

  /** The run, if it is meant and new. */
  look(line: string): RunRecord | undefined {
    if (!this.#mayBeMeant(line)) return undefined;
    if (line.startsWith(sentStart)) {
      // The run whose answer is looked for comes later on the way back.
      const sent = parseSent(line);
      if (sent.ok && this.#hasText(sent.value.sent)) this.#add(sent.value.of);
      return undefined;
    }
    const parsed = parseRun(line);
    if (!parsed.ok) return undefined; // a line of a newer version, or an erased one
    const run = parsed.value;
    const { matches = () => true, untilMs, inContent = false } = this.#query;
    const words = inContent ? [...wordsOf(run), ...contentOf(run)] : wordsOf(run);
    if (!this.#shown.has(run.turn) && !this.#hasText(words)) return undefined;
    if (this.#known.has(run.turn) || !isBetween(run, this.#oldestMs, untilMs) || !matches(run)) {
      return undefined;
    }
    this.#known.add(run.turn);
    return run;
  }

  /** Most lines are not, and need not be parsed. */
  #mayBeMeant(line: string): boolean {
    if (this.#texts === undefined) return true;
    const small = line.toLowerCase();
    return this.#quoted.some((text) => small.includes(text));
  }

  #hasText(words: readonly string[]): boolean {
    return (
      this.#texts?.some((text) => words.some((word) => word.toLowerCase().includes(text))) !== false
    );
  }

  #add(turn: string): void {
    if (!this.#shown.has(turn)) this.#quoted.push(JSON.stringify(turn).toLowerCase());
    this.#shown.add(turn);
  }
}

/** What a person may look for of a run. */
function wordsOf({
  turn,
  trace,
  message = "",
  person,
  agent,
  model,
  outcome,
  tools = {},
  problem = "",
}: RunRecord): string[] {
  return [turn, trace, message, person, agent, model, outcome, ...Object.keys(tools), problem];
}

function contentOf({ asked = "", toolProblem = "" }: RunRecord): string[] {
  return [asked, toolProblem];
}

interface Line {
  line: string;
  list: string;
  index: number;
  /** What a page ends with that has read it. */
  at: string;
}

/** Lines before this one are older. */
interface Position {
  window: number;
  index: number;
}

function positionIn(text: string | undefined): Position | undefined {
  const [, window, index] = /^(\d{1,12})\.(\d{1,9})$/.exec(text ?? "") ?? [];
  return window === undefined ? undefined : { window: Number(window), index: Number(index) };
}

function isBetween(
  { endedAtMs }: RunRecord,
  oldestMs: number,
  untilMs = Number.MAX_SAFE_INTEGER,
): boolean {
  return endedAtMs >= oldestMs - clockSlackMs && endedAtMs <= untilMs;
}

/** How a text begins within JSON. */
function quotedStart(text: string): string {
  return JSON.stringify(text).slice(0, -1);
}

/** What may be left out of a record that is too long, the least useful first. */
const optional = ["failedTools", "tools", "toolProblem", "problem", "asked", "message"] as const;
const longestName = 60;

function lineOf(run: RunRecord): string {
  let line = JSON.stringify(run);
  const shorter = { ...run };
  for (const name of optional) {
    if (Buffer.byteLength(line) <= maxRunBytes) return line;
    delete shorter[name];
    line = JSON.stringify(shorter);
  }
  if (Buffer.byteLength(line) <= maxRunBytes) return line;
  const [agent, model, outcome] = [run.agent, run.model, run.outcome].map((name) =>
    name.slice(0, longestName),
  );
  return JSON.stringify({
    ...shorter,
    person: run.person.slice(0, longestName),
    agent,
    model,
    outcome,
  });
}

// How people rate answers. A worker writes down which messages show a rated answer, so that a click or a reaction is
// known to be about a run; ingress writes what people say of it. Both are small and expire by themselves.

/** What a person has said of an answer. `none`: they have given a reason only, or taken a rating back. */
export const ratingWords = ["up", "down", "none"] as const;
export type RatingWord = (typeof ratingWords)[number];

const Facts = Type.Object({ ...RatedRun.properties, app: Type.String(), person: Type.String() });

/** One person's word on one run; ids and names, and the person's own reason. */
export type Rating = Static<typeof Facts> & {
  rating: RatingWord;
  reason?: string;
  /** When it was said last. Epoch ms. */
  atMs: number;
};

/** Messages of the bot that show an answer, and the run that it is of. */
export interface RatedReply {
  sent: readonly string[];
  of: RatedRun;
}

/** What is said: a rating, a reason, or both. */
export interface Said {
  rating?: RatingWord;
  /** Only where this is the person's rating: a reaction that is taken away. */
  instead?: RatingWord;
  reason?: string;
  /** When, as the platform has it: of two words the later one counts, however they come. Absent: now. */
  saidMs?: number;
}

const dayMs = 86_400_000;
/** As long as people can use a card ("Card callback"). */
const replyDays = 14;
/** The newest are kept. */
const maxRatings = 100_000;
/** Ratings that are read at once. */
const readAtOnce = 500;
export const maxReasonChars = 500;

const parseFacts = jsonParserOf(Facts);
const parseRated = jsonParserOf(RatedRun);
const rate = script("rate");

/** Ratings on Redis. */
export class RatingStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #maxRatings: number;
  readonly #clock: Clock;

  constructor({
    redis,
    namespace,
    most = maxRatings,
    clock = systemClock,
  }: StoreOptions & { most?: number }) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#maxRatings = most;
    this.#clock = clock;
  }

  /** Writes down which messages show which answers, for 14 days. */
  async keepReplies(replies: readonly RatedReply[]): Promise<void> {
    const fields = replies.flatMap(({ sent, of }) =>
      sent.flatMap((id) => [id, JSON.stringify(of)]),
    );
    if (fields.length === 0) return;
    const day = this.#today();
    const key = this.#keys.ratedRepliesOf(day);
    await this.#redis.hset(key, ...fields);
    await this.#redis.pexpireat(key, (day + replyDays + 1) * dayMs);
  }

  /** The run whose answer a message shows; undefined where people cannot rate it. */
  async runOf(messageId: string): Promise<RatedRun | undefined> {
    const found = await Promise.all(
      this.#replyKeys().map(async (key) => await this.#redis.hget(key, messageId)),
    );
    const text = found.find((each) => each !== null);
    const parsed = text === undefined || text === null ? undefined : parseRated(text);
    return parsed?.ok === true ? parsed.value : undefined;
  }

  /** Keeps what a person says of a run for `ttlMs`. False: a later word of theirs is known. */
  async rate(about: Static<typeof Facts>, said: Said, ttlMs: number): Promise<boolean> {
    const { rating = "", instead = "", reason = "", saidMs = 0 } = said;
    const reply = await runScript(this.#redis, rate, this.#keys.ratings(), {
      member: memberOf(about),
      facts: JSON.stringify(about),
      rating,
      instead,
      reason: reason.slice(0, maxReasonChars).toWellFormed(),
      saidMs,
      ttlMs,
      most: this.#maxRatings,
    });
    return reply === 1;
  }

  /** The newest first. Without those that say nothing any more. */
  async *newest(most = this.#maxRatings): AsyncIterable<Rating> {
    const { byTime } = this.#keys.ratings();
    for (let from = 0; from < most; from += readAtOnce) {
      const members = await this.#redis.zrevrange(
        byTime,
        from,
        Math.min(from + readAtOnce, most) - 1,
      );
      for (const rating of await this.#read(members)) yield rating;
      if (members.length < readAtOnce) return;
    }
  }

  async #read(members: readonly string[]): Promise<Rating[]> {
    const { ratings } = this.#keys.ratings();
    const found = await Promise.all(
      members.map(async (member) => await this.#redis.hgetall(`${ratings}:${member}`)),
    );
    return found.flatMap(({ facts = "", rating, reason, atMs }) => {
      const parsed = facts === "" ? undefined : parseFacts(facts);
      const word = ratingWords.find((each) => each === (rating ?? "none"));
      if (parsed?.ok !== true || word === undefined || (word === "none" && reason === undefined)) {
        return [];
      }
      return [
        {
          ...parsed.value,
          rating: word,
          ...(reason === undefined ? {} : { reason }),
          atMs: Number(atMs),
        },
      ];
    });
  }

  async ofPerson(app: string, person: string): Promise<Rating[]> {
    const found: Rating[] = [];
    for await (const rating of this.newest()) {
      if (rating.app === app && rating.person === person) found.push(rating);
    }
    return found;
  }

  /** Takes away what a person has said, and all about sessions that are given up as a whole. Returns how many. */
  async erase(app: string, person: string, sessions: readonly SessionKey[] = []): Promise<number> {
    const whole = new Set(sessions);
    const { ratings, byTime } = this.#keys.ratings();
    let count = 0;
    for (const member of await this.#redis.zrange(byTime, "0", "-1")) {
      const parsed = parseFacts((await this.#redis.hget(`${ratings}:${member}`, "facts")) ?? "");
      const isTheirs = parsed.ok && parsed.value.app === app && parsed.value.person === person;
      if (!isTheirs && !(parsed.ok && whole.has(sessionOfRun(parsed.value)))) continue;
      await this.#redis.unlink(`${ratings}:${member}`);
      await this.#redis.zrem(byTime, member);
      count += 1;
    }
    if (whole.size > 0) for (const key of this.#replyKeys()) await this.#eraseReplies(key, whole);
    return count;
  }

  async #eraseReplies(key: string, whole: ReadonlySet<SessionKey>): Promise<void> {
    let cursor = "0";
    do {
      const [next, read] = await this.#redis.hscan(key, cursor, "COUNT", readAtOnce);
      const gone: string[] = [];
      for (let at = 0; at < read.length; at += 2) {
        const parsed = parseRated(read[at + 1] ?? "");
        if (parsed.ok && whole.has(sessionOfRun(parsed.value))) gone.push(read[at] ?? "");
      }
      if (gone.length > 0) await this.#redis.hdel(key, ...gone);
      cursor = next;
    } while (cursor !== "0");
  }

  /** The newest day first; tomorrow's, because clocks of processes differ. */
  #today(): number {
    return Math.floor(this.#clock.now() / dayMs);
  }

  #replyKeys(): string[] {
    return Array.from({ length: replyDays + 2 }, (_, ago) =>
      this.#keys.ratedRepliesOf(this.#today() + 1 - ago),
    );
  }
}

function memberOf({ turn, person }: { turn: string; person: string }): string {
  return `${turn} ${person}`;
}
