import type { Message, SessionKey } from "@larkline/protocol";

interface Entry {
  version: string;
  messages: Message[];
  characters: number;
}

/**
 * Histories this process has read, so that a turn reads only what is new. History is append-only:
 * what was read under a version stays true for that version. Bounded by characters of JSON; the
 * longest unused goes first.
 */
export class HistoryCache {
  readonly #entries = new Map<SessionKey, Entry>();
  readonly #maxCharacters: number;
  #characters = 0;

  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters;
  }

  known(session: SessionKey): { version: string; length: number } {
    const entry = this.#entries.get(session);
    return entry === undefined ? { version: "", length: 0 } : { version: entry.version, length: entry.messages.length };
  }

  /** Adds what came after the first `from` messages; returns a copy of the whole history. */
  extend(
    session: SessionKey,
    tail: { version: string; from: number; messages: Message[]; characters: number },
  ): Message[] {
    const entry = this.#entries.get(session);
    const usable = entry !== undefined && entry.version === tail.version && entry.messages.length === tail.from;
    const messages = usable ? [...entry.messages, ...tail.messages] : tail.messages;
    const characters = (usable ? entry.characters : 0) + tail.characters;
    if (usable || tail.from === 0) this.#put(session, { version: tail.version, messages, characters });
    return [...messages];
  }

  #put(session: SessionKey, entry: Entry): void {
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
