import { hostname } from "node:os";
import { traceIdOf, type TraceEntry, type TraceId, sharedNow, systemClock, withDeadline } from "@larkline/protocol";
import type { TraceLog, TraceSubject, TraceWrite } from "@larkline/store";
import type { RecordedSpan, Tags, TelemetryAdapter } from "./telemetry.ts";

export interface TraceAdapterOptions {
  log: Pick<TraceLog, "append">;
  service: string;
  /** Tells this process from others of the service. Default: the machine's name and the process id. */
  instance?: string;
  /** Told of a write that failed, once per outage. */
  onError: (error: unknown) => void;
  /** Told how many entries are lost, because the log did not take them or not fast enough. */
  onDropped?: (count: number) => void;
  /** How long entries are collected before they are written, ms. Default 50. */
  flushMs?: number;
  /** Entries that are written at once, without waiting for more. Default 500. */
  batchEntries?: number;
  /** Entries that wait at most; what comes then is lost. Default 20,000. */
  maxBuffered?: number;
  /** How long `close` waits for the last write, ms. Default 2000. */
  closeMs?: number;
}

const maxText = 200;
/** Of what a vendor said when it refused a call, which is cut at 500 already; a mark in place of a secret is longer. */
const maxProblem = 600;
const maxTags = 24;
/** Makes a trace findable. */
const namingEvent = "message.received";

type Waiting = Map<TraceId, { entries: TraceEntry[]; subject?: TraceSubject }>;

/**
 * Writes down what belongs to a message, in batches and in the background: it never makes anything wait, and what it
 * cannot write is lost. A span is written when it begins as well, unless it is over before the batch is written: one
 * without an end shows where a process died.
 */
export class TraceAdapter implements TelemetryAdapter {
  readonly #options: TraceAdapterOptions;
  readonly #instance: string;
  #waiting: Waiting = new Map();
  #count = 0;
  /** Batches that were written. */
  #batches = 0;
  #spans = 0;
  #cancelTimer: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  #isFailing = false;
  #closing: Promise<void> | undefined;

  constructor(options: TraceAdapterOptions) {
    this.#options = options;
    this.#instance = options.instance ?? `${hostname()}-${process.pid}`;
  }

  event(name: string, tags: Tags): void {
    this.#add(traceOf(tags), { ...this.#entry("event", name), data: dataOf(tags) }, subjectOf(name, tags));
  }

  error(error: unknown, tags: Tags): void {
    this.#add(traceOf(tags), { ...this.#entry("error", "error"), failed: codeOf(error), data: dataOf(tags) });
  }

