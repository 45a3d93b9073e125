import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Fixtures with a factory, `<name>Tools`: their calls leave lines where the system reads them. */
type Fixture = "recording" | "holding" | "approval" | "waiting" | "office";
/** Tools of a fixture, or of a package. */
export type ToolSet = Fixture | `@${string}`;

export interface ToolPlace {
  /** Where files of the system lie. */
  folder: string;
  recordingFile: string;
  /** In processes of their own, or in that of their runner. */
  level: "inline" | "process";
}

/**
 * The value of `RUNNER_TOOLS` by which a runner offers these tools. Several runners in one process cannot have a variable
 * each that tools read: there a module is written, with the name of the file in it.
 */
export async function toolModules(
  sets: readonly ToolSet[],
  { folder, recordingFile, level }: ToolPlace,
): Promise<string> {
  const packages = sets.filter((set) => set.startsWith("@"));
  const fixtures = sets.filter((set) => !set.startsWith("@"));
  const paths = fixtures.map((set) =>
    fileURLToPath(new URL(`../fixtures/${set}-tools.ts`, import.meta.url)),
  );
  if (level === "process" || fixtures.length === 0) return [...paths, ...packages].join();
  const recording = JSON.stringify({ file: recordingFile, isolation: "inline" });
  const imports = fixtures.map(
    (set, at) => `import { ${set}Tools } from ${JSON.stringify(paths[at])};`,
  );
  const tools = fixtures.map((set) => `...${set}Tools(${recording})`);
  const path = join(folder, `${fixtures.join("-")}-tools.ts`);
  await writeFile(path, `${imports.join("\n")}\nexport default [${tools.join(", ")}];\n`);
  return [path, ...packages].join();
}
