import type { Logger } from "@larkline/process/telemetry";
import type { Clock } from "@larkline/protocol/clock";
import { toolsQueue } from "@larkline/protocol/runner";
import { type QueueCatalog, turnsQueue } from "@larkline/store/queues";
import type { RunnerDirectory, RunnerInstance } from "@larkline/store/runners";

/** Names of the queues worth looking at. */
export class QueueList {
  readonly #catalog: QueueCatalog;
  readonly #directory: RunnerDirectory;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #closing = new AbortController();
  #found: readonly string[] = [];
  #search: Promise<void> | undefined;
  #searchedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    { catalog, directory }: { catalog: QueueCatalog; directory: RunnerDirectory },
    log: Logger,
    clock: Clock,
  ) {
    this.#clock = clock;
    this.#catalog = catalog;
    this.#directory = directory;
    this.#log = log;
  }

  /** `turns`, those of living runners, and those of others in which something is left. */
  async names(): Promise<string[]> {
    const [runners] = await Promise.all([this.#directory.runners(), this.#searched()]);
    const living = new Set([turnsQueue, ...runners.flatMap(queuesOf)]);
    const others = this.#found.filter((name) => !living.has(name));
    const empty = await Promise.all(others.map(async (name) => await this.#isEmpty(name)));
    const left = others.filter((_, at) => empty[at] === false);
    return [...living, ...left].sort(
      (one, other) =>
        Number(other === turnsQueue) - Number(one === turnsQueue) || (one < other ? -1 : 1),
    );
  }

  close(): void {
    this.#closing.abort();
  }

  /** Waits for the first search only: later ones look for queues that were not there before. */
  async #searched(): Promise<void> {
    const isFirst = this.#search === undefined;
    if (this.#clock.monotonic() - this.#searchedAtMs >= searchMs) {
      this.#searchedAtMs = this.#clock.monotonic();
      this.#search = this.#searchAll();
    }
    if (isFirst) await this.#search;
  }

  async #searchAll(): Promise<void> {
    try {
      this.#found = await this.#catalog.find(this.#closing.signal);
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      this.#searchedAtMs = this.#clock.monotonic() - searchMs + retryMs;
      this.#log.warn({ error }, "the queues could not be searched for");
    }
  }

  async #isEmpty(name: string): Promise<boolean> {
    const { waiting, active, delayed, failed } = await this.#catalog.depth(name);
    return waiting + active + delayed + failed === 0;
  }
}

/** Pause between searches for queues that no living runner has. */
const searchMs = 600_000;

/** Until a search that failed is tried again. */
const retryMs = 30_000;

function queuesOf({ runner, tools }: Pick<RunnerInstance, "runner" | "tools">): string[] {
  const limited = tools.filter(({ limits }) => limits !== undefined);
  return [toolsQueue(runner), ...limited.map(({ spec }) => toolsQueue(runner, spec.name))];
}
