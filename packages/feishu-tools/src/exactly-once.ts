import { createHash } from "node:crypto";
import { pause } from "@larkline/protocol/clock";
import { OutcomeUnknownError, type ToolContext } from "@larkline/tool-kit";
import { type Platform, type Operation, UnansweredError } from "./platform.ts";

// Writes take effect once although answers are lost. Operations with a key are repeated under it, as long as the
// platform knows it; of those without, the effect is looked for. What stays open is said to be open.

/**
 * The key of one write of a call, in the form of a UUID of version 4, which some operations demand. It is the same in
 * every run of the call. `step` tells the writes of a call apart.
 */
export function keyOf({ callId }: Pick<ToolContext, "callId">, step: string): string {
  const bytes = createHash("sha256").update(`${callId} ${step}`).digest().subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x40, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString("hex");
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ].join("-");
}

interface Write<T, R> {
  run: Operation<T>;
  /** What the answer says. */
  result: (answer: Partial<T>) => R;
  /** Looks for the effect where no answer came; undefined: it is not there. */
  readBack: () => Promise<R | undefined>;
  /** For the model and the person, when it stays open: "whether the document was created". */
  open: string;
}

/** A write under a key: repeated with it inside of the window, after a look whether it is there already. */
export async function writeWithKey<T, R>(
  platform: Platform,
  write: Write<T, R> & {
    windowMs: number;
    isDuplicate?: (error: unknown, wasUnanswered: boolean) => boolean;
    done?: R;
  },
): Promise<R> {
  const { clock, signal } = platform;
  const endsAt = clock.monotonic() + Math.max(0, write.windowMs - marginMs);
  let wasUnanswered = false;
  for (let waitMs = 200; ; waitMs = Math.min(waitMs * 2, 5_000)) {
    try {
      return write.result(await platform.write(write.run));
    } catch (error) {
      // A key that is known already says that the write took effect, or is about to.
      const isDuplicate = write.isDuplicate?.(error, wasUnanswered) ?? false;
      if (!(error instanceof UnansweredError) && !isDuplicate) throw error;
      wasUnanswered = true;
      const found = await lookedFor(write);
      if (found !== undefined) return found;
      if (isDuplicate && write.done !== undefined) return write.done;
      if (clock.monotonic() + waitMs >= endsAt || signal.aborted) throw unknownOf(write.open);
      await pause(clock, waitMs, signal);
    }
  }
}

/** Time for the way to the platform: what leaves now must arrive inside of the window. */
const marginMs = 5_000;

/** A write without a key: never repeated once it may have arrived. */
export async function writeUnkeyed<T, R>(platform: Platform, write: Write<T, R>): Promise<R> {
  try {
    return write.result(await platform.write(write.run));
  } catch (error) {
    if (!(error instanceof UnansweredError)) throw error;
  }
  // What was just written may be listed a moment later.
  for (const waitMs of [0, 500, 1_500]) {
    if (waitMs > 0) await pause(platform.clock, waitMs, platform.signal);
    const found = await lookedFor(write);
    if (found !== undefined) return found;
  }
  throw unknownOf(write.open);
}

/** A failed look finds nothing; a read is repeated before it fails. */
async function lookedFor<T, R>({ readBack, open }: Write<T, R>): Promise<R | undefined> {
  try {
    return await readBack();
  } catch {
    throw unknownOf(open);
  }
}

function unknownOf(open: string): OutcomeUnknownError {
  return new OutcomeUnknownError(`The platform did not answer, and it cannot be seen ${open}`);
}
