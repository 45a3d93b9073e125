import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { ParseResult } from "@larkline/protocol";
import { createToolRegistry, type Tool, type ToolRegistry } from "@larkline/tool";
import type { LentPackages } from "./host-message.ts";
import { toolsOfModule } from "./loaded-module.ts";

/** Tools, and where another process finds them. */
export interface LoadedTools {
  registry: ToolRegistry;
  /** URL of the module that a tool came from; a tool without one runs inline only. */
  modules: ReadonlyMap<string, string>;
  /** Packages that those modules get although they have none. */
  lend?: LentPackages | undefined;
}

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
    return import.meta.resolve(specifier);
  }
}

/** Whether a module can be found under a URL, as opposed to be named in an error. */
export function pathOfModule(url: string): string | undefined {
  return url.startsWith("file:") ? fileURLToPath(url) : undefined;
}

/** Collects the tools of a program that passes them to `createRunner`; `module` is the URL of that program. */
export function toolsFrom(tools: readonly Tool[], module?: string): LoadedTools {
  const registry = createToolRegistry();
  for (const tool of tools) registry.add(tool);
  return { registry, modules: new Map(module === undefined ? [] : tools.map(({ name }) => [name, module])) };
}

/**
 * Imports the modules of RUNNER_TOOLS, relative to `directory`, and collects their tools. All
 * problems are reported at once, one per line.
 */
export async function loadTools(
  specifiers: readonly string[],
  { directory, lend }: { directory: string; lend?: LentPackages },
): Promise<ParseResult<LoadedTools>> {
  const registry = createToolRegistry();
  const modules = new Map<string, string>();
  const problems: string[] = [];
  for (const specifier of specifiers) {
    try {
      const url = locate(specifier, directory);
      for (const tool of await toolsOfModule(url)) {
        registry.add(tool);
        modules.set(tool.name, url);
      }
    } catch (error) {
      problems.push(`RUNNER_TOOLS: cannot load ${JSON.stringify(specifier)}: ${messageOf(error)}.`);
    }
  }
  return problems.length === 0
    ? { ok: true, value: { registry, modules, lend } }
    : { ok: false, error: problems.join("\n") };
}
