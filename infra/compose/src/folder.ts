import { chmod, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseEnv } from "node:util";
import { keptSecretsFile, type DeploymentFile, type OperatorFiles } from "./deployment-files.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));

/** A folder of files that a deployment is made of, below `.data` of the checkout. */
export interface Folder {
  /** The contents of `.env` and `larkline.config.ts` of the checkout. */
  written: OperatorFiles;
  /** Secrets that were made before. */
  kept: Readonly<Record<string, string | undefined>>;
  /** Whatever ends this process leaves each file whole, or as it was. */
  save(files: readonly DeploymentFile[]): Promise<void>;
}

async function textOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

async function save(folder: string, { name, text, isPublic }: DeploymentFile): Promise<void> {
  const path = join(folder, name);
  const draft = `${path}.${process.pid}.tmp`;
  const mode = isPublic ? 0o644 : 0o600;
  await mkdir(dirname(path), { recursive: true });
  if (isPublic) await chmod(dirname(path), 0o755); // mounted as it is, for users of containers
  await writeFile(draft, text, { mode });
  await chmod(draft, mode); // whatever the mask of the shell is
  await rename(draft, path);
}

/** Opens `.data/<name>` of a checkout (default: this one) and closes it to all users but its owner. */
export async function openFolder(name: string, checkout = root): Promise<Folder> {
  const data = join(checkout, ".data");
  const folder = join(data, name);
  const config = await textOf(join(checkout, "larkline.config.ts"));
  const env = parseEnv((await textOf(join(checkout, ".env"))) ?? "");
  const kept = parseEnv((await textOf(join(folder, keptSecretsFile))) ?? "");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const path of [data, folder]) await chmod(path, 0o700); // older versions left them open
  return {
    written: { env, ...(config === undefined ? {} : { config }) },
    kept,
    save: async (files) => {
      for (const file of files) await save(folder, file);
    },
  };
}
