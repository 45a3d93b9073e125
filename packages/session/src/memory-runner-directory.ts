import { EventEmitter } from "node:events";
import { isDeepStrictEqual } from "node:util";
import type { ToolAnnouncement } from "@larkline/protocol";
import type {
  AnnounceResult,
  AvailableTool,
  LivingRunner,
  RunnerDirectory,
  RunnerInstance,
} from "./runner-directory.ts";

interface Announced {
  instance: RunnerInstance;
  untilMs: number;
}

/** A runner directory in the memory of this process. `now` is the clock, epoch ms. */
export function createMemoryRunnerDirectory({ now = Date.now }: { now?: () => number } = {}): RunnerDirectory {
  return new MemoryRunnerDirectory(now);
}

class MemoryRunnerDirectory implements RunnerDirectory {
  readonly #announced = new Map<string, Announced>();
  readonly #changes = new EventEmitter().setMaxListeners(0);
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  async announce(instance: RunnerInstance, ttlMs: number): Promise<AnnounceResult> {
    const id = idOf(instance.runner, instance.instance);
    const others = this.#living().filter((other) => idOf(other.runner, other.instance) !== id);
    const conflict = conflictOf(instance, others);
    if (conflict !== undefined) return { ok: false, ...conflict };
    const known = this.#announced.get(id);
    const isNew = !known || known.untilMs <= this.#now() || !isDeepStrictEqual(known.instance, instance);
    this.#announced.set(id, { instance: structuredClone(instance), untilMs: this.#now() + ttlMs });
    if (isNew) this.#changes.emit("change");
    return { ok: true };
  }

  async withdraw(runner: string, instance: string): Promise<{ last: boolean }> {
    this.#announced.delete(idOf(runner, instance));
    this.#changes.emit("change");
    return { last: this.#living().every((other) => other.runner !== runner) };
  }

  async tools(): Promise<ReadonlyMap<string, AvailableTool>> {
    const tools = new Map<string, AvailableTool>();
    for (const { runner, tools: announced } of await this.runners()) {
      for (const announcement of announced) tools.set(announcement.spec.name, { runner, announcement });
    }
    return tools;
  }

  async runners(): Promise<LivingRunner[]> {
    return structuredClone(this.#living());
  }

  async watch(listener: () => void, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    // A wrapper of its own, so that the same function may watch twice.
    const notify = (): void => listener();
    this.#changes.on("change", notify);
    signal.addEventListener("abort", () => this.#changes.off("change", notify), { once: true });
  }

  #living(): LivingRunner[] {
    for (const [id, { untilMs }] of this.#announced) {
      if (untilMs <= this.#now()) this.#announced.delete(id);
    }
    return [...this.#announced.values()].map(({ instance, untilMs }) => ({ ...instance, expiresAtMs: untilMs }));
  }
}

function idOf(runner: string, instance: string): string {
  return JSON.stringify([runner, instance]);
}

interface Conflict {
  tool: string;
  conflict: string;
}

function conflictOf(instance: RunnerInstance, others: readonly RunnerInstance[]): Conflict | undefined {
  for (const other of others) {
    for (const theirs of other.tools) {
      const tool = theirs.spec.name;
      const ours = instance.tools.find(({ spec }) => spec.name === tool);
      if (!ours) continue;
      if (other.runner !== instance.runner) {
        return { tool, conflict: `tool "${tool}" is already offered by runner "${other.runner}"` };
      }
      if (!isDeepStrictEqual(promiseOf(ours), promiseOf(theirs))) {
        const who = `instance "${other.instance}" of runner "${other.runner}"`;
        return { tool, conflict: `tool "${tool}" is announced differently by ${who}` };
      }
    }
  }
  return undefined;
}

/** What all instances that offer a tool must agree on: description and deadline may change in a rolling deploy. */
function promiseOf({ spec, effect, requiresApproval, limits = {} }: ToolAnnouncement): unknown {
  return { inputSchema: spec.inputSchema, effect, requiresApproval, limits };
}
