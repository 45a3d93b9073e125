import { jsonParserOf, RatedRun, sharedNow, type SessionKey } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import { type RedisConnection, runScript, script } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

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
const parseRun = jsonParserOf(RatedRun);
const rate = script("rate");

/** Ratings on Redis. */
export class RatingStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #maxRatings: number;

  constructor({ redis, namespace, most = maxRatings }: StoreOptions & { most?: number }) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#maxRatings = most;
  }

  /** Writes down which messages show which answers, for 14 days. */
  async keepReplies(replies: readonly RatedReply[]): Promise<void> {
    const fields = replies.flatMap(({ sent, of }) => sent.flatMap((id) => [id, JSON.stringify(of)]));
    if (fields.length === 0) return;
    const day = today();
    const key = this.#keys.ratedReplies(day);
    await this.#redis.hset(key, ...fields);
    await this.#redis.pexpireat(key, (day + replyDays + 1) * dayMs);
  }

  /** The run whose answer a message shows; undefined where people cannot rate it. */
  async runOf(messageId: string): Promise<RatedRun | undefined> {
    const found = await Promise.all(this.#replyKeys().map(async (key) => await this.#redis.hget(key, messageId)));
    const text = found.find((each) => each !== null);
    const parsed = text === undefined || text === null ? undefined : parseRun(text);
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
      const members = await this.#redis.zrevrange(byTime, from, Math.min(from + readAtOnce, most) - 1);
      for (const rating of await this.#read(members)) yield rating;
      if (members.length < readAtOnce) return;
    }
  }

  async #read(members: readonly string[]): Promise<Rating[]> {
    const { ratings } = this.#keys.ratings();
    const found = await Promise.all(members.map(async (member) => await this.#redis.hgetall(`${ratings}:${member}`)));
    return found.flatMap(({ facts = "", rating, reason, atMs }) => {
      const parsed = facts === "" ? undefined : parseFacts(facts);
      const word = ratingWords.find((each) => each === (rating ?? "none"));
      if (parsed?.ok !== true || word === undefined || (word === "none" && reason === undefined)) return [];
      return [{ ...parsed.value, rating: word, ...(reason === undefined ? {} : { reason }), atMs: Number(atMs) }];
    });
  }

  async ofPerson(app: string, person: string): Promise<Rating[]> {
    const found: Rating[] = [];
    for await (const rating of this.newest()) if (rating.app === app && rating.person === person) found.push(rating);
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
      if (!isTheirs && !(parsed.ok && whole.has(sessionOf(parsed.value)))) continue;
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
        const parsed = parseRun(read[at + 1] ?? "");
        if (parsed.ok && whole.has(sessionOf(parsed.value))) gone.push(read[at] ?? "");
      }
      if (gone.length > 0) await this.#redis.hdel(key, ...gone);
      cursor = next;
    } while (cursor !== "0");
  }

  /** The newest day first; tomorrow's, because clocks of processes differ. */
  #replyKeys(): string[] {
    return Array.from({ length: replyDays + 2 }, (_, ago) => this.#keys.ratedReplies(today() + 1 - ago));
  }
}

function today(): number {
  return Math.floor(sharedNow() / dayMs);
}

function memberOf({ turn, person }: { turn: string; person: string }): string {
  return `${turn} ${person}`;
}

function sessionOf({ turn }: { turn: string }): SessionKey {
  return turn.slice(0, turn.lastIndexOf("-"));
}
