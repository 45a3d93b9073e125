import type { AvailableTool, RunnerDirectory } from "@larkline/store";

/** The tools of all living runners, kept up to date. */
export interface ToolCatalog {
  tools(): ReadonlyMap<string, AvailableTool>;
  refresh(): Promise<void>;
}

/**
 * Reads the directory at once, on every change it reports and every `refreshMs` (a runner that died
 * reports nothing, it just expires). Keeps the last answer while Redis is away.
 */
export async function createToolCatalog(options: {
  directory: RunnerDirectory;
  signal: AbortSignal;
  refreshMs?: number;
  onError: (error: unknown) => void;
}): Promise<ToolCatalog> {
  const { directory, signal, refreshMs = 2_000, onError } = options;
  let tools: ReadonlyMap<string, AvailableTool> = new Map();
  const refresh = async (): Promise<void> => {
    tools = await directory.tools();
  };
  const refreshQuietly = (): void => void refresh().catch(onError);
  await refresh();
  await directory.watch(refreshQuietly, signal);
  const timer = setInterval(refreshQuietly, refreshMs);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  return { tools: () => tools, refresh };
}
