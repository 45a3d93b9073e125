import { toolsQueue, turnsQueue } from "@larkline/protocol";
import type { QueueCatalog } from "@larkline/queue";
import type { RunnerDirectory, RunnerInstance } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";

/** Names of the queues worth looking at. */
export interface QueueList {
  /** `turns`, those of living runners, and those of others in which something is left. */
  names(): Promise<string[]>;
  close(): void;
}

export interface QueueListDeps {
  catalog: Pick<QueueCatalog, "find" | "depth">;
  directory: Pick<RunnerDirectory, "runners">;
  logger: Logger;
  /** Pause between searches for queues that no living runner has. Default 10 min. */
  searchMs?: number;
}

/** Until a search that failed is tried again. */
const retryMs = 30_000;

function queuesOf({ runner, tools }: Pick<RunnerInstance, "runner" | "tools">): string[] {
  const limited = tools.filter(({ limits }) => limits !== undefined);
  return [toolsQueue(runner), ...limited.map(({ spec }) => toolsQueue(runner, spec.name))];
}

export function createQueueList({ catalog, directory, logger, searchMs = 600_000 }: QueueListDeps): QueueList {
  const closing = new AbortController();
  let found: readonly string[] = [];
  let search: Promise<void> | undefined;
  let searchedAtMs = Number.NEGATIVE_INFINITY;

  const searchAll = async (): Promise<void> => {
    try {
      found = await catalog.find(closing.signal);
    } catch (error) {
      if (closing.signal.aborted) return;
      searchedAtMs = performance.now() - searchMs + retryMs;
      logger.warn({ error }, "the queues could not be searched for");
    }
  };

  /** Waits for the first search only: later ones are for what nobody has missed so far. */
  const sought = async (): Promise<void> => {
    const isFirst = search === undefined;
    if (performance.now() - searchedAtMs >= searchMs) {
      searchedAtMs = performance.now();
      search = searchAll();
    }
    if (isFirst) await search;
  };

  const isEmpty = async (name: string): Promise<boolean> => {
    const { waiting, active, delayed, failed } = await catalog.depth(name);
    return waiting + active + delayed + failed === 0;
  };

  return {
    async names() {
      const [runners] = await Promise.all([directory.runners(), sought()]);
      const living = new Set([turnsQueue, ...runners.flatMap(queuesOf)]);
      const others = found.filter((name) => !living.has(name));
      const empty = await Promise.all(others.map(isEmpty));
      const left = others.filter((_, at) => empty[at] === false);
      return [...living, ...left].sort(
        (one, other) => Number(other === turnsQueue) - Number(one === turnsQueue) || (one < other ? -1 : 1),
      );
    },
    close: () => closing.abort(),
  };
}
