import { hostname } from "node:os";
import {
  TraceFlags,
  type Counter,
  type Histogram,
  type LogRecord,
  type SpanContext,
} from "@opentelemetry/api";
import {
  systemClock,
  systemRandom,
  type Clock,
  type Random,
  withDeadline,
} from "@larkline/protocol/clock";
import { traceIdOf, type TraceEntry, type TraceId } from "@larkline/protocol/trace";
import type { TraceLog, TraceSubject, TraceWrite } from "@larkline/store/operations";
import { metricCatalogue, type EventName, type MetricName, type SpanName } from "./observations.ts";

// Product code starts spans, emits events and adds to metrics with the few methods of OpenTelemetry's API that it needs.
// What becomes of that is the business of adapters: Prometheus, the trace log, observers of the deployment, the SDK of
// OpenTelemetry where a collector is named, the debug log. A span is one object, and an adapter that is not there costs
// nothing: decision 0025 has the figures.

/** Facts of an observation: ids and numbers, never content. `traceparent` says which message it belongs to. */
export type Tags = Readonly<Record<string, string | number | boolean>>;

/** Something that takes time. */
export interface Span {
  /** Adds what is known only now. */
  setAttributes(attributes: Tags): this;
  /** Says that it failed; by an error, or by a code of what went wrong. */
  recordException(error: unknown): void;
  /** It is over; the second end does nothing. */
  end(): void;
}

/** Starts spans by the names of the catalogue. */
export interface SpanStarter {
  startSpan(name: SpanName, options: { attributes: Tags }): Span;
}

/** Emits events by the names of the catalogue, and errors. */
export interface EventEmitter {
  emit(record: EventRecord | ErrorRecord): void;
}

export interface EventRecord extends LogRecord {
  eventName: EventName;
  attributes: Tags;
}

/** Something went wrong that operators should know of. */
export interface ErrorRecord extends LogRecord {
  exception: unknown;
  attributes: Tags;
}

/** The metrics that adapters receive, by the names of the catalogue. */
export type Samples = {
  readonly [Name in MetricName]: (typeof metricCatalogue)[Name]["kind"] extends "counter"
    ? Counter<Tags>
    : Histogram<Tags>;
};

/** What product code calls. None of it throws or waits. */
export interface Telemetry {
  readonly tracer: SpanStarter;
  readonly events: EventEmitter;
  readonly samples: Samples;
}

/** Gets what is observed, synchronously. What an adapter throws disturbs neither the run nor the other adapters. */
export interface TelemetryAdapter {
  event?(name: string, tags: Tags): unknown;
  error?(error: unknown, tags: Tags): unknown;
  sample?(name: string, value: number, tags: Tags): unknown;
  /** Returns what is called when the span ends. */
  spanStarted?(span: RecordedSpan): (() => unknown) | undefined;
}

/** Calls the methods that each adapter has. */
export function telemetryFor(
  adapters: readonly TelemetryAdapter[],
  {
    clock = systemClock,
    random = systemRandom,
  }: { clock?: Clock | undefined; random?: Random | undefined } = {},
): Telemetry {
  const group = new AdapterGroup(adapters, clock, random);
  return { tracer: group, events: group, samples: samplesFor(group) };
}

/** A span of this process, as adapters see it. */
export class RecordedSpan implements Span {
  readonly name: string;
  /** What was known when it began. */
  readonly tags: Tags;
  readonly startedAtMs: number;
  readonly #startedMs: number;
  /** What became known since. */
  endTags: Tags | undefined;
  /** Why it failed. */
  error: unknown;
  readonly #group: AdapterGroup;
  #ends: ((() => unknown) | undefined)[] | undefined;
  #context: SpanContext | undefined;

  constructor(group: AdapterGroup, name: string, tags: Tags) {
    this.#group = group;
    this.name = name;
    this.tags = tags;
    this.startedAtMs = group.clock.now();
    this.#startedMs = group.clock.monotonic();
    this.#ends = group.started(this);
  }

  /** How long it has taken, ms. */
  elapsedMs(): number {
    return this.#group.clock.monotonic() - this.#startedMs;
  }

  end(): void {
    const ends = this.#ends;
    this.#ends = undefined;
    for (const end of ends ?? []) if (end !== undefined) quietly(end);
  }

