import { fileURLToPath } from "node:url";
import { type Clock, deadline } from "@larkline/protocol/clock";
import { imageTypeOf } from "@larkline/protocol/stored-image";
import type { ToolOutcome } from "@larkline/protocol/tool";
import type {
  Sandbox,
  SandboxFile,
  SandboxRequest,
  SandboxResult,
  SandboxStatus,
} from "@larkline/sandbox";
import {
  errorText,
  fileSaver,
  inputOf,
  interruptedOutcome,
  type ProgramTool,
  type RunToolRequest,
  type Tool,
} from "@larkline/tool-kit";
import {
  parseHostOutcome,
  pickedEnv,
  type ProcessLevelOptions,
  type SandboxCall,
  type SandboxPreparation,
} from "./process-level.ts";
import type { Needed } from "./readable-paths.ts";
import type { BeginCall, ToolLevel } from "./level.ts";
import type { LoadedTools } from "./tool-modules.ts";

export interface SandboxLevelOptions {
  sandbox: Pick<Sandbox, "run" | "close">;
  /** Why no program may be run now; undefined: it may. */
  refusal(): string | undefined;
  loaded: LoadedTools;
  environment: ProcessLevelOptions["environment"];
  /** What the module of a handler can read, by the tool's name. */
  readable: ReadonlyMap<string, readonly string[]>;
  clock: Clock;
}

/** The module that loads a handler inside, where the handler's module keeps its own path. */
export const sandboxEntry = fileURLToPath(new URL("sandbox-entry.ts", import.meta.url));
/** What it imports besides files of this package. */
export const sandboxNeeds: Needed = { "@larkline/tool-kit": "whole" };
/** The same for tools that are lent packages: one file that imports nothing. */
export const lendingNeeds: Needed = { "@larkline/process": "alone" };
const defaultResultBytes = 1_048_576;
/** Node fires longer timers at once. */
const maxTimerMs = 2_147_483_647;

/** Whether a run cannot change anything outside. */
function isHarmless({ isolation: { network } }: Tool): boolean {
  return network === "none" || network.allow.length === 0;
}

function printed({ stdout, stderr, denied }: SandboxResult): string {
  const parts = { stdout, stderr, network: denied.join("\n") };
  return Object.entries(parts)
    .flatMap(([name, text]) => (text === "" ? [] : [`\n${name}:\n${text}`]))
    .join("\n");
}

/** The outcome of a run that gave no result. What has not begun had no effect. */
function failed(tool: Tool, result: SandboxResult, { context, hasBegun }: RunFacts): ToolOutcome {
  const { status, error = `the program ended with status ${status}` } = result;
  const reason =
    status === "cancelled" && context.signal.aborted
      ? errorText(context.signal.reason)
      : `${status === "cancelled" ? late(hasBegun) : error}${printed(result)}`;
  const ended = status === "error" || status === "refused" || isHarmless(tool) || !hasBegun;
  return ended
    ? { ok: false, error: errorText(new Error(reason)) }
    : interruptedOutcome(tool, new Error(reason));
}

function late(hasBegun: boolean): string {
  return hasBegun
    ? "the call's deadline was reached"
    : "no sandbox was free for the call before its deadline; it was not run";
}

/** A run also waits for a place, so it can pass the call's deadline although it is within the tool's timeout. */
function signalOf(
  clock: Clock,
  tool: Tool,
  { context, timeoutMs = tool.timeoutMs, endsWithinMs }: RunToolRequest,
): AbortSignal {
  const leftMs = timeoutMs < tool.timeoutMs ? timeoutMs : endsWithinMs;
  if (leftMs === undefined) return context.signal;
  return deadline(clock, Math.min(Math.max(0, leftMs), maxTimerMs), context.signal);
}

/** Images are kept and named by their Markdown; of other files the model gets to know that they exist. */
async function filesOf(
  tool: Tool,
  result: SandboxResult,
  { context, storeFile }: RunToolRequest,
): Promise<string[]> {
  const save = fileSaver({ name: tool.name, savesFiles: true }, storeFile, {
    signal: context.signal,
    answered: () => false,
  });
  const described = async ({ name, bytes }: SandboxFile): Promise<string> => {
    const mediaType = imageTypeOf(bytes);
    if (mediaType === undefined) return `${name} (${bytes.byteLength} bytes, not kept)`;
    return await save(bytes, { mediaType, name }).catch(
      (error: unknown) => `${name} (${errorText(error)})`,
    );
  };
  const files: string[] = [];
  for (const file of result.files) files.push(await described(file));
  return [...files, ...result.skipped.map(({ name, reason }) => `${name} (${reason})`)];
}

/** A request, and whether its program has begun. */
type RunFacts = RunToolRequest & { hasBegun: boolean };

interface ProgramRun {
  tool: ProgramTool;
  runtime: SandboxRequest["program"]["runtime"];
  result: SandboxResult;
}

/** What a shell would call the ends of programs that were stopped at a limit. */
const stoppedCodes: Partial<Record<SandboxStatus, number>> = {
  timeout: 124,
  oom: 137,
  output_limit: 137,
  disk_limit: 137,
  protocol: 1,
};

/** Undefined where the program did not run, was cancelled, broke with its sandbox, or may have changed something outside. */
function exitCodeOf(
  { tool, runtime, result }: ProgramRun,
  { hasBegun }: RunFacts,
): number | undefined {
  const { status, value, exitCode } = result;
  if (exitCode !== undefined) return exitCode;
  // A sandbox host of the version before returns no exit codes.
  if (status === "ok") return runtime === "bash" && typeof value === "number" ? value : 0;
  if (status === "error") return 1;
  return hasBegun && isHarmless(tool) ? stoppedCodes[status] : undefined;
}

