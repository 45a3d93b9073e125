const keptBytes = 64 * 1024;
const half = keptBytes / 2;

/** Keeps the head and the tail of a stream and counts the rest. */
export class OutputTail {
  readonly #head = Buffer.allocUnsafe(half);
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;
  /** All bytes that came. */
  total = 0;

  push(chunk: Buffer): void {
    this.total += chunk.length;
    const taken = chunk.copy(this.#head, this.#headBytes);
    this.#headBytes += taken;
    if (taken < chunk.length) this.#keepTail(chunk.subarray(taken));
  }

  /** What was kept, with a mark where something was left out. */
  text(): string {
    const head = this.#head.subarray(0, this.#headBytes);
    const all = Buffer.concat(this.#tail);
    const tail = all.subarray(Math.max(0, all.length - half));
    const cut = this.total - head.length - tail.length;
    if (cut === 0) return Buffer.concat([head, tail]).toString("utf8");
    return `${head.toString("utf8")}\n... ${cut} bytes left out ...\n${tail.toString("utf8")}`;
  }

  #keepTail(chunk: Buffer): void {
    this.#tail.push(Buffer.from(chunk.subarray(Math.max(0, chunk.length - half))));
    this.#tailBytes += Math.min(chunk.length, half);
    // Many small pieces are joined now and then, so that neither pieces nor bytes pile up.
    if (this.#tailBytes < 4 * half && this.#tail.length < 256) return;
    const joined = Buffer.concat(this.#tail);
    this.#tail = [Buffer.from(joined.subarray(Math.max(0, joined.length - half)))];
    this.#tailBytes = Math.min(joined.length, half);
  }
}
