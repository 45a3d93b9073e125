import { hideSecrets } from "@larkline/protocol";

/** What stands in a log line in place of a secret. */
export const secretMark = "[secret]";

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

/** Free text without the secrets that can be recognised in it. */
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
  const described: Record<string, unknown> = { type: error.name, message: scrubText(error.message) };
  for (const field of errorFields) {
    const value: unknown = Reflect.get(error, field);
    if (["string", "number", "boolean"].includes(typeof value)) described[field] = redactValue(value, depth + 1);
  }
  if (error.stack !== undefined) described["stack"] = scrub(error.stack, maxStackLength);
  if (error.cause !== undefined) described["cause"] = redactValue(error.cause, depth + 1);
  if (error instanceof AggregateError) described["errors"] = redactValue(error.errors, depth + 1);
  return described;
}

function redactEntries(entries: Iterable<[string, unknown]>, depth: number): Record<string, unknown> {
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
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (value instanceof URL) return scrubText(value.href);
  if (Array.isArray(value)) return value.slice(0, maxItems).map((item) => redactValue(item, depth + 1));
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
