import { pino, type DestinationStream, type Logger as PinoLogger } from "pino";
import { redactFields, scrubText } from "./redact.ts";
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
  destination?: DestinationStream;
}

function wrap(inner: PinoLogger): Logger {
  const at = (level: Exclude<LogLevel, "silent">) => (fields: LogFields, message: string) => {
    if (inner.isLevelEnabled(level)) inner[level](redactFields(fields), scrubText(message));
  };
  return {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    writesDebug: inner.isLevelEnabled("debug"),
    child: (bindings) => wrap(inner.child(redactFields(bindings))),
  };
}

function ignoreLostReader(): void {}

/**
 * Standard output, written at once on Linux and macOS, so that no line is lost at exit. Pino's own
 * default retries for ever at exit when the reader is gone; a process must still end then.
 */
function standardOutput(): DestinationStream {
  process.stdout.on("error", ignoreLostReader);
  return { write: (line) => void process.stdout.write(line) };
}

/** Creates the logger of a process. */
export function createLogger({ service, level = "info", destination = standardOutput() }: LoggerOptions): Logger {
  const options = {
    level,
    base: { service, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return wrap(pino(options, destination));
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
        { ...span.tags, ...span.endTags, ...failed, span: span.name, ms: Math.round(span.elapsedMs()) },
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

/** One line when an outage begins and one when it is over, however many tries fail in between, and whoever makes them. */
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
export function createClockLog(logger: Pick<Logger, "warn" | "info">): (problem: string | undefined) => void {
  return (problem) =>
    problem === undefined ? logger.info({}, "clocks agree again") : logger.warn({ problem }, "clocks differ");
}
