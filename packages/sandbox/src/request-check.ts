import { lstat } from "node:fs/promises";
import { isAbsolute, normalize } from "node:path";
import type { HostParts } from "./launch.ts";
import { limitsFrom } from "./limits.ts";
import type { NetworkPolicy, SandboxLimits, SandboxRequest } from "./sandbox.ts";
import { problemOfFiles } from "./working-files.ts";

const maxEnvBytes = 65_536;
const maxJobBytes = 32 * 1_048_576;
// They would change the launcher, which runs before the sandbox is shut.
const launcherNames = /^(?:LD_.*|BASH_.*|ENV|SHELLOPTS|IFS|PS4|GCONV_PATH|GLIBC_TUNABLES)$/;

/** Why variables cannot be given, in words. Values are left out of the words: they may be secrets. */
export function problemOfEnv(env: Readonly<Record<string, string>>): string | undefined {
  let bytes = 0;
  for (const [name, value] of Object.entries(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || launcherNames.test(name))
      return `The variable ${JSON.stringify(name)} cannot be set.`;
    if (typeof value !== "string" || value.includes("\0")) return `The variable ${name} has no text as its value.`;
    bytes += name.length + Buffer.byteLength(value);
  }
  return bytes > maxEnvBytes ? `The environment has more than ${maxEnvBytes} bytes.` : undefined;
}

/** Why directories cannot be shown inside, in words. */
export async function problemOfReadable(paths: readonly string[]): Promise<string | undefined> {
  for (const path of paths) {
    if (!isAbsolute(path) || normalize(path) !== path || path === "/")
      return `${JSON.stringify(path)} cannot be made readable: it is not an absolute path below "/".`;
    if ((await lstat(path).catch(() => undefined)) === undefined)
      return `${JSON.stringify(path)} cannot be made readable: it does not exist.`;
  }
  return undefined;
}

export function problemOfNetwork(network: NetworkPolicy, hasNetwork: boolean): string | undefined {
  if (network === "none") return undefined;
  if (!hasNetwork)
    return "The sandbox of this host can give a program no network. Install bubblewrap, or run it without network.";
  return network.allow.length === 0 ? "The network policy allows no host: ask for no network instead." : undefined;
}

function problemOfLimits(asked: SandboxRequest["limits"]): { limits: SandboxLimits } | { problem: string } {
  try {
    return { limits: limitsFrom(asked) };
  } catch (error) {
    return { problem: `The limits are not valid: ${error instanceof Error ? error.message : String(error)}.` };
  }
}

function problemOfProgram({ program }: SandboxRequest, parts: HostParts): string | undefined {
  if (program.runtime === "python" && parts.python === undefined) return "There is no Python on this host.";
  if ("code" in program && program.code.includes("\0")) return "The program contains a zero byte.";
  try {
    const bytes = Buffer.byteLength(JSON.stringify([program.input, "code" in program ? program.code : ""]));
    return bytes > maxJobBytes ? `Program and input have more than ${maxJobBytes} bytes.` : undefined;
  } catch {
    return "The input is not a JSON value.";
  }
}

/** Checks everything of a request that can be known before it runs. */
export async function checkRequest(
  request: SandboxRequest,
  { parts, hasNetwork }: { parts: HostParts; hasNetwork: boolean },
): Promise<{ ok: true; limits: SandboxLimits } | { ok: false; problem: string }> {
  const { program, env = {}, network = "none" } = request;
  const checked = problemOfLimits(request.limits);
  if ("problem" in checked) return { ok: false, problem: checked.problem };
  const problem =
    problemOfProgram(request, parts) ??
    problemOfEnv(env) ??
    problemOfNetwork(network, hasNetwork) ??
    problemOfFiles(program.files ?? [], checked.limits) ??
    ("module" in program ? await problemOfReadable(program.readable) : undefined);
  return problem === undefined ? { ok: true, limits: checked.limits } : { ok: false, problem };
}
