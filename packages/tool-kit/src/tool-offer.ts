import type { Tool } from "./tool.ts";

// Not a variable of this module: a module and whoever loads it may have got different copies of this package.
const collectorKey = Symbol.for("larkline.toolCollector");
const checkedKey = Symbol.for("larkline.toolsAreChecked");

type Collector = (tools: readonly Tool[]) => void;

interface Holder {
  [collectorKey]?: Collector | undefined;
  [checkedKey]?: boolean;
}

function holder(): Holder {
  return globalThis as Holder; // globals under symbols of our own
}

/**
 * Tells a process that runs tools for a runner, which has checked their definitions and checks their input: here
 * `defineTool` takes both for granted, and a process starts without what checks them.
 */
export function trustDefinitions(): void {
  holder()[checkedKey] = true;
}

/** Whether another process has checked the definitions that this one meets. */
export function definitionsAreTrusted(): boolean {
  return holder()[checkedKey] === true;
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
