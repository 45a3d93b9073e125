import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Duplex, Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { fileURLToPath } from "node:url";
import { type Clock, pause, systemClock, withDeadline } from "@larkline/protocol/clock";
import {
  encodeFrame,
  encodeReadableFrame,
  type FrameToPool,
  callFrameBounds,
  frameFromChild,
  FrameReader,
} from "./frame.ts";
import { spawnProcess } from "./user-processes.ts";

export interface ProcessPoolOptions {
  /** A module that calls `serveCalls` of `@larkline/sandbox/child`; run in each child. */
  entry: URL;
  /** Children. Calls for which there is no place wait in order. */
  size: number;
  /**
   * Calls that one child has at once. Default 1. With more, a child that ends takes all of its calls along, and its
   * memory is that of all of them.
   */
  callsAtOnce?: number;
  /** Heap of a child; 128 MB more in all and it is killed (in a call) or replaced. Default 256. */
  memoryMb?: number;
  /** Calls after which a child is replaced. Default 500. */
  maxCalls?: number;
  /** Environment of the children besides PATH, LANG and TZ. Nothing of this process's own. */
  env?: Readonly<Record<string, string>>;
  /** A directory in which children keep compiled code for each other. Who can write there decides what they run. Default: none. */
  codeCache?: string | undefined;
  /** A line that a child wrote, cut at 8,192 characters. Must not throw. */
  onLog?(line: string, stream: "stdout" | "stderr"): void;
  /** Default: the Node.js that runs this process. */
  nodePath?: string;
  clock?: Clock | undefined;
}

/** Reused warm children that take one call at a time, or as many as they may: faults of trusted code stay in them. */
export interface ProcessPool {
  /** `body` and the result are JSON values. Rejects with a {@link ProcessCallError}, or, before anything runs, with a TypeError for a body that is no JSON and a FrameError for one nested too deeply. */
  call(body: unknown, options: ProcessCallOptions): Promise<unknown>;
  /** Kills the children; calls under way reject as `closed`. Idempotent. */
  close(): Promise<void>;
}

const bootMs = 15_000;
const lookMs = 250;
/** Of so many looks at the memory of children, one is at those that have no calls. */
const looksWhileIdle = 20;
const graceMs = 2_000;
/** Boots that fail in a row until calls fail with that reason instead of waiting for the next one. */
const failuresInARow = 3;
const longestPauseMs = 30_000;

/** A child and what it is doing. */
interface Member {
  child: PoolChild;
  /** `leaving`: it takes no further call, and ends when it has none. */
  state: "booting" | "up" | "leaving";
  /** Places that are given away, those of running calls among them. */
  taken: number;
  running: Map<number, RunningCall>;
}

interface Waiter {
  take(member: Member): void;
  reject(error: ProcessCallError): void;
}

class Pool implements ProcessPool {
  readonly #options: ProcessPoolOptions;
  readonly #members = new Set<Member>();
  readonly #waiting = new Set<Waiter>();
  readonly #closing = new AbortController();
  readonly #clock: Clock;
  readonly #stopLooking: () => void;
  #failures = 0;
  #lastFailure = "";
  #callCount = 0;
  #looks = 0;

  constructor(options: ProcessPoolOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#stopLooking = this.#clock.every(lookMs, () => this.#checkMemory());
    for (let i = 0; i < options.size; i += 1) this.#add();
  }

