import { resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { offerTools, type Tool } from "@larkline/tool-kit";

export interface RunnerOptions {
  /** Name of the runner: letters, digits, `_` and `-`. `RUNNER_NAME` overrides it. */
  name: string;
  tools: readonly Tool[];
  /** Calls at once in this process, default 32. `RUNNER_CONCURRENCY` overrides it. */
  concurrency?: number;
  /** Default: the environment of the process, which is left without secrets, as `/proc` shows it too. */
  env?: Readonly<Record<string, string | undefined>>;
}

function refuse(problem: string): never {
  process.stderr.write(`${problem}\n`);
  process.exit(1);
}

/** The program that calls: where other processes find its tools. */
function ownModule(): string {
  const [, program] = process.argv;
  if (program === undefined) {
    return refuse("createRunner works in a file that Node is started with, not in typed-in code.");
  }
  return pathToFileURL(resolve(program)).href;
}

/**
 * Makes the program that calls it a runner: a whole deployable. Reads `REDIS_URL`, `RUNNER_KEY` and
 * the rest of a runner's settings from the environment, announces the tools, works until a signal, serves
 * `/health`, `/ready` and `/metrics`. Resolves when it works; a problem is reported in a line
 * each, and ends the process with 1.
 *
 * Tools run in processes of their own, which load the same file once more for its tools alone: there
 * this starts nothing and resolves at once. What should happen in the runner only comes after it, in
 * `if (await createRunner(...))`: it resolves to whether this is the runner.
 */
export async function createRunner({
  name,
  tools,
  concurrency,
  env,
}: RunnerOptions): Promise<boolean> {
  if (offerTools(tools)) return false;
  // The parts of a runner are imported here only, so that processes of tools start quickly.
  const { runRunner, toolsFrom } = await import("./index.ts");
  const defaults = { runner: name, ...(concurrency === undefined ? {} : { concurrency }) };
  await runRunner(
    { defaults, load: async () => await Promise.resolve(toolsFrom(tools, ownModule())) },
    env,
  );
  return true;
}
