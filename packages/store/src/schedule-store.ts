import { hash } from "node:crypto";
import { jsonParserOf } from "@larkline/protocol";
import { Schedule, ScheduleCause, ScheduleLogEntry } from "@larkline/protocol/schedule";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import { subscriptionMember } from "./subscription-store.ts";

// What agents do for people at a time. The store decides which process deals with an instant at which a schedule is due,
// and remembers what became of it; when schedules are due is decided by their ability.

/** A schedule, and where it stands. */
export interface StoredSchedule {
  schedule: Schedule;
  /** `done`: it is not due any more. */
  state: "active" | "paused" | "done";
  /** Why it is paused, where not its owner has done that. */
  why?: string;
  /** The next instant, or the last one of a schedule that is done. */
  dueMs: number;
  /** Counts changes: {@link ScheduleStore.change} fails where another one came first. */
  generation: number;
  /** Runs that have failed one after the other. */
  failures: number;
  /** When its last run ended, epoch ms. */
  endedMs?: number;
}

/** A schedule that is due, for one worker. */
export interface DueSchedule extends Pick<StoredSchedule, "schedule" | "dueMs" | "generation"> {
  /** When this instant was claimed first. */
  claimedMs: number;
}

/** When a schedule is due next; its alarm rings then, or a little later. Undefined: it waits for an event. */
interface NextDue {
  dueMs: number;
  alarmMs: number | undefined;
}

const addSchedule = script("add-schedule");
const claimSchedules = script("claim-schedules");
const settleSchedule = script("settle-schedule");
const changeSchedule = script("change-schedule");
const setScheduleAside = script("set-schedule-aside");
const removeSchedule = script("remove-schedule");
const countScheduleFailure = script("count-schedule-failure");
const countScheduleMiss = script("count-schedule-miss");
const logSchedule = script("log-schedule");
const holdEvent = script("hold-event");

/** Of one person, and of one chat. */
export const maxSchedules = 20;
const maxLogLines = 100;
/** Events that wait for the end of quiet hours, of one schedule. */
const maxHeld = 20;
/** How long a schedule that is done is known, ms. */
const doneKeptMs = 30 * 86_400_000;

const parseSchedule = jsonParserOf(Schedule);
const parseLine = jsonParserOf(ScheduleLogEntry);
const parseCause = jsonParserOf(ScheduleCause);

