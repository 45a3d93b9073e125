import type { ChildProcess } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Duplex, Readable, Writable } from "node:stream";
import { type Clock, pause, withDeadline } from "@larkline/protocol/clock";
import type { ControlGroup } from "./control-group.ts";
import type { LaunchPlan } from "./launch.ts";
import type { Slot } from "./slot.ts";
import { hasEnded, killUsers, spawnProcess } from "./user-processes.ts";

/** Signals by which a supervisor ends when it has killed everything inside, and why. */
export const supervisorEnds: Readonly<Record<string, "memory" | "disk">> = {
  SIGUSR1: "memory",
  SIGUSR2: "disk",
};

/** How the launcher ended: with the program's own code, or for a signal. */
export interface GuestEnd {
  exitCode: number | undefined;
  signal: string | undefined;
  /** It could not even be started. */
  spawnError: string | undefined;
  /** Some process may still run: do not read the files, and do not reuse the slot. */
  isStuck: boolean;
}

const drainMs = 1_000;
const stuckMs = 10_000;
const emptyingRounds = 200;
const roundMs = 5;
// Ending a sandbox in order takes a millisecond or two; after this time everything is killed.
const patienceMs = { namespace: 150, supervisor: 500 };
/** Longer where only the supervisor can find runaway processes. */
const solePatienceMs = 5_000;

/** The processes that one launch started, as seen from outside. */
export class GuestProcess {
  readonly #process: ChildProcess;
  readonly #plan: LaunchPlan;
  readonly #slot: Slot;
  readonly stdin: Writable | undefined;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Descriptor 3, unless stdin is open. */
  readonly control: Duplex | undefined;
  /** Resolves when nothing that was started inside runs any more, and its output was read. */
  readonly ended: Promise<GuestEnd>;
  readonly #exit = Promise.withResolvers<Partial<GuestEnd>>();
  #namespaceInit: number | undefined;
  readonly #clock: Clock;
  #cancelInsistence: (() => void) | undefined;
  #cancelPatience: (() => void) | undefined;
  #killing = false;
  #isOver = false;

  /** Throws when no process can be made at all. */
  constructor(
    plan: LaunchPlan,
    slot: Slot,
    { clock, hasControl }: { clock: Clock; hasControl: boolean },
  ) {
    this.#clock = clock;
    this.#plan = plan;
    this.#slot = slot;
    this.#process = launched(plan, hasControl);
    const { stdin, stdout, stderr, stdio } = this.#process;
    this.stdin = stdin ?? undefined;
    this.stdout = stdout as Readable; // "pipe" in `launched`, as those below
    this.stderr = stderr as Readable;
    const above = stdio as readonly (Duplex | null | undefined)[];
    this.control = above[3] ?? undefined;
    for (const stream of [stdin, stdout, stderr, ...above]) stream?.on("error", () => {});
    this.#readNamespaceInit(above[5]);
    above[6]?.end(plan.privateArgs.map((argument) => `${argument}\0`).join(""));
    this.ended = this.#untilEnd();
  }

