import { createHash } from "node:crypto";
import { pause } from "@larkline/protocol/clock";
import { OutcomeUnknownError, type ToolContext } from "@larkline/tool-kit";
import { type Operation, type Pace, type Platform, UnansweredError } from "./platform.ts";

// Writes take effect once although answers are lost. Operations with a key are repeated under it, as long as the
// platform knows it; of those without, the effect is looked for. What stays open is said to be open. A call that may only
// look, because its runner has died, finds the effect in the same way.

/**
 * The key of one write of a call, in the form of a UUID of version 4, which some operations demand. It is the same in
 * every run of the call. `step` tells the writes of a call apart.
 */
export function keyOf({ callId }: Pick<ToolContext, "callId">, step: string): string {
  const bytes = createHash("sha256").update(`${callId} ${step}`).digest().subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x40, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

interface Write<T, R> {
  run: Operation<T>;
  /** Of operations that wait for each other. */
  pace?: Pace;
  /** For the model and the person, when it stays open: "whether the document was created". */
  open: string;
  /**
   * For how long the platform knows the key of the operation, in ms: it is repeated for half of that, so that a second
   * run of the call has the other half. Also for operations whose repeat harms nothing. Absent: never repeated once it may
   * have arrived.
   */
  windowMs?: number;
  /** Whether a refusal says that the key is known: the write took effect, or is about to. */
  isDuplicate?: (error: unknown, wasUnanswered: boolean) => boolean;
  /** What such a refusal proves by itself. Absent: the effect must be found. */
  done?: R;
}

/** Makes something once, and gives what the answer or a look at the platform says of it. */
export async function makeOnce<T, R>(
  platform: Platform,
  write: Write<T, R> & {
    result: (answer: Partial<T>) => R;
    /** Looks for the effect where no answer came; undefined: it is not there. */
    find: () => Promise<R | undefined>;
  },
): Promise<R> {
  const { clock, signal, beganAtMs, readBackMs } = platform;
  const windowMs = beganAtMs === undefined ? write.windowMs : undefined;
  const endsAt = clock.monotonic() + Math.max(0, repeatMsOf(windowMs ?? 0) - marginMs);
  for (let tries = 0, waitMs = 200; ; tries += 1, waitMs = Math.min(waitMs * 2, 5_000)) {
    try {
      return write.result(await platform.write(write.run, write.pace));
    } catch (error) {
      const isDuplicate = write.isDuplicate?.(error, tries > 0) ?? false;
      if (!(error instanceof UnansweredError) && !isDuplicate) throw error;
      const found = await foundIn(
        platform,
        write,
        windowMs === undefined ? [0, readBackMs / 4, (readBackMs * 3) / 4] : [0],
      );
      if (found !== undefined) return found;
      if (isDuplicate && write.done !== undefined) return write.done;
      if (windowMs === undefined || clock.monotonic() + waitMs >= endsAt || signal.aborted) {
        throw unknownOf(write.open);
      }
      await pause(clock, waitMs, signal);
    }
  }
}

/** Changes what is there, once. */
export async function changeOnce<T>(
  platform: Platform,
  { isDone, ...write }: Write<T, true> & { isDone: () => Promise<boolean> },
): Promise<void> {
  await makeOnce(platform, {
    ...write,
    result: (): true => true,
    find: async () => ((await isDone()) ? true : undefined),
  });
}

/** For how long a tool all of whose writes have a key with this window may run again, where its runner has died. */
export function repeatMsOf(windowMs: number): number {
  return Math.max(1, Math.floor(windowMs / 2));
}

/**
 * What was there before the call; in one that may only look, what is older than the run that it looks for. `madeAtMs`: by
 * the platform, not a number where it says no time.
 */
export function earlier<T>(
  platform: Platform,
  items: readonly T[],
  madeAtMs: (item: T) => number,
): T[] {
  const sinceMs = sinceSeconds(platform) * 1_000;
  return items.filter((item) => platform.beganAtMs === undefined || !(madeAtMs(item) >= sinceMs));
}

/**
 * The platform's time, in seconds, from which on is dated what the call has made, or the run that it looks for. In a look
 * nothing is allowed for the platform's clock: what may be older counts as not found, and a person is asked.
 */
export function sinceSeconds({ beganAtMs, clock }: Platform): number {
  return beganAtMs === undefined
    ? Math.floor(clock.now() / 1_000) - clockSkewSeconds
    : Math.floor(beganAtMs / 1_000);
}

/** Of two that might be it, it cannot be said which. */
export function onlyOne<T>(items: readonly T[]): T | undefined {
  return items.length === 1 ? items[0] : undefined;
}

const clockSkewSeconds = 5;

/** Time for the way to the platform: what leaves now must arrive inside of the window. */
const marginMs = 5_000;

/** Reads are repeated before they fail: one that fails all the same leaves it open. */
async function foundIn<R>(
  { clock, signal }: Platform,
  { find, open }: { find: () => Promise<R | undefined>; open: string },
  waitsMs: readonly number[],
): Promise<R | undefined> {
  for (const waitMs of waitsMs) {
    if (waitMs > 0) await pause(clock, waitMs, signal);
    try {
      const found = await find();
      if (found !== undefined) return found;
    } catch {
      throw unknownOf(open);
    }
  }
  return undefined;
}

function unknownOf(open: string): OutcomeUnknownError {
  return new OutcomeUnknownError(`The platform did not answer, and it cannot be seen ${open}`);
}
