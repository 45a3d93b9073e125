import { createHash } from "node:crypto";
import type { SessionKey } from "@larkline/protocol";
import { systemRandom, type Random } from "@larkline/protocol/clock";
import { wholeCharacter, type StoredResult } from "@larkline/protocol/tool";
import { type BlobStore, defaultBlobTtlMs } from "./blob-store.ts";
import type { LookupCache } from "./platform.ts";

/** Where results are kept that are too large for a conversation. */
export interface ResultStores {
  blobs: Pick<BlobStore, "put" | "get">;
  lookups: Pick<LookupCache, "get" | "set">;
}

/** A part of a stored result, in characters. */
export interface ResultPage {
  text: string;
  /** The characters of the whole result. */
  characters: number;
  /** Where the next page begins; absent at the end. */
  nextOffset?: number;
}

/** A handle is good for the session that made it: a model that is talked into using another one finds nothing. */
function lookupKeyOf(session: SessionKey, handle: string): string {
  return `result:${createHash("sha256").update(`${session}\n${handle}`).digest("base64url")}`;
}

/** Keeps the whole text for as long as blobs are kept. Rejects when the store refuses or fails. */
export async function keepResult(
  { blobs, lookups, random = systemRandom }: ResultStores & { random?: Random },
  session: SessionKey,
  text: string,
): Promise<StoredResult> {
  const { stored, blobId } = await putResult(blobs, text, random);
  await lookups.set(lookupKeyOf(session, stored.handle), blobId, defaultBlobTtlMs);
  return stored;
}

/** Stores the text under a handle that is good for nothing yet: see {@link nameResult}. */
export async function putResult(
  blobs: ResultStores["blobs"],
  text: string,
  random: Random,
): Promise<{ stored: StoredResult; blobId: string }> {
  const blobId = await blobs.put(Buffer.from(text, "utf8"), { mediaType: "text/plain" });
  return { stored: { handle: `res_${random.id()}`, characters: text.length }, blobId };
}

/** Makes the handle of a stored text good for a session. A handle that is good for another text stays so. */
export async function nameResult(
  lookups: ResultStores["lookups"],
  session: SessionKey,
  { handle, blobId }: { handle: string; blobId: string },
): Promise<void> {
  const key = lookupKeyOf(session, handle);
  if ((await lookups.get(key)) === undefined) await lookups.set(key, blobId, defaultBlobTtlMs);
}

/** One page of a stored result; undefined when the handle is not known in this session, or no longer. */
export async function resultPage(
  { blobs, lookups }: ResultStores,
  session: SessionKey,
  { handle, offset, characters }: { handle: string; offset: number; characters: number },
): Promise<ResultPage | undefined> {
  const blobId = await lookups.get(lookupKeyOf(session, handle));
  const blob = blobId === undefined ? undefined : await blobs.get(blobId);
  if (blob === undefined) return undefined;
  const whole = Buffer.from(blob.bytes).toString("utf8");
  const from = wholeCharacter(whole, offset);
  const to = wholeCharacter(whole, from + characters);
  const page = { text: whole.slice(from, to), characters: whole.length };
  return to < whole.length ? { ...page, nextOffset: to } : page;
}

/** Handles in a text that a model got in place of a stored one. */
export function resultHandlesIn(text: string): string[] {
  return [...text.matchAll(/handle "(res_[\w-]{16,64})"/g)].map(([, handle = ""]) => handle);
}

/** Removes a stored text, if the handle is one of the session. */
export async function removeResult(
  {
    blobs,
    lookups,
  }: { blobs: Pick<BlobStore, "delete">; lookups: Pick<LookupCache, "get" | "delete"> },
  session: SessionKey,
  handle: string,
): Promise<void> {
  const key = lookupKeyOf(session, handle);
  const blobId = await lookups.get(key);
  if (blobId !== undefined) await blobs.delete(blobId);
  await lookups.delete(key);
}
