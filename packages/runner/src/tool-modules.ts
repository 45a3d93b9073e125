import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { placeOfError } from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import {
  createToolRegistry,
  toolsOfModule,
  type Tool,
  type ToolRegistry,
} from "@larkline/tool-kit";

/** Packages that a module without any of its own gets from the module `lender` (a URL). */
export interface LentPackages {
  names: readonly string[];
  lender: string;
}

/** Tools, and where another process finds them. */
export interface LoadedTools {
  registry: ToolRegistry;
  /** URL of the module that a tool came from; a tool without one runs inline only. */
  modules: ReadonlyMap<string, string>;
  /** Packages that those modules get although they have none. */
  lend?: LentPackages | undefined;
}

export interface LoadToolsOptions {
  directory: string;
  lend?: LentPackages;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A file below the working directory, else a package installed there, else one of the runner's own. */
function locate(specifier: string, { directory, lend }: LoadToolsOptions): string {
  const path = resolve(directory, specifier);
  if (existsSync(path)) return pathToFileURL(path).href;
  const places = [join(directory, "package.json"), ...(lend === undefined ? [] : [lend.lender])];
  for (const place of places) {
    try {
      return pathToFileURL(createRequire(place).resolve(specifier)).href;
    } catch {
      // The next place may have it.
    }
  }
  throw new Error("there is no such file or package");
}

/** The file behind the URL of a module. */
export function pathOfModule(url: string): string | undefined {
  return url.startsWith("file:") ? fileURLToPath(url) : undefined;
}

/**
 * The tools of a program that has them at hand; `module` is the URL of that program, without which they
 * run inline only. An error value names a tool that is there twice.
 */
export function toolsFrom(tools: readonly Tool[], module?: string): ParseResult<LoadedTools> {
  const registry = createToolRegistry();
  try {
    for (const tool of tools) registry.add(tool);
  } catch (error) {
    return { ok: false, error: messageOf(error) };
  }
  const modules = new Map(module === undefined ? [] : tools.map(({ name }) => [name, module]));
  return { ok: true, value: { registry, modules } };
}

/**
 * Imports the modules of RUNNER_TOOLS, relative to `directory`, and collects their tools. All problems are reported at
 * once, one per line; below it, indented, the lines of code where a module has an error.
 */
export async function loadTools(
  specifiers: readonly string[],
  options: LoadToolsOptions,
): Promise<ParseResult<LoadedTools>> {
  const registry = createToolRegistry();
  const modules = new Map<string, string>();
  const problems: string[] = [];
  for (const specifier of specifiers) {
    try {
      const url = locate(specifier, options);
      for (const tool of await toolsOfModule(url)) {
        registry.add(tool);
        modules.set(tool.name, url);
      }
    } catch (error) {
      const what = `cannot load ${JSON.stringify(specifier)}: ${messageOf(error)}.`;
      const path =
        error instanceof SyntaxError ? pathOfModule(locate(specifier, options)) : undefined;
      problems.push(`plugin_load_error: RUNNER_TOOLS: ${what}${placeOfError(error, path)}`);
    }
  }
  return problems.length === 0
    ? { ok: true, value: { registry, modules, lend: options.lend } }
    : { ok: false, error: problems.join("\n") };
}
