import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";
import { encodeFrame, type FrameBounds, FrameError, FrameReader } from "./frame.ts";
import { type GuestEnd, GuestProcess, watchDisk } from "./guest-process.ts";
import { type Launch, type LaunchPlan, reservedMbOf } from "./launch.ts";
import type { KernelLimits, SandboxLimits, SandboxProgram, SandboxRequest } from "./sandbox.ts";
import type { Slot } from "./slot.ts";

/** What ended a run; the first counts. */
export type GuestStop =
  | { kind: "result"; value: unknown }
  | { kind: "error"; name: string; message: string; stack: string }
  | { kind: "protocol"; reason: string }
  | { kind: "timeout" | "cancelled" | "output_limit" | "disk_limit" };

/** Everything that is known when a run is over. */
export interface GuestReport {
  /** Undefined: the program ended by itself and said nothing. */
  stop: GuestStop | undefined;
  end: GuestEnd;
  stdout: string;
  stderr: string;
  memoryKills: number;
  /** The program was started, if only for a moment; otherwise it can be given to another guest. */
  hasBegun: boolean;
  wallMs: number;
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

// Before its job an interpreter says that it is ready, then that it is prepared, and no more.
const bootBounds = { bytes: 256, frames: 1 };
const bootOutputBytes = 65_536;

/** Progress comes ten times a second at most; the bounds leave room for a program that sends it itself. */
function boundsOf({ wallMs, resultBytes }: SandboxLimits): FrameBounds {
  const frames = extraFrames + Math.ceil((wallMs / 1_000) * framesPerSecond);
  return { bytes: resultBytes + envelopeBytes, frames };
}

/** An interpreter inside a sandbox: booted, given one job, and gone. Everything it says is hostile. */
export class Guest {
  readonly #process: GuestProcess;
  readonly slot: Slot;
  /** Where it finds compiled code, as it sees it. */
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

  /** Starts to boot. Throws when no process can be made. */
  constructor(plan: LaunchPlan, slot: Slot, compiled?: string) {
    this.slot = slot;
    this.#compiled = compiled;
    this.#memoryKillsBefore = slot.group?.memoryKills() ?? 0;
    this.#process = new GuestProcess(plan, slot, true);
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
   * Has it load a module ahead of its job, and whether it has; like {@link boot}, after which it may be called once. The
   * module may do there what it may do in a run, in the same bounds. Then nothing happens in it until its job comes: it
   * reads, and that blocks.
   */
  async prepare(preparation: Preparation, diskMb: number, signal: AbortSignal): Promise<boolean> {
    return await this.#prepared({ ...preparation, isAhead: true, compiled: this.#compiled }, diskMb, signal);
  }

  /**
   * In place of {@link prepare}: has it load the module, leave the compiled code of it in a directory of its slot, and
   * end. Whether it has. It never gets a job.
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
    this.#watchDisk(diskMb);
    this.#process.control?.write(encodeFrame(frame));
    return await this.#reached(this.#preparing, prepareMs, signal);
  }

  async #reached(state: PromiseWithResolvers<boolean>, withinMs: number, signal: AbortSignal): Promise<boolean> {
    const giveUp = (): void => state.resolve(false);
    const timer = setTimeout(giveUp, withinMs);
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    void this.ended.then(giveUp);
    const isReached = await state.promise;
    clearTimeout(timer);
    signal.removeEventListener("abort", giveUp);
    if (!isReached) this.kill();
    return isReached;
  }

  /** From now until its end. */
  #watchDisk(diskMb: number): void {
    this.#stopWatching();
    if (this.#process.isDiskWatched) return;
    this.#stopWatching = watchDisk(this.slot, diskMb, () => this.#end({ kind: "disk_limit" }));
    void this.ended.then(this.#stopWatching);
  }

  /** What it wrote to stderr so far, for operators. */
  lastWords(): string {
    return this.#output.stderr.text().trim();
  }

  kill(): void {
    this.#process.kill();
  }

  /** Hands over the job and waits until nothing inside runs any more. Call it once, when booted. */
  async run(job: GuestJob): Promise<GuestReport> {
    const startedMs = performance.now();
    const { limits } = job;
    this.#job = job;
    this.#reader = new FrameReader(boundsOf(limits));
    const cancel = (): void => this.#end({ kind: "cancelled" });
    job.signal.addEventListener("abort", cancel, { once: true });
    if (job.signal.aborted) cancel();
    const timer = setTimeout(() => this.#end({ kind: "timeout" }), limits.wallMs);
    this.#watchDisk(limits.diskMb);
    this.#process.control?.write(jobBytes(job, this.#compiled));
    const end = await this.ended;
    clearTimeout(timer);
    job.signal.removeEventListener("abort", cancel);
    return {
      stop: this.#stop,
      end,
      stdout: this.#output.stdout.text(),
      stderr: this.#output.stderr.text(),
      memoryKills: (this.slot.group?.memoryKills() ?? 0) - this.#memoryKillsBefore,
      hasBegun: this.#hasBegun,
      wallMs: performance.now() - startedMs,
    };
  }

  #end(stop: GuestStop): void {
    if (this.#stop !== undefined) return;
    this.#stop = stop;
    this.kill(); // who answers has written its output before
  }

  #collect(name: "stdout" | "stderr"): void {
    const decoder = new StringDecoder("utf8");
    this.#process[name].on("data", (chunk: Buffer) => {
      this.#output[name].push(chunk);
      if (this.#output.stdout.total + this.#output.stderr.total > (this.#job?.limits.outputBytes ?? bootOutputBytes)) {
        this.#end({ kind: "output_limit" });
      } else this.#job?.onOutput?.(name, decoder.write(chunk));
    });
  }

