import { hideSecrets } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { pino, type DestinationStream, type Logger as PinoLogger } from "pino";
import type { TelemetryAdapter } from "./telemetry.ts";

export const logLevels = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Facts of a log line. An `Error` may stand under any key; `error` is the usual one. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Bindings that follow a line through the system; others may stand beside them. */
export interface LogBindings {
  readonly session?: string;
  readonly turnId?: string;
  readonly requestId?: string;
  readonly [name: string]: unknown;
}

/**
 * Writes JSON lines. Secrets and message content are hidden by key at any depth, errors lose
 * their request data. Messages are constant texts; what varies belongs in the fields.
 */
export interface Logger {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
  /** Whether lines of the level `debug` are written. */
  readonly writesDebug?: boolean;
  /** A logger that adds these bindings to each line. */
  child(bindings: LogBindings): Logger;
}

export interface LoggerOptions {
  /** Name of the process, on every line. */
  service: string;
  /** Default `info`. */
  level?: LogLevel;
  /** Where lines go; default is standard output. */
  destination?: DestinationStream | undefined;
  /** Of lines that are counted because they repeat. Default: that of the process. */
  clock?: Pick<Clock, "monotonic">;
}

/** Lines with one message and one error that are written within a minute. */
const maxRepeated = 10;
const repeatedWithinMs = 60_000;
const maxKinds = 500;

