import { createHash } from "node:crypto";
import type { LookupCache } from "./platform.ts";

// For whom a vendor keeps answers. An id is good for every caller that shows the account's key to the vendor, and all
// callers of a deployment share that key: so each id is noted with the caller whose run it belongs to.

/** How long OpenAI keeps a stored response (Responses API, "Conversation state"). */
const keptMs = 30 * 86_400_000;

/** Notes that the run of this caller has had the vendor keep an answer. Neither id nor caller can be read from the note. */
export async function noteKeptResponse(
  lookups: Pick<LookupCache, "set">,
  responseId: string,
  caller: string,
): Promise<void> {
  await lookups.set(keyOf(responseId), digestOf(responseId, caller), keptMs);
}

/** Whether the vendor keeps this answer for this caller. An unknown id and that of another caller are the same. */
export async function isKeptFor(
  lookups: Pick<LookupCache, "get">,
  responseId: string,
  caller: string,
): Promise<boolean> {
  return (await lookups.get(keyOf(responseId))) === digestOf(responseId, caller);
}

function keyOf(responseId: string): string {
  return `response:${createHash("sha256").update(responseId).digest("base64url")}`;
}

function digestOf(responseId: string, caller: string): string {
  return createHash("sha256").update(`${responseId}\n${caller}`).digest("base64url");
}
