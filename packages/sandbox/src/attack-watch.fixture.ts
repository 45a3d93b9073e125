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
    return ""; // it has ended meanwhile, or may not be read
  }
}

function kilobytes(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0);
}

function mbOf(status: string): number {
  return (
    (kilobytes(status, "RssAnon") + kilobytes(status, "RssShmem") + kilobytes(status, "VmPTE")) /
    1_024
  );
}

/** What was most at one moment. */
interface Peak {
  peakTasks: number;
  peakMb: number;
}

/** Sees the processes of attacks from outside, whatever namespace they hide in. */
export class AttackWatch {
  /** What ran before has nothing to do with any attack. */
  readonly #others = new Set(readdirSync("/proc"));
  /** By mark. All are sampled in one walk over the processes. */
  readonly #followed = new Map<string, Peak>();
  #timer: NodeJS.Timeout | undefined;

  /** All living processes with the mark; the runner itself counts when an attack took it over. */
  marked(mark: string): MarkedProcess[] {
    return this.#markedBy([mark]).get(mark) ?? [];
  }

  /** Samples until it is stopped. */
  follow({ mark }: Pick<AttackAim, "mark">): Peak & { stop(): void } {
    const seen = { peakTasks: 0, peakMb: 0, stop: () => this.#leave(mark) };
    this.#followed.set(mark, seen);
    this.#timer ??= setInterval(() => this.#sample(), 40);
    return seen;
  }

  #leave(mark: string): void {
    this.#followed.delete(mark);
    if (this.#followed.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #sample(): void {
    for (const [mark, found] of this.#markedBy([...this.#followed.keys()])) {
      const seen = this.#followed.get(mark);
      if (seen === undefined) continue;
      seen.peakTasks = Math.max(seen.peakTasks, sum(found.map(({ tasks }) => tasks)));
      seen.peakMb = Math.max(seen.peakMb, sum(found.map(({ mb }) => mb)));
    }
  }

  #markedBy(marks: readonly string[]): Map<string, MarkedProcess[]> {
    const found = new Map<string, MarkedProcess[]>();
    for (const id of readdirSync("/proc")) {
      if (!/^\d+$/.test(id) || this.#others.has(id)) continue;
      // The mark is in the environment, or the program has made it its title.
      const environment = read(id, "environ");
      const title = read(id, "cmdline");
      const its = marks.filter(
        (mark) => environment.includes(`ATTACK_MARK=${mark}`) || title.startsWith(mark),
      );
      if (its.length === 0) continue;
      const status = read(id, "status");
      const tasks = /^State:\s+[ZX]/m.test(status)
        ? 0
        : Number(/^Threads:\s+(\d+)/m.exec(status)?.[1] ?? 0);
      if (tasks === 0) continue;
      const parentId = Number(/^PPid:\s+(\d+)/m.exec(status)?.[1] ?? 0);
      const process = { id: Number(id), parentId, tasks, mb: mbOf(status) };
      for (const mark of its) found.set(mark, [...(found.get(mark) ?? []), process]);
    }
    return found;
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
