import { readdirSync, readFileSync } from "node:fs";
import type { AttackAim } from "./attack-case.fixture.ts";

/** A process that belongs to an attack. */
interface MarkedProcess {
  id: number;
  parentId: number;
  tasks: number;
  mb: number;
}

function read(id: string, file: string): string {
  try {
    return readFileSync(`/proc/${id}/${file}`, "latin1");
  } catch {
    return ""; // it has ended meanwhile, or is nobody's business
  }
}

function kilobytes(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0);
}

/** The mark is in the environment, or the program has made it its title. */
function bears(id: string, mark: string): boolean {
  return read(id, "environ").includes(`ATTACK_MARK=${mark}`) || read(id, "cmdline").startsWith(mark);
}

/** Sees the processes of an attack from outside, whatever namespace they hide in. */
export class AttackWatch {
  /** What ran before has nothing to do with any attack. */
  readonly #others = new Set(readdirSync("/proc"));

  /** All living processes with the mark; the runner itself counts when an attack took it over. */
  marked(mark: string): MarkedProcess[] {
    return readdirSync("/proc")
      .filter((id) => /^\d+$/.test(id) && !this.#others.has(id) && bears(id, mark))
      .map((id) => {
        const status = read(id, "status");
        return {
          id: Number(id),
          parentId: Number(/^PPid:\s+(\d+)/m.exec(status)?.[1] ?? 0),
          tasks: /^State:\s+[ZX]/m.test(status) ? 0 : Number(/^Threads:\s+(\d+)/m.exec(status)?.[1] ?? 0),
          mb: (kilobytes(status, "RssAnon") + kilobytes(status, "RssShmem") + kilobytes(status, "VmPTE")) / 1_024,
        };
      })
      .filter(({ tasks }) => tasks > 0);
  }

  /** Samples until it is stopped. */
  follow({ mark }: Pick<AttackAim, "mark">): {
    peakTasks: number;
    peakMb: number;
    stop(): void;
  } {
    const sample = (): void => {
      const found = this.marked(mark);
      seen.peakTasks = Math.max(seen.peakTasks, sum(found.map(({ tasks }) => tasks)));
      seen.peakMb = Math.max(seen.peakMb, sum(found.map(({ mb }) => mb)));
    };
    const timer = setInterval(sample, 40);
    const seen = { peakTasks: 0, peakMb: 0, stop: () => clearInterval(timer) };
    return seen;
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
