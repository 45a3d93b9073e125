import type { SandboxLimits, SandboxResult, SandboxStatus } from "./sandbox.ts";

/** One program of an attack. */
export interface AttackProgram {
  runtime: "node" | "python" | "bash";
  /** JavaScript gets the helpers of {@link attackPrelude}; all get `ATTACK_*` variables, see {@link AttackAim}. */
  code: string;
  /** How it may end where the tier holds. */
  ends: readonly SandboxStatus[];
  wallMs?: number;
}

/** What an attack is given to aim at; `input` of JavaScript and Python, and `ATTACK_MARK` and so on of shells. */
export interface AttackAim {
  /** Tells this attack from all others: in its processes' environment, its files and its secrets. */
  mark: string;
  /** The process that runs the sandbox. */
  runner: number;
  /** A directory that is no business of the program. */
  outside: string;
  /** The runner's own code. */
  source: string;
  tcpPort: number;
  udpPort: number;
  backdoorPort: number;
  unixSocket: string;
  /** Without the leading zero. */
  abstractSocket: string;
  /** An abstract name that is not taken. */
  freeName: string;
  /** The namespaces of the runner. */
  pidNamespace: string;
  userNamespace: string;
  networkNamespace: string;
}

/** What the judge saw from outside while the programs of one attack ran. */
export interface AttackEvidence {
  aim: AttackAim;
  limits: SandboxLimits;
  /** In the order of the programs. */
  results: SandboxResult[];
  /** Progress messages that were handed on. */
  progress: number;
  /** From the first program's start to the last one's end. */
  elapsedMs: number;
  /** Connections and datagrams that arrived, by target. */
  hits: Readonly<Record<AttackTarget, number>>;
  /** Most processes and threads with this attack's mark at one moment, and their memory. */
  peakTasks: number;
  peakMb: number;
  /** What is different about the file of the runner's user. */
  changes: string[];
  /** Processes with this attack's mark after its end. */
  remaining: number;
  runner: RunnerReport;
}

export const attackTargets = ["tcp", "metadata", "udp", "unix", "abstract", "backdoor"] as const;
export type AttackTarget = (typeof attackTargets)[number];

/** The state of the process that runs the sandbox, after an attack. */
export interface RunnerReport {
  /** Longest time that its event loop did not turn. */
  delayMs: number;
  /** Memory gained. */
  grownMb: number;
  /** Names that have appeared on all objects. */
  polluted: string[];
  /** Its built-in functions are those it started with. */
  intact: boolean;
}

/** One line of the conformance table. */
export interface AttackCase {
  id: string;
  /** The kind of harm. */
  threat: string;
  title: string;
  programs: readonly AttackProgram[];
  /** The programs run at the same time. */
  parallel?: true;
  /** Needs the machine for itself: what it measures, others would disturb. */
  alone?: true;
  /** Time after the end in which something may still happen, ms. */
  lingerMs?: number;
  /** Too dangerous for the machine of the tests where nothing holds. */
  neverUncontained?: true;
  /** How it got out; undefined when it was held. */
  gotOut(evidence: AttackEvidence): string | undefined;
}

/**
 * Helpers of the JavaScript attacks. They reach for `require` and `process` in every way there is, so
 * that an attack does not fail for want of a tool.
 */
export const attackPrelude = `
const proc = globalThis.process ?? globalThis.constructor.constructor('return process')();
const req = (name) => proc.getBuiltinModule(name);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const tries = async (attempts) => {
  const found = {};
  for (const [name, attempt] of Object.entries(attempts)) {
    try { found[name] = String(await attempt()).slice(0, 400) } catch (error) { found[name] = 'failed: ' + (error?.code ?? error?.message) }
  }
  return found;
};
proc.title = input.mark;
`;

/** The text of everything that a program delivered. */
export function delivered(evidence: AttackEvidence): string {
  return JSON.stringify(
    evidence.results.map(({ value, error, stdout, stderr, files }) => ({
      value,
      error,
      stdout,
      stderr,
      files: files.map(({ bytes }) => Buffer.from(bytes).toString("latin1").slice(0, 1_000)),
    })),
  );
}

/** The value of one program, by default the first one's. */
export function valueOf(evidence: AttackEvidence, index = 0): unknown {
  return evidence.results[index]?.value;
}

/** A number in the value of the first program, 0 when it gave none. */
export function numberOf(evidence: AttackEvidence, name: string): number {
  const value = valueOf(evidence);
  const found =
    typeof value === "object" && value !== null
      ? Object.entries(value).find(([key]) => key === name)
      : [];
  return Number(found?.[1] ?? 0);
}

/** How many megabytes the first program said it had, in lines such as `128 MB`: the most of them. */
export function claimedMb(evidence: AttackEvidence): number {
  const lines = (evidence.results[0]?.stdout ?? "").matchAll(/(\d+) MB$/gm);
  return Math.max(0, ...Array.from(lines, ([, megabytes]) => Number(megabytes)));
}

/** The first of some findings. */
export function firstOf(...findings: (string | false | undefined)[]): string | undefined {
  return findings.find((finding) => typeof finding === "string");
}

/** What has no end of its own never comes back; how long a contained one takes to boot and to end is up to the machine. */
export const bootMs = 100_000;

export function overTime(
  { elapsedMs, runner }: AttackEvidence,
  wallMs: number,
): string | undefined {
  if (elapsedMs > wallMs + bootMs) {
    return `took ${Math.round(elapsedMs)} ms, the limit was ${wallMs}`;
  }
  return blocked(runner);
}

export function blocked({ delayMs }: RunnerReport): string | undefined {
  return delayMs > 5_000 ? `the runner stood still for ${Math.round(delayMs)} ms` : undefined;
}

export function grown({ grownMb }: RunnerReport, mostMb: number): string | undefined {
  return grownMb > mostMb ? `the runner grew by ${Math.round(grownMb)} MB` : undefined;
}

export function overMemory(evidence: AttackEvidence): string | undefined {
  // An interpreter and what V8 keeps beside its heap come on top where a process is bounded, not a group.
  const most = evidence.limits.memoryMb + 200;
  const reached = Math.max(evidence.peakMb, claimedMb(evidence));
  return reached > most
    ? `${Math.round(reached)} MB of memory, the limit was ${evidence.limits.memoryMb}`
    : undefined;
}

export function overTasks({ peakTasks, remaining, limits }: AttackEvidence): string | undefined {
  if (peakTasks > limits.processes + 16) return `${peakTasks} processes and threads at once`;
  return leftOver({ remaining });
}

export function leftOver({ remaining }: Pick<AttackEvidence, "remaining">): string | undefined {
  return remaining > 0 ? `${remaining} processes outlived the call` : undefined;
}