/**
 * Code that has run gives its exit code, also where it failed; what stopped it stands on `stderr`. The code comes first,
 * so that it is readable where only the head of a long result is left.
 */
async function programOutcome(run: ProgramRun, request: RunFacts): Promise<ToolOutcome> {
  const { tool, runtime, result } = run;
  const exitCode = exitCodeOf(run, request);
  if (exitCode === undefined) return failed(tool, result, request);
  const { status, value = null, stdout, denied, error = "" } = result;
  // A program that has left with a code of its own has said what it wanted.
  const reason = status === "crashed" ? "" : error;
  const stderr = [result.stderr, reason].filter((text) => text !== "").join("\n");
  const files = await filesOf(tool, result, request);
  return {
    ok: true,
    result: {
      exitCode,
      ...(status === "ok" && runtime !== "bash" ? { result: value } : {}),
      ...(stdout === "" ? {} : { stdout }),
      ...(stderr === "" ? {} : { stderr }),
      ...(files.length === 0 ? {} : { files }),
      ...(denied.length === 0 ? {} : { network: denied }),
    },
  };
}

function handlerOutcome(tool: Tool, result: SandboxResult, request: RunFacts): ToolOutcome {
  if (result.status !== "ok") return failed(tool, result, request);
  const outcome = parseHostOutcome(result.value);
  return outcome.ok
    ? outcome.value
    : { ok: false, error: `the sandbox of tool ${tool.name} gave no outcome` };
}

/** Asks once whether the call may begin, however often the sandbox asks. */
interface Beginning {
  begin(): Promise<boolean>;
  hasBegun: boolean;
  /** The outcome in place of a run. */
  instead: ToolOutcome | undefined;
}

function beginningOf(begin: BeginCall): Beginning {
  const beginning: Beginning = {
    hasBegun: false,
    instead: undefined,
    begin: async () => {
      if (beginning.hasBegun) return true;
      beginning.instead = await begin();
      beginning.hasBegun = beginning.instead === undefined;
      return beginning.hasBegun;
    },
  };
  return beginning;
}

class SandboxLevel implements ToolLevel {
  readonly #options: SandboxLevelOptions;

  constructor(options: SandboxLevelOptions) {
    this.#options = options;
  }

  async run(tool: Tool, request: RunToolRequest, begin: BeginCall): Promise<ToolOutcome> {
    const input = inputOf(tool, request.argumentsText);
    if (!input.ok) return input;
    try {
      const program = this.#programOf(tool, input.value, request);
      const refused = this.#options.refusal();
      if (refused !== undefined) throw new Error(refused);
      const beginning = beginningOf(begin);
      const asked = { ...this.#requestOf(tool, program, request), begin: beginning.begin };
      const result = await this.#execute(tool, asked, beginning);
      if (beginning.instead !== undefined) return beginning.instead;
      const facts = { ...request, hasBegun: beginning.hasBegun };
      return tool.kind === "program"
        ? await programOutcome({ tool, runtime: program.runtime, result }, facts)
        : handlerOutcome(tool, result, facts);
    } catch (error) {
      return { ok: false, error: errorText(error) };
    }
  }

  async close(): Promise<void> {
    await this.#options.sandbox.close();
  }

  /** Repeats a run after a crash of the sandbox, where that is harmless. A program that has left with a code has run. */
  async #execute(tool: Tool, asked: SandboxRequest, beginning: Beginning): Promise<SandboxResult> {
    const { sandbox } = this.#options;
    const result = await sandbox.run(asked);
    const hasCrashed =
      result.status === "crashed" && (tool.kind !== "program" || result.exitCode === undefined);
    const again = hasCrashed && (tool.effect !== "once" || isHarmless(tool) || !beginning.hasBegun);
    return again && !asked.signal.aborted ? await sandbox.run(asked) : result;
  }

  #requestOf(
    tool: Tool,
    program: SandboxRequest["program"],
    request: RunToolRequest,
  ): SandboxRequest {
    const { env, memoryMb, limits, network } = tool.isolation;
    const { context, onOutput } = request;
    return {
      program,
      // The same for every call of a tool: sandboxes are booted ahead with their limits.
      limits: {
        ...limits,
        ...(memoryMb === undefined ? {} : { memoryMb }),
        wallMs: tool.timeoutMs,
      },
      env: pickedEnv(this.#options.environment, env),
      network,
      signal: signalOf(this.#options.clock, tool, request),
      onProgress: (fraction, detail) => context.progress(fraction, detail),
      onOutput: (_stream, text) => onOutput?.(text),
    };
  }

  #programOf(
    tool: Tool,
    input: Record<string, unknown>,
    request: RunToolRequest,
  ): SandboxRequest["program"] {
    if (tool.kind === "program") return tool.program(input);
    const { loaded, readable } = this.#options;
    const { callId, turnId, actor, authority } = request.context;
    const preparation: SandboxPreparation = {
      module: loaded.modules.get(tool.name) ?? "",
      tool: tool.name,
      lend: loaded.lend,
    };
    const call: SandboxCall = {
      input,
      facts: { callId, turnId, actor, authority },
      // Half of what the sandbox takes: text grows when it is written as JSON.
      maxOutputBytes: Math.floor((tool.isolation.limits?.resultBytes ?? defaultResultBytes) / 2),
    };
    const paths = readable.get(tool.name) ?? [];
    return { runtime: "node", module: sandboxEntry, readable: paths, preparation, input: call };
  }
}

/** Tools in sandboxes: programs, and handlers with their modules. */
export function createSandboxLevel(options: SandboxLevelOptions): ToolLevel {
  return new SandboxLevel(options);
}
