import { Parser } from "htmlparser2";

/** What a reader would see of an HTML document. */
export interface HtmlText {
  title: string;
  text: string;
}

const skipped = new Set(
  "head script style noscript template iframe svg nav form select button object canvas".split(" "),
);
const blocks = new Set(
  "address article aside blockquote br dd div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6 header hr li main ol p pre section table tr ul".split(
    " ",
  ),
);
const cells = new Set(["td", "th"]);

/** Browsers flatten deeper trees too; beyond it the parser's time would grow with the square of the depth. */
const maxDepth = 512;
const maxTitleCharacters = 300;

class TooDeep extends Error {}

/** Collects text: white space collapsed as browsers do, one line per block. */
class TextCollector {
  readonly #pieces: string[] = [];
  #space = false;
  #atLineStart = true;

  add(text: string): void {
    for (const word of text.split(/(\s+)/)) {
      if (word === "") continue;
      if (/^\s/.test(word)) this.#space = true;
      else this.#addWord(word);
    }
  }

  #addWord(word: string): void {
    if (this.#space && !this.#atLineStart) this.#pieces.push(" ");
    this.#pieces.push(word);
    this.#space = false;
    this.#atLineStart = false;
  }

  /** Text inside `pre`: kept as it is. */
  addVerbatim(text: string): void {
    this.#pieces.push(text);
    this.#space = false;
    this.#atLineStart = text.endsWith("\n");
  }

  breakLine(): void {
    if (!this.#atLineStart) this.#pieces.push("\n");
    this.#atLineStart = true;
    this.#space = false;
  }

  toString(): string {
    return this.#pieces.join("").trim();
  }
}

class Reader {
  readonly title = new TextCollector();
  readonly body = new TextCollector();
  #depth = 0;
  #skip = 0;
  #pre = 0;
  #inTitle = false;

  onopentag = (name: string): void => {
    this.#depth += 1;
    if (this.#depth > maxDepth) throw new TooDeep();
    if (skipped.has(name)) this.#skip += 1;
    if (name === "title") this.#inTitle = true;
    if (name === "pre") this.#pre += 1;
    if (blocks.has(name)) this.body.breakLine();
    if (name === "li" && this.#skip === 0) this.body.add("- ");
  };

  ontext = (text: string): void => {
    if (this.#inTitle) this.title.add(text);
    else if (this.#skip > 0) return;
    else if (this.#pre > 0) this.body.addVerbatim(text);
    else this.body.add(text);
  };

  onclosetag = (name: string): void => {
    this.#depth -= 1;
    if (skipped.has(name)) this.#skip -= 1;
    if (name === "title") this.#inTitle = false;
    if (name === "pre") this.#pre -= 1;
    if (blocks.has(name)) this.body.breakLine();
    if (cells.has(name)) this.body.add(" | ");
  };
}

/** Text of an HTML document, in time proportional to its size. A tree deeper than 512 is cut off there. */
export function htmlText(source: string): HtmlText {
  const reader = new Reader();
  const parser = new Parser(reader);
  try {
    parser.end(source);
  } catch (error) {
    if (!(error instanceof TooDeep)) throw error;
  }
  return {
    title: reader.title.toString().slice(0, maxTitleCharacters),
    text: reader.body.toString(),
  };
}
