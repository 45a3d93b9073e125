import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";
import type { Clock } from "@larkline/protocol/clock";
import { encodeFrame, type FrameBounds, FrameError, FrameReader } from "./frame.ts";
import { type GuestEnd, GuestProcess, watchDisk } from "./guest-process.ts";
import { type Launch, type LaunchPlan, reservedMbOf } from "./launch.ts";
import type { KernelLimits, SandboxLimits, SandboxProgram, SandboxRequest } from "./sandbox.ts";
import type { Slot } from "./slot.ts";

/** What ended a run; only the first reason counts. */
export type GuestStop =
  | { kind: "result"; value: unknown }
  | { kind: "error"; name: string; message: string; stack: string }
  | { kind: "protocol"; reason: string }
  | { kind: "timeout" | "cancelled" | "output_limit" | "disk_limit" };

/** The facts about a run that is over. */
export interface GuestReport {
  /** Undefined: the program ended by itself without an answer. */
  stop: GuestStop | undefined;
  end: GuestEnd;
  stdout: string;
  stderr: string;
  memoryKills: number;
  /** Whether the program was started; otherwise another guest can run it. */
  hasBegun: boolean;
  wallMs: number;
  /** Time in which it booted and loaded its module, ms: the CPU time of that counts as the program's. */
  aheadMs: number;
}

/** What is handed to a booted interpreter. */
export interface GuestJob {
  program: SandboxProgram;
  limits: SandboxLimits;
  env: Readonly<Record<string, string>>;
  signal: AbortSignal;
  onProgress: SandboxRequest["onProgress"];
  onOutput: SandboxRequest["onOutput"];
}

const bootMs = 10_000;
const prepareMs = 30_000;
const envelopeBytes = 8_192;
const framesPerSecond = 20;
const extraFrames = 1_000;

// Before its job an interpreter sends `ready`, then `prepared`, and nothing else.
const bootBounds = { bytes: 256, frames: 1 };
const bootOutputBytes = 65_536;

/** Progress comes at most ten times a second; the bounds leave room for programs that send frames themselves. */
function boundsOf({ wallMs, resultBytes }: SandboxLimits): FrameBounds {
  const frames = extraFrames + Math.ceil((wallMs / 1_000) * framesPerSecond);
  return { bytes: resultBytes + envelopeBytes, frames };
}

/** An interpreter inside a sandbox: it boots, gets one job and ends. All of its frames are untrusted. */
export class Guest {
  readonly #process: GuestProcess;
  readonly slot: Slot;
  readonly #clock: Clock;
  /** Path of compiled code, as seen from inside. */
  readonly #compiled: string | undefined;
  #reader = new FrameReader(bootBounds);
  readonly #memoryKillsBefore: number;
  readonly #output = { stdout: new OutputTail(), stderr: new OutputTail() };
  readonly #booted = Promise.withResolvers<boolean>();
  #preparing: PromiseWithResolvers<boolean> | undefined;
  #stopWatching: () => void = () => {};
  #job: GuestJob | undefined;
  #stop: GuestStop | undefined;
  #isReady = false;
  #hasBegun = false;
  #aheadMs = 0;
  #aheadSinceMs: number;

  /** Starts to boot. Throws when no process can be made. */
  constructor(
    plan: LaunchPlan,
    slot: Slot,
    { clock, compiled }: { clock: Clock; compiled: string | undefined },
  ) {
    this.slot = slot;
    this.#clock = clock;
    this.#compiled = compiled;
    this.#memoryKillsBefore = slot.group?.memoryKills() ?? 0;
    this.#aheadSinceMs = clock.monotonic();
    this.#process = new GuestProcess(plan, slot, { clock, hasControl: true });
    this.#process.control?.on("data", (chunk: Buffer) => this.#take(chunk));
    this.#collect("stdout");
    this.#collect("stderr");
  }

  /** Whether it could take a job. */
  get isAlive(): boolean {
    return this.#process.isRunning;
  }

  /** Resolves when nothing of it runs any more. */
  get ended(): Promise<GuestEnd> {
    return this.#process.ended;
  }

  /** Whether it has booted; false when it ended first, or within the deadline did not. Kills it then, and on abort. */
  async boot(signal: AbortSignal): Promise<boolean> {
    return await this.#reached(this.#booted, bootMs, signal);
  }

