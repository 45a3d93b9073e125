import { createHash } from "node:crypto";
import type { SessionKey } from "@larkline/protocol";
import type { LookupCache } from "./platform.ts";

// For whom a vendor keeps answers. An id is good for every caller that shows the account's key to the vendor, and all
// callers of a deployment share that key: so each id is noted with the caller whose run it belongs to. Ids, callers and
// sessions are digests: a note says nothing to a reader that does not know them.

/** How long OpenAI keeps a stored response (Responses API, "Conversation state"). */
const keptMs = 30 * 86_400_000;

/** By how much the clocks of two machines may differ. */
const clockSlackMs = 60_000;

/** An answer that the vendor keeps: of a run of this caller, in this session. */
export interface KeptResponse {
  responseId: string;
  caller: string;
  session: SessionKey;
  atMs: number;
  /** How long the conversation is kept; 30 days, as the vendor does, at most. */
  conversationMs: number;
}

export async function noteKeptResponse(
  lookups: Pick<LookupCache, "set">,
  { responseId, caller, session, atMs, conversationMs }: KeptResponse,
): Promise<void> {
  const note = [digestOf(responseId, caller), digestOf(session), atMs].join(" ");
  await lookups.set(keyOf(responseId), note, Math.min(keptMs, conversationMs));
}

/** Whether the vendor keeps this answer for this caller. An unknown id, that of another caller and a deleted one are the same. */
export async function isKeptFor(
  lookups: Pick<LookupCache, "get">,
  responseId: string,
  caller: string,
): Promise<boolean> {
  const [owner, session = "", atMs] = (await lookups.get(keyOf(responseId)))?.split(" ") ?? [];
  if (owner !== digestOf(responseId, caller)) return false;
  const deletedAtMs = (await lookups.get(deletionKeyOf(session))) ?? "0";
  return Number(atMs) > Number(deletedAtMs);
}

/** The conversation is deleted: what the vendor keeps of it until then is not continued any more. */
export async function forgetKeptResponses(
  lookups: Pick<LookupCache, "set">,
  session: SessionKey,
  nowMs: number,
): Promise<void> {
  await lookups.set(
    deletionKeyOf(digestOf(session)),
    String(nowMs + clockSlackMs),
    keptMs + clockSlackMs,
  );
}

function keyOf(responseId: string): string {
  return `response:${digestOf(responseId)}`;
}

function deletionKeyOf(session: string): string {
  return `response:deleted:${session}`;
}

function digestOf(...facts: string[]): string {
  return createHash("sha256").update(facts.join("\n")).digest("base64url");
}
