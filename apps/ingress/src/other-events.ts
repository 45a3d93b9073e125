import { createHmac } from "node:crypto";
import type { Envelope } from "@larkline/feishu";
import { parserOf, type ParseResult } from "@larkline/protocol";
import { pause, type Clock } from "@larkline/protocol/clock";
import { Type } from "@larkline/protocol/type";
import type { Counter, Logger } from "@larkline/process/telemetry";

/** What the platform shows or does after a callback; events need none. */
export type EventAnswer = Record<string, unknown>;

/** An event or a click that Larkline has no use for itself, as it is passed on. */
export interface OtherEvent {
  /** Name of the bot that it came to, and its app id. */
  bot: string;
  app: string;
  /**
   * The type of the event, such as `contact.user.created_v3`, or `card.action.trigger` for a click.
   */
  type: string;
  /** The same for each delivery of one event: the platform may deliver one again. */
  eventId: string;
  tenantKey: string;
  /** Epoch ms; 0 when the platform says nothing. */
  createdAtMs: number;
  event: Record<string, unknown>;
}

/** Wants such events, clicks or both: what a module of `events.modules` exports by default, alone or in an array. */
export interface EventConsumer {
  /** Called with an event after the platform has its acknowledgement. `signal` aborts after ten seconds. */
  event?(event: OtherEvent, signal: AbortSignal): unknown;
  /**
   * Asked about a click. An object is the answer for the platform (`toast`, `card`), undefined leaves the click
   * to the next consumer. After 1.8 s the person gets an answer that says nothing.
   */
  click?(event: OtherEvent, signal: AbortSignal): unknown;
}

/** Events that are handed out at once, and those that may wait; more are dropped and counted. */
const atOnce = 16;
const mostWaiting = 1_000;
/** Clicks that consumers may be at work on at once. */
const mostClicks = 200;
/** How long a consumer has for one event or click. */
const consumerDeadlineMs = 10_000;
/** How long a person waits for the answer to a click: well within the platform's 3 s. */
const clickPatienceMs = 1_800;

const isAnswer = parserOf(Type.Record(Type.String(), Type.Unknown()));
const maxAnswerChars = 65_536;

/** An envelope as it is passed on. */
export function otherEventOf(
  bot: string,
  { appId, type, eventId, tenantKey, createdAtMs, event }: Envelope,
): OtherEvent {
  return { bot, app: appId, type, eventId, tenantKey, createdAtMs, event };
}

interface OtherEventsParts {
  clock: Clock;
  counters: { otherEvents: Counter };
  log: Logger;
}

/** Hands the events that Larkline does not handle itself to the consumers. */
export class OtherEvents {
  readonly #consumers: readonly EventConsumer[];
  readonly #parts: OtherEventsParts;
  readonly #closing = new AbortController();
  readonly #waiting: OtherEvent[] = [];
  #running = 0;
  #clicks = 0;

  constructor(consumers: readonly EventConsumer[], parts: OtherEventsParts) {
    this.#consumers = consumers;
    this.#parts = parts;
  }

