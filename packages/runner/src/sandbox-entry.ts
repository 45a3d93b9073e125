/* What runs inside a sandbox for a tool of level `sandbox`: see sandbox-level.ts. */
import { runToEnd, trustDefinitions } from "@larkline/tool-kit";
import type { HostCall } from "./host-message.ts";
import { toolsOfModule } from "./loaded-module.ts";

function log(message: string, fields?: Record<string, unknown>): void {
  process.stdout.write(`${message}${fields === undefined ? "" : ` ${JSON.stringify(fields)}`}\n`);
}

/** Runs one call; the sandbox is thrown away afterwards. Whoever reads the result trusts none of it. */
export async function main(
  { module, tool: name, input, facts, maxOutputBytes, lend }: HostCall,
  { progress }: { progress(fraction: number, detail?: string): void },
): Promise<unknown> {
  trustDefinitions();
  if (lend !== undefined) (await import("@larkline/process/lent-packages")).lendPackages(lend.names, lend.lender);
  const tool = (await toolsOfModule(module)).find((each) => each.name === name);
  if (tool?.kind !== "handler") throw new Error(`tool ${JSON.stringify(name)} is not in its module`);
  const { signal } = new AbortController(); // nothing is told to stop in here: it is killed
  return await runToEnd(tool, input, { context: { ...facts, signal, progress, log }, maxOutputBytes });
}