/** Counts lines that say the same error again and again, instead of having them written. */
class Repetitions {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #kinds = new Map<string, { sinceMs: number; lines: number }>();

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** How many lines like this one were left out before it; undefined: this one is left out, too. */
  before(fields: LogFields, message: string): number | undefined {
    const { error } = fields;
    if (!(error instanceof Error)) return 0;
    const kind = `${message} ${error.message.slice(0, 200)}`;
    const nowMs = this.#clock.monotonic();
    const known = this.#kinds.get(kind);
    if (known !== undefined && nowMs - known.sinceMs < repeatedWithinMs) {
      known.lines += 1;
      return known.lines > maxRepeated ? undefined : 0;
    }
    if (this.#kinds.size >= maxKinds) this.#kinds.clear();
    this.#kinds.set(kind, { sinceMs: nowMs, lines: 1 });
    return Math.max(0, (known?.lines ?? 0) - maxRepeated);
  }
}

function wrap(inner: PinoLogger, repetitions: Repetitions): Logger {
  const at = (level: Exclude<LogLevel, "silent">) => (fields: LogFields, message: string) => {
    if (!inner.isLevelEnabled(level)) return;
    const leftOut = repetitions.before(fields, message);
    if (leftOut === undefined) return;
    inner[level](redactFields(leftOut === 0 ? fields : { ...fields, leftOut }), scrubText(message));
  };
  return {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    writesDebug: inner.isLevelEnabled("debug"),
    child: (bindings) => wrap(inner.child(redactFields(bindings)), repetitions),
  };
}

function ignoreLostReader(): void {}

/**
 * Standard output, written at once on Linux and macOS, so that no line is lost at exit. Pino's own
 * default retries without end at exit when the reader is gone; a process must still end then.
 */
function standardOutput(): DestinationStream {
  process.stdout.on("error", ignoreLostReader);
  return { write: (line) => void process.stdout.write(line) };
}

/**
 * Creates the logger of a process. Of lines with the same message and error ten a minute are written; the next one
 * after that has how many were left out.
 */
export function createLogger(given: LoggerOptions): Logger {
  const { service, level = "info", destination = standardOutput(), clock = systemClock } = given;
  const options = {
    level,
    base: { service, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return wrap(pino(options, destination), new Repetitions(clock));
}

/** A logger that writes nothing, for tests and for callers without one. */
export const silentLogger: Logger = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  child: () => silentLogger,
};

/**
 * Writes all that is observed, at the level `debug`. What operators have to know is a line of its own, written where it
 * happens; errors stand here a second time, with the message that they belong to.
 */
export function debugAdapter(logger: Logger): TelemetryAdapter {
  return {
    event: (name, tags) => logger.debug({ ...tags, event: name }, "event"),
    error: (error, tags) => logger.debug({ ...tags, error }, "error"),
    spanStarted: (span) => () => {
      const failed = span.error === undefined ? {} : { error: span.error };
      logger.debug(
        {
          ...span.tags,
          ...span.endTags,
          ...failed,
          span: span.name,
          ms: Math.round(span.elapsedMs()),
        },
        "span",
      );
    },
  };
}

/** What is logged of something that others reconnect to by themselves. */
export interface OutageLog {
  /** Another try has failed. */
  failed(error: unknown): void;
  back(): void;
}

/** One line when an outage begins and one when it is over, however many tries fail in between, in any part of the process. */
export function createOutageLog(logger: Pick<Logger, "warn" | "info">, name: string): OutageLog {
  let isBroken = false;
  return {
    failed: (error) => {
      if (!isBroken) logger.warn({ error }, `${name} cannot be reached, trying again`);
      isBroken = true;
    },
    back: () => {
      if (isBroken) logger.info({}, `${name} is reached again`);
      isBroken = false;
    },
  };
}

/** What the log says when clocks begin to differ, and when they agree again. */
export function createClockLog(
  logger: Pick<Logger, "warn" | "info">,
): (problem: string | undefined) => void {
  return (problem) =>
    problem === undefined
      ? logger.info({}, "clocks agree again")
      : logger.warn({ problem }, "clocks differ");
}

/** What a secret is replaced by in a log line. */
const secretMark = "[secret]";

const secretKey =
  /(secret|password|passwd|token|apikey|authorization|cookie|credentials?|encryptkey|privatekey|signingkey|ticket)$/;

/** Keys that carry what people, models and tools wrote. */
const contentKeys = new Set([
  "answer",
  "arguments",
  "args",
  "body",
  "card",
  "content",
  "contents",
  "delta",
  "final",
  "html",
  "input",
  "instructions",
  "markdown",
  "messages",
  "output",
  "parts",
  "preview",
  "prompt",
  "question",
  "rawbody",
  "result",
  "stderr",
  "stdout",
  "summary",
  "system",
  "text",
  "thinking",
]);

/** What is kept of an error. Everything else (request config, headers, bodies) is dropped. */
const errorFields = [
  "code",
  "status",
  "statusCode",
  "retryable",
  "suggestion",
  "errno",
  "syscall",
  "address",
  "port",
] as const;

const maxDepth = 6;
const maxItems = 50;
const maxTextLength = 2_000;
const maxStackLength = 4_000;

/** A secret at the cut is seen as a whole. */
const beyondCut = 4_000;

function scrub(text: string, maxLength: number): string {
  const shown = hideSecrets(text.slice(0, maxLength + beyondCut), secretMark);
  if (text.length <= maxLength) return shown;
  return `${shown.slice(0, maxLength)}... (${text.length} characters)`;
}

/** Replaces recognisable secrets in free text. */
export function scrubText(text: string): string {
  return scrub(text, maxTextLength);
}

function hiddenContent(value: unknown): unknown {
  if (typeof value === "string") return `[hidden, ${value.length} characters]`;
  if (Array.isArray(value)) return `[hidden, ${value.length} items]`;
  if (typeof value === "object" && value !== null) return "[hidden]";
  return value;
}

function describeError(error: Error, depth: number): Record<string, unknown> {
  const described: Record<string, unknown> = {
    type: error.name,
    message: scrubText(error.message),
  };
  for (const field of errorFields) {
    const value: unknown = Reflect.get(error, field);
    if (["string", "number", "boolean"].includes(typeof value)) {
      described[field] = redactValue(value, depth + 1);
    }
  }
  if (error.stack !== undefined) described["stack"] = scrub(error.stack, maxStackLength);
  if (error.cause !== undefined) described["cause"] = redactValue(error.cause, depth + 1);
  if (error instanceof AggregateError) described["errors"] = redactValue(error.errors, depth + 1);
  return described;
}

function redactEntries(
  entries: Iterable<[string, unknown]>,
  depth: number,
): Record<string, unknown> {
  const redacted: Record<string, unknown> = {};
  for (const [key, value] of entries) redacted[key] = redactEntry(key, value, depth);
  return redacted;
}

function redactEntry(key: string, value: unknown, depth: number): unknown {
  const plainKey = key.replaceAll(/[-_\s]/g, "").toLowerCase();
  if (secretKey.test(plainKey)) {
    return value === null || value === undefined || typeof value === "boolean" ? value : secretMark;
  }
  if (contentKeys.has(plainKey) && !(value instanceof Error)) return hiddenContent(value);
  return redactValue(value, depth);
}

function redactObject(value: object, depth: number): unknown {
  if (value instanceof Error) return describeError(value, depth);
  if (value instanceof Date) {
    return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  }
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (value instanceof URL) return scrubText(value.href);
  if (Array.isArray(value)) {
    return value.slice(0, maxItems).map((item) => redactValue(item, depth + 1));
  }
  if (value instanceof Set) return redactObject([...value], depth);
  if (value instanceof Map) {
    return redactEntries(
      [...value].slice(0, maxItems).map(([k, v]) => [String(k), v]),
      depth + 1,
    );
  }
  return redactEntries(Object.entries(value), depth + 1);
}

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return scrubText(value);
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "object" || value === null) return value;
  return depth > maxDepth ? "[deep]" : redactObject(value, depth);
}

/**
 * A copy of log fields that may be written down: values of secret keys and of message content are
 * replaced at any depth, errors are reduced to name, message, code, stack and causes, text is
 * scrubbed and cut. Never throws on cycles or odd values, never changes its input.
 */
export function redactFields(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return redactEntries(Object.entries(fields), 0);
}
