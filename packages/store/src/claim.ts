import { hash } from "node:crypto";
import { EngineError, turnIdOf, type SessionKey, type Message } from "@larkline/protocol";
import type { Claim, SessionSettings } from "./session-types.ts";
import {
  damagedState,
  type StateSeal,
  controlFrom,
  messageFrom,
  queuedFrom,
  settingsFrom,
  turnFrom,
} from "./stored.ts";

type ClaimedReply = [
  "claimed",
  epoch: string,
  turn: string,
  head: string,
  tries: number,
  deaths: number,
  deathsAlone: number,
  version: string,
  from: number | string,
  tail: string[],
  control: string[],
  settings: string,
  summary: string,
  othersWait: number,
  mayHaveWaited: number,
];

/** What `claimLua` answers. */
export type ClaimReply = ClaimedReply | ["alone"] | ["lost", owner: string] | ["needs", ...features: string[]];

interface ClaimedWith {
  session: SessionKey;
  gen: number;
  /** What was known of the history before the claim. */
  known: KnownHistory;
  cache: HistoryCache;
  seal: StateSeal;
}

type Lost = NonNullable<Claim["lost"]>[number];

/** What a conversation can go on without: each is read, or lost with the reason. */
function replaceableParts(
  { session, seal }: Pick<ClaimedWith, "session" | "seal">,
  { epoch, summary, settings }: { epoch: string; summary: string; settings: string },
): { compacted: string | undefined; chosen: SessionSettings | undefined; lost: Lost[] } {
  const lost: Lost[] = [];
  const readOf = <T>(what: Lost["what"], stored: string, read: (text: string) => T): T | undefined => {
    try {
      return stored === "" ? undefined : read(seal.open(what, session, { epoch, stored }));
    } catch (error) {
      // Errors of JSON.parse repeat what they could not read.
      const reason = error instanceof EngineError ? error.message : "it is no JSON";
      lost.push({ what, bytes: Buffer.byteLength(stored), reason });
      return undefined;
    }
  };
  const compacted = readOf("summary", summary, (text) => {
    messageFrom(text);
    return text;
  });
  return { compacted, chosen: readOf("settings", settings, settingsFrom), lost };
}

/** What cannot be read is left out and named: whoever claims has to end the turn, not to fail at it again and again. */
export function claimFrom({ session, gen, known, cache, seal }: ClaimedWith, reply: ClaimedReply): Claim {
  const [, epoch, turn, first, tries, together, byAlone, version, from, tail, control, settings, summary] = reply;
  const [othersWait, mayHaveWaited] = [reply[13], reply[14]];
  const damaged: string[] = [];
  const readable = <T>(what: string, read: () => T): T | undefined => {
    try {
      return read();
    } catch (error) {
      damaged.push(`${what} (${error instanceof Error ? error.message : String(error)})`);
      return undefined;
    }
  };
  const head = first === "" ? undefined : queuedFrom(session, first);
  if (head?.unreadable !== undefined) damaged.push("the message");
  const { compacted, chosen, lost } = replaceableParts({ session, seal }, { epoch, summary, settings });
  const history = readable("the history", () => {
    // The cache counts the summary, and is to hold what is stored.
    if (compacted === undefined && summary !== "") return tail.map(messageFrom);
    const texts = compacted === undefined ? tail : [compacted, ...tail];
    return cache.extend(session, known, { version, from: Number(from), texts });
  });
  const checkpoint = readable("the checkpoint", () => {
    const state = turn === "" ? undefined : turnFrom(seal.open("turn", session, { epoch, stored: turn }));
    // A genuine checkpoint of an earlier turn that was put back.
    if (state !== undefined && state.turnId !== turnIdOf(session, head?.seq ?? 0)) {
      throw damagedState("turn", session, "it is of another turn");
    }
    return state;
  });
  const entries = readable("a control entry", () => control.map(controlFrom));
  return {
    session,
    gen,
    epoch,
    ...(checkpoint === undefined ? {} : { turn: checkpoint }),
    ...(head === undefined ? {} : { head }),
    mayHaveWaited: head !== undefined && mayHaveWaited === 1,
    tries,
    deaths: { together, alone: byAlone },
    ...(damaged.length === 0 ? {} : { damaged: damaged.join("; ") }),
    ...(lost.length === 0 ? {} : { lost }),
    othersWait: othersWait === 1,
    control: entries ?? [],
    history: history ?? [],
    settings: chosen ?? {},
  };
}

/**
 * A history as it was read: what is in it stays true for its version, as long as its last message is
 * still where it was. Never changed after it was made.
 */
export interface KnownHistory {
  readonly version: string;
  readonly messages: readonly Message[];
  /** SHA-1 of the last message's JSON, as Lua can make it; empty without messages. */
  readonly last: string;
  readonly characters: number;
}

/** What a claim read of a history; `from`: how many messages that were known come before it. */
export interface ReadHistory {
  version: string;
  from: number;
  texts: readonly string[];
}

const nothing: KnownHistory = { version: "", messages: [], last: "", characters: 0 };

function lastOf(texts: readonly string[]): string | undefined {
  const text = texts.at(-1);
  return text === undefined ? undefined : hash("sha1", text);
}

/**
 * Histories this process has read, so that a turn reads only what is new. History is append-only:
 * what was read under a version stays true for that version, unless a failover lost its end. Bounded
 * by characters of JSON; the longest unused goes first.
 */
export class HistoryCache {
  readonly #entries = new Map<SessionKey, KnownHistory>();
  readonly #maxCharacters: number;
  #characters = 0;

  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters;
  }

  known(session: SessionKey): KnownHistory {
    return this.#entries.get(session) ?? nothing;
  }

  /**
   * Remembers what a read found after `base`; returns the whole history. `base` is what `known` gave
   * before the read: others may have read the session meanwhile.
   */
  extend(session: SessionKey, base: KnownHistory, { version, from, texts }: ReadHistory): Message[] {
    const kept = from > 0 ? base : nothing;
    const entry: KnownHistory = {
      version,
      messages: [...kept.messages, ...texts.map(messageFrom)],
      last: lastOf(texts) ?? kept.last,
      characters: texts.reduce((sum, text) => sum + text.length, kept.characters),
    };
    const known = this.known(session);
    const isLatest = known === base || known.version !== version || known.messages.length <= entry.messages.length;
    if (isLatest) this.#put(session, entry);
    return [...entry.messages];
  }

  #put(session: SessionKey, entry: KnownHistory): void {
    this.#characters += entry.characters - (this.#entries.get(session)?.characters ?? 0);
    this.#entries.delete(session);
    this.#entries.set(session, entry);
    for (const [oldest, { characters }] of this.#entries) {
      if (this.#characters <= this.#maxCharacters) break;
      this.#entries.delete(oldest);
      this.#characters -= characters;
    }
  }
}