  /** Until it ends or is killed. */
  get isRunning(): boolean {
    return !this.#killing && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Whether the size of its working directory is watched by its supervisor. */
  get isDiskWatched(): boolean {
    return this.#plan.isDiskWatched;
  }

  /** Kills everything inside at once. Idempotent. */
  kill(): void {
    if (this.#killing || this.#isOver) return;
    this.#killing = true;
    if (this.#killGently()) {
      this.#cancelInsistence = this.#clock.after(this.#patienceMs(), () => this.#killAll());
    } else this.#killAll();
    this.#cancelPatience = this.#clock.after(stuckMs, () => this.#exit.resolve({ isStuck: true }));
  }

  /**
   * Ends the children before their launcher. A launcher that is killed first leaves the namespace's first process to the
   * host's first process, which may not reap it; a supervisor that is killed first leaves runaway processes.
   */
  #killGently(): boolean {
    if (this.#plan.end === "supervisor") return this.#process.kill("SIGTERM");
    return this.#namespaceInit !== undefined && signalled(this.#namespaceInit);
  }

  #patienceMs(): number {
    const { end } = this.#plan;
    const isSole =
      end === "supervisor" && this.#slot.group === undefined && this.#slot.user === undefined;
    return isSole ? solePatienceMs : patienceMs[end];
  }

  #killAll(): void {
    if (this.#isOver) return; // the slot, and its group, may be another run's by now
    if (this.#process.pid !== undefined) signalled(-this.#process.pid);
    this.#slot.group?.kill();
  }

  #readNamespaceInit(info: Duplex | null | undefined): void {
    let text = "";
    info?.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      this.#namespaceInit ??= Number(/"child-pid"\s*:\s*(\d+)/.exec(text)?.[1]) || undefined;
    });
  }

  async #untilEnd(): Promise<GuestEnd> {
    const launcher = this.#process;
    launcher.once("exit", (code, signal) => {
      this.#exit.resolve({ exitCode: code ?? undefined, signal: signal ?? undefined });
    });
    launcher.once("error", ({ message }) => this.#exit.resolve({ spawnError: message }));
    const closed = new Promise<unknown>((settle) => launcher.once("close", settle));
    const end = await this.#exit.promise;
    this.#cancelInsistence?.();
    this.#cancelPatience?.();
    const isStuck = !(await this.#endRest(end));
    await withDeadline(this.#clock, closed, drainMs).catch(() => {});
    for (const stream of launcher.stdio) stream?.destroy();
    return { exitCode: undefined, signal: undefined, spawnError: undefined, isStuck, ...end };
  }

  /** Kills what the direct child has left behind. Whether nothing is left. */
  async #endRest({ exitCode, signal = "" }: Partial<GuestEnd>): Promise<boolean> {
    const { group } = this.#slot;
    const isFound = await this.#endRunaways(exitCode !== undefined || signal in supervisorEnds);
    this.#isOver = true;
    return (await isEmptied(this.#clock, group)) && isFound;
  }

  /** Whether all runaway processes were found here, or are in a control group that is emptied later. */
  async #endRunaways(endedItself: boolean): Promise<boolean> {
    const { group, user } = this.#slot;
    // The first process of a namespace ends last, and outlives a launcher that was killed.
    if (this.#plan.end === "namespace") return await hasEndedSoon(this.#clock, this.#namespaceInit);
    // A supervisor kills everything before it ends, unless it was killed itself.
    if (this.#plan.end === "supervisor" && endedItself) return true;
    if (this.#process.pid !== undefined) signalled(-this.#process.pid);
    if (group !== undefined) return true; // nothing leaves it
    return user === undefined ? this.#process.pid === undefined : await killUsers(user);
  }
}

async function hasEndedSoon(clock: Clock, id: number | undefined): Promise<boolean> {
  for (let round = 0; round < emptyingRounds; round += 1) {
    if (id === undefined || (await hasEnded(id))) return true;
    await pause(clock, roundMs);
  }
  return false;
}

async function isEmptied(clock: Clock, group: ControlGroup | undefined): Promise<boolean> {
  for (let round = 0; round < emptyingRounds; round += 1) {
    if (group === undefined || group.isEmpty()) return true;
    group.kill();
    await pause(clock, roundMs);
  }
  return false;
}

function signalled(id: number): boolean {
  try {
    return process.kill(id, "SIGKILL");
  } catch {
    return false; // it has just ended
  }
}

function launched(plan: LaunchPlan, hasControl: boolean): ChildProcess {
  const filter = plan.filterPath === undefined ? undefined : openSync(plan.filterPath, "r");
  try {
    return spawnProcess(plan.command, plan.args, {
      cwd: plan.cwd,
      env: plan.env,
      detached: true,
      stdio: [
        hasControl ? "ignore" : "pipe",
        "pipe",
        "pipe",
        hasControl ? "pipe" : "ignore",
        filter ?? "ignore",
        plan.end === "namespace" ? "pipe" : "ignore",
        ...(plan.privateArgs.length > 0 ? ["pipe" as const] : []),
      ],
    });
  } finally {
    if (filter !== undefined) closeSync(filter);
  }
}

/* ---- The size of a working directory ---- */

const watchedFiles = 4_096;
const lookMs = 100;
const sizesAtOnce = 256;

/** The files of a directory and all below it; undefined when there are too many. Reads names only, which is quick. */
async function filesBelow(directory: string): Promise<string[] | undefined> {
  const files: string[] = [];
  let entries = 0;
  const waiting = [directory];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const found = await readdir(next, { withFileTypes: true }).catch(() => []);
    entries += found.length;
    if (entries > watchedFiles) return undefined;
    for (const entry of found) (entry.isDirectory() ? waiting : files).push(join(next, entry.name));
  }
  return files;
}

/** Whether a directory holds more than it may. Reads many sizes at a time, since a program makes files quickly. */
async function isOverfull(directory: string, diskMb: number): Promise<boolean> {
  const files = await filesBelow(directory);
  if (files === undefined) return true;
  let bytes = 0;
  for (let from = 0; from < files.length && bytes <= diskMb * 1_048_576; from += sizesAtOnce) {
    const sizes = await Promise.all(files.slice(from, from + sizesAtOnce).map(blocksOf));
    bytes += sizes.reduce((sum, size) => sum + size, 0);
  }
  return bytes > diskMb * 1_048_576;
}

async function blocksOf(path: string): Promise<number> {
  try {
    return (await lstat(path)).blocks * 512;
  } catch {
    return 0; // removed meanwhile
  }
}

/**
 * Calls back, once, when a working directory holds more than it may. Coarse: only for slots without
 * a size of their own, where the kernel holds each single file to the limit. Returns a function that ends the watch.
 */
export function watchDisk(
  clock: Clock,
  slot: Slot,
  diskMb: number,
  onOverfull: () => void,
): () => void {
  if (slot.sizedMb !== undefined) return () => {};
  const over = new AbortController();
  const watch = async (): Promise<void> => {
    while (!over.signal.aborted) {
      if (await isOverfull(slot.directory, diskMb)) {
        return over.signal.aborted ? undefined : onOverfull();
      }
      await pause(clock, lookMs, over.signal);
    }
  };
  void watch();
  return () => over.abort();
}