  setAttributes(attributes: Tags): this {
    this.endTags = this.endTags === undefined ? attributes : { ...this.endTags, ...attributes };
    return this;
  }

  recordException(error: unknown): void {
    this.error = error;
  }

  /** Of the trace of its message, or else of one of its own. */
  spanContext(): SpanContext {
    this.#context ??= {
      traceId:
        /^00-([0-9a-f]{32})-/.exec(String(this.tags["traceparent"]))?.[1] ?? this.#randomHex(32),
      spanId: this.#randomHex(16),
      traceFlags: TraceFlags.SAMPLED,
    };
    return this.#context;
  }

  #randomHex(length: number): string {
    return this.#group.random.uuid().replaceAll("-", "").slice(-length);
  }
}

/** All adapters as one tracer and one emitter of events. */
class AdapterGroup implements SpanStarter, EventEmitter {
  readonly clock: Clock;
  readonly random: Random;
  readonly #adapters: readonly TelemetryAdapter[];

  constructor(adapters: readonly TelemetryAdapter[], clock: Clock, random: Random) {
    this.#adapters = adapters;
    this.clock = clock;
    this.random = random;
  }

  startSpan(name: SpanName, { attributes }: { attributes: Tags }): Span {
    return new RecordedSpan(this, name, attributes);
  }

  emit(record: EventRecord | ErrorRecord): void {
    const { attributes, exception, eventName } = record;
    if (exception !== undefined) {
      for (const adapter of this.#adapters) quietly(() => adapter.error?.(exception, attributes));
    } else if (eventName !== undefined) this.event(eventName, attributes);
  }

  event(name: string, tags: Tags): void {
    for (const adapter of this.#adapters) quietly(() => adapter.event?.(name, tags));
  }

  sample(name: string, value: number, tags: Tags): void {
    for (const adapter of this.#adapters) quietly(() => adapter.sample?.(name, value, tags));
  }

  started(span: RecordedSpan): ((() => unknown) | undefined)[] {
    return this.#adapters.map((adapter) => quietly(() => adapter.spanStarted?.(span)));
  }
}

function samplesFor(group: AdapterGroup): Samples {
  const samples = Object.entries(metricCatalogue).map(([name, { kind }]) => {
    const take = (value: number, tags: Tags = {}): void => group.sample(name, value, tags);
    return [name, kind === "counter" ? { add: take } : { record: take }];
  });
  return Object.fromEntries(samples) as Samples; // one per name, of the kind that the catalogue says
}

/** Runs it; drops what it throws, and what it rejects with if it promises something. */
function quietly<T>(observe: () => T): T | undefined {
  try {
    const result = observe();
    if (result instanceof Promise) result.catch(ignore);
    return result;
  } catch {
    return undefined;
  }
}

function ignore(): void {}

/** Observes nothing: for tests, and for messages that must not count. */
export const silentTelemetry: Telemetry = telemetryFor([]);

export interface TraceAdapterOptions {
  log: Pick<TraceLog, "append">;
  service: string;
  /** Distinguishes this app from others of the service. Default: the machine's name and the process id, and a number where the process has several. */
  instance?: string;
  /** Called when a write fails, once per outage. */
  onError: (error: unknown) => void;
  /** Called with the number of entries that are lost, because the log did not take them or not fast enough. */
  onDropped?: (count: number) => void;
  /** How long entries are collected before they are written, ms. Default 50. */
  flushMs?: number;
  /** Entries that are written at once, without waiting for more. Default 500. */
  batchEntries?: number;
  /** Entries that wait at most; what comes then is lost. Default 20,000. */
  maxBuffered?: number;
  /** How long `close` waits for the last write, ms. Default 2000. */
  closeMs?: number;
  /** The machine's if absent. */
  clock?: Clock | undefined;
}

const maxText = 200;
/** Of what a vendor said when it refused a call, which is cut at 500 already; a mark in place of a secret is longer. */
const maxProblem = 600;
const maxTags = 24;
/** Makes a trace findable. */
const namingEvent = "message.received";

let instances = 0;

function nextInstance(): string {
  instances += 1;
  return `${hostname()}-${process.pid}${instances === 1 ? "" : `-${instances}`}`;
}

type Waiting = Map<TraceId, { entries: TraceEntry[]; subject?: TraceSubject }>;

/**
 * Writes down what belongs to a message, in batches and in the background: it never makes anything wait, and what it
 * cannot write is lost. A span is written when it begins as well, unless it is over before the batch is written: one
 * without an end shows where a process died.
 */
export class TraceAdapter implements TelemetryAdapter {
  readonly #options: TraceAdapterOptions;
  readonly #instance: string;
  readonly #clock: Clock;
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
    this.#instance = options.instance ?? nextInstance();
    this.#clock = options.clock ?? systemClock;
  }

  event(name: string, tags: Tags): void {
    this.#add(
      traceOf(tags),
      { ...this.#entry("event", name), data: dataOf(tags) },
      subjectOf(name, tags),
    );
  }

  error(error: unknown, tags: Tags): void {
    this.#add(traceOf(tags), {
      ...this.#entry("error", "error"),
      failed: codeOf(error),
      data: dataOf(tags),
    });
  }

