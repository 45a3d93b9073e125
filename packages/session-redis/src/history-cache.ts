import type { Message, SessionKey } from "@larkline/protocol";

/** A history as it was read: what is in it stays true for its version. Never changed after it was made. */
export interface KnownHistory {
  readonly version: string;
  readonly messages: readonly Message[];
  readonly characters: number;
}

const nothing: KnownHistory = { version: "", messages: [], characters: 0 };

/**
 * Histories this process has read, so that a turn reads only what is new. History is append-only:
 * what was read under a version stays true for that version. Bounded by characters of JSON; the
 * longest unused goes first.
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
  extend(session: SessionKey, base: KnownHistory, tail: KnownHistory & { from: number }): Message[] {
    const usable = tail.from > 0;
    const messages = usable ? [...base.messages, ...tail.messages] : tail.messages;
    const characters = (usable ? base.characters : 0) + tail.characters;
    const known = this.known(session);
    if (known.version !== tail.version || known.messages.length <= messages.length) {
      this.#put(session, { version: tail.version, messages, characters });
    }
    return [...messages];
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
