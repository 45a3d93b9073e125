import { outcomeText, type SessionKey, type ToolOutcome } from "@larkline/protocol";
import { keepResult, shortenedResult, type ResultDesk } from "@larkline/session";

/** Larger results do not go through the session, in bytes. */
export const maxResultBytes = 262_144;
/** What is read of a tool at all: the rest is cut off, with a mark. */
export const maxOutputBytes = 16 * 1_048_576;
const shownCharacters = 50_000;

export interface KeepOptions {
  desk: ResultDesk;
  session: SessionKey;
  onError: (error: unknown) => void;
}

/**
 * Keeps a large result where the model can read it page by page; what goes into the session is its
 * head and tail. When it cannot be kept, these are all there is, and the text says so.
 */
export async function withLargeResultKept(
  outcome: ToolOutcome,
  { desk, session, onError }: KeepOptions,
): Promise<ToolOutcome> {
  const text = outcomeText(outcome);
  if (!outcome.ok || Buffer.byteLength(text) <= maxResultBytes) return outcome;
  try {
    const stored = await keepResult(desk, session, text);
    return { ok: true, result: shortenedResult(text, stored, shownCharacters), stored };
  } catch (error) {
    onError(error);
    const left = text.length - shownCharacters;
    const mark = `[the last ${left} of ${text.length} characters could not be kept: ask for less]`;
    return { ok: true, result: `${text.slice(0, shownCharacters).toWellFormed()}\n${mark}` };
  }
}