  #take(chunk: Buffer): void {
    if (this.#stop !== undefined) return; // what comes after the end is nobody's business
    try {
      for (const frame of this.#reader.push(chunk)) this.#obey(frame);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#end({ kind: "protocol", reason: error.message });
    }
  }

  #obey(frame: unknown): void {
    if (this.#stop !== undefined) return;
    const { kind, ...said } = typeof frame === "object" && frame !== null ? (frame as Record<string, unknown>) : {}; // checked below
    if (kind === "ready" && !this.#isReady) {
      this.#isReady = true;
      this.#booted.resolve(true);
    } else if (kind === "prepared" && this.#job === undefined && this.#preparing !== undefined) {
      this.#preparing.resolve(true);
    } else if (kind === "began" && this.#job !== undefined && !this.#hasBegun) this.#hasBegun = true;
    else if (this.#job === undefined) throw new FrameError("a message before there was anything to answer");
    else if (kind === "progress") this.#job.onProgress?.(fractionOf(said["fraction"]), textOf(said["detail"], 500));
    else if (kind === "result") this.#end({ kind, value: said["value"] ?? null });
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
  return Buffer.from([...variables, "", JSON.stringify(input), program.code].map((field) => `${field}\0`).join(""));
}

/* ---- What a guest is started with ---- */

/** What a sandbox can do before it is known what for: load a module, in the environment of its runs. */
export interface Preparation {
  module: string;
  preparation: unknown;
  env: Readonly<Record<string, string>>;
}

/** What of a program is fixed before its run. Programs with the same one can use the same warm sandboxes. */
export interface GuestProfile {
  runtime: SandboxProgram["runtime"];
  readable: Launch["readable"];
  limits: KernelLimits;
  /** What the warm ones have done already; undefined: they have booted. */
  prepared: Preparation | undefined;
}

/** A text that is the same for the same profile only; `kernelLimits` gives limits an order. */
export function profileKey({ runtime, readable, limits, prepared }: GuestProfile): string {
  return JSON.stringify([runtime, readable, limits, prepared]);
}

// Outside its heap a program needs memory too.
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
