import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, chmod, copyFile, cp, link, mkdir, realpath, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { systemDirectories, type HostParts, type HostPython } from "./launch.ts";
import { filterFiles } from "./seccomp.ts";
import { architectureOf } from "./system-call.ts";
import { isOpenToAll } from "./views.ts";

const execute = promisify(execFile);
const askMs = 10_000;

/** What stands in for the host's `/etc`: one account, no names. */
const etc = {
  passwd: "root:x:0:0:root:/nonexistent:/bin/false\nsandbox:x:1000:1000:sandbox:/sandbox:/bin/bash\n",
  group: "root:x:0:\nsandbox:x:1000:\n",
  hosts: "127.0.0.1 localhost sandbox\n::1 localhost\n",
  "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
};

const sourceDirectory = fileURLToPath(new URL("../guest", import.meta.url));
/** Where `native/build.sh` puts the launcher. */
export const defaultLauncherPath = fileURLToPath(new URL("../native/build/sbx", import.meta.url));

async function makeReadable(path: string, files: Readonly<Record<string, string | Buffer>>): Promise<string> {
  await mkdir(path, { mode: 0o755 });
  await chmod(path, 0o755); // whatever the mask is
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(path, name), content);
    await chmod(join(path, name), 0o644);
  }
  return path;
}

/** Node.js under a name and a path that every slot's user can reach. */
async function placeNode(nodePath: string, directory: string): Promise<string> {
  const real = await realpath(nodePath);
  const placed = join(directory, "node");
  await mkdir(directory, { mode: 0o755 });
  await chmod(directory, 0o755);
  if (((await stat(real)).mode & 0o001) !== 0 && (await isOpenToAll(real))) {
    await symlink(real, placed);
    return placed;
  }
  // Without a second copy where the file systems allow it.
  await link(real, placed).catch(async () => await copyFile(real, placed));
  await chmod(placed, 0o755);
  return placed;
}

/** The Python for programs; undefined when there is none that works. */
async function findPython(pythonPath: string): Promise<HostPython | undefined> {
  try {
    const question = "import sys; print(sys.executable); print(sys.base_prefix)";
    const { stdout } = await execute(pythonPath, ["-I", "-c", question], { timeout: askMs, env: {} });
    const [executable = "", prefix = ""] = stdout.split("\n");
    const path = await realpath(executable);
    const isOfSystem = systemDirectories.some((directory) => path.startsWith(`${directory}/`));
    return { path, readable: isOfSystem ? [] : [await realpath(prefix)] };
  } catch {
    return undefined;
  }
}

async function isExecutable(path: string): Promise<boolean> {
  return await access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** Prepares what the tiers have in common, in an instance's directory. Rejects for a Node.js that is not there, or an unknown processor. */
export async function prepareParts(
  directory: string,
  options: { nodePath: string; pythonPath: string; launcherPath: string },
): Promise<HostParts> {
  const architecture = architectureOf(process.arch);
  if (architecture === undefined) throw new Error(`the system calls of ${process.arch} are not known`);
  const guestDirectory = await makeReadable(join(directory, "guest"), {});
  await cp(sourceDirectory, guestDirectory, { recursive: true });
  return {
    nodePath: await placeNode(options.nodePath, join(directory, "bin")),
    python: await findPython(options.pythonPath),
    hasBash: await isExecutable("/bin/bash"),
    guestDirectory,
    etcDirectory: await makeReadable(join(directory, "etc"), etc),
    filterDirectory: await makeReadable(join(directory, "filter"), filterFiles(architecture)),
    launcherPath: (await isExecutable(options.launcherPath)) ? options.launcherPath : undefined,
  };
}
