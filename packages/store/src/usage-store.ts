import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import { outcomeKind, type RunRecord } from "./runs.ts";

// What runs have used, by minute, hour and day. A process adds up what it sees, and hands it in every few seconds: one
// script, whatever happened. A bucket is a hash of counts, and for people three sorted sets with the biggest of them.

/** Buckets by size: how long one is, and how long it is kept, ms. */
export const usageSizes = {
  minute: { ms: 60_000, keptMs: 2 * 3_600_000 },
  hour: { ms: 3_600_000, keptMs: 49 * 3_600_000 },
  day: { ms: 86_400_000, keptMs: 32 * 86_400_000 },
} as const;
export type UsageSize = keyof typeof usageSizes;

const sizes: readonly UsageSize[] = ["minute", "hour", "day"];

/** What is measured of a run, in ms: until a worker began, until its first text, and until its end. */
type UsageTime = "queued" | "first" | "total" | "limiter";

/** The dimensions by which runs are counted. */
export type UsageGroup = "model" | "agent" | "tool" | "person";

/**
 * What one model, agent, tool or person has used. Of a tool `runs` are its calls, and tokens and money are all that the
 * runs have used that called it: a run that called several tools counts with each of them.
 */
export interface UsageOf {
  name: string;
  runs: number;
  failed: number;
  tokens: number;
  usd: number;
}

export interface UsageBucket {
  startMs: number;
  counts: ReadonlyMap<string, number>;
}

const measures = ["runs", "tokens", "nano"] as const;
type Measure = (typeof measures)[number];

/** What a process hands in of one bucket. */
export interface UsageDelta {
  size: UsageSize;
  number: number;
  fields: Record<string, number>;
  people: Record<Measure, Record<string, number>>;
}

/** Names in one bucket, and people: a deployment has fewer, a tool that makes up names is bounded. */
const maxFields = 2_000;
const maxPeople = 2_000;
/** A batch that is handed in twice within this time counts once, ms. */
const batchKnownMs = 600_000;

const countUsage = script("count-usage");