  /**
   * Loads a module ahead of the job. Call it once, after {@link boot}; resolves like that. The module has the rights and
   * bounds of a run. Afterwards the guest waits for its job in a blocking read.
   */
  async prepare(preparation: Preparation, diskMb: number, signal: AbortSignal): Promise<boolean> {
    return await this.#prepared(
      { ...preparation, isAhead: true, compiled: this.#compiled },
      diskMb,
      signal,
    );
  }

  /**
   * In place of {@link prepare}: loads the module, leaves its compiled code in a directory of the slot, and ends. Whether
   * that worked. The guest never gets a job.
   */
  async compile(
    preparation: Preparation & { compileTo: string },
    diskMb: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    return await this.#prepared(preparation, diskMb, signal);
  }

  async #prepared(frame: object, diskMb: number, signal: AbortSignal): Promise<boolean> {
    this.#preparing = Promise.withResolvers<boolean>();
    this.#reader = new FrameReader(bootBounds);
    this.#aheadSinceMs = this.#clock.monotonic();
    this.#watchDisk(diskMb);
    this.#process.control?.write(encodeFrame(frame));
    return await this.#reached(this.#preparing, prepareMs, signal);
  }

  async #reached(
    state: PromiseWithResolvers<boolean>,
    withinMs: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    const giveUp = (): void => state.resolve(false);
    const cancelTimer = this.#clock.after(withinMs, giveUp);
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    void this.ended.then(giveUp);
    const isReached = await state.promise;
    this.#aheadMs += this.#clock.monotonic() - this.#aheadSinceMs;
    cancelTimer();
    signal.removeEventListener("abort", giveUp);
    if (!isReached) this.kill();
    return isReached;
  }

  /** From now until its end. */
  #watchDisk(diskMb: number): void {
    this.#stopWatching();
    if (this.#process.isDiskWatched) return;
    this.#stopWatching = watchDisk(this.#clock, this.slot, diskMb, () =>
      this.#end({ kind: "disk_limit" }),
    );
    void this.ended.then(this.#stopWatching);
  }

  /** Its stderr so far, for operators. */
  lastWords(): string {
    return this.#output.stderr.text().trim();
  }

  kill(): void {
    this.#process.kill();
  }

  /** Sends the job and waits until nothing inside runs any more. Call it once, when booted. */
  async run(job: GuestJob): Promise<GuestReport> {
    const startedMs = this.#clock.monotonic();
    const { limits } = job;
    this.#job = job;
    this.#reader = new FrameReader(boundsOf(limits));
    const cancel = (): void => this.#end({ kind: "cancelled" });
    job.signal.addEventListener("abort", cancel, { once: true });
    if (job.signal.aborted) cancel();
    const cancelTimer = this.#clock.after(limits.wallMs, () => this.#end({ kind: "timeout" }));
    this.#watchDisk(limits.diskMb);
    this.#process.control?.write(jobBytes(job, this.#compiled));
    const end = await this.ended;
    cancelTimer();
    job.signal.removeEventListener("abort", cancel);
    return {
      stop: this.#stop,
      end,
      stdout: this.#output.stdout.text(),
      stderr: this.#output.stderr.text(),
      memoryKills: (this.slot.group?.memoryKills() ?? 0) - this.#memoryKillsBefore,
      hasBegun: this.#hasBegun,
      wallMs: this.#clock.monotonic() - startedMs,
      aheadMs: this.#aheadMs,
    };
  }

  #end(stop: GuestStop): void {
    if (this.#stop !== undefined) return;
    this.#stop = stop;
    this.kill(); // a program writes its output before its answer
  }

  #collect(name: "stdout" | "stderr"): void {
    const decoder = new StringDecoder("utf8");
    this.#process[name].on("data", (chunk: Buffer) => {
      this.#output[name].push(chunk);
      if (
        this.#output.stdout.total + this.#output.stderr.total >
        (this.#job?.limits.outputBytes ?? bootOutputBytes)
      ) {
        this.#end({ kind: "output_limit" });
      } else this.#job?.onOutput?.(name, decoder.write(chunk));
    });
  }

  #take(chunk: Buffer): void {
    if (this.#stop !== undefined) return; // frames after the end are ignored
    try {
      for (const frame of this.#reader.push(chunk)) this.#obey(frame);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#end({ kind: "protocol", reason: error.message });
    }
  }

  #obey(frame: unknown): void {
    if (this.#stop !== undefined) return;
    const { kind, ...said } =
      typeof frame === "object" && frame !== null ? (frame as Record<string, unknown>) : {}; // checked below
    if (kind === "ready" && !this.#isReady) {
      this.#isReady = true;
      this.#booted.resolve(true);
    } else if (kind === "prepared" && this.#job === undefined && this.#preparing !== undefined) {
      this.#preparing.resolve(true);
    } else if (kind === "began" && this.#job !== undefined && !this.#hasBegun) {
      this.#hasBegun = true;
    } else if (this.#job === undefined) {
      throw new FrameError("a message before there was anything to answer");
    } else if (kind === "progress") {
      this.#job.onProgress?.(fractionOf(said["fraction"]), textOf(said["detail"], 500));
    } else if (kind === "result") this.#end({ kind, value: said["value"] ?? null });
    else if (kind === "error") {
      const [name, message, stack] = [
        textOf(said["name"], 100),
        textOf(said["message"], 4_000),
        textOf(said["stack"], 2_000),
      ];
      this.#end({ kind, name, message, stack });
    } else throw new FrameError("a message that is not in the protocol");
  }
}

