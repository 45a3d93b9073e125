import { spawn } from "node:child_process";
import { env as ownEnv } from "node:process";
import type { SandboxResult, SandboxStatus } from "./sandbox.ts";

/** A program as careless code gets it. */
export interface NaiveProgram {
  runtime: "node" | "python" | "bash";
  code: string;
  input?: unknown;
  env: Readonly<Record<string, string>>;
  wallMs: number;
}

const wrapper = `
import json, sys
scope = {"input": json.loads(sys.argv[2])}
exec(compile(sys.argv[1], "tool.py", "exec"), scope)
sys.stdout.flush()
print("RESULT" + json.dumps(scope.get("result"), default=str))`;

function ended(status: SandboxStatus, rest: Partial<SandboxResult> = {}): SandboxResult {
  return { status, stdout: "", stderr: "", files: [], skipped: [], denied: [], wallMs: 0, ...rest };
}

async function evaluate(program: NaiveProgram, progress: () => void): Promise<SandboxResult> {
  const AsyncFunction = evaluate.constructor as new (
    ...source: string[]
  ) => (...given: unknown[]) => Promise<unknown>; // that of async functions
  const late = new Promise<SandboxResult>((resolve) =>
    setTimeout(() => resolve(ended("timeout")), program.wallMs),
  );
  const run = new AsyncFunction("input", "progress", program.code);
  const done = run(program.input, progress).then(
    (value) => ended("ok", { value }),
    (error: unknown) => ended("error", { error: String(error) }),
  );
  return await Promise.race([done, late]);
}

async function execute({
  runtime,
  code,
  input,
  env,
  wallMs,
}: NaiveProgram): Promise<SandboxResult> {
  const [command, ...args] =
    runtime === "bash"
      ? ["/bin/bash", "-c", code]
      : ["/usr/bin/python3", "-c", wrapper, code, JSON.stringify(input)];
  const child = spawn(command ?? "", args, {
    env: { ...ownEnv, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: wallMs,
  });
  let stdout = "";
  child.stdout
    .setEncoding("utf8")
    .on("data", (text: string) => (stdout = (stdout + text).slice(-200_000)));
  child.stderr.resume();
  const code0 = await new Promise<number | null>((resolve) => {
    child.on("error", () => resolve(null)).on("exit", (exitCode) => resolve(exitCode));
  });
  const [, value = "null"] = /RESULT(.*)\s*$/.exec(stdout) ?? [];
  return ended(code0 === 0 ? "ok" : "error", {
    stdout,
    value: runtime === "bash" ? code0 : (JSON.parse(value) as unknown),
  });
}

/** Runs a program as one does who trusts it. */
export async function runNaively(
  program: NaiveProgram,
  progress: () => void,
): Promise<SandboxResult> {
  Object.assign(ownEnv, program.env);
  return program.runtime === "node" ? await evaluate(program, progress) : await execute(program);
}
