/* What runs inside a sandbox for a tool of level `sandbox`: see sandbox-level.ts. */
import type { SandboxCall, SandboxPreparation } from "./process-level.ts";
import { quickenImports } from "./quick-imports.ts";

interface SandboxWays {
  progress(fraction: number, detail?: string): void;
}

let run: ((call: SandboxCall, ways: SandboxWays) => Promise<unknown>) | undefined;

function log(message: string, fields?: Record<string, unknown>): void {
  process.stdout.write(`${message}${fields === undefined ? "" : ` ${JSON.stringify(fields)}`}\n`);
}

/** Loads the tool: for its call, or minutes before that comes. */
export async function prepare({ module, tool: name, lend }: SandboxPreparation): Promise<void> {
  quickenImports();
  const { runToEnd, toolsOfModule, trustDefinitions } = await import("@larkline/tool-kit");
  trustDefinitions();
  if (lend !== undefined) {
    (await import("@larkline/process/lent-packages")).lendPackages(lend.names, lend.lender);
  }
  const tool = (await toolsOfModule(module)).find((each) => each.name === name);
  if (tool?.kind !== "handler") {
    throw new Error(`tool ${JSON.stringify(name)} is not in its module`);
  }
  run = async ({ input, facts, maxOutputBytes }, { progress }) => {
    const { signal } = new AbortController(); // nothing aborts it: the sandbox is killed
    return await runToEnd(tool, input, {
      context: { ...facts, signal, progress, log },
      maxOutputBytes,
    });
  };
}

/** Runs one call; the sandbox is thrown away afterwards. The runner does not trust the result. */
export async function main(call: SandboxCall, ways: SandboxWays): Promise<unknown> {
  if (run === undefined) throw new Error("the tool was not loaded");
  return await run(call, ways);
}
