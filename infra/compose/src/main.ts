// `npm run compose-files -- [runner...]`: writes what infra/compose/compose.yaml names into .data/compose. To be run
// again after every change of .env and larkline.config.ts; it keeps the secrets that it has made.
import { chmod, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseEnv } from "node:util";
import { deploymentFiles, keptSecretsFile, type DeploymentFile } from "./deployment-files.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const folder = join(root, ".data", "compose");

async function textOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

/** Renamed into place: whatever ends this process leaves the whole file or the one before. */
async function save({ name, text, isPublic }: DeploymentFile): Promise<void> {
  const path = join(folder, name);
  const draft = `${path}.${process.pid}.tmp`;
  const mode = isPublic ? 0o644 : 0o600;
  await mkdir(dirname(path), { recursive: true });
  await writeFile(draft, text, { mode });
  await chmod(draft, mode); // whatever the mask of the shell is
  await rename(draft, path);
}

const runners = process.argv.slice(2);
const strange = runners.find((name) => !/^[A-Za-z0-9_-]{1,64}$/.test(name));
if (strange !== undefined) {
  console.error(`usage: npm run compose-files [-- <runner>...]; '${strange}' is no name of a runner`);
  process.exit(2);
}
const config = await textOf(join(root, "larkline.config.ts"));
const written = {
  env: parseEnv((await textOf(join(root, ".env"))) ?? ""),
  runners,
  ...(config === undefined ? {} : { config }),
};
const kept = parseEnv((await textOf(join(folder, keptSecretsFile))) ?? "");
await mkdir(folder, { recursive: true, mode: 0o700 });
for (const file of deploymentFiles(written, kept)) await save(file);
console.log("Written to .data/compose.");
