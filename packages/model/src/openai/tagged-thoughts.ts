import type { VendorProfile } from "../index.ts";

/** Blank characters before the first word of an answer that are waited for. */
const maxBlanks = 1_000;

type Tags = VendorProfile["thoughtTags"];

/**
 * Parts thoughts from the answer where a model writes both into its text: `<think>…</think>` at the beginning, cut
 * anywhere into pieces. A tag further down is text: people ask about such tags.
 */
export class TaggedThoughts {
  readonly #tags: Tags;
  /** Not parted yet: it may be the beginning of a tag. */
  #held = "";
  /** The tag that ends the thoughts under way. */
  #close = "";
  #isText: boolean;
  #hasThought = false;

  constructor(tags: Tags) {
    this.#tags = tags;
    this.#isText = tags.length === 0;
  }

  read(piece: string): { thought: string; text: string } {
    if (this.#isText) return { thought: "", text: piece };
    this.#held += piece;
    let thought = "";
    for (;;) {
      if (this.#close !== "") {
        const at = this.#held.indexOf(this.#close);
        if (at === -1) {
          const sure = this.#held.length - overlap(this.#held, this.#close);
          return { thought: thought + this.#take(sure), text: "" };
        }
        thought += this.#take(at);
        this.#held = this.#held.slice(this.#close.length);
        this.#close = "";
        this.#hasThought = true;
      }
      const words = this.#held.trimStart();
      const tag = this.#tags.find(({ open }) => words.startsWith(open));
      if (tag === undefined) {
        const mayBegin = this.#tags.some(({ open }) => open.startsWith(words));
        if (mayBegin && this.#held.length - words.length < maxBlanks) return { thought, text: "" };
        this.#isText = true;
        return { thought, text: this.#rest() };
      }
      this.#held = words.slice(tag.open.length);
      this.#close = tag.close;
    }
  }

  /** What was held back, at the end of the stream. */
  end(): { thought: string; text: string } {
    const isThought = this.#close !== "";
    const rest = this.#rest();
    return { thought: isThought ? rest : "", text: isThought ? "" : rest };
  }

  #take(chars: number): string {
    const taken = this.#held.slice(0, chars);
    this.#held = this.#held.slice(chars);
    return taken;
  }

  /** All that is held. Blanks between thoughts and answer belong to neither. */
  #rest(): string {
    const rest = this.#take(this.#held.length);
    return this.#hasThought && this.#close === "" ? rest.trimStart() : rest;
  }
}

/** How many characters at the end of a text may begin the tag. */
function overlap(text: string, tag: string): number {
  for (let length = Math.min(text.length, tag.length - 1); length > 0; length -= 1) {
    if (tag.startsWith(text.slice(-length))) return length;
  }
  return 0;
}