  spanStarted(span: RecordedSpan): (() => void) | undefined {
    const traceId = traceOf(span.tags);
    if (traceId === undefined) return undefined;
    this.#spans += 1;
    const id = String(this.#spans);
    const entry: TraceEntry = { ...this.#entry("begin", span.name), span: id, data: dataOf(span.tags) };
    const batch = this.#batches;
    if (!this.#add(traceId, entry)) return undefined;
    return () => {
      const ms = Math.max(0, Math.round(span.elapsedMs()));
      const end = { ms, ...(span.error === undefined ? {} : { failed: codeOf(span.error) }) };
      const data = dataOf(span.endTags ?? {});
      if (batch === this.#batches) joinEnds(entry, { ...end, data });
      else this.#add(traceId, { ...this.#entry("end", span.name), span: id, ...end, data });
    };
  }

  /** Writes what is left, for a limited time. What is observed later is lost. Idempotent. */
  async close(): Promise<void> {
    await (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    await withDeadline(systemClock, this.#drain(), this.#options.closeMs ?? 2_000).catch(() => undefined); // the rest is lost
  }

  async #drain(): Promise<void> {
    await this.#writing;
    this.#flush();
    await this.#writing;
  }

  #entry(kind: TraceEntry["kind"], name: string): Omit<TraceEntry, "data"> {
    return { atMs: sharedNow(), kind, name, service: this.#options.service, instance: this.#instance };
  }

  /** False when it is lost, or belongs to no trace. */
  #add(traceId: TraceId | undefined, entry: TraceEntry, subject?: TraceSubject): boolean {
    const { maxBuffered = 20_000, batchEntries = 500 } = this.#options;
    if (traceId === undefined || this.#closing !== undefined) return false;
    if (this.#count >= maxBuffered) {
      this.#options.onDropped?.(1);
      return false;
    }
    const waiting = this.#waiting.get(traceId) ?? { entries: [] };
    waiting.entries.push(entry);
    this.#waiting.set(traceId, subject === undefined ? waiting : { ...waiting, subject });
    this.#count += 1;
    if (this.#count >= batchEntries) this.#flush();
    else this.#flushSoon();
    return true;
  }

  #flushSoon(): void {
    this.#cancelTimer ??= systemClock.after(this.#options.flushMs ?? 50, () => this.#flush());
  }

  /** One write at a time: while it lasts, what comes is collected for the next one. */
  #flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    if (this.#writing !== undefined || this.#count === 0) return;
    const writes: TraceWrite[] = [...this.#waiting].map(([traceId, waiting]) => ({ traceId, ...waiting }));
    const count = this.#count;
    this.#waiting = new Map();
    this.#count = 0;
    this.#batches += 1;
    this.#writing = this.#write(writes, count).finally(() => {
      this.#writing = undefined;
      if (this.#count > 0) this.#flushSoon();
    });
  }

  async #write(writes: readonly TraceWrite[], count: number): Promise<void> {
    try {
      await this.#options.log.append(writes);
      this.#isFailing = false;
    } catch (error) {
      // Written again they might stand there twice; nothing depends on them.
      this.#options.onDropped?.(count);
      if (!this.#isFailing) this.#options.onError(error);
      this.#isFailing = true;
    }
  }
}

/** Undefined for what belongs to no message. */
function traceOf({ traceparent }: Tags): TraceId | undefined {
  return typeof traceparent === "string" && /^00-[0-9a-f]{32}-/.test(traceparent) ? traceIdOf(traceparent) : undefined;
}

function dataOf(tags: Tags): TraceEntry["data"] {
  const { session, turn } = tags;
  // Where an entry belongs is said by its trace, and the id of a turn begins with that of its session.
  const namesSession = typeof turn === "string" && turn.startsWith(String(session));
  const data: TraceEntry["data"] = {};
  let count = 0;
  for (const name of Object.keys(tags)) {
    const value = tags[name];
    if (value === undefined || name === "traceparent" || (name === "session" && namesSession)) continue;
    if (count >= maxTags) break;
    count += 1;
    data[name] = typeof value === "string" ? value.slice(0, name === "problem" ? maxProblem : maxText) : value;
  }
  return data;
}

/** The beginning has not been written yet: both ends become one entry. */
function joinEnds(entry: TraceEntry, { ms, failed, data }: Pick<TraceEntry, "ms" | "failed" | "data">): void {
  delete entry.span;
  entry.kind = "span";
  if (ms !== undefined) entry.ms = ms;
  if (failed !== undefined) entry.failed = failed;
  Object.assign(entry.data, data);
}

/** What an error is called. Its message may hold anything, so it is left out. */
function codeOf(error: unknown): string {
  if (typeof error === "string") return error.slice(0, maxText);
  if (typeof error !== "object" || error === null) return "error";
  const { kind, code, name } = error as { kind?: unknown; code?: unknown; name?: unknown }; // looked at below
  const words = [kind, code].filter((word) => typeof word === "string" || (typeof word === "number" && word !== 0));
  return (words.length > 0 ? words.join(" ") : typeof name === "string" ? name : "error").slice(0, maxText);
}

function subjectOf(name: string, { message, chat, person, channel }: Tags): TraceSubject | undefined {
  if (name !== namingEvent) return undefined;
  // Clients of the HTTP API choose the names of their sessions: none may pose as a chat of the platform.
  const place = channel === "api" ? `api.${chat}` : chat;
  const given = Object.entries({ message, chat: place, person }).filter(
    ([, id]) => typeof id === "string" && id !== "",
  );
  return Object.fromEntries(given);
}
