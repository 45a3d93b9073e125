import { execFile } from "node:child_process";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const repository = fileURLToPath(new URL("../..", import.meta.url));

/** The version before this one: what a rolling upgrade starts from. Its stored formats are in `stored.json`. */
export const previousVersion = "376a5dda";

/** The last version that works beside this one and knows no hand-overs, teams, questions or helpers. */
export const versionOfSingleAgents = "21337563";

/** How long its packages may take to come, ms. */
const installMs = 180_000;

/** The part of the repository's package.json that is needed; the repository's tools check it. */
type Manifest = Readonly<{ packageManager: string }>;

/** A version of the whole repository, with its dependencies, ready to run. */
export interface CheckedOut {
  /** Absolute path of a file of it. */
  file(path: string): string;
  remove(): Promise<void>;
}

/**
 * Takes a version out of the history and installs its dependencies, from the network where this machine does not have
 * them. Undefined where the history is shallow, or where they can be had from nowhere.
 */
export async function checkOut(ref: string, folder: string): Promise<CheckedOut | undefined> {
  const directory = join(folder, "version");
  await mkdir(directory, { recursive: true });
  const archive = join(folder, "version.tar");
  const { packageManager } = JSON.parse(
    await readFile(join(repository, "package.json"), "utf8"),
  ) as Manifest;
  const pnpm = ["exec", "--yes", "--prefer-offline", `--package=${packageManager}`, "--", "pnpm"];
  const install = [
    ...pnpm,
    "install",
    "--prefer-offline",
    "--frozen-lockfile",
    "--ignore-scripts",
    "--silent",
  ];
  const env = { ...process.env, CI: "true" };
  try {
    await run("git", ["archive", "--output", archive, ref], { cwd: repository });
    await run("tar", ["-xf", archive, "-C", directory]);
    await run("npm", install, { cwd: directory, env, timeout: installMs });
  } catch {
    await rm(directory, { recursive: true, force: true });
    return undefined;
  }
  return {
    file: (path) => join(directory, path),
    remove: async () => await rm(folder, { recursive: true, force: true }),
  };
}
