import { StringDecoder } from "node:string_decoder";

const maxLineCharacters = 8_192;

/** Makes lines of what a process writes. Long lines are cut and the rest of them is left out. */
export class LineSplitter {
  readonly #decoder = new StringDecoder("utf8");
  readonly #onLine: (line: string) => void;
  #line = "";

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(chunk: Buffer): void {
    const [first = "", ...more] = this.#decoder.write(chunk).split("\n");
    this.#append(first);
    for (const part of more) {
      this.flush();
      this.#append(part);
    }
  }

  /** Ends the line that is still open. */
  flush(): void {
    if (this.#line !== "") this.#onLine(this.#line);
    this.#line = "";
  }

  #append(part: string): void {
    this.#line = (this.#line + part).slice(0, maxLineCharacters);
  }
}