  /** Passes an event on, once the caller has had time to acknowledge it. Never throws, never waits. */
  pass(event: OtherEvent): void {
    if (
      this.#closing.signal.aborted ||
      !this.#consumers.some((consumer) => consumer.event !== undefined)
    ) {
      return;
    }
    if (this.#waiting.length >= mostWaiting) {
      this.#count("event", "dropped");
      const about = { eventType: event.type, eventId: event.eventId };
      this.#parts.log.warn(about, "an event was not passed on: too many wait");
      return;
    }
    this.#waiting.push(event);
    // The acknowledgement is written in this round of the event loop.
    setImmediate(() => this.#next());
  }

  #next(): void {
    if (this.#running >= atOnce || this.#closing.signal.aborted) return;
    const event = this.#waiting.shift();
    if (event === undefined) return;
    this.#running += 1;
    void this.#handOut(event).finally(() => {
      this.#running -= 1;
      this.#next();
    });
  }

  /** All consumers at once: a slow one delays no other. */
  async #handOut(event: OtherEvent): Promise<void> {
    const interested = this.#consumers.filter((consumer) => consumer.event !== undefined);
    await Promise.all(
      interested.map(async (consumer) => {
        const result = await this.#ask(
          event,
          async (signal) => await consumer.event?.(event, signal),
        );
        this.#count("event", result.ok ? "passed" : "failed");
      }),
    );
  }

  /** Asks about a click; undefined when no consumer knows it. Never rejects. */
  async click(event: OtherEvent): Promise<EventAnswer | undefined> {
    const { clock, log } = this.#parts;
    const asked = this.#consumers.filter((consumer) => consumer.click !== undefined);
    if (asked.length === 0 || this.#closing.signal.aborted) return undefined;
    if (this.#clicks >= mostClicks) {
      this.#count("click", "dropped");
      return undefined;
    }
    const late = Promise.withResolvers<"late">();
    const cancel = clock.after(clickPatienceMs, () => late.resolve("late"));
    const answer = await Promise.race([this.#answerOf(event, asked), late.promise]);
    cancel();
    if (answer !== "late") return answer;
    log.warn(
      { eventId: event.eventId },
      "a click was answered before its consumer had anything to say",
    );
    return {}; // a consumer may be at work on it, so it is not said to be unknown
  }

  async #answerOf(
    event: OtherEvent,
    asked: readonly EventConsumer[],
  ): Promise<EventAnswer | undefined> {
    this.#clicks += 1;
    try {
      for (const consumer of asked) {
        const result = await this.#ask(event, async (signal) =>
          answerIn(await consumer.click?.(event, signal)),
        );
        if (!result.ok) this.#count("click", "failed");
        else if (result.value !== undefined) {
          this.#count("click", "passed");
          return result.value;
        }
      }
      return undefined;
    } finally {
      this.#clicks -= 1;
    }
  }

  /** What a consumer says within its time; what it throws is logged and nothing else. */
  async #ask<T>(
    event: OtherEvent,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<ParseResult<T>> {
    const { clock, log } = this.#parts;
    const { promise: over, reject } = Promise.withResolvers<never>();
    const late = new AbortController();
    const cancel = clock.after(consumerDeadlineMs, () =>
      late.abort(new DOMException("too slow", "TimeoutError")),
    );
    const signal = AbortSignal.any([late.signal, this.#closing.signal]);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    try {
      return { ok: true, value: await Promise.race([work(signal), over]) };
    } catch (error) {
      const about = { error, eventType: event.type, eventId: event.eventId };
      if (!this.#closing.signal.aborted) log.warn(about, "a consumer of events failed");
      return { ok: false, error: messageOf(error) };
    } finally {
      cancel();
    }
  }

  #count(kind: "event" | "click", outcome: "passed" | "failed" | "dropped"): void {
    this.#parts.counters.otherEvents.add(1, { kind, outcome });
  }

  /** Gives up what waits and what is under way. */
  close(): void {
    this.#closing.abort(new Error("the process stops"));
    this.#waiting.length = 0;
  }
}

/** A consumer's answer to a click, checked: the platform takes small JSON objects. */
function answerIn(given: unknown): EventAnswer | undefined {
  if (given === undefined || given === null) return undefined;
  const parsed = isAnswer(given);
  if (!parsed.ok) throw new TypeError("the answer to a click is no object");
  const text = JSON.stringify(parsed.value);
  if (text.length > maxAnswerChars) throw new TypeError("the answer to a click is too large");
  return JSON.parse(text) as EventAnswer; // an object in JSON stays one
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function problemOf(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) {
    return "its default export is no consumer of events, nor an array of them";
  }
  const methods = (["event", "click"] as const).map((name): unknown => Reflect.get(value, name));
  if (methods.some((method) => method !== undefined && typeof method !== "function")) {
    return "event and click of a consumer must be functions";
  }
  return methods.every((method) => method === undefined)
    ? "a consumer has neither event nor click"
    : undefined;
}

function isConsumer(value: unknown): value is EventConsumer {
  return problemOf(value) === undefined;
}

/** All that `events` of the configuration names; all problems are reported at once, one per line. */
export async function eventConsumers(
  clock: Clock,
  { modules, url }: { modules: readonly string[]; url: string | undefined },
  key: string | undefined,
): Promise<ParseResult<EventConsumer[]>> {
  const loaded = await loadEventConsumers(modules);
  if (url === undefined || !loaded.ok) return loaded;
  if (key === undefined) {
    return {
      ok: false,
      error: "events.url needs EVENTS_SIGNING_KEY, which signs what is sent there.",
    };
  }
  return { ok: true, value: [...loaded.value, createUrlConsumer(clock, url, key)] };
}

async function loadEventConsumers(
  modules: readonly string[],
): Promise<ParseResult<EventConsumer[]>> {
  const consumers: EventConsumer[] = [];
  const problems: string[] = [];
  for (const name of modules) {
    try {
      const module = (await import(name)) as { default?: unknown }; // of anything else there is no default
      const values: unknown[] = Array.isArray(module.default) ? module.default : [module.default];
      const problem = values.map(problemOf).find((text) => text !== undefined);
      if (problem !== undefined) throw new TypeError(problem);
      consumers.push(...values.filter(isConsumer));
    } catch (error) {
      problems.push(`events.modules: cannot use ${name}: ${messageOf(error)}.`);
    }
  }
  return problems.length === 0
    ? { ok: true, value: consumers }
    : { ok: false, error: problems.join("\n") };
}

/** Pauses before an event is sent again; each attempt has a time and a signature of its own. */
const retryDelaysMs = [500, 2_000] as const;

/**
 * Sends each event and click to a URL by POST. `X-Larkline-Timestamp` is the time in seconds,
 * `X-Larkline-Signature` is `v1=` and the HMAC-SHA256, in hex, of `<timestamp>.<body>`. To a click the server
 * answers 200 with a JSON object, 204 for "mine, nothing to show", or 404 for "not mine".
 */
function createUrlConsumer(clock: Clock, url: string, key: string): EventConsumer {
  const post = async (event: OtherEvent, signal: AbortSignal): Promise<Response> => {
    const body = JSON.stringify({ v: 1, ...event });
    const timestamp = String(Math.floor(clock.now() / 1_000));
    const signature = createHmac("sha256", key).update(`${timestamp}.${body}`).digest("hex");
    const headers = {
      "content-type": "application/json",
      "x-larkline-timestamp": timestamp,
      "x-larkline-signature": `v1=${signature}`,
    };
    return await fetch(url, { method: "POST", body, headers, signal, redirect: "error" });
  };

  return {
    async event(event, signal) {
      for (let attempt = 0; ; attempt += 1) {
        const sent = await post(event, signal).catch((error: unknown) => {
          if (signal.aborted || attempt >= retryDelaysMs.length) throw error;
          return undefined;
        });
        await sent?.body?.cancel();
        if (sent?.ok === true) return;
        const pauseMs = retryDelaysMs[attempt];
        // What was refused for what it is would be refused again.
        if (
          pauseMs === undefined ||
          (sent !== undefined && sent.status < 500 && sent.status !== 429)
        ) {
          throw new Error(`the server answered with status ${sent?.status ?? 0}`);
        }
        await pause(clock, pauseMs, signal);
        signal.throwIfAborted();
      }
    },
    async click(event, signal) {
      const answer = await post(event, signal);
      if (answer.status === 404 || answer.status === 204 || !answer.ok) {
        await answer.body?.cancel();
        if (answer.status === 404) return undefined;
        if (answer.status === 204) return {};
        throw new Error(`the server answered with status ${answer.status}`);
      }
      return JSON.parse(await limitedText(answer)) as unknown;
    },
  };
}

/** The body of an answer; throws when it is too large. */
async function limitedText({ body }: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > maxAnswerChars) throw new TypeError("the answer to a click is too large");
  }
  return text;
}
