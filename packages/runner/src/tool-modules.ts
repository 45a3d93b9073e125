import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { ParseResult } from "@larkline/protocol";
import { createToolRegistry, isTool, type Tool, type ToolRegistry } from "@larkline/tool";

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A file below the working directory, else a package installed there, else one of the runner's own. */
function locate(specifier: string, directory: string): string {
  const path = resolve(directory, specifier);
  if (existsSync(path)) return pathToFileURL(path).href;
  try {
    return pathToFileURL(createRequire(join(directory, "package.json")).resolve(specifier)).href;
  } catch {
    return specifier;
  }
}

function toolsOf(module: unknown): readonly Tool[] | undefined {
  const exported: unknown =
    typeof module === "object" && module !== null && "default" in module ? module.default : undefined;
  if (isTool(exported)) return [exported];
  return Array.isArray(exported) && exported.length > 0 && exported.every(isTool) ? exported : undefined;
}

async function addModule(registry: ToolRegistry, specifier: string, directory: string): Promise<void> {
  const module: unknown = await import(locate(specifier, directory));
  const tools = toolsOf(module);
  if (tools === undefined)
    throw new TypeError("its default export is neither a tool of defineTool nor an array of them");
  for (const tool of tools) registry.add(tool);
}

/**
 * Imports the modules of RUNNER_TOOLS, relative to `directory`, and collects their tools. All
 * problems are reported at once, one per line.
 */
export async function loadTools(specifiers: readonly string[], directory: string): Promise<ParseResult<ToolRegistry>> {
  const registry = createToolRegistry();
  const problems: string[] = [];
  for (const specifier of specifiers) {
    try {
      await addModule(registry, specifier, directory);
    } catch (error) {
      problems.push(`RUNNER_TOOLS: cannot load ${JSON.stringify(specifier)}: ${messageOf(error)}.`);
    }
  }
  return problems.length === 0 ? { ok: true, value: registry } : { ok: false, error: problems.join("\n") };
}