  spanStarted(span: RecordedSpan): (() => void) | undefined {
    const traceId = traceOf(span.tags);
    if (traceId === undefined) return undefined;
    this.#spans += 1;
    const id = String(this.#spans);
    const entry: TraceEntry = {
      ...this.#entry("begin", span.name),
      span: id,
      data: dataOf(span.tags),
    };
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
    await withDeadline(this.#clock, this.#drain(), this.#options.closeMs ?? 2_000).catch(
      () => undefined,
    ); // the rest is lost
  }

  async #drain(): Promise<void> {
    await this.#writing;
    this.#flush();
    await this.#writing;
  }

  #entry(kind: TraceEntry["kind"], name: string): Omit<TraceEntry, "data"> {
    return {
      atMs: this.#clock.now(),
      kind,
      name,
      service: this.#options.service,
      instance: this.#instance,
    };
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
    this.#cancelTimer ??= this.#clock.after(this.#options.flushMs ?? 50, () => this.#flush());
  }

  /** One write at a time: while it lasts, what comes is collected for the next one. */
  #flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    if (this.#writing !== undefined || this.#count === 0) return;
    const writes: TraceWrite[] = [...this.#waiting].map(([traceId, waiting]) => ({
      traceId,
      ...waiting,
    }));
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
  return typeof traceparent === "string" && /^00-[0-9a-f]{32}-/.test(traceparent)
    ? traceIdOf(traceparent)
    : undefined;
}

function dataOf(tags: Tags): TraceEntry["data"] {
  const { session, turn } = tags;
  // Where an entry belongs is said by its trace, and the id of a turn begins with that of its session.
  const namesSession = typeof turn === "string" && turn.startsWith(String(session));
  const data: TraceEntry["data"] = {};
  let count = 0;
  for (const name of Object.keys(tags)) {
    const value = tags[name];
    if (value === undefined || name === "traceparent" || (name === "session" && namesSession)) {
      continue;
    }
    if (count >= maxTags) break;
    count += 1;
    data[name] =
      typeof value === "string" ? value.slice(0, name === "problem" ? maxProblem : maxText) : value;
  }
  return data;
}

/** The beginning has not been written yet: both ends become one entry. */
function joinEnds(
  entry: Omit<TraceEntry, "span"> & { span?: string | undefined },
  { ms, failed, data }: Pick<TraceEntry, "ms" | "failed" | "data">,
): void {
  // A field without a value is not written; an object from which one was deleted is slow to read from then on.
  entry.span = undefined;
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
  const words = [kind, code].filter(
    (word) => typeof word === "string" || (typeof word === "number" && word !== 0),
  );
  return (words.length > 0 ? words.join(" ") : typeof name === "string" ? name : "error").slice(
    0,
    maxText,
  );
}

function subjectOf(
  name: string,
  { message, chat, person, channel }: Tags,
): TraceSubject | undefined {
  if (name !== namingEvent) return undefined;
  // Clients of the HTTP API choose the names of their sessions: none may pose as a chat of the platform.
  const place = channel === "api" ? `api.${chat}` : chat;
  const given = Object.entries({ message, chat: place, person }).filter(
    ([, id]) => typeof id === "string" && id !== "",
  );
  return Object.fromEntries(given);
}

