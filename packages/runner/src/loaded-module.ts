import { collectTools, isTool, type Tool } from "@larkline/tool-kit";

function exportedTools(module: unknown): readonly Tool[] | undefined {
  const exported: unknown =
    typeof module === "object" && module !== null && "default" in module ? module.default : undefined;
  if (isTool(exported)) return [exported];
  return Array.isArray(exported) && exported.length > 0 && exported.every(isTool) ? exported : undefined;
}

/**
 * Imports a module (by URL or package name) and returns its tools: those of its default export, or
 * those that it passes to `createRunner`. Rejects when it has none.
 */
export async function toolsOfModule(specifier: string): Promise<readonly Tool[]> {
  const { value, offered } = await collectTools(async (): Promise<unknown> => await import(specifier));
  const tools = exportedTools(value) ?? offered;
  if (tools.length === 0) {
    throw new TypeError("its default export is neither a tool of defineTool nor an array of them");
  }
  return tools;
}
