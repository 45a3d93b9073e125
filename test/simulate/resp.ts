// The protocol of Redis (RESP 2), as far as a line between a client and a server must understand it.

/** A command with its arguments, as a client has sent it. */
export type Command = Buffer[];

const lineEnd = "\r\n";

/** Where a value begins in `bytes` and ends; undefined: it is not there as a whole yet. */
function endOf(bytes: Buffer, from: number): number | undefined {
  const end = bytes.indexOf(lineEnd, from, "latin1");
  if (end < 0) return undefined;
  const kind = bytes[from];
  const next = end + lineEnd.length;
  if (kind !== 36 && kind !== 42) return next; // neither $ nor *
  const size = Number(bytes.toString("latin1", from + 1, end));
  if (size < 0) return next;
  if (kind === 36) {
    return next + size + lineEnd.length <= bytes.length ? next + size + lineEnd.length : undefined;
  }
  let at: number | undefined = next;
  for (let item = 0; item < size && at !== undefined; item += 1) at = endOf(bytes, at);
  return at;
}

/** Cuts what arrives into whole values. */
export class ValueReader {
  #rest: Buffer = Buffer.alloc(0);

  push(bytes: Buffer): Buffer[] {
    const all = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    const values: Buffer[] = [];
    let at = 0;
    for (
      let end = endOf(all, at);
      end !== undefined && end <= all.length && at < all.length;
      end = endOf(all, at)
    ) {
      values.push(all.subarray(at, end));
      at = end;
    }
    this.#rest = all.subarray(at);
    return values;
  }
}

/** The arguments of a command, which is an array of strings. */
export function commandOf(value: Buffer): Command {
  const parts: Buffer[] = [];
  let at = value.indexOf(lineEnd) + lineEnd.length;
  while (at < value.length) {
    const end = value.indexOf(lineEnd, at, "latin1");
    const from = end + lineEnd.length;
    const to = from + Number(value.toString("latin1", at + 1, end));
    parts.push(value.subarray(from, to));
    at = to + lineEnd.length;
  }
  return parts;
}

export function bytesOf(command: readonly (Buffer | string)[]): Buffer {
  const pieces: (Buffer | string)[] = [`*${command.length}${lineEnd}`];
  for (const part of command) pieces.push(`$${Buffer.byteLength(part)}${lineEnd}`, part, lineEnd);
  return Buffer.concat(
    pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)),
  );
}

/** Whether a value is what a channel has brought, and no answer. */
export function isMessage(value: Buffer): boolean {
  return (
    value[0] === 42 && /^\*\d+\r\n\$\d+\r\n[ps]?message\r\n/i.test(value.toString("latin1", 0, 40))
  );
}
