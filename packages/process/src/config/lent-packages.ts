import { registerHooks } from "node:module";

const lenders = new Map<string, string>();
let hooked = false;

function isNotFound(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND";
}

function hook(): void {
  hooked = true;
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const lender = lenders.get(specifier);
      try {
        return nextResolve(specifier, context);
      } catch (error) {
        if (lender === undefined || !isNotFound(error)) throw error;
        return nextResolve(specifier, { ...context, parentURL: lender });
      }
    },
  });
}

/**
 * Lets modules that lie outside of the workspace (a tool, a configuration file) import these
 * packages: where Node finds none, they get the one that the module `lender` (its `import.meta.url`)
 * would get. Packages that such a module has itself win.
 */
export function lendPackages(names: readonly string[], lender: string): void {
  for (const name of names) lenders.set(name, lender);
  if (!hooked) hook();
}
