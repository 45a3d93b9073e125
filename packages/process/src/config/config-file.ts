import { access } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { ParseResult } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { lendPackages } from "./lent-packages.ts";
import { placeOfError } from "./module-errors.ts";
import { SchemaChecks } from "../schemas/index.ts";
import { resolveConfig } from "./larkline-config.ts";
import type { AgentConfig, LarklineConfig } from "./resolved-config.ts";

const standardName = "larkline.config.ts";

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

function isModule(value: unknown): value is { default?: unknown } {
  return typeof value === "object" && value !== null;
}

async function defaultExportOf(path: string): Promise<ParseResult<unknown>> {
  try {
    lendPackages(["@larkline/tool-kit", "@larkline/process/config"], import.meta.url);
    const loaded: unknown = await import(pathToFileURL(path).href);
    if (isModule(loaded) && "default" in loaded) return { ok: true, value: loaded.default };
    return { ok: false, error: "it has no default export; write: export default { ... }" };
  } catch (error) {
    return {
      ok: false,
      error: `${error instanceof Error ? error.message : String(error)}${placeOfError(error, path)}`,
    };
  }
}

/** A path from the folder of the configuration, or a package that is installed there; anything else fails when it is imported. */
function urlOfModule(name: string, file: string): string {
  if (/^\.{0,2}\//.test(name)) return pathToFileURL(resolve(dirname(file), name)).href;
  try {
    return pathToFileURL(createRequire(file).resolve(name)).href;
  } catch {
    return name;
  }
}

/**
 * Loads the configuration file at `path` (the value of `LARKLINE_CONFIG`), or `larkline.config.ts`
 * of the working directory. Without a path an absent file means the defaults; a file that is named
 * must exist. The error names the file and lists every problem.
 */
export async function loadConfigFile(
  path?: string,
  clock = systemClock,
): Promise<ParseResult<LarklineConfig>> {
  const file = resolve(path ?? standardName);
  if (!(await exists(file))) {
    return path === undefined
      ? resolveConfig({})
      : { ok: false, error: `LARKLINE_CONFIG: ${file} does not exist.` };
  }
  const loaded = await defaultExportOf(file);
  const resolved = loaded.ok ? resolveConfig(loaded.value) : loaded;
  if (!resolved.ok) return { ok: false, error: `${file}: ${resolved.error}` };
  const problems = await patternProblems(resolved.value, clock);
  if (problems.length > 0) return { ok: false, error: `${file}: ${problems.join("; ")}` };
  const observers = resolved.value.observers.map((name) => urlOfModule(name, file));
  const modules = resolved.value.events.modules.map((name) => urlOfModule(name, file));
  const providers = Object.fromEntries(
    Object.entries(resolved.value.providers).map(([name, { module, ...provider }]) => [
      name,
      module === undefined ? provider : { ...provider, module: urlOfModule(module, file) },
    ]),
  );
  const events = { ...resolved.value.events, modules };
  return { ok: true, value: { ...resolved.value, providers, observers, events } };
}

/** The patterns that schemas of the file may not have. They are looked at in a thread, as all that runs them does. */
async function patternProblems({ agents }: LarklineConfig, clock: Clock): Promise<string[]> {
  const checks = new SchemaChecks({ clock });
  const problems = await Promise.all(
    Object.values(agents)
      .flatMap(schemasOf)
      .map(async ({ where, schema }) => {
        const problem = await checks.problemOf(schema);
        return problem === undefined ? [] : [`${where}: ${problem}`];
      }),
  );
  await checks.close();
  return problems.flat();
}

function schemasOf({
  name,
  output,
  helpers,
  handoffs,
}: AgentConfig): { where: string; schema: object }[] {
  const where = `agents.${name}`;
  return [
    { where: `${where}.output`, schema: output?.schema },
    ...handoffs.map(({ agent, input }) => ({
      where: `${where}.handoffs: the input for '${agent}'`,
      schema: input,
    })),
    ...helpers.flatMap(({ as, input, output: form }) => [
      { where: `${where}.helpers: the input of '${as}'`, schema: input },
      { where: `${where}.helpers: the output of '${as}'`, schema: form?.schema },
    ]),
  ].flatMap(({ schema, ...place }) => (schema === undefined ? [] : [{ ...place, schema }]));
}
