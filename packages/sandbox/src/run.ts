import { constants } from "node:fs";
import { chown, lstat, mkdir, open, opendir, writeFile } from "node:fs/promises";
import { dirname, isAbsolute, join, normalize, relative } from "node:path";
import { supervisorEnds } from "./guest-process.ts";
import type { GuestReport } from "./guest.ts";
import type { Views } from "./host.ts";
import type { HostParts, Launch } from "./launch.ts";
import {
  limitsFrom,
  type NetworkPolicy,
  type SandboxFile,
  type SandboxLimits,
  type SandboxProgram,
  type SandboxRequest,
  type SandboxResult,
} from "./sandbox.ts";
import type { Slot } from "./slot.ts";

/* ---- What is asked for ---- */

const maxEnvBytes = 65_536;
const maxJobBytes = 32 * 1_048_576;
// Variables that would change the launcher, which runs before the sandbox is closed.
const launcherNames = /^(?:LD_.*|BASH_.*|ENV|SHELLOPTS|IFS|PS4|GCONV_PATH|GLIBC_TUNABLES)$/;

/** Why variables cannot be given, in words. Values are left out of the words: they may be secrets. */
export function problemOfEnv(env: Readonly<Record<string, string>>): string | undefined {
  let bytes = 0;
  for (const [name, value] of Object.entries(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || launcherNames.test(name)) {
      return `The variable ${JSON.stringify(name)} cannot be set.`;
    }
    if (typeof value !== "string" || value.includes("\0")) {
      return `The variable ${name} has no text as its value.`;
    }
    bytes += name.length + Buffer.byteLength(value);
  }
  return bytes > maxEnvBytes ? `The environment has more than ${maxEnvBytes} bytes.` : undefined;
}

/** Finds the paths that are to be readable inside, or gives the reason why one cannot be. */
export async function findReadable(
  paths: readonly string[],
  { views, hasOwnPaths }: { views: Views; hasOwnPaths: boolean },
): Promise<Launch["readable"] | string> {
  const found: { source: string; path: string }[] = [];
  for (const path of paths) {
    const refused = (reason: string): string =>
      `${JSON.stringify(path)} cannot be made readable: ${reason}.`;
    if (!isAbsolute(path) || normalize(path) !== path || path === "/") {
      return refused('it is not an absolute path below "/"');
    }
    try {
      const source = await views.sourceOf(path);
      if (source !== path && !hasOwnPaths) return refused("it is shut to other users of this host");
      found.push({ source, path });
    } catch (error) {
      return refused(error instanceof Error ? error.message : String(error));
    }
  }
  return found;
}

export function problemOfNetwork(network: NetworkPolicy, hasNetwork: boolean): string | undefined {
  if (network === "none") return undefined;
  if (!hasNetwork) {
    return "The sandbox of this host can give a program no network. Install bubblewrap, or run it without network.";
  }
  return network.allow.length === 0
    ? "The network policy allows no host: ask for no network instead."
    : undefined;
}

function problemOfLimits(
  asked: SandboxRequest["limits"],
): { limits: SandboxLimits } | { problem: string } {
  try {
    return { limits: limitsFrom(asked) };
  } catch (error) {
    return {
      problem: `The limits are not valid: ${error instanceof Error ? error.message : String(error)}.`,
    };
  }
}

function problemOfProgram({ program }: SandboxRequest, parts: HostParts): string | undefined {
  if (program.runtime === "python" && parts.python === undefined) {
    return "There is no Python on this host.";
  }
  if (program.runtime === "bash" && !parts.hasBash) return "There is no bash on this host.";
  if ("code" in program && program.code.includes("\0")) return "The program contains a zero byte.";
  try {
    const bytes = Buffer.byteLength(
      JSON.stringify([program.input, "code" in program ? program.code : program.preparation]),
    );
    return bytes > maxJobBytes
      ? `Program and input have more than ${maxJobBytes} bytes.`
      : undefined;
  } catch {
    return "The input is not a JSON value.";
  }
}

/** A request with defaults and sources of readable paths. */
export interface CheckedRequest {
  limits: SandboxLimits;
  readable: Launch["readable"];
}

export interface RequestHost {
  parts: HostParts;
  views: Views;
  plan: { hasNetwork: boolean; hasOwnPaths: boolean };
}

/** Checks a request before it runs; a text says what is wrong. */
export async function checkRequest(
  request: SandboxRequest,
  host: RequestHost,
): Promise<CheckedRequest | string> {
  const { program, env = {}, network = "none" } = request;
  const { parts, views, plan } = host;
  const checked = problemOfLimits(request.limits);
  if ("problem" in checked) return checked.problem;
  const { limits } = checked;
  const problem =
    problemOfProgram(request, parts) ??
    problemOfEnv(env) ??
    problemOfNetwork(network, plan.hasNetwork) ??
    problemOfFiles(program.files ?? [], limits);
  if (problem !== undefined) return problem;
  const paths = "module" in program ? program.readable : [];
  const readable = await findReadable(paths, { views, hasOwnPaths: plan.hasOwnPaths });
  return typeof readable === "string" ? readable : { limits, readable };
}

