import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import process from "node:process";
import type { Env } from "./env-reader.ts";

/** Variables that only the code that reads the configuration may see; of bots with a name, the same with it behind. */
const secretVariables =
  /^(?:REDIS_URL|ARCHIVE_URL|CALL_SIGNING_KEY|RUNNER_KEY|FEISHU_(?:APP_SECRET|ENCRYPT_KEY|VERIFICATION_TOKEN)(?:_[A-Z0-9_]+)?|(?:ANTHROPIC|OPENAI)_API_KEY|API_TOKEN|EVENTS_SIGNING_KEY|SANDBOX_TOKEN|CONSOLE_(?:VIEWER_)?PASSWORD|OTEL_EXPORTER_OTLP_HEADERS)$/;

/** What a name or a value says of a secret that we do not know: keys of further vendors, of tools, of observers. */
const secretName = /KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|HEADERS|DSN/i;
const hasPassword = /:\/\/[^/@\s]*@/;

/** Where the kernel keeps the variables that this process was started with: fields 50 and 51 of `/proc/self/stat`. */
function startOfProcess(): { start: number; length: number } {
  const stat = readFileSync("/proc/self/stat", "latin1");
  // The name of the program is the second field, in parentheses, and may hold anything.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const start = Number(fields[47]);
  return { start, length: Number(fields[48]) - start };
}

/** Leaves what tells processes apart (a folder, a port, a log level) to those who look for them. */
function overwrite({ start, length }: { start: number; length: number }, env: Env): void {
  if (!(start > 0 && length > 0)) throw new Error("the kernel does not tell where it is");
  const shown = Object.entries(env).filter(
    ([name, value = ""]) => !secretVariables.test(name) && !secretName.test(name) && !hasPassword.test(value),
  );
  const bytes = Buffer.alloc(length);
  bytes.write(shown.map(([name, value]) => `${name}=${value}\0`).join(""));
  const memory = openSync("/proc/self/mem", "r+");
  try {
    writeSync(memory, bytes, 0, length, start);
  } finally {
    closeSync(memory);
  }
}

/**
 * Reads the environment of this process and leaves a clean one behind; to be called once, by the program that was
 * started, before anything else runs. Every process of the same user can read in `/proc/<pid>/environ` what another was
 * started with, the tools of a runner among them: that copy is overwritten without what looks like a
 * secret. Secrets leave `process.env` too, so that no
 * child and no module inherits them; other variables stay there. Where there is no `/proc`, or it does not let us, the
 * copy stays, and `problem` says why.
 */
export function takeEnvironment(): { env: Env; problem: string | undefined } {
  const env = { ...process.env };
  for (const [name, value] of Object.entries(env)) {
    // A variable that is set anew no longer lies where the kernel put it.
    delete process.env[name];
    if (!secretVariables.test(name)) process.env[name] = value;
  }
  if (process.platform !== "linux") return { env, problem: undefined };
  try {
    overwrite(startOfProcess(), env);
    return { env, problem: undefined };
  } catch (error) {
    return { env, problem: error instanceof Error ? error.message : String(error) };
  }
}
