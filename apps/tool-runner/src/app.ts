import type { AppOptions } from "@larkline/process/app";
import { createEnvReader, lendPackages, type Env } from "@larkline/process/config";
import { loadTools, startRunnerApp, type RunnerApp, type RunnerProgram } from "@larkline/runner";

/** Offers the tools of `RUNNER_TOOLS`. */
export const toolProgram: RunnerProgram = {
  load: async (env) => {
    const named = createEnvReader(env).list("RUNNER_TOOLS");
    // A tool may be a single file anywhere.
    const lend = { names: ["@larkline/tool-kit", "typebox"], lender: import.meta.url };
    lendPackages(lend.names, lend.lender);
    return await loadTools(named.length > 0 ? named : ["@larkline/example-tools"], {
      directory: process.cwd(),
      lend,
    });
  },
};

/** Starts a runner with this environment. Rejects with a `StartError`. */
export async function startToolRunnerApp(env: Env, options?: AppOptions): Promise<RunnerApp> {
  return await startRunnerApp(toolProgram, env, options);
}