/* ---- Files of a run ---- */

const most = {
  files: 32,
  bytes: 8 * 1_048_576,
  skipped: 50,
  entries: 2_000,
  depth: 8,
  nameCharacters: 200,
};

/** Why files cannot be given to a program, in words; undefined when they can. */
export function problemOfFiles(
  files: readonly SandboxFile[],
  limits: SandboxLimits,
): string | undefined {
  let bytes = 0;
  for (const file of files) {
    const parts = file.name.split("/");
    const isInside = !file.name.startsWith("/") && !file.name.includes("\0");
    const isPlain = parts.every(
      (part) => part !== "" && part !== "." && part !== ".." && Buffer.byteLength(part) < 256,
    );
    if (!isInside || !isPlain || parts.length > most.depth) {
      return `The file name ${JSON.stringify(file.name.slice(0, most.nameCharacters))} is not a path inside the working directory.`;
    }
    bytes += file.bytes.length;
  }
  return bytes > limits.diskMb * 1_048_576
    ? `The files have more than ${limits.diskMb} MB.`
    : undefined;
}

/** Writes a program's files before anything untrusted runs in the slot. */
export async function writeFiles(files: readonly SandboxFile[], slot: Slot): Promise<void> {
  for (const { name, bytes } of files) {
    const path = join(slot.directory, name);
    await makeDirectories(dirname(path), slot);
    await writeFile(path, bytes);
    if (slot.user !== undefined) await chown(path, slot.user, slot.user);
  }
}

async function makeDirectories(path: string, slot: Slot): Promise<void> {
  const first = await mkdir(path, { recursive: true });
  if (slot.user === undefined || first === undefined) return;
  for (let made = path; made.length >= first.length; made = dirname(made)) {
    await chown(made, slot.user, slot.user);
  }
}

type Harvest = Pick<SandboxResult, "files" | "skipped">;

/** Collects what is left of a run, piece by piece. */
class Harvester {
  readonly #slot: Slot;
  readonly #given: ReadonlyMap<string, Uint8Array>;
  readonly #harvest: Harvest = { files: [], skipped: [] };
  #bytes = 0;
  #entries = 0;

  constructor(slot: Slot, given: readonly SandboxFile[]) {
    this.#slot = slot;
    this.#given = new Map(given.map(({ name, bytes }) => [name, bytes]));
  }

  async walk(directory: string, depth: number): Promise<Harvest> {
    for await (const { name } of await opendir(directory)) {
      this.#entries += 1;
      if (this.#entries > most.entries) break;
      const path = join(directory, name);
      try {
        await this.#look(path, depth);
      } catch {
        this.#skip(path, "cannot be read");
      }
    }
    return this.#harvest;
  }

  async #look(path: string, depth: number): Promise<void> {
    const facts = await lstat(path);
    if (facts.isDirectory()) {
      if (depth >= most.depth || path.endsWith("/node_modules")) {
        this.#skip(path, "directory is not looked into");
      } else await this.walk(path, depth + 1);
    } else if (facts.isSymbolicLink()) this.#skip(path, "symbolic link");
    else if (!facts.isFile()) this.#skip(path, "not a regular file");
    else if (facts.nlink !== 1) this.#skip(path, "has several names");
    else await this.#take(path);
  }

  async #take(path: string): Promise<void> {
    const name = relative(this.#slot.directory, path);
    const bytes = await this.#read(path);
    if (bytes === undefined) {
      return this.#skip(path, `over the limit of ${most.files} files and ${most.bytes} bytes`);
    }
    const given = this.#given.get(name);
    if (given !== undefined && Buffer.compare(given, bytes) === 0) return;
    if (this.#harvest.files.length >= most.files) {
      return this.#skip(path, `more than ${most.files} files`);
    }
    this.#bytes += bytes.length;
    this.#harvest.files.push({ name, bytes });
  }

  /** Undefined when it is too large. Nothing changes the file meanwhile: nothing runs any more. */
  async #read(path: string): Promise<Buffer | undefined> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const { size } = await file.stat();
      return size > most.bytes - this.#bytes ? undefined : await file.readFile();
    } finally {
      await file.close();
    }
  }

  #skip(path: string, reason: string): void {
    const name = relative(this.#slot.directory, path).slice(0, most.nameCharacters);
    if (this.#harvest.skipped.length < most.skipped) this.#harvest.skipped.push({ name, reason });
  }
}

/**
 * Takes what a run left in its working directory: at most 32 regular files of 8 MB together, none
 * that was given and is unchanged. To be called when nothing inside runs any more. Never rejects.
 */
export async function harvestFiles(slot: Slot, given: readonly SandboxFile[]): Promise<Harvest> {
  try {
    return await new Harvester(slot, given).walk(slot.directory, 0);
  } catch {
    return { files: [], skipped: [{ name: ".", reason: "cannot be read" }] };
  }
}

