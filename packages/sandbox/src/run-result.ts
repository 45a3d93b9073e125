import { supervisorEnds } from "./guest-process.ts";
import type { GuestReport } from "./guest.ts";
import type { SandboxLimits, SandboxProgram, SandboxResult } from "./sandbox.ts";

type Verdict = Pick<SandboxResult, "status" | "value" | "error">;

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

function stopVerdict(kind: "timeout" | "cancelled" | "output_limit" | "disk_limit", limits: SandboxLimits): Verdict {
  const error = {
    timeout: `The program was stopped after ${limits.wallMs} ms. Do less in one run.`,
    cancelled: "The run was cancelled.",
    output_limit: `The program wrote more than ${limits.outputBytes} bytes of output and was stopped. Print less, or write to a file in the working directory.`,
    disk_limit: `The program wrote more than ${limits.diskMb} MB, or more than ${limits.files} files, and was stopped.`,
  }[kind];
  return { status: kind, error };
}

function errorVerdict({ name, message, stack }: { name: string; message: string; stack: string }, run: Run): Verdict {
  if (outOfMemoryNames.has(name) || outOfMemoryWords.test(message)) return overMemory(run.limits);
  const words = [name, message].filter((word) => word !== "").join(": ");
  return { status: "error", error: stack === "" ? words : `${words}\n${stack}` };
}

/** The program ended by itself, without an answer. */
function endVerdict({ end, stderr, wallMs }: GuestReport, { program, limits }: Run): Verdict {
  const { exitCode, signal } = end;
  const limit = supervisorEnds[signal ?? ""];
  if (limit === "memory") return overMemory(limits);
  if (limit === "disk") return stopVerdict("disk_limit", limits);
  const wasKilled = signal === "SIGKILL" || signal === "SIGXCPU" || exitCode === killed;
  // Time on the clock is at least the time of one processor.
  if (wasKilled && wallMs >= limits.cpuSeconds * 900) {
    return {
      status: "timeout",
      error: `The program was stopped after ${limits.cpuSeconds} s of CPU time. Do less in one run.`,
    };
  }
  if (signal === "SIGXFSZ" || exitCode === fileTooLarge) return stopVerdict("disk_limit", limits);
  if (program.runtime === "bash" && exitCode !== undefined) return { status: "ok", value: exitCode };
  if (outOfHeapWords.test(stderr)) return overMemory(limits);
  const how = signal ?? (exitCode === undefined ? "an unknown cause" : `exit code ${exitCode}`);
  return { status: "crashed", error: `The program ended without a result (${how}).` };
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
    if (stop.kind === "result") return { status: "ok", value: stop.value };
    if (stop.kind === "error") return errorVerdict(stop, run);
    if (stop.kind === "protocol") return protocolVerdict(stop.reason, run.limits);
    return stopVerdict(stop.kind, run.limits);
  })();
  const isSpoiled =
    verdict.status === "error" ||
    verdict.status === "crashed" ||
    // On a busy machine the clock is far ahead of the processor: what was killed for memory was not killed for time.
    (verdict.status === "timeout" && stop === undefined) ||
    (run.program.runtime === "bash" && verdict.status === "ok" && verdict.value !== 0);
  // The kernel has killed something inside, and the run did not get over it.
  return report.memoryKills > 0 && isSpoiled ? overMemory(run.limits) : verdict;
}

/** A run that never got as far as a program. */
export function withoutRun(status: "refused" | "cancelled" | "crashed" | "disk_limit", error: string): SandboxResult {
  return { status, error, stdout: "", stderr: "", files: [], skipped: [], denied: [], wallMs: 0 };
}
