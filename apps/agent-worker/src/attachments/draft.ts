/** CPU time that this process has used, ms. */
export function usedCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

/** Thrown by a full draft: the reader stops. */
export class DraftFull extends Error {}

/** Thrown by readers: the file cannot be read, for a reason that the model may read. */
export class Refusal extends Error {
  readonly state: "unsupported" | "failed";

  constructor(state: "unsupported" | "failed", detail: string) {
    super(detail);
    this.state = state;
  }
}

/** The reason for every kind of file that wants a password. */
export function passwordNeeded(): Refusal {
  return new Refusal("failed", "The file is protected with a password.");
}

/** What is known of a file while it is read: its text, up to a number of characters and a point in time. */
export class Draft {
  readonly #pieces: string[] = [];
  readonly #untilMs: number;
  readonly #untilCpuMs: number;
  #room: number;
  mediaType: string;
  /** Pages, slides or sheets, where the kind of file has them. */
  pages: number | undefined;
  truncated = false;

  constructor(
    mediaType: string,
    limits: { maxChars: number; patienceMs: number; patienceCpuMs: number },
  ) {
    this.mediaType = mediaType;
    this.#room = limits.maxChars;
    this.#untilMs = performance.now() + limits.patienceMs;
    this.#untilCpuMs = usedCpuMs() + limits.patienceCpuMs;
  }

  /** Throws {@link DraftFull} when the text is too long or took too long. */
  add(text: string): void {
    this.checkTime();
    if (text.length > this.#room) {
      this.#pieces.push(text.slice(0, this.#room));
      this.#room = 0;
      this.stop();
    }
    this.#pieces.push(text);
    this.#room -= text.length;
  }

  /** Ends a reader whose time is over. Called by readers that work without finding text. */
  checkTime(): void {
    if (performance.now() > this.#untilMs || usedCpuMs() > this.#untilCpuMs) this.stop();
  }

  /** Takes no more: the rest of the file stays unread. */
  stop(): never {
    this.truncated = true;
    throw new DraftFull();
  }

  get isNoise(): boolean {
    return looksLikeNoise(this.#pieces.join(""));
  }

  /** The text, fit for JSON and for a model: no lone surrogates, no control characters, no wide gaps. */
  toString(): string {
    return this.#pieces
      .join("")
      .replaceAll(/\r\n?/g, "\n")
      .replaceAll(controls, "")
      .split("\n")
      .map((line) => line.trimEnd())
      .join("\n")
      .replaceAll(/\n{3,}/g, "\n\n")
      .replace(/[\uD800-\uDBFF]$/, "") // cut in the middle of a character
      .toWellFormed()
      .trim();
  }
}

/** Characters that are looked at. */
const noiseSample = 20_000;
/** Fewer marks than this may be a drawing, a formula or a rule. */
const fewMarks = 200;
/** Lines of ours: `[Page 1]`. */
const headings = /^\[[^\]\n]{1,200}\]$/gm;
/** Escape and form feed are left out, because texts for terminals and printers have them. */
const strange = new RegExp(String.raw`[\uFFFD\p{Co}\p{Cn}]|(?![\f\u001b])\p{Cc}`, "gu");

/**
 * Whether these are hardly the characters that a reader of the file sees: a font of a PDF that does not say which they
 * are, a wrong encoding. A tenth of them are in no writing, or hardly any is a letter or a digit.
 */
function looksLikeNoise(text: string): boolean {
  const sample = text
    .slice(0, noiseSample)
    .toWellFormed()
    .replaceAll(headings, "")
    .replaceAll(/\s+/g, "");
  const strangeOnes = sample.match(strange)?.length ?? 0;
  if (strangeOnes > 1 + sample.length / 10) return true;
  return (
    sample.length >= fewMarks &&
    (sample.match(/[\p{L}\p{M}\p{N}]/gu)?.length ?? 0) * 8 < sample.length
  );
}

// Everything below the space except tab and line feed, and DEL.
const controls = new RegExp(String.raw`[\u0000-\u0008\u000b-\u001f\u007f]`, "g");
