import type { AvailableTool } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
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
      if (builtIns.offered.has(name))
        logger.warn({ tool: name, runner }, "a runner offers a built-in tool's name; it is not used");
    }
    const used = allowed === null ? [...all] : [...all].filter(([name]) => allowed.includes(name));
    offered = used.length === 0 ? new Map() : new Map([...used, ...builtIns.offered]);
    return offered;
  };
}
