import { Parser } from "htmlparser2";
import type { Draft } from "./draft.ts";

const hidden = new Set(
  "head title script style noscript template iframe svg object canvas".split(" "),
);
const blocks = new Set(
  "address article aside blockquote dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section table tr ul br".split(
    " ",
  ),
);

// Browsers flatten deeper trees too; the parser's time would grow with the square of the depth.
const maxDepth = 512;
const chunkCharacters = 65_536;

/** Puts what a reader of the page would see into the draft: one line per block. */
class PageReader {
  readonly #draft: Draft;
  #depth = 0;
  #hidden = 0;
  #verbatim = 0;
  #space = false;
  #lineStart = true;

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  onopentag = (name: string): void => {
    this.#depth += 1;
    if (this.#depth > maxDepth) this.#draft.stop();
    if (hidden.has(name)) this.#hidden += 1;
    if (name === "pre") this.#verbatim += 1;
    if (blocks.has(name)) this.#breakLine();
    if (this.#hidden > 0) return;
    if (name === "li") this.ontext("- ");
    else if (/^h[1-6]$/.test(name)) this.ontext(`${"#".repeat(Number(name[1]))} `);
  };

  ontext = (text: string): void => {
    if (this.#hidden > 0) {
      this.#draft.checkTime();
    } else if (this.#verbatim > 0) {
      this.#draft.add(text);
      this.#lineStart = text.endsWith("\n");
    } else {
      this.#addWords(text);
    }
  };

  onclosetag = (name: string): void => {
    this.#depth -= 1;
    if (hidden.has(name)) this.#hidden -= 1;
    if (name === "pre") this.#verbatim -= 1;
    if (blocks.has(name)) this.#breakLine();
    else if ((name === "td" || name === "th") && this.#hidden === 0) this.ontext(" | ");
  };

  #addWords(text: string): void {
    const words = text.replaceAll(/\s+/g, " ");
    const space = this.#space || words.startsWith(" ");
    this.#space = words.endsWith(" ");
    const bare = words.trim();
    if (bare === "") {
      this.#space = space;
      return;
    }
    this.#draft.add(space && !this.#lineStart ? ` ${bare}` : bare);
    this.#lineStart = false;
  }

  #breakLine(): void {
    if (!this.#lineStart) this.#draft.add("\n");
    this.#lineStart = true;
    this.#space = false;
  }
}

/** Text of an HTML document, in time proportional to its size. A tree deeper than 512 ends there. */
export function readHtml(source: string, draft: Draft): void {
  const parser = new Parser(new PageReader(draft));
  for (let start = 0; start < source.length; start += chunkCharacters) {
    parser.write(source.slice(start, start + chunkCharacters));
  }
  parser.end();
}