/** All schedules of a deployment. */
export class ScheduleStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /** Stores a schedule once, however often that is repeated under its id. `full`: see {@link maxSchedules}. */
  async add(schedule: Schedule, { dueMs, alarmMs }: NextDue): Promise<"made" | "known" | "full"> {
    const values = {
      id: schedule.id,
      schedule: JSON.stringify(schedule),
      dueMs,
      alarmMs: alarmMs ?? "",
      waits: waitsOf(schedule),
      most: maxSchedules,
    };
    const reply = await runScript(this.#redis, addSchedule, this.#keysOf(schedule), values);
    return reply === "made" || reply === "known" ? reply : "full";
  }

  /** Undefined where there is none, or it cannot be read. */
  async read(id: string): Promise<StoredSchedule | undefined> {
    const row = await this.#redis.hgetall(this.#keys.scheduleOf(id));
    const parsed = parseSchedule(row["schedule"] ?? "");
    if (!parsed.ok) return undefined;
    const { state, why = "", dueMs, generation, failures, endedMs } = row;
    return {
      schedule: parsed.value,
      state: state === "active" || state === "paused" ? state : "done",
      ...(why === "" ? {} : { why }),
      dueMs: Number(dueMs),
      generation: Number(generation),
      failures: Number(failures),
      ...(endedMs === undefined ? {} : { endedMs: Number(endedMs) }),
    };
  }

  /** The schedules of a person with an app, those that are due first at the beginning. */
  async ofPerson(app: string, person: string): Promise<StoredSchedule[]> {
    return await this.#readAll(await this.#redis.smembers(this.#listOf(app, person)));
  }

  async ofChat(app: string, chatId: string): Promise<StoredSchedule[]> {
    return await this.#readAll(await this.#redis.smembers(this.#listOf(app, chatId)));
  }

  /** The newest of all, and how many there are. */
  async newest(limit: number): Promise<{ count: number; schedules: StoredSchedule[] }> {
    const [count, ids] = await Promise.all([
      this.#redis.zcard(this.#keys.schedulesAll),
      this.#redis.zrevrange(this.#keys.schedulesAll, 0, limit - 1),
    ]);
    return { count, schedules: await this.#readAll(ids) };
  }

  /**
   * Schedules whose alarm has rung, and the time of Redis. Each goes to one caller, and comes back after `leaseMs` unless
   * it is settled until then. `unreadable`: ids of those that are no schedules, for {@link setAside}.
   */
  async claimDue(
    limit: number,
    leaseMs: number,
  ): Promise<{ nowMs: number; due: DueSchedule[]; unreadable: string[] }> {
    const keys = { due: this.#keys.schedulesDue, rows: this.#keys.scheduleRows };
    const { nowMs, claimed } = await runScript(this.#redis, claimSchedules, keys, {
      limit,
      leaseMs,
    });
    const due: DueSchedule[] = [];
    const unreadable: string[] = [];
    for (const { id, schedule, dueMs, generation, claimedMs } of claimed) {
      const parsed = parseSchedule(schedule);
      if (parsed.ok) due.push({ schedule: parsed.value, dueMs, generation, claimedMs });
      else unreadable.push(id);
    }
    return { nowMs, due, unreadable };
  }

  /** Pauses a schedule that cannot run; its alarm rings no more. False where another process has done so. */
  async setAside(id: string): Promise<boolean> {
    const keys = { row: this.#keys.scheduleOf(id), due: this.#keys.schedulesDue };
    return (await runScript(this.#redis, setScheduleAside, keys, { id })) === 1;
  }

  /**
   * The instant of a claim is dealt with: what became of it is logged, and `next` is waited for (undefined: the schedule is
   * done; a list: it waits for events, and these held ones have run). False where another process has dealt with it, or
   * the schedule is gone.
   */
  async settle(
    { schedule, dueMs, generation }: Omit<DueSchedule, "claimedMs">,
    next: NextDue | undefined | readonly ScheduleCause[],
    log: readonly ScheduleLogEntry[],
  ): Promise<boolean> {
    const causes = Array.isArray(next) ? next.map(({ id }: ScheduleCause) => id) : [];
    const then = next !== undefined && "dueMs" in next ? next : undefined;
    const values = {
      id: schedule.id,
      generation,
      dueMs,
      nextMs: Array.isArray(next) ? "event" : (then?.dueMs ?? ""),
      alarmMs: then?.alarmMs ?? "",
      causes: JSON.stringify(causes),
      lines: JSON.stringify(log.map((line) => JSON.stringify(line))),
      keep: maxLogLines,
      keptMs: doneKeptMs,
    };
    return (await runScript(this.#redis, settleSchedule, this.#keysOf(schedule), values)) === 1;
  }

  /** Writes down what became of an event; that of instants is logged by {@link settle}. */
  async note({ id }: Pick<Schedule, "id">, line: ScheduleLogEntry): Promise<void> {
    const keys = { row: this.#keys.scheduleOf(id), log: this.#keys.scheduleLogOf(id) };
    await runScript(this.#redis, logSchedule, keys, {
      line: JSON.stringify(line),
      keep: maxLogLines,
    });
  }

  /**
   * Keeps an event until the end of quiet hours; the schedule is due then. `full`: twenty are kept already; `gone`: the
   * schedule does not wait any more.
   */
  async hold(
    { id }: Pick<Schedule, "id">,
    cause: ScheduleCause,
    untilMs: number,
  ): Promise<"held" | "known" | "full" | "gone"> {
    const keys = {
      row: this.#keys.scheduleOf(id),
      due: this.#keys.schedulesDue,
      held: this.#keys.scheduleHeldOf(id),
    };
    const facts = JSON.stringify(cause);
    const reply = await runScript(this.#redis, holdEvent, keys, {
      id,
      cause: cause.id,
      facts,
      untilMs,
      most: maxHeld,
    });
    return reply === "held" || reply === "known" || reply === "full" ? reply : "gone";
  }

  /** The events that are kept for a schedule. */
  async held({ id }: Pick<Schedule, "id">): Promise<ScheduleCause[]> {
    const texts = await this.#redis.hvals(this.#keys.scheduleHeldOf(id));
    const read = texts.flatMap((text) => {
      const parsed = parseCause(text);
      return parsed.ok ? [parsed.value] : [];
    });
    return read.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  }

  /** The newest line first; at most 100. */
  async log(id: string): Promise<ScheduleLogEntry[]> {
    const lines = await this.#redis.lrange(this.#keys.scheduleLogOf(id), 0, -1);
    return lines.flatMap((line) => {
      const parsed = parseLine(line);
      return parsed.ok ? [parsed.value] : [];
    });
  }

  /** False where it is gone or done, or was changed since `generation`. */
  async change(
    { schedule, generation }: Pick<StoredSchedule, "schedule" | "generation">,
    {
      state,
      why = "",
      dueMs,
      alarmMs,
    }: Pick<StoredSchedule, "why"> & NextDue & { state: "active" | "paused" },
  ): Promise<boolean> {
    const { id } = schedule;
    const values = {
      id,
      generation,
      state,
      why,
      schedule: JSON.stringify(schedule),
      dueMs,
      alarmMs: alarmMs ?? "",
      waits: waitsOf(schedule),
    };
    return (await runScript(this.#redis, changeSchedule, this.#keysOf(schedule), values)) === 1;
  }

  /** Removes a schedule and its log. False where there is none. */
  async remove(schedule: Pick<Schedule, "id" | "app" | "owner" | "chatId">): Promise<boolean> {
    return (
      (await runScript(this.#redis, removeSchedule, this.#keysOf(schedule), {
        id: schedule.id,
      })) === 1
    );
  }

  /** A run has ended. Returns how many have failed one after the other. */
  async ended(id: string, run: string, hasFailed: boolean): Promise<number> {
    const keys = { row: this.#keys.scheduleOf(id) };
    const values = { run, failed: hasFailed ? 1 : 0 };
    return Number(await runScript(this.#redis, countScheduleFailure, keys, values));
  }

  /** People did not answer what a run has asked. Returns in how many runs that was so, one after the other. */
  async missed(id: string, run: string): Promise<number> {
    const keys = { row: this.#keys.scheduleOf(id) };
    return Number(await runScript(this.#redis, countScheduleMiss, keys, { run }));
  }

  async #readAll(ids: readonly string[]): Promise<StoredSchedule[]> {
    const found = await Promise.all(ids.map(async (id) => await this.read(id)));
    // People name them by their place in the list, so equal times must not change it.
    return found
      .filter((one) => one !== undefined)
      .sort(
        (one, other) => one.dueMs - other.dueMs || (one.schedule.id < other.schedule.id ? -1 : 1),
      );
  }

  #keysOf({ id, app, owner, chatId }: Pick<Schedule, "id" | "app" | "owner" | "chatId">) {
    return {
      row: this.#keys.scheduleOf(id),
      due: this.#keys.schedulesDue,
      all: this.#keys.schedulesAll,
      ofPerson: this.#listOf(app, owner.id),
      ofChat: this.#listOf(app, chatId),
      log: this.#keys.scheduleLogOf(id),
      held: this.#keys.scheduleHeldOf(id),
      subscriptions: this.#keys.subscriptions,
    };
  }

  /** With a hash, so that no id of a person is in a key. */
  #listOf(app: string, id: string): string {
    return this.#keys.schedulesOf(app, hash("sha256", id, "base64url").slice(0, 22));
  }
}

/** The subscription that a schedule needs; empty: none. */
function waitsOf({ app, tenant = "", owner, timing }: Schedule): string {
  return timing.kind === "event"
    ? subscriptionMember({ app, tenant, openId: owner.id, on: timing.on })
    : "";
}
