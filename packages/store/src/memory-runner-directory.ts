import { EventEmitter } from "node:events";
import { isDeepStrictEqual } from "node:util";
import type { ToolAnnouncement } from "@larkline/protocol";
import {
  awayMs,
  viewOfRunners,
  type AnnouncedInstance,
  type AnnounceResult,
  type AvailableTool,
  type AwayRunner,
  type LivingRunner,
  type RunnerDirectory,
  type RunnerInstance,
  type RunnersView,
} from "./runner-directory.ts";

/** A runner directory in the memory of this process. `now` is the clock, epoch ms. */
export function createMemoryRunnerDirectory({ now = Date.now }: { now?: () => number } = {}): RunnerDirectory {
  return new MemoryRunnerDirectory(now);
}

class MemoryRunnerDirectory implements RunnerDirectory {
  readonly #announced = new Map<string, AnnouncedInstance>();
  readonly #changes = new EventEmitter().setMaxListeners(0);
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  async announce(instance: RunnerInstance, ttlMs: number): Promise<AnnounceResult> {
    const nowMs = this.#now();
    const { generation = "" } = instance;
    const id = idOf(instance.runner, instance.instance);
    const others = this.#view().living.filter((other) => idOf(other.runner, other.instance) !== id);
    const conflict = conflictOf({ ...instance, generation }, others);
    if (conflict !== undefined) return { ok: false, ...conflict };
    const known = this.#announced.get(id);
    const beganAtMs = known?.generation === generation ? known.beganAtMs : nowMs;
    const announced = structuredClone({ ...instance, generation, beganAtMs, expiresAtMs: nowMs + ttlMs });
    this.#announced.set(id, announced);
    const isSame = known !== undefined && known.expiresAtMs > nowMs && isDeepStrictEqual(known.tools, announced.tools);
    if (!isSame || known.generation !== generation) this.#changes.emit("change");
    const mine = this.#view().living.find((each) => idOf(each.runner, each.instance) === id);
    return { ok: true, isCurrent: mine?.isCurrent ?? false };
  }

  async withdraw(runner: string, instance: string): Promise<{ last: boolean }> {
    const known = this.#announced.get(idOf(runner, instance));
    if (known !== undefined) known.expiresAtMs = Math.min(known.expiresAtMs, this.#now());
    this.#changes.emit("change");
    return { last: this.#view().living.every((other) => other.runner !== runner) };
  }

  async forget(runner: string): Promise<{ forgotten: boolean; living: number }> {
    const { living, away } = this.#view();
    for (const [id, each] of this.#announced) {
      if (each.runner === runner && each.expiresAtMs <= this.#now()) this.#announced.delete(id);
    }
    this.#changes.emit("change");
    const its = living.filter((each) => each.runner === runner);
    return { forgotten: away.some((each) => each.runner === runner), living: its.length };
  }

  async tools(): Promise<ReadonlyMap<string, AvailableTool>> {
    return structuredClone(this.#view().tools);
  }

  async runners(): Promise<LivingRunner[]> {
    return structuredClone(this.#view().living);
  }

  async away(): Promise<AwayRunner[]> {
    return structuredClone(this.#view().away);
  }

  async watch(listener: () => void, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    // A wrapper of its own, so that the same function may watch twice.
    const notify = (): void => listener();
    this.#changes.on("change", notify);
    signal.addEventListener("abort", () => this.#changes.off("change", notify), { once: true });
  }

  #view(): RunnersView {
    const nowMs = this.#now();
    for (const [id, { expiresAtMs }] of this.#announced) {
      if (expiresAtMs <= nowMs - awayMs) this.#announced.delete(id);
    }
    return viewOfRunners([...this.#announced.values()], nowMs);
  }
}

function idOf(runner: string, instance: string): string {
  return JSON.stringify([runner, instance]);
}

interface Conflict {
  tool: string;
  conflict: string;
}

function conflictOf(instance: RunnerInstance, others: readonly LivingRunner[]): Conflict | undefined {
  for (const other of others) {
    for (const theirs of other.tools) {
      const tool = theirs.spec.name;
      const ours = instance.tools.find(({ spec }) => spec.name === tool);
      if (!ours) continue;
      if (other.runner !== instance.runner) {
        return { tool, conflict: `tool "${tool}" is already offered by runner "${other.runner}"` };
      }
      if (other.generation !== instance.generation) continue;
      if (!isDeepStrictEqual(promiseOf(ours), promiseOf(theirs))) {
        const who = `instance "${other.instance}" of runner "${other.runner}"`;
        return { tool, conflict: `tool "${tool}" is announced differently by ${who}` };
      }
    }
  }
  return undefined;
}

/** What all instances of a generation that offer a tool must agree on; descriptions and deadlines may differ. */
function promiseOf({ spec, effect, requiresApproval, limits = {} }: ToolAnnouncement): unknown {
  return { inputSchema: spec.inputSchema, effect, requiresApproval, limits };
}
