import { hash } from "node:crypto";
import type { Message, SessionKey } from "@larkline/protocol";
import { messageFrom } from "./stored.ts";

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
