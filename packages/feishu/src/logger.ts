import { LoggerLevel, type Logger as SdkLogger } from "@larksuiteoapi/node-sdk";

type Write = (fields: Record<string, unknown>, text: string) => void;

/** What this package needs of a logger; pino and `@larkline/process/telemetry` have this shape. */
export interface FeishuLogger {
  debug: Write;
  info: Write;
  warn: Write;
  error: Write;
}

/** Drops every line. */
export const noLogger: FeishuLogger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

const maxTextLength = 300;

/** The only text of the SDK that may reach a log: strings without addresses, errors by name and code. */
function harmless(part: unknown): string {
  if (typeof part === "string") return part.replaceAll(/\b(?:https?|wss?):\/\/\S+/g, "<url>");
  if (!(part instanceof Error)) return "";
  const code: unknown = "code" in part ? part.code : undefined;
  return typeof code === "string" || typeof code === "number" ? `${part.name} ${code}` : part.name;
}

function writer(write: Write): (...parts: unknown[]) => void {
  return (...parts) => {
    const text = parts.flat(3).map(harmless).filter(Boolean).join(" ").slice(0, maxTextLength);
    if (text !== "") write({ source: "feishu-sdk" }, text);
  };
}

/**
 * The SDK hands its logger one array of anything: request bodies, secrets and whole HTTP errors
 * among it. Only what {@link harmless} knows gets through, and only as debugging help: our own layer
 * reports every failure with its code.
 */
export function sdkLogger(logger: FeishuLogger): { logger: SdkLogger; loggerLevel: LoggerLevel } {
  const debug = writer((fields, text) => logger.debug(fields, text));
  return {
    logger: { error: debug, warn: debug, info: debug, debug, trace: () => undefined },
    loggerLevel: LoggerLevel.warn,
  };
}
