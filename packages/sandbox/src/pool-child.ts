import type { ChildProcess } from "node:child_process";
import { readFile } from "node:fs/promises";
import type { Duplex, Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { callFrameBounds, frameFromChild, FrameReader, type FrameToPool } from "./frame.ts";
import { spawnProcess } from "./user-processes.ts";

export interface PoolChildOptions {
  entry: URL;
  nodePath: string;
  memoryMb: number;
  env: Readonly<Record<string, string>>;
  onLog(line: string, stream: "stdout" | "stderr"): void;
}

/** How a child ended, as far as the kernel told. */
export interface ChildEnd {
  exitCode: number | undefined;
  signal: string | undefined;
  /** It ran out of heap, or past its memory and was killed for that. */
  outOfMemory: boolean;
}

// The guardian waits for the end of descriptor 4, which the kernel closes even when this process is
// killed, and then kills its group: the child, busy or not, and whatever it started.
const guarded = '(read -r _ <&4; kill -9 0) 3<&- >/dev/null 2>&1 & exec "$@" 4<&-';
const residentHeadroomMb = 128;
const drainMs = 100;
const outOfHeap = /heap out of memory|Allocation failed/;

/** One process of a pool, from its start to its end. Reports through its callbacks, which must not throw. */
export class PoolChild {
  readonly #process: ChildProcess;
  readonly #control: Duplex;
  readonly #lifeline: Duplex;
  readonly #residentBytes: number;
  /** Resolves when it has ended, however that came about. */
  readonly ended: Promise<ChildEnd>;
  #outOfMemory = false;
  #ended = false;
  #killed = false;
  calls = 0;
  onFrame: (frame: FrameToPool) => void = () => {};
  /** It wrote what is not in the protocol, and is killed for it. */
  onGarbage: (reason: string) => void = () => {};

  constructor(options: PoolChildOptions) {
    const node = [options.nodePath, `--max-old-space-size=${options.memoryMb}`, fileURLToPath(options.entry)];
    this.#process = spawnProcess("/bin/sh", ["-c", guarded, "sh", ...node], {
      env: options.env,
      detached: true,
      stdio: ["ignore", "pipe", "pipe", "pipe", "pipe"],
    });
    this.#residentBytes = (options.memoryMb + residentHeadroomMb) * 1_048_576;
    const [, , , control, lifeline] = this.#process.stdio;
    this.#control = control as Duplex; // "pipe" above the standard three is a socket
    this.#lifeline = lifeline as Duplex; // the same
    this.#readFrames();
    this.#readLines(options.onLog);
    this.ended = this.#untilEnd();
  }

  /** False from the moment it is killed: it takes no further call. */
  get alive(): boolean {
    return !this.#ended && !this.#killed;
  }

  /** Writes a frame; to a child that has ended, nothing happens. */
  write(frame: Buffer): void {
    if (this.alive) this.#control.write(frame);
  }

  /** Kills it and everything in its process group. */
  kill(): void {
    if (this.#ended || this.#process.pid === undefined) return;
    this.#killed = true;
    try {
      process.kill(-this.#process.pid, "SIGKILL");
    } catch {
      // It has just ended.
    }
  }

  /** Whether it holds more memory than it may. */
  async isTooLarge(): Promise<boolean> {
    try {
      const status = await readFile(`/proc/${this.#process.pid}/status`, "utf8");
      return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1_024 > this.#residentBytes;
    } catch {
      return false; // it has ended, or this is no Linux
    }
  }

  killForMemory(): void {
    this.#outOfMemory = true;
    this.kill();
  }

  #readFrames(): void {
    const reader = new FrameReader(callFrameBounds);
    this.#control.on("error", () => {});
    this.#lifeline.on("error", () => {});
    const fail = (reason: string): void => {
      this.#control.removeAllListeners("data").resume();
      this.onGarbage(reason);
      this.kill();
    };
    this.#control.on("data", (chunk: Buffer) => {
      try {
        for (const value of reader.push(chunk)) {
          const frame = frameFromChild(value);
          if (frame === undefined) return fail("a message that is not in the protocol");
          this.onFrame(frame);
        }
      } catch (error) {
        fail(error instanceof Error ? error.message : String(error));
      }
    });
  }

  #readLines(onLog: PoolChildOptions["onLog"]): void {
    for (const name of ["stdout", "stderr"] as const) {
      const lines = new LineSplitter((line) => {
        if (name === "stderr" && outOfHeap.test(line)) this.#outOfMemory = true;
        onLog(line, name);
      });
      const stream = this.#process[name] as Readable; // "pipe" above
      stream.on("error", () => {});
      stream.on("data", (chunk: Buffer) => lines.push(chunk));
      stream.on("close", () => lines.flush());
    }
  }

  async #untilEnd(): Promise<ChildEnd> {
    const { promise, resolve } = Promise.withResolvers<Pick<ChildEnd, "exitCode" | "signal">>();
    this.#process.once("exit", (code, signal) => resolve({ exitCode: code ?? undefined, signal: signal ?? undefined }));
    // It could not be started; there is no exit then.
    this.#process.once("error", () => resolve({ exitCode: undefined, signal: undefined }));
    const closed = new Promise<unknown>((settle) => this.#process.once("close", settle));
    const end = await promise;
    this.#ended = true;
    this.#lifeline.destroy(); // the guardian ends what is left of the group
    this.#control.destroy();
    await Promise.race([closed, delay(drainMs, undefined, { ref: false })]); // the last words
    return { ...end, outOfMemory: this.#outOfMemory };
  }
}

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