/** A call of the platform, as those who make it tell of it. */
interface PlatformCall {
  api: string;
  traceparent: string | undefined;
}

interface PlatformFailure {
  kind: string;
  code: number;
  heldBack: boolean;
}

interface DeliveredReply {
  id: string;
  session: string;
  attempts: number;
  traceparent?: string;
  /** When the message was written that it answers, epoch ms. */
  askedAtMs?: number;
  view?: unknown;
  card?: unknown;
}

type DeliveryResult =
  | { state: "sent" | "left" }
  | { state: "failed" | "given_up"; error: PlatformFailure; retryInMs: number };

/** Called with the calls and deliveries of one process; it fits what packages/feishu asks for. */
export interface PlatformWatch {
  calls: {
    waited(call: PlatformCall, ms: number, left: boolean): void;
    began(call: PlatformCall): (error?: PlatformFailure) => void;
  };
  deliveries: (reply: DeliveredReply) => (result: DeliveryResult) => void;
}

/** Calls that write cards and messages. */
const writes = /^(?:cardkit\.|im\.message\.(?:create|reply|patch|update)$|interactive\.)/;

/** Waits that are worth an entry in a trace, ms. */
const notableWaitMs = 50;

function traced(traceparent: string | undefined): Tags {
  return traceparent === undefined ? {} : { traceparent };
}

function reasonOf({ kind, code }: PlatformFailure): string {
  return code === 0 ? kind : `${kind} ${code}`;
}

function kindOf({ view, card }: DeliveredReply): string {
  if (view !== undefined) return "answer";
  return card === undefined ? "text" : "card";
}

function watchCalls({ tracer, events, samples }: Telemetry): PlatformWatch["calls"] {
  return {
    waited: ({ api, traceparent }, ms, left) => {
      samples["limiter.wait_seconds"].record(ms / 1_000, { api });
      if (!left || ms < notableWaitMs) return;
      events.emit({
        eventName: "limiter.waited",
        attributes: { ...traced(traceparent), api, ms: Math.round(ms) },
      });
    },
    began: ({ api, traceparent }) => {
      if (!writes.test(api)) return () => undefined;
      const write = tracer.startSpan("card.write", {
        attributes: { ...traced(traceparent), operation: api },
      });
      return (error) => {
        const result = error?.kind ?? "ok";
        samples["card.operations"].add(1, { operation: api, result });
        if (error !== undefined) write.recordException(error);
        write.setAttributes({ result }).end();
      };
    },
  };
}

function watchDeliveries(
  { tracer, events, samples }: Telemetry,
  clock: Clock,
): PlatformWatch["deliveries"] {
  return (reply) => {
    const { id, session, attempts, traceparent, askedAtMs } = reply;
    const tags = { ...traced(traceparent), session, reply: id };
    const delivery = tracer.startSpan("reply.deliver", {
      attributes: { ...tags, attempts: attempts + 1 },
    });
    return (result) => {
      const { state } = result;
      const error = "error" in result ? result.error : undefined;
      if (error !== undefined) delivery.recordException(error);
      delivery.setAttributes({ state }).end();
      if (state === "sent") {
        events.emit({ eventName: "reply.sent", attributes: { ...tags, attempts: attempts + 1 } });
        const seconds =
          askedAtMs === undefined ? undefined : Math.max(0, clock.now() - askedAtMs) / 1_000;
        if (seconds !== undefined) {
          samples["reply.delivered_seconds"].record(seconds, { kind: kindOf(reply) });
        }
      }
      if ("error" in result) {
        const { retryInMs } = result;
        const facts = { reason: reasonOf(result.error), givenUp: state === "given_up", retryInMs };
        events.emit({ eventName: "reply.failed", attributes: { ...tags, ...facts } });
        if (state === "given_up") events.emit({ exception: result.error, attributes: tags });
      }
    };
  };
}

/** Reports what a process does at the platform. */
export function watchPlatform(telemetry: Telemetry, clock = systemClock): PlatformWatch {
  return { calls: watchCalls(telemetry), deliveries: watchDeliveries(telemetry, clock) };
}
