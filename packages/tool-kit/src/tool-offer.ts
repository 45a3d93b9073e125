import type { Tool } from "./tool.ts";

// Not a variable of this module: a module and whoever loads it may have got different copies of this package.
const collectorKey = Symbol.for("larkline.toolCollector");

type Collector = (tools: readonly Tool[]) => void;

function holder(): { [collectorKey]?: Collector | undefined } {
  return globalThis as { [collectorKey]?: Collector | undefined }; // a global under a symbol of our own
}

/**
 * Hands tools to whoever loads the running module for its tools alone: a process that runs one of
 * them. False when it was started as a program.
 */
export function offerTools(tools: readonly Tool[]): boolean {
  const collect = holder()[collectorKey];
  collect?.(tools);
  return collect !== undefined;
}

/** Runs `load` and returns its result with the tools offered meanwhile. One load at a time. */
export async function collectTools<T>(load: () => Promise<T>): Promise<{ value: T; offered: readonly Tool[] }> {
  const offered: Tool[] = [];
  const before = holder()[collectorKey];
  holder()[collectorKey] = (tools) => void offered.push(...tools);
  try {
    return { value: await load(), offered };
  } finally {
    holder()[collectorKey] = before;
  }
}
