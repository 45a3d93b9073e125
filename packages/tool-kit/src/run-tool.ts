import type { ParseResult, ToolOutcome } from "@larkline/protocol";
import { OutcomeUnknownError } from "./outcome-unknown.ts";
import { validated } from "./tool-registry.ts";
import { fileSaver, type Run, type StoreFile } from "./saved-files.ts";
import { errorText, outcomeOfResult } from "./tool-output.ts";
import type { HandlerTool, Tool, ToolContext } from "./tool.ts";

/** The context of a call, without what {@link runTool} itself adds to it. */
export type CallContext = Omit<ToolContext, "saveFile">;

/** One call as it reaches a tool. */
export interface RunToolRequest {
  /** JSON text as the model wrote it; empty text means no arguments. At most 1 MiB. */
  argumentsText: string;
  /** `signal` cancels the call: it is answered at once with the message of the signal's reason. */
  context: CallContext;
  /** Keeps what the tool saves; without it `saveFile` rejects. */
  storeFile?: StoreFile;
  /** Is told what a program prints, as it comes. */
  onOutput?: (text: string) => void;
  /** Deadline of the run in ms. Default: the tool's own. */
  timeoutMs?: number;
  /** When all is over at the latest, in ms from now, waiting for a sandbox included. Default: no bound. */
  endsWithinMs?: number;
  /** Longest output in bytes. Default 262,144. */
  maxOutputBytes?: number;
}

const defaultMaxOutputBytes = 262_144;
const maxArgumentsCharacters = 1_048_576;
/** Node fires longer timers at once. */
const maxTimerMs = 2_147_483_647;

function parseArguments(text: string): ParseResult<unknown> {
  if (text.trim() === "") return { ok: true, value: {} };
  if (text.length > maxArgumentsCharacters) {
    return { ok: false, error: `the arguments exceed ${maxArgumentsCharacters} characters` };
  }
  try {
    return { ok: true, value: JSON.parse(text) };
  } catch {
    return { ok: false, error: "the arguments are not valid JSON; the tool was not run" };
  }
}

/** The author's context: bound to the run's own signal, silent after the answer. */
function contextOf(
  tool: HandlerTool,
  { context, storeFile }: Pick<RunToolRequest, "context" | "storeFile">,
  run: Run,
): ToolContext {
  return {
    ...context,
    signal: run.signal,
    progress: (fraction, detail) => {
      if (run.answered() || typeof fraction !== "number" || Number.isNaN(fraction)) return;
      context.progress(Math.min(1, Math.max(0, fraction)), detail);
    },
    log: (message, fields) => context.log(message, fields),
    saveFile: fileSaver(tool, storeFile, run),
  };
}

/** The outcome of a call that was ended before the tool had answered; `reason` is told to the model. */
export function interruptedOutcome(tool: Pick<Tool, "effect">, reason: unknown): ToolOutcome {
  const error = errorText(reason);
  if (tool.effect !== "once") return { ok: false, error };
  return { ok: false, error: `${error}; whether it took effect is unknown: check before repeating`, unknown: true };
}

/** A signal that aborts with `outer` and at the deadline; `release` frees both. */
function runSignal(tool: Tool, outer: AbortSignal, timeoutMs: number): { signal: AbortSignal; release(): void } {
  const controller = new AbortController();
  const stop = (): void => controller.abort(outer.reason);
  outer.addEventListener("abort", stop, { once: true });
  const timer = setTimeout(
    () => controller.abort(new Error(`tool ${tool.name} did not answer within ${timeoutMs} ms`)),
    timeoutMs,
  );
  return {
    signal: controller.signal,
    release: () => {
      outer.removeEventListener("abort", stop);
      clearTimeout(timer);
    },
  };
}

interface Handling {
  signal: AbortSignal;
  context: ToolContext;
  maxOutputBytes?: number | undefined;
}

async function handled(
  tool: HandlerTool,
  input: Record<string, unknown>,
  { signal, context, maxOutputBytes = defaultMaxOutputBytes }: Handling,
): Promise<ToolOutcome> {
  try {
    return outcomeOfResult(await tool.run(input, context), maxOutputBytes);
  } catch (error) {
    // A handler that gives up because it was told to is interrupted, not failed.
    if (signal.aborted) return interruptedOutcome(tool, signal.reason);
    return error instanceof OutcomeUnknownError
      ? interruptedOutcome(tool, error)
      : { ok: false, error: errorText(error) };
  }
}

/**
 * Parses and checks the arguments of one call. The error is for the model; the tool must not be run then.
 */
export function inputOf(tool: Tool, argumentsText: string): ParseResult<Record<string, unknown>> {
  const parsed = parseArguments(argumentsText);
  if (!parsed.ok) return parsed;
  try {
    return { ok: true, value: validated(tool, parsed.value) };
  } catch (error) {
    return { ok: false, error: errorText(error) };
  }
}

/**
 * Runs one call from the model's text to its outcome: parses, validates, runs under a deadline,
 * turns the result into JSON and caps it. Never throws, and answers at the deadline or the abort
 * even when the handler goes on; a `once` call interrupted that way is `unknown`.
 */
export async function runTool(tool: HandlerTool, request: RunToolRequest): Promise<ToolOutcome> {
  const input = inputOf(tool, request.argumentsText);
  if (!input.ok) return input;
  if (request.context.signal.aborted) return { ok: false, error: errorText(request.context.signal.reason) };
  const timeoutMs = Math.min(Math.max(0, request.timeoutMs ?? tool.timeoutMs), maxTimerMs);
  const { signal, release } = runSignal(tool, request.context.signal, timeoutMs);
  const aborted = new Promise<ToolOutcome>((resolve) => {
    signal.addEventListener("abort", () => resolve(interruptedOutcome(tool, signal.reason)), { once: true });
  });
  let answered = false;
  const context = contextOf(tool, request, { signal, answered: () => answered });
  try {
    const work = handled(tool, input.value, { signal, context, maxOutputBytes: request.maxOutputBytes });
    return await Promise.race([work, aborted]);
  } finally {
    answered = true;
    release();
  }
}

/**
 * Runs a call whose input was checked before, until the handler itself has ended: for a process that
 * does nothing else meanwhile and is killed from outside when it takes too long. Never throws.
 */
export async function runToEnd(
  tool: HandlerTool,
  input: Record<string, unknown>,
  request: Omit<RunToolRequest, "argumentsText" | "timeoutMs">,
): Promise<ToolOutcome> {
  const { signal } = request.context;
  let answered = false;
  const context = contextOf(tool, request, { signal, answered: () => answered });
  const outcome = await handled(tool, input, { signal, context, maxOutputBytes: request.maxOutputBytes });
  answered = true;
  return outcome;
}
