import type { DeliveryWatch, FeishuApi } from "@larkline/feishu";
import { scrubText, type Logger } from "@larkline/process/telemetry";
import type { InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { deadline, type Clock, type Random } from "@larkline/protocol/clock";
import type { RatedRun } from "@larkline/protocol/reply-view";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol/trace";
import { agentOfTurn, type TurnState } from "@larkline/protocol/turn";
import {
  type NameBook,
  placeOfRun,
  type RatedReply,
  type RatingStore,
  type RunLog,
  type RunRecord,
  type SentReply,
  UsageCounter,
  type UsageStore,
} from "@larkline/store/operations";
import type { LookupCache } from "@larkline/store/platform";
import { LRUCache } from "lru-cache";

// What people who look at the console see of runs: a record of each, what all of them have used by time, and names. The
// worker that commits a turn counts it, whichever worker began. All of it is collected in memory and written every now
// and then: no turn waits for that, and none sends a command of its own. What a worker has collected when it is killed
// is lost.

/** What a turn leaves for its record. */
export interface EndedRun {
  turn: TurnState;
  /** Id of the model that gave the last step; empty when none was asked. */
  model: string;
  firstTextMs: number | undefined;
  /** Number of the version of the agent; 0: it was as in the file. */
  version: number;
  /** What the vendor of the model said, when the turn ended in that. */
  problem?: string;
}

interface RunRecordsOptions {
  runLog: Pick<RunLog, "append">;
  ratings: Pick<RatingStore, "keepReplies">;
  /** Keeps which run a message shows, so that a quote of an answer can be resolved. */
  lookups: Pick<LookupCache, "set">;
  usage: Pick<UsageStore, "add">;
  names: Pick<NameBook, "keep" | "of" | "unknown">;
  /** The clients that can look up names of people and chats, by app id. */
  apis: ReadonlyMap<string, Pick<FeishuApi, "userNames" | "chat">>;
  /** The time zone that decides when a day begins. */
  timeZone: string;
  /** Records have the first words of what was asked, and of what failed calls said. Default: no. */
  keepsQuestions?: boolean;
  clock: Clock;
  random: Random;
  logger: Logger;
  /** How long records are collected, ms. */
  flushMs?: number;
  /** How long counts and names are collected, ms. */
  countMs?: number;
}

const defaultFlushMs = 300;
const defaultCountMs = 3_000;
/** How long after a failed write it is tried again. */
const retryMs = 2_000;
/** Records of one write. */
const maxAtOnce = 500;
/** Most records that are kept while Redis is away: the newest. */
const maxKept = 10_000;
/** Messages of one answer: cards of a very long one. */
const maxMessages = 20;

/** How long it is known which run a message shows, ms. */
const shownMs = 30 * 86_400_000;

/** The key under which it is kept which run's answer a message of the bot shows. */
export function shownKeyOf(app: string, messageId: string): string {
  return `shown:${app}:${messageId}`;
}

/** What this process writes down about runs that have ended. Nothing of it throws or waits. */
export class RunRecords {
  readonly #options: RunRecordsOptions;
  readonly #counter: UsageCounter;
  readonly #names: NamesSeen;
  #waiting: RunRecord[] = [];
  /** Messages that show answers. */
  #sent: SentReply[] = [];
  /** The messages among them that people may rate. */
  #rated: RatedReply[] = [];
  #writing: Promise<void> | undefined;
  #cancelFlush: (() => void) | undefined;
  /** A batch of counts whose write may have failed: it is tried again under its own name. */
  #batch: { id: string; deltas: ReturnType<UsageCounter["take"]> } | undefined;
  #counting: Promise<void> | undefined;
  #cancelCount: (() => void) | undefined;
  #isFailing = false;

  constructor(options: RunRecordsOptions) {
    this.#options = options;
    this.#counter = new UsageCounter(options.timeZone);
    this.#names = new NamesSeen(options);
  }

  /** A turn has begun, or continues here: while it waits for people, its names are wanted most. */
  began({ message }: Pick<TurnState, "message">): void {
    this.#names.see(message);
    if (this.#names.hasNews()) this.#countIn(this.#options.countMs ?? defaultCountMs);
  }

  /** People are asked to decide: those whom the policy names. */
  asked({ app, deciders, target }: Approval): void {
    if (target.channel !== "feishu") return;
    for (const person of deciders.people) this.#names.seePerson(person, app);
    if (this.#names.hasNews()) this.#countIn(this.#options.countMs ?? defaultCountMs);
  }

  /** A turn is committed. */
  ended(run: EndedRun, outcome: string): void {
    const facts = { outcome, endedAtMs: this.#options.clock.now() };
    const record = recordOf(run, facts, this.#options.keepsQuestions === true);
    this.#waiting.push(record);
    if (this.#waiting.length > maxKept) this.#waiting.shift();
    this.#counter.countRun(record, { isTask: run.turn.message.task !== undefined });
    this.#flushIn(this.#options.flushMs ?? defaultFlushMs);
    this.#countIn(this.#options.countMs ?? defaultCountMs);
  }

  /** Reports deliveries as before, and records which messages show the answers of turns. */
  watch(deliveries: DeliveryWatch): DeliveryWatch {
    return (record) => {
      const ended = deliveries(record);
      return (result) => {
        ended(result);
        if (result.state === "sent") this.sent(record.id, result.messageIds, record.view?.rated);
      };
    };
  }

  /** The answer of a turn is with the platform, as these messages; `rated` where people may rate it. */
  sent(turnId: string, messageIds: readonly string[], rated?: RatedRun): void {
    if (messageIds.length === 0 || this.#sent.length >= maxKept) return;
    const shown = messageIds.slice(0, maxMessages);
    this.#sent.push({ sent: shown, of: turnId });
    if (rated !== undefined && this.#rated.length < maxKept) {
      this.#rated.push({ sent: shown, of: rated });
    }
    this.#flushIn(this.#options.flushMs ?? defaultFlushMs);
  }

  /** A call of the platform was held back. */
  waited(ms: number): void {
    this.#counter.countWait(ms, this.#options.clock.now());
    this.#countIn(this.#options.countMs ?? defaultCountMs);
  }

  /** Writes what is left, once. */
  async close(): Promise<void> {
    await Promise.all([this.#writing, this.#counting]);
    this.#flush();
    this.#count({ asks: false });
    await Promise.all([this.#writing, this.#counting]);
    this.#cancelFlush?.();
    this.#cancelCount?.();
  }

  #flushIn(ms: number): void {
    if (this.#writing !== undefined) return;
    this.#cancelFlush ??= this.#options.clock.after(ms, () => this.#flush());
  }

  #flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    if (this.#writing !== undefined || !this.#hasNews()) return;
    const rated = this.#rated.splice(0, maxAtOnce);
    const writing = this.#write(
      this.#waiting.splice(0, maxAtOnce),
      this.#sent.splice(0, maxAtOnce),
      rated,
    );
    this.#writing = writing.finally(() => {
      this.#writing = undefined;
      if (this.#hasNews()) this.#flushIn(this.#isFailing ? retryMs : 0);
    });
  }

  #hasNews(): boolean {
    return this.#waiting.length > 0 || this.#sent.length > 0 || this.#rated.length > 0;
  }

  async #write(records: RunRecord[], sent: SentReply[], rated: RatedReply[]): Promise<void> {
    const { runLog, ratings } = this.#options;
    try {
      // First: a person may rate an answer at once.
      if (rated.length > 0) await ratings.keepReplies(rated);
      await runLog.append(records, sent);
      await Promise.all(
        sent.flatMap(({ sent: ids, of }) => ids.map(async (id) => await this.#keepShown(id, of))),
      );
      this.#isFailing = false;
    } catch (error) {
      // They may be there: readers show a run once.
      this.#waiting = [...records, ...this.#waiting].slice(-maxKept);
      this.#sent = [...sent, ...this.#sent].slice(-maxKept);
      this.#rated = [...rated, ...this.#rated].slice(-maxKept);
      this.#failed(error);
    }
  }

  async #keepShown(messageId: string, turnId: string): Promise<void> {
    const { app } = placeOfRun({ turn: turnId });
    await this.#options.lookups.set(shownKeyOf(app, messageId), turnId, shownMs);
  }

  #countIn(ms: number): void {
    if (this.#counting !== undefined) return;
    this.#cancelCount ??= this.#options.clock.after(ms, () => this.#count({ asks: true }));
  }

  #count({ asks }: { asks: boolean }): void {
    this.#cancelCount?.();
    this.#cancelCount = undefined;
    if (this.#counting !== undefined) return;
    this.#counting = this.#handIn(asks).finally(() => {
      this.#counting = undefined;
      if (asks && (this.#batch !== undefined || this.#names.hasNews())) this.#countIn(retryMs);
    });
  }

  async #handIn(asks: boolean): Promise<void> {
    this.#batch ??= { id: this.#options.random.id(), deltas: this.#counter.take() };
    const { id, deltas } = this.#batch;
    try {
      await this.#options.usage.add(id, deltas);
      this.#batch = undefined;
      if (asks) await this.#names.keep();
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Logged once per outage. */
  #failed(error: unknown): void {
    if (!this.#isFailing) {
      this.#options.logger.warn({ error }, "what the console shows of runs is not written");
    }
    this.#isFailing = true;
  }
}

const dayMs = 86_400_000;
/** A name that was written within this time is not asked for again. */
const nameKnownMs = 7 * dayMs;
/** Most people and chats that this process remembers to have seen within a day. */
const maxSeen = 10_000;
const maxNamesAsked = 50;
/** How long the platform is waited for. */
const patienceMs = 3_000;

/** Writes down what people and chats are called, and asks the platform for those that are not known, a few at a time. */
class NamesSeen {
  readonly #options: RunRecordsOptions;
  readonly #seen: LRUCache<string, true>;
  /** What was newly seen, by its id: the app to ask, and the name where it is known. */
  #news = new Map<string, { app: string; name?: string }>();
  /** Direct chats, which are called as their person. */
  #direct = new Map<string, string>();

  constructor(options: RunRecordsOptions) {
    this.#options = options;
    const perf = { now: () => options.clock.monotonic() };
    // By size: by number, it would take the memory of all at once.
    const size = { maxSize: maxSeen, sizeCalculation: () => 1 };
    this.#seen = new LRUCache({ ...size, ttl: dayMs, ttlResolution: 0, perf });
  }

  /** Who has written where. Sessions of the HTTP API have no names. */
  see({ app, sender: { id, name }, chatType, reply }: InboundMessage): void {
    if (reply.channel !== "feishu") return;
    this.#note(id, { app, ...(name === undefined ? {} : { name }) });
    if (chatType === "group") this.#note(reply.chatId, { app });
    else if (!this.#seen.has(reply.chatId) && this.#direct.size < maxSeen) {
      this.#direct.set(reply.chatId, id);
    }
  }

  seePerson(id: string, app: string): void {
    this.#note(id, { app });
  }

  #note(id: string, news: { app: string; name?: string }): void {
    const key = `${id} ${news.name ?? ""}`;
    if (id === "" || this.#seen.has(key) || this.#news.size >= maxSeen) return;
    this.#seen.set(key, true);
    this.#news.set(id, news);
  }

  hasNews(): boolean {
    return this.#news.size > 0 || this.#direct.size > 0;
  }

  async keep(): Promise<void> {
    const news = [...this.#news].slice(0, maxNamesAsked);
    const direct = [...this.#direct].filter(
      ([, person]) => !this.#news.has(person) || news.some(([id]) => id === person),
    );
    if (news.length === 0 && direct.length === 0) return;
    const { names, clock } = this.#options;
    const known = news.flatMap(([id, { name }]): [string, string][] =>
      name === undefined ? [] : [[id, name]],
    );
    const others = news.flatMap(([id, { name }]) => (name === undefined ? [id] : []));
    const wanted = new Set(await names.unknown(others, clock.now() - nameKnownMs));
    const asked = await this.#ask(news.filter(([id]) => wanted.has(id)));
    const found = new Map([...known, ...asked]);
    const before = await names.of(
      direct.flatMap(([, person]) => (found.has(person) ? [] : [person])),
    );
    for (const [chat, person] of direct) {
      found.set(chat, found.get(person) ?? before.get(person) ?? "");
    }
    await names.keep(found, clock.now());
    for (const [id] of news) this.#news.delete(id);
    for (const [chat] of direct) {
      this.#direct.delete(chat);
      this.#seen.set(chat, true);
    }
  }

  /** What the platform does not tell is written down as well, so that it is not asked again. */
  async #ask(unknown: readonly [id: string, { app: string }][]): Promise<[string, string][]> {
    const found: [string, string][] = [];
    for (const [app, ofApp] of Map.groupBy(unknown, ([, { app: of }]) => of)) {
      const api = this.#options.apis.get(app);
      if (api === undefined) continue;
      const ids = ofApp.map(([id]) => id);
      const people = ids.filter((id) => !id.startsWith("oc_"));
      const signal = deadline(this.#options.clock, patienceMs);
      const none: ReadonlyMap<string, string> = new Map();
      const names =
        people.length === 0 ? none : await api.userNames(people, { signal }).catch(() => none);
      found.push(...people.map((id): [string, string] => [id, names.get(id) ?? ""]));
      for (const id of ids.filter((each) => each.startsWith("oc_"))) {
        const chat = await api.chat(id, { signal }).catch(() => undefined);
        found.push([id, chat?.name ?? ""]);
      }
    }
    return found;
  }
}

function recordOf(
  { turn, model, firstTextMs, version, problem = "" }: EndedRun,
  { outcome, endedAtMs }: Pick<RunRecord, "outcome" | "endedAtMs">,
  keepsQuestions: boolean,
): RunRecord {
  const { message, turnId, steps, totals, startedAtMs, waiting } = turn;
  return {
    turn: turnId,
    trace: traceIdOf(traceparentOfMessage(message)),
    message: message.id,
    person: message.sender.id,
    agent: agentOfTurn(turn),
    ...(version === 0 ? {} : { version }),
    model,
    outcome,
    endedAtMs,
    ms: Math.max(0, endedAtMs - message.createdAtMs),
    queuedMs: Math.max(0, startedAtMs - message.createdAtMs),
    ...(firstTextMs === undefined ? {} : { firstMs: firstTextMs }),
    ...(waiting.ms === 0 ? {} : { waitedMs: waiting.ms }),
    steps,
    input: totals.inputTokens,
    output: totals.outputTokens,
    usd: Number(totals.costUsd.toPrecision(6)),
    ...toolsOf(turn),
    ...(problem === "" ? {} : { problem: beginningOf(problem, maxProblem) }),
    ...(keepsQuestions ? excerptsOf(turn) : {}),
  };
}

const maxAsked = 60;
const maxProblem = 160;

/** The first words of what was asked, and of what the last failed call said. */
function excerptsOf({ message, shown }: TurnState): Pick<RunRecord, "asked" | "toolProblem"> {
  const texts = message.parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
  const asked = beginningOf(texts.join(" "), maxAsked);
  const said = shown.tools.findLast(({ state }) => state === "failed")?.output ?? "";
  const toolProblem = beginningOf(said, maxProblem);
  return { ...(asked === "" ? {} : { asked }), ...(toolProblem === "" ? {} : { toolProblem }) };
}

/** The first characters of a text in one line, without secrets. */
function beginningOf(text: string, length: number): string {
  const line = scrubText(text.slice(0, 10 * length))
    .replaceAll(/\s+/g, " ")
    .trim();
  return [...line].slice(0, length).join("");
}

/** The latest calls of the turn, as many as its card can show. */
function toolsOf({ shown }: EndedRun["turn"]): Pick<RunRecord, "tools" | "failedTools"> {
  if (shown === undefined || shown.tools.length === 0) return {};
  const failed = shown.tools.filter(({ state }) => state === "failed");
  return {
    tools: countsOf(shown.tools),
    ...(failed.length === 0 ? {} : { failedTools: countsOf(failed) }),
  };
}

function countsOf(tools: readonly { name: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { name } of tools) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
