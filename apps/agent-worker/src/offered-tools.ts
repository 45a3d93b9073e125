import { didYouMean, type AgentConfig } from "@larkline/process/config";
import type { AvailableTool } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { BuiltInTools } from "./built-in-tools.ts";
import type { ToolCatalog } from "./tool-catalog.ts";

export interface OfferedToolsDeps {
  catalog: Pick<ToolCatalog, "tools">;
  builtIns: Pick<BuiltInTools, "offered">;
  logger: Logger;
}

type Tools = ReadonlyMap<string, AvailableTool>;

/**
 * The tools that an agent may use, worked out once per change of the catalog: all of the runners' or
 * those in `allowed`. Built-in ones come along wherever there is a tool whose results they are for.
 */
export function createOfferedTools(deps: OfferedToolsDeps, allowed: readonly string[] | null): () => Tools {
  const { catalog, builtIns, logger } = deps;
  let source: Tools | undefined;
  let offered: Tools = new Map();
  return () => {
    const all = catalog.tools();
    if (all === source) return offered;
    source = all;
    for (const [name, { runner }] of all) {
      if (builtIns.offered.has(name)) {
        logger.warn({ tool: name, runner }, "a runner offers a built-in tool's name; it is not used");
      }
    }
    const used = allowed === null ? [...all] : [...all].filter(([name]) => allowed.includes(name));
    offered = used.length === 0 ? new Map() : new Map([...used, ...builtIns.offered]);
    return offered;
  };
}

/** How long runners of the same start are waited for: a sandbox is tried out before its tools are announced. */
const graceMs = 15_000;

/** Says once, a while after the start, which tools agents name and nothing offers: runners may come later. */
export function warnOfUnknownTools(
  { catalog, builtIns, logger }: OfferedToolsDeps,
  agents: Readonly<Record<string, Pick<AgentConfig, "tools">>>,
  signal: AbortSignal,
): void {
  const warn = (): void => {
    const known = [...catalog.tools().keys(), ...builtIns.offered.keys()];
    for (const [agent, { tools }] of Object.entries(agents)) {
      for (const tool of tools ?? []) {
        if (known.includes(tool)) continue;
        const near = didYouMean(tool, known) || "; the agent gets it when a runner does";
        logger.warn({ agent, tool }, `agents.${agent}.tools: no runner offers '${tool}'${near}`);
      }
    }
  };
  const timer = setTimeout(warn, graceMs);
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
}
