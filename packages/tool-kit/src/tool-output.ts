import type { ToolOutcome } from "@larkline/protocol";

const maxErrorBytes = 8_192;

/** Cuts text to at most `maxBytes` of UTF-8, never inside a character. */
function headOf(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text, "utf8");
  let end = Math.min(bytes.length, Math.max(0, maxBytes));
  // A byte 10xxxxxx continues a character: step back to its first byte.
  while (end > 0 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", 0, end);
}

function cut(text: string, maxBytes: number): string {
  const total = Buffer.byteLength(text);
  if (total <= maxBytes) return text;
  const marker = `\n[truncated: the output was ${total} bytes, the limit is ${maxBytes}]`;
  return headOf(text, maxBytes - Buffer.byteLength(marker)) + marker;
}

/** JSON drops or empties these without a word; a model would be told something else than the tool said. */
function refuseLossy(key: string, value: unknown): unknown {
  const where = key === "" ? "the result" : JSON.stringify(key);
  if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`${where} is a ${typeof value}`);
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${where} is ${value}`);
  if (value instanceof Map || value instanceof Set) throw new TypeError(`${where} is a ${value.constructor.name}`);
  return value;
}

/** Text of an error for the model: its message, without stack, at most 8 KiB. */
export function errorText(error: unknown): string {
  let text = "the tool failed without a message";
  try {
    const message = error instanceof Error ? error.message || error.name : String(error);
    if (message !== "") text = message;
  } catch {
    // An error object whose own getters throw: the default text has to do.
  }
  return cut(text.toWellFormed(), maxErrorBytes);
}

/**
 * What a handler returned, as an outcome: plain JSON data, `undefined` as null. Data that is not
 * JSON becomes an error; more than `maxBytes` becomes its head as text with a marker.
 */
export function outcomeOfResult(value: unknown, maxBytes: number): ToolOutcome {
  try {
    if (typeof value === "string") return { ok: true, result: cut(value.toWellFormed(), maxBytes) };
    const text = JSON.stringify(value ?? null, refuseLossy);
    if (text === undefined) return { ok: false, error: "the tool's result cannot be turned into JSON" };
    if (Buffer.byteLength(text) > maxBytes) return { ok: true, result: cut(text.toWellFormed(), maxBytes) };
    return { ok: true, result: JSON.parse(text) };
  } catch (error) {
    return {
      ok: false,
      error: errorText(new Error(`the tool's result cannot be turned into JSON: ${errorText(error)}`)),
    };
  }
}
