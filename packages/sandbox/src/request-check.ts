import { isAbsolute, normalize } from "node:path";
import type { HostParts, Launch } from "./launch.ts";
import { limitsFrom } from "./limits.ts";
import type { NetworkPolicy, SandboxLimits, SandboxRequest } from "./sandbox.ts";
import type { Views } from "./views.ts";
import { problemOfFiles } from "./working-files.ts";

const maxEnvBytes = 65_536;
const maxJobBytes = 32 * 1_048_576;
// They would change the launcher, which runs before the sandbox is shut.
const launcherNames = /^(?:LD_.*|BASH_.*|ENV|SHELLOPTS|IFS|PS4|GCONV_PATH|GLIBC_TUNABLES)$/;

/** Why variables cannot be given, in words. Values are left out of the words: they may be secrets. */
export function problemOfEnv(env: Readonly<Record<string, string>>): string | undefined {
  let bytes = 0;
  for (const [name, value] of Object.entries(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || launcherNames.test(name)) {
      return `The variable ${JSON.stringify(name)} cannot be set.`;
    }
    if (typeof value !== "string" || value.includes("\0")) return `The variable ${name} has no text as its value.`;
    bytes += name.length + Buffer.byteLength(value);
  }
  return bytes > maxEnvBytes ? `The environment has more than ${maxEnvBytes} bytes.` : undefined;
}

/** Finds what is to be readable inside, or says why it cannot be. */
export async function findReadable(
  paths: readonly string[],
  { views, hasOwnPaths }: { views: Views; hasOwnPaths: boolean },
): Promise<Launch["readable"] | string> {
  const found: { source: string; path: string }[] = [];
  for (const path of paths) {
    const refused = (reason: string): string => `${JSON.stringify(path)} cannot be made readable: ${reason}.`;
    if (!isAbsolute(path) || normalize(path) !== path || path === "/") {
      return refused('it is not an absolute path below "/"');
    }
    try {
      const source = await views.sourceOf(path);
      if (source !== path && !hasOwnPaths) return refused("it is shut to other users of this host");
      found.push({ source, path });
    } catch (error) {
      return refused(error instanceof Error ? error.message : String(error));
    }
  }
  return found;
}

export function problemOfNetwork(network: NetworkPolicy, hasNetwork: boolean): string | undefined {
  if (network === "none") return undefined;
  if (!hasNetwork) {
    return "The sandbox of this host can give a program no network. Install bubblewrap, or run it without network.";
  }
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
  if (program.runtime === "bash" && !parts.hasBash) return "There is no bash on this host.";
  if ("code" in program && program.code.includes("\0")) return "The program contains a zero byte.";
  try {
    const bytes = Buffer.byteLength(
      JSON.stringify([program.input, "code" in program ? program.code : program.preparation]),
    );
    return bytes > maxJobBytes ? `Program and input have more than ${maxJobBytes} bytes.` : undefined;
  } catch {
    return "The input is not a JSON value.";
  }
}

/** What a request comes to. */
export interface CheckedRequest {
  limits: SandboxLimits;
  readable: Launch["readable"];
}

export interface RequestHost {
  parts: HostParts;
  views: Views;
  plan: { hasNetwork: boolean; hasOwnPaths: boolean };
}

/** Checks everything of a request that can be known before it runs; a text says what is wrong. */
export async function checkRequest(request: SandboxRequest, host: RequestHost): Promise<CheckedRequest | string> {
  const { program, env = {}, network = "none" } = request;
  const { parts, views, plan } = host;
  const checked = problemOfLimits(request.limits);
  if ("problem" in checked) return checked.problem;
  const { limits } = checked;
  const problem =
    problemOfProgram(request, parts) ??
    problemOfEnv(env) ??
    problemOfNetwork(network, plan.hasNetwork) ??
    problemOfFiles(program.files ?? [], limits);
  if (problem !== undefined) return problem;
  const paths = "module" in program ? program.readable : [];
  const readable = await findReadable(paths, { views, hasOwnPaths: plan.hasOwnPaths });
  return typeof readable === "string" ? readable : { limits, readable };
}