/* ---- How a run has ended ---- */

type Verdict = Pick<SandboxResult, "status" | "value" | "error" | "exitCode">;

interface Run {
  program: SandboxProgram;
  limits: SandboxLimits;
}

const outOfMemoryNames = new Set(["MemoryError"]);
const outOfMemoryWords = /Array buffer allocation failed|Cannot allocate memory|ENOMEM/;
const outOfHeapWords = /heap out of memory|Allocation failed|std::bad_alloc/;

const killed = 137;
const fileTooLarge = 153;

function overMemory(limits: SandboxLimits): Verdict {
  return {
    status: "oom",
    error: `The program needed more than ${limits.memoryMb} MB of memory and was stopped. Work on less data at a time.`,
  };
}

function stopVerdict(
  kind: "timeout" | "cancelled" | "output_limit" | "disk_limit",
  limits: SandboxLimits,
): Verdict {
  const error = {
    timeout: `The program was stopped after ${limits.wallMs} ms. Do less in one run.`,
    cancelled: "The run was cancelled.",
    output_limit: `The program wrote more than ${limits.outputBytes} bytes of output and was stopped. Print less, or write to a file in the working directory.`,
    disk_limit: `The program wrote more than ${limits.diskMb} MB, or more than ${limits.files} files, and was stopped.`,
  }[kind];
  return { status: kind, error };
}

function errorVerdict(
  { name, message, stack }: { name: string; message: string; stack: string },
  run: Run,
): Verdict {
  if (outOfMemoryNames.has(name) || outOfMemoryWords.test(message)) return overMemory(run.limits);
  const words = [name, message].filter((word) => word !== "").join(": ");
  return { status: "error", exitCode: 1, error: stack === "" ? words : `${words}\n${stack}` };
}

/** The program ended by itself, without an answer. */
function endVerdict(
  { end, stderr, wallMs, aheadMs }: GuestReport,
  { program, limits }: Run,
): Verdict {
  const { exitCode, signal } = end;
  const limit = supervisorEnds[signal ?? ""];
  if (limit === "memory") return overMemory(limits);
  if (limit === "disk") return stopVerdict("disk_limit", limits);
  const wasKilled = signal === "SIGKILL" || signal === "SIGXCPU" || exitCode === killed;
  // Wall time is at least the CPU time of one processor, of which booting and loading have taken a part.
  if (wasKilled && wallMs + aheadMs >= limits.cpuSeconds * 900) {
    return {
      status: "timeout",
      error: `The program was stopped after ${limits.cpuSeconds} s of CPU time. Do less in one run.`,
    };
  }
  if (signal === "SIGXFSZ" || exitCode === fileTooLarge) return stopVerdict("disk_limit", limits);
  if (program.runtime === "bash" && exitCode !== undefined) {
    return { status: "ok", value: exitCode, exitCode };
  }
  if (outOfHeapWords.test(stderr)) return overMemory(limits);
  const how = signal ?? (exitCode === undefined ? "an unknown cause" : `exit code ${exitCode}`);
  const error = `The program ended without a result (${how}).`;
  return { status: "crashed", error, ...(exitCode === undefined ? {} : { exitCode }) };
}

function protocolVerdict(reason: string, limits: SandboxLimits): Verdict {
  return {
    status: "protocol",
    error: `The program broke off its conversation with the sandbox: ${reason}. A result may have ${limits.resultBytes} bytes; write more to a file in the working directory.`,
  };
}

/** What a run's end means. Only what the program itself said, and limits, get into the words. */
export function verdictOf(report: GuestReport, run: Run): Verdict {
  const { stop } = report;
  const verdict = ((): Verdict => {
    if (stop === undefined) return endVerdict(report, run);
    if (stop.kind === "result") return { status: "ok", value: stop.value, exitCode: 0 };
    if (stop.kind === "error") return errorVerdict(stop, run);
    if (stop.kind === "protocol") return protocolVerdict(stop.reason, run.limits);
    return stopVerdict(stop.kind, run.limits);
  })();
  const isSpoiled =
    verdict.status === "error" ||
    verdict.status === "crashed" ||
    // On a busy machine wall time is far above CPU time, so a kill for memory is not mistaken for one for time.
    (verdict.status === "timeout" && stop === undefined) ||
    (run.program.runtime === "bash" && verdict.status === "ok" && verdict.value !== 0);
  // The kernel killed a process inside, and the run failed.
  return report.memoryKills > 0 && isSpoiled ? overMemory(run.limits) : verdict;
}

/** A run that never got as far as a program. */
export function withoutRun(
  status: "refused" | "cancelled" | "crashed" | "disk_limit",
  error: string,
): SandboxResult {
  return { status, error, stdout: "", stderr: "", files: [], skipped: [], denied: [], wallMs: 0 };
}