  async call(body: unknown, options: ProcessCallOptions): Promise<unknown> {
    this.#callCount += 1;
    const id = this.#callCount;
    const frame = encodeReadableFrame({ kind: "call", id, body });
    if (options.signal.aborted) throw cancelledError();
    return await this.#run(await this.#takeMember(options.signal), { id, frame, options });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#stopLooking();
    for (const waiter of this.#waiting) waiter.reject(closedError());
    for (const member of this.#members) {
      failAll(member, closedError());
      member.child.kill();
    }
    await Promise.all([...this.#members].map(async ({ child }) => await child.ended));
  }

  async #run(
    member: Member,
    { id, frame, options }: { id: number; frame: Buffer; options: ProcessCallOptions },
  ): Promise<unknown> {
    const { child } = member;
    child.calls += 1;
    child.write(frame);
    const running = runningCall(child, { id, graceMs, clock: this.#clock, ...options });
    member.running.set(id, running);
    // Its place may be taken again when the child has answered, which after a cancellation is later than the caller gets its result.
    void running.answered.then(() => this.#release(member, id));
    return await running.result;
  }

  #release(member: Member, id: number): void {
    member.running.delete(id);
    member.taken -= 1;
    if (!member.child.alive) return;
    if (member.state === "up" && member.child.calls >= (this.#options.maxCalls ?? 500)) {
      return this.#replace(member);
    }
    if (member.state === "leaving" && member.taken === 0) return member.child.kill();
    this.#offer(member);
  }

  /** Starts the successor of a child at once, and lets the child go when its other calls have ended. */
  #replace(member: Member): void {
    member.state = "leaving";
    if (member.taken === 0) member.child.kill();
    this.#add();
  }

  #offer(member: Member): void {
    for (const waiter of this.#waiting) {
      if (!this.#hasPlace(member)) return;
      member.taken += 1;
      waiter.take(member);
    }
  }

  #hasPlace({ state, taken, child }: Member): boolean {
    return state === "up" && taken < (this.#options.callsAtOnce ?? 1) && child.alive;
  }

  async #takeMember(signal: AbortSignal): Promise<Member> {
    for (;;) {
      const member = this.#idle() ?? (await this.#nextIdle(signal));
      if (member.child.alive) return member; // it may have ended since it was offered
    }
  }

  #idle(): Member | undefined {
    if (this.#closing.signal.aborted) return undefined;
    for (const member of this.#members) {
      if (this.#hasPlace(member)) {
        member.taken += 1;
        return member;
      }
    }
    return undefined;
  }

  async #nextIdle(signal: AbortSignal): Promise<Member> {
    if (this.#closing.signal.aborted) throw closedError();
    if (this.#failures >= failuresInARow) throw this.#notStarting();
    const { promise, resolve, reject } = Promise.withResolvers<Member>();
    const leave = (): void => reject(cancelledError());
    const waiter: Waiter = {
      take: (member) => {
        this.#waiting.delete(waiter);
        resolve(member);
      },
      reject,
    };
    this.#waiting.add(waiter);
    signal.addEventListener("abort", leave, { once: true });
    return await promise.finally(() => {
      this.#waiting.delete(waiter);
      signal.removeEventListener("abort", leave);
    });
  }

  #notStarting(): ProcessCallError {
    return new ProcessCallError(
      "crashed",
      `The process for the call does not start: ${this.#lastFailure}.`,
      {
        childFault: true,
      },
    );
  }

  #add(): void {
    if (this.#closing.signal.aborted) return;
    const {
      entry,
      env = {},
      codeCache,
      memoryMb = 256,
      nodePath = process.execPath,
      onLog = () => {},
    } = this.#options;
    const cached = codeCache === undefined ? {} : { NODE_COMPILE_CACHE: codeCache };
    try {
      const child = new PoolChild({
        entry,
        nodePath,
        memoryMb,
        onLog,
        env: { ...baseEnv, ...env, ...cached },
        clock: this.#clock,
      });
      void this.#follow({ child, state: "booting", taken: 0, running: new Map() });
    } catch (error) {
      void this.#pause(error instanceof Error ? error.message : String(error));
    }
  }

  /** From its boot to its end, and on to its successor. */
  async #follow(member: Member): Promise<void> {
    const { child } = member;
    this.#members.add(member);
    const cancelBoot = this.#clock.after(bootMs, () => child.kill());
    child.onFrame = (frame) => {
      if (frame.kind === "ready") cancelBoot();
      this.#onFrame(member, frame);
    };
    child.onGarbage = (reason) => failAll(member, protocolError(reason));
    const end = await child.ended;
    cancelBoot();
    this.#members.delete(member);
    failAll(member, this.#closing.signal.aborted ? closedError() : crashError(end));
    if (member.state === "booting") await this.#pause(described(end));
    else if (member.state !== "leaving") this.#add();
  }

  #onFrame(member: Member, frame: FrameToPool): void {
    if (frame.kind !== "ready") return member.running.get(frame.id)?.take(frame);
    if (member.state !== "booting") return;
    this.#failures = 0;
    member.state = "up";
    this.#offer(member);
  }

  /** A child that does not boot is tried again after a pause that grows. */
  async #pause(reason: string): Promise<void> {
    this.#failures += 1;
    this.#lastFailure = reason;
    if (this.#failures >= failuresInARow) {
      for (const waiter of this.#waiting) waiter.reject(this.#notStarting());
    }
    const pauseMs = Math.min(longestPauseMs, 50 * 2 ** Math.min(this.#failures, 10));
    await pause(this.#clock, pauseMs, this.#closing.signal);
    this.#add();
  }

  /** A child without calls is looked at less often: it grows by what its tools do on their own. */
  #checkMemory(): void {
    this.#looks += 1;
    for (const member of this.#members) {
      if (member.taken === 0 && this.#looks % looksWhileIdle !== 0) continue;
      if (!member.child.isTooLarge()) continue;
      if (member.state === "up" && member.taken === 0) this.#replace(member);
      else member.child.killForMemory();
    }
  }
}

function failAll({ running }: Member, error: ProcessCallError): void {
  for (const call of running.values()) call.fail(error);
}

const baseEnv = { PATH: "/usr/local/bin:/usr/bin:/bin", LANG: "C.UTF-8", TZ: "UTC" };

function closedError(): ProcessCallError {
  return new ProcessCallError("closed", "The processes for calls are being shut down.", {
    childFault: false,
  });
}

function cancelledError(): ProcessCallError {
  return new ProcessCallError("cancelled", "The call was cancelled.", { childFault: false });
}

function protocolError(reason: string): ProcessCallError {
  return new ProcessCallError("protocol", `The process of the call wrote ${reason}.`, {
    childFault: true,
  });
}

function described({ exitCode, signal }: ChildEnd): string {
  return signal === undefined ? `exit code ${exitCode ?? "unknown"}` : `ended by ${signal}`;
}

function crashError(end: ChildEnd): ProcessCallError {
  const { exitCode, signal, outOfMemory } = end;
  if (outOfMemory) {
    const message = "The call ran out of memory.";
    return new ProcessCallError("oom", message, { childFault: true, exitCode, signal });
  }
  // Only the system or an operator sends these signals; all other ends are a fault of the tool's code.
  const childFault =
    signal === undefined
      ? exitCode !== undefined
      : !["SIGKILL", "SIGTERM", "SIGINT"].includes(signal);
  const message = `The process of the call ended before it had answered (${described(end)}).`;
  return new ProcessCallError("crashed", message, { childFault, exitCode, signal });
}

/** Starts the children at once; they boot in the background. Throws a RangeError for a size below 1. */
export function createProcessPool(options: ProcessPoolOptions): ProcessPool {
  if (!Number.isInteger(options.size) || options.size < 1) {
    throw new RangeError("size must be a whole number above 0");
  }
  return new Pool(options);
}

/* ---- One call ---- */

/** A call that a child has. */
interface RunningCall {
  /** What the caller gets. */
  readonly result: Promise<unknown>;
  /** Resolves when the child has answered, or has ended: it does nothing for this call any more. */
  readonly answered: Promise<void>;
  /** A frame of the child. */
  take(frame: FrameToPool): void;
  /** It is over without an answer of the child. */
  fail(error: ProcessCallError): void;
}

interface RunningCallOptions extends ProcessCallOptions {
  id: number;
  /** Time for the child to answer after a cancellation, ms; then it is killed. */
  graceMs: number;
  clock: Clock;
}

/** Follows a call that was just written. Listens to the signal; exactly one of answer, failure and abort counts. */
function runningCall(child: PoolChild, options: RunningCallOptions): RunningCall {
  const { id, signal, timeoutMs, clock } = options;
  const result = Promise.withResolvers<unknown>();
  const answered = Promise.withResolvers<void>();
  let cancelGrace: (() => void) | undefined;

  const cancel = (error: ProcessCallError): void => {
    if (cancelGrace !== undefined) return;
    cancelGrace = clock.after(options.graceMs, () => child.kill());
    child.write(encodeFrame({ kind: "cancel", id }));
    result.reject(error);
  };
  const onAbort = (): void =>
    cancel(new ProcessCallError("cancelled", "The call was cancelled.", { childFault: false }));
  const cancelTimer = clock.after(timeoutMs, () => {
    cancel(
      new ProcessCallError("timeout", `The call took longer than ${timeoutMs} ms.`, {
        childFault: true,
      }),
    );
  });
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();

  const settle = (): void => {
    cancelTimer();
    cancelGrace?.();
    signal.removeEventListener("abort", onAbort);
    answered.resolve();
  };
  const answer = async ({ request, body }: FrameToPool & { kind: "request" }): Promise<void> => {
    const reply = await replyTo(async () => await options.onRequest(body));
    child.write(encodeFrame({ kind: "reply", id, request, ...reply }));
  };
  const take = (frame: FrameToPool): void => {
    if (frame.kind === "ready" || frame.id !== id) return;
    if (frame.kind === "result" || frame.kind === "error") {
      settle();
      if (frame.kind === "result") result.resolve(frame.body);
      else result.reject(new ProcessCallError("handler", frame.message, { childFault: true }));
    } else if (cancelGrace === undefined) {
      if (frame.kind === "event") options.onEvent(frame.body);
      else void answer(frame);
    }
  };
  const fail = (error: ProcessCallError): void => {
    settle();
    result.reject(error);
  };
  return { result: result.promise, answered: answered.promise, take, fail };
}

async function replyTo(work: () => Promise<unknown>): Promise<{ ok: boolean; body: unknown }> {
  try {
    const body = (await work()) ?? null;
    encodeFrame(body); // a reply that is no JSON is the fault of who gave it
    return { ok: true, body };
  } catch (error) {
    return { ok: false, body: error instanceof Error ? error.message : String(error) };
  }
}

/* ---- What callers get ---- */

/** How a call ended that gave no result. `handler`: the handler threw; `closed`: the pool was closed. */
export type ProcessFailure =
  | "handler"
  | "timeout"
  | "cancelled"
  | "crashed"
  | "oom"
  | "protocol"
  | "closed";

/** What {@link ProcessPool.call} rejects with. The pool stays usable, whatever happened to the child. */
export class ProcessCallError extends Error {
  override readonly name = "ProcessCallError";
  readonly failure: ProcessFailure;
  /** Whether the handler's code did it: it threw, exited, ran out of memory or time, or wrote garbage. A kill from outside is not. */
  readonly childFault: boolean;
  /** Exit code and signal of the child, if it ended by itself or was killed from outside. */
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;

  constructor(
    failure: ProcessFailure,
    message: string,
    facts: { childFault: boolean; exitCode?: number | undefined; signal?: string | undefined },
  ) {
    super(message);
    this.failure = failure;
    this.childFault = facts.childFault;
    this.exitCode = facts.exitCode;
    this.signal = facts.signal;
  }
}

export interface ProcessCallOptions {
  /** Cancels: the child's signal aborts; 2 s later the child and what it started is killed. */
  signal: AbortSignal;
  /** Longest time from the moment a child takes the call, ms; then as if cancelled. */
  timeoutMs: number;
  /** What the handler emitted, a JSON value, in order. Must not throw. */
  onEvent(body: unknown): void;
  /** Answers what the handler requested; the handler gets a rejection's message. */
  onRequest(body: unknown): Promise<unknown>;
}

/* ---- One child ---- */

interface PoolChildOptions {
  entry: URL;
  nodePath: string;
  memoryMb: number;
  env: Readonly<Record<string, string>>;
  onLog(line: string, stream: "stdout" | "stderr"): void;
  clock: Clock;
}

/** How a child ended, as far as the kernel reports it. */
interface ChildEnd {
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
class PoolChild {
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
  /** Called when it writes anything outside of the protocol; it is killed then. */
  onGarbage: (reason: string) => void = () => {};

  constructor(options: PoolChildOptions) {
    const node = [
      options.nodePath,
      `--max-old-space-size=${options.memoryMb}`,
      fileURLToPath(options.entry),
    ];
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
    this.ended = this.#untilEnd(options.clock);
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

  /** Whether it holds more memory than it may. The kernel answers at once: reading this file waits for no disk. */
  isTooLarge(): boolean {
    try {
      const status = readFileSync(`/proc/${this.#process.pid}/status`, "utf8");
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

  async #untilEnd(clock: Clock): Promise<ChildEnd> {
    const { promise, resolve } = Promise.withResolvers<Pick<ChildEnd, "exitCode" | "signal">>();
    this.#process.once("exit", (code, signal) =>
      resolve({ exitCode: code ?? undefined, signal: signal ?? undefined }),
    );
    // It could not be started; there is no exit then.
    this.#process.once("error", () => resolve({ exitCode: undefined, signal: undefined }));
    const closed = new Promise<unknown>((settle) => this.#process.once("close", settle));
    const end = await promise;
    this.#ended = true;
    this.#lifeline.destroy(); // the guardian ends what is left of the group
    this.#control.destroy();
    await withDeadline(clock, closed, drainMs).catch(() => {}); // the last words
    return { ...end, outOfMemory: this.#outOfMemory };
  }
}

const maxLineCharacters = 8_192;

/** Makes lines of what a process writes. Long lines are cut and the rest of them is left out. */
class LineSplitter {
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