/** What was counted, on Redis. */
export class UsageStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #clock: Clock;
  readonly #timeZone: string;

  /** `timeZone`: where days begin. */
  constructor({
    redis,
    namespace,
    timeZone,
    clock = systemClock,
  }: StoreOptions & { timeZone: string }) {
    this.#clock = clock;
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#timeZone = timeZone;
  }

  /** Adds what a process has counted; the same batch twice counts once. */
  async add(batch: string, deltas: readonly UsageDelta[]): Promise<void> {
    if (deltas.length === 0) return;
    const buckets = deltas.flatMap(({ size, number }) => this.#keysOf(size, number));
    const nowMs = this.#clock.now();
    const counts = deltas.map(({ size, number, fields, people }) => ({
      fields,
      people: measures.map((measure) => people[measure]),
      ttlMs: Math.max(
        1,
        startOf(size, number, this.#timeZone) +
          usageSizes[size].ms +
          usageSizes[size].keptMs -
          nowMs,
      ),
    }));
    const values = { knownMs: batchKnownMs, maxFields, maxPeople, counts: JSON.stringify(counts) };
    await runScript(
      this.#redis,
      countUsage,
      { batch: this.#keys.usageBatchOf(batch), buckets },
      values,
    );
  }

  /** The newest buckets of a size, oldest first; the last one is not over yet. Empty ones are there, too. */
  async newest(size: UsageSize, count: number): Promise<UsageBucket[]> {
    const numbers = this.#newestNumbers(size, count);
    const all = await Promise.all(
      numbers.map(async (number) => await this.#redis.hgetall(this.#keyOf(size, number))),
    );
    return numbers.map((number, at) => ({
      startMs: startOf(size, number, this.#timeZone),
      counts: new Map(Object.entries(all[at] ?? {}).map(([name, value]) => [name, Number(value)])),
    }));
  }

  /** The newest buckets as {@link newest} has them, with what people have used; of each bucket the biggest `limit`. */
  async people(size: UsageSize, count: number, limit: number): Promise<UsageBucket[]> {
    const numbers = this.#newestNumbers(size, count);
    return await Promise.all(
      numbers.map(async (number) => {
        const counts = new Map<string, number>();
        const readOne = async (measure: Measure): Promise<void> => {
          const key = this.#peopleOf(size, number, measure);
          const members = await this.#redis.zrevrange(key, 0, limit - 1, "WITHSCORES");
          for (let at = 0; at < members.length; at += 2) {
            const [name = "", score = "0"] = members.slice(at, at + 2);
            counts.set(usageField("person", measure, name), Number(score));
          }
        };
        await Promise.all(measures.map(readOne));
        return { startMs: startOf(size, number, this.#timeZone), counts };
      }),
    );
  }

  /** Takes a person out of all buckets; what they have used stays in the sums. */
  async erase(person: string): Promise<void> {
    const pipeline = this.#redis.pipeline();
    for (const size of sizes) {
      const { ms, keptMs } = usageSizes[size];
      // One more on both sides: the clocks, and the time zones, of those who count may differ.
      const [newest = 0] = this.#newestNumbers(size, 1);
      for (let number = newest + 1; number >= newest - Math.ceil(keptMs / ms) - 2; number -= 1) {
        for (const measure of measures) {
          pipeline.zrem(this.#peopleOf(size, number, measure), person);
        }
      }
    }
    for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
  }

  #newestNumbers(size: UsageSize, count: number): number[] {
    const last = numberAt(size, this.#clock.now(), this.#timeZone);
    return Array.from({ length: count }, (_, at) => last - count + 1 + at);
  }

  #keysOf(size: UsageSize, number: number): string[] {
    return [
      this.#keyOf(size, number),
      ...measures.map((measure) => this.#peopleOf(size, number, measure)),
    ];
  }

  #keyOf(size: UsageSize, number: number): string {
    return this.#keys.usageOf(size, number);
  }

  #peopleOf(size: UsageSize, number: number, measure: Measure): string {
    return this.#keys.usageByPerson(size, number, measure);
  }
}

/** What one process has counted since it was last taken. Counting touches memory alone. */
export class UsageCounter {
  readonly #timeZone: string;
  #deltas = new Map<string, UsageDelta>();

  constructor(timeZone: string) {
    this.#timeZone = timeZone;
  }

  /** A run has ended. `isTask`: of a helper; what it has used is in the run of the person's message, too. */
  countRun(run: RunRecord, { isTask = false } = {}): void {
    const {
      model,
      agent,
      person,
      outcome,
      queuedMs,
      firstMs,
      ms,
      waitedMs = 0,
      input,
      output,
      usd,
    } = run;
    const kind = outcomeKind(outcome);
    const failed = kind === "failed" ? 1 : 0;
    const used = { tokens: input + output, nano: Math.round(usd * 1e9) };
    const { tokens, nano } = isTask ? { tokens: 0, nano: 0 } : used;
    const workedMs = Math.max(0, ms - waitedMs); // how long people take is no work of the bot
    for (const { fields, people } of this.#bucketsAt(run.endedAtMs)) {
      add(fields, kind, 1);
      if (failed === 1) add(fields, `code|${outcome}`, 1);
      add(fields, "tokens", tokens);
      add(fields, "nano", nano);
      for (const [group, name] of [
        ["model", model],
        ["agent", agent],
      ] as const) {
        if (name === "") continue;
        add(fields, usageField(group, "runs", name), 1);
        add(fields, usageField(group, "failed", name), failed);
        add(fields, usageField(group, "tokens", name), tokens);
        add(fields, usageField(group, "nano", name), nano);
        if (firstMs !== undefined) add(fields, `times-${group}|first|${binOf(firstMs)}|${name}`, 1);
        add(fields, `times-${group}|total|${binOf(workedMs)}|${name}`, 1);
      }
      for (const [name, calls] of Object.entries(run.tools ?? {})) {
        add(fields, usageField("tool", "runs", name), calls);
        add(fields, usageField("tool", "tokens", name), used.tokens);
        add(fields, usageField("tool", "nano", name), used.nano);
      }
      for (const [name, calls] of Object.entries(run.failedTools ?? {})) {
        add(fields, usageField("tool", "failed", name), calls);
      }
      addTime(fields, "queued", queuedMs);
      if (firstMs !== undefined) addTime(fields, "first", firstMs);
      addTime(fields, "total", workedMs);
      if (person === "") continue;
      add(people.runs, person, 1);
      add(people.tokens, person, tokens);
      add(people.nano, person, nano);
    }
  }

  /** A call of the platform was held back, then. */
  countWait(ms: number, atMs: number): void {
    for (const { fields } of this.#bucketsAt(atMs)) {
      addTime(fields, "limiter", ms);
      add(fields, "limiter-ms", Math.round(ms));
    }
  }

  /** Takes what was counted. */
  take(): UsageDelta[] {
    const deltas = [...this.#deltas.values()];
    this.#deltas = new Map();
    return deltas;
  }

  #bucketsAt(atMs: number): UsageDelta[] {
    return sizes.map((size) => {
      const number = numberAt(size, atMs, this.#timeZone);
      const key = `${size}:${number}`;
      const known = this.#deltas.get(key);
      if (known !== undefined) return known;
      const delta: UsageDelta = {
        size,
        number,
        fields: {},
        people: { runs: {}, tokens: {}, nano: {} },
      };
      this.#deltas.set(key, delta);
      return delta;
    });
  }
}

/** The count of one measure of one model, agent, tool or person in a bucket. */
export function usageField(group: UsageGroup, measure: Measure | "failed", name: string): string {
  return `${group}|${measure}|${name}`;
}

function add(counts: Record<string, number>, name: string, value: number): void {
  if (value !== 0) counts[name] = (counts[name] ?? 0) + value;
}

function addTime(fields: Record<string, number>, time: UsageTime, ms: number): void {
  add(fields, `${time}|${binOf(ms)}`, 1);
}

// Durations are counted in bins, each a fifth wider than the one before it: enough for a quantile.

const binsPerDoubling = 4;
const maxBin = 30 * binsPerDoubling;

function binOf(ms: number): number {
  return ms <= 1 ? 0 : Math.min(maxBin, Math.ceil(binsPerDoubling * Math.log2(ms)));
}

/** The duration below which a share of those in the buckets are, ms; undefined when there are none. */
export function quantileOf(
  buckets: readonly UsageBucket[],
  time: UsageTime,
  share: number,
): number | undefined {
  const bins: Bins = new Map();
  for (const [name, count] of buckets.flatMap(({ counts }) => [...counts])) {
    if (name.startsWith(`${time}|`)) addTo(bins, Number(name.slice(time.length + 1)), count);
  }
  return quantileIn(bins, share);
}

/** How often a run took how long, by bin. */
type Bins = Map<number, number>;

/** What runs of one model or agent took; undefined where none was measured. */
export type TimesOf = Record<"first" | "total", (share: number) => number | undefined>;

/** How long the runs of each model or agent took, by name. */
export function timesBy(
  buckets: readonly UsageBucket[],
  group: "model" | "agent",
): ReadonlyMap<string, TimesOf> {
  const found = new Map<string, Record<"first" | "total", Bins>>();
  for (const [field, count] of buckets.flatMap(({ counts }) => [...counts])) {
    const [kind, time, bin, ...rest] = field.split("|");
    if (kind !== `times-${group}` || (time !== "first" && time !== "total") || rest.length === 0) {
      continue;
    }
    const name = rest.join("|");
    const times = found.get(name) ?? { first: new Map(), total: new Map() };
    addTo(times[time], Number(bin), count);
    found.set(name, times);
  }
  const shares = ({ first, total }: Record<"first" | "total", Bins>): TimesOf => ({
    first: (share) => quantileIn(first, share),
    total: (share) => quantileIn(total, share),
  });
  return new Map([...found].map(([name, times]) => [name, shares(times)]));
}

function addTo(bins: Bins, bin: number, count: number): void {
  bins.set(bin, (bins.get(bin) ?? 0) + count);
}

function quantileIn(bins: Bins, share: number): number | undefined {
  const all = [...bins.values()].reduce((sum, count) => sum + count, 0);
  let rest = share * all;
  for (const [bin, count] of [...bins].sort(([one], [other]) => one - other)) {
    if (rest <= count) return 2 ** ((bin - 1 + rest / count) / binsPerDoubling);
    rest -= count;
  }
  return undefined;
}

/** A count of all buckets together. */
export function countIn(buckets: readonly UsageBucket[], name: string): number {
  return buckets.reduce((sum, { counts }) => sum + (counts.get(name) ?? 0), 0);
}

/** What each model, agent, tool or person has used in the buckets, the biggest first. */
export function usageBy(buckets: readonly UsageBucket[], group: UsageGroup): UsageOf[] {
  const found = new Map<string, UsageOf>();
  for (const [field, count] of buckets.flatMap(({ counts }) => [...counts])) {
    const [kind, measure = "", ...rest] = field.split("|");
    if (kind !== group || rest.length === 0) continue;
    const name = rest.join("|");
    const one = found.get(name) ?? { name, runs: 0, failed: 0, tokens: 0, usd: 0 };
    if (measure === "nano") one.usd += count / 1e9;
    else if (measure === "runs" || measure === "failed" || measure === "tokens") {
      one[measure] += count;
    }
    found.set(name, one);
  }
  return [...found.values()].toSorted(
    (one, other) =>
      other.tokens - one.tokens || other.runs - one.runs || (one.name < other.name ? -1 : 1),
  );
}

function numberAt(size: UsageSize, atMs: number, timeZone: string): number {
  const offsetMs = size === "day" ? offsetAt(atMs, timeZone) : 0;
  return Math.floor((atMs + offsetMs) / usageSizes[size].ms);
}

function startOf(size: UsageSize, number: number, timeZone: string): number {
  const startMs = number * usageSizes[size].ms;
  return size === "day" ? startMs - offsetAt(startMs, timeZone) : startMs;
}

const hourMs = 3_600_000;
const maxOffsets = 100;
/** How far a time zone is ahead of UTC in an hour, ms. */
const offsets = new Map<string, number>();

function offsetAt(atMs: number, timeZone: string): number {
  const hour = Math.floor(atMs / hourMs);
  const key = `${timeZone} ${hour}`;
  const known = offsets.get(key);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat("sv", {
    timeZone,
    dateStyle: "short",
    timeStyle: "medium",
  });
  const offsetMs = Date.parse(`${format.format(hour * hourMs).replace(" ", "T")}Z`) - hour * hourMs;
  if (offsets.size >= maxOffsets) offsets.clear();
  offsets.set(key, offsetMs);
  return offsetMs;
}
