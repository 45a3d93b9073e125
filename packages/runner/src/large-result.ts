import { outcomeText, type ToolOutcome } from "@larkline/protocol";
import { putResult, shortenedResult, type BlobStore } from "@larkline/store";

/** Larger results do not go through the session, in bytes. */
export const maxResultBytes = 262_144;
/** What is read of a tool at all: the rest is cut off, with a mark. */
export const maxOutputBytes = 16 * 1_048_576;
const shownCharacters = 50_000;

export interface KeepOptions {
  blobs: Pick<BlobStore, "put" | "get">;
  onError: (error: unknown) => void;
}

/**
 * Keeps a large result where the model can read it page by page; what goes into the session is its
 * head and tail; the handle is good once a worker has taken the outcome. When it cannot be kept, these are all there is, and the text says so.
 */
export async function withLargeResultKept(
  outcome: ToolOutcome,
  { blobs, onError }: KeepOptions,
): Promise<{ outcome: ToolOutcome; blobId?: string }> {
  const text = outcomeText(outcome);
  if (!outcome.ok || Buffer.byteLength(text) <= maxResultBytes) return { outcome };
  try {
    const { stored, blobId } = await putResult(blobs, text);
    return { outcome: { ok: true, result: shortenedResult(text, stored, shownCharacters), stored }, blobId };
  } catch (error) {
    onError(error);
    const left = text.length - shownCharacters;
    const mark = `[the last ${left} of ${text.length} characters could not be kept: ask for less]`;
    return { outcome: { ok: true, result: `${text.slice(0, shownCharacters).toWellFormed()}\n${mark}` } };
  }
}