function fractionOf(value: unknown): number {
  return typeof value === "number" && value > 0 ? Math.min(1, value) : 0;
}

function textOf(value: unknown, characters: number): string {
  return typeof value === "string" ? value.slice(0, characters) : "";
}

/** The job as the interpreter's bootstrap in `guest/` reads it. */
function jobBytes({ program, env }: GuestJob, compiled: string | undefined): Buffer {
  const { input = null } = program;
  if (program.runtime !== "bash") {
    const { module, preparation = null } = "module" in program ? program : {};
    const source = "module" in program ? { module, preparation, compiled } : { code: program.code };
    return encodeFrame({ ...source, input, env });
  }
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  return Buffer.from(
    [...variables, "", JSON.stringify(input), program.code].map((field) => `${field}\0`).join(""),
  );
}

/* ---- What a guest is started with ---- */

/** What a sandbox loads before its call is known: a module, in the environment of its runs. */
export interface Preparation {
  module: string;
  preparation: unknown;
  env: Readonly<Record<string, string>>;
}

/** What is fixed before a run. Programs with the same profile share warm sandboxes. */
export interface GuestProfile {
  runtime: SandboxProgram["runtime"];
  readable: Launch["readable"];
  limits: KernelLimits;
  /** What warm guests have loaded; undefined: they have only booted. */
  prepared: Preparation | undefined;
}

/** Equal for equal profiles only; `kernelLimits` orders the limits. */
export function profileKey({ runtime, readable, limits, prepared }: GuestProfile): string {
  return JSON.stringify([runtime, readable, limits, prepared]);
}

// The rest of the memory is for buffers and code outside the heap.
const heapShare = 0.6;
const leastHeapMb = 32;

function command({ runtime, limits }: GuestProfile): Launch["command"] {
  const heapMb = Math.max(leastHeapMb, Math.floor(limits.memoryMb * heapShare));
  return ({ node, python, guest }) => {
    if (runtime === "python") return [python, "-I", "-B", "-u", join(guest, "python.py")];
    if (runtime === "bash") return ["/bin/bash", "--noprofile", "--norc", join(guest, "bash.sh")];
    return [
      node,
      `--max-old-space-size=${heapMb}`,
      "--max-semi-space-size=8",
      "--no-warnings",
      join(guest, "node.cjs"),
    ];
  };
}

/** The start of an interpreter that waits for its job. */
export function guestLaunch(profile: GuestProfile, egressSocket: string | undefined): Launch {
  return {
    command: command(profile),
    limits: profile.limits,
    hasControl: true,
    reservedMb: reservedMbOf(profile.runtime, egressSocket !== undefined),
    readable: profile.readable,
    egressSocket,
    env: {},
  };
}

/* ---- What a guest prints ---- */

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
