import type { ParseResult } from "@larkline/protocol";
import { type Clock, systemClock } from "@larkline/protocol/clock";
import { imageMarkOf, imageTypeOf, maxImageBytes } from "@larkline/protocol/stored-image";
import type {
  GrantRefusal,
  InputRequired,
  ToolOutcome,
  ToolEffect,
  ToolSpec,
} from "@larkline/protocol/tool";
import type { TSchema } from "@larkline/protocol/type";
import {
  type HandlerTool,
  type Tool,
  type ToolContext,
  announcementOf,
  defineTool,
  type InputOf,
  type FileFacts,
} from "./tool.ts";
import type { Isolation } from "./isolation.ts";

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
  /** Called with what a program prints, as it comes. */
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

/** The context of a call; what is absent is that of a call in a test, by a person `user` in a chat `chat`. */
function wholeContext(given: Partial<CallContext> = {}): CallContext {
  return {
    callId: "call",
    turnId: "turn",
    signal: new AbortController().signal,
    actor: { app: "test", userId: "user", chatId: "chat" },
    authority: { by: "policy" },
    progress: () => undefined,
    log: () => undefined,
    ...given,
  };
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

/** The outcome of a call that was ended before the tool had answered; the model reads `reason`. */
export function interruptedOutcome(tool: Pick<Tool, "effect">, reason: unknown): ToolOutcome {
  const error = errorText(reason);
  if (tool.effect !== "once") return { ok: false, error };
  return {
    ok: false,
    error: `${error}; whether it took effect is unknown: check before repeating`,
    unknown: true,
  };
}

interface RunSignalOptions {
  outer: AbortSignal;
  timeoutMs: number;
  clock: Clock;
}

/** A signal that aborts with `outer` and at the deadline; `release` frees both. */
function runSignal(
  tool: Tool,
  { outer, timeoutMs, clock }: RunSignalOptions,
): { signal: AbortSignal; release(): void } {
  const controller = new AbortController();
  const stop = (): void => controller.abort(outer.reason);
  outer.addEventListener("abort", stop, { once: true });
  const cancelTimer = clock.after(timeoutMs, () =>
    controller.abort(new Error(`tool ${tool.name} did not answer within ${timeoutMs} ms`)),
  );
  return {
    signal: controller.signal,
    release: () => {
      outer.removeEventListener("abort", stop);
      cancelTimer();
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
    // A handler that gives up because its signal was aborted is interrupted, not failed.
    if (signal.aborted) return interruptedOutcome(tool, signal.reason);
    if (error instanceof InputRequiredError) {
      return { ok: false, error: error.message, input: error.input };
    }
    if (error instanceof GrantRefusedError) {
      return { ok: false, error: error.message, grant: error.refusal };
    }
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
 * even when the handler still runs; a `once` call interrupted that way is `unknown`. The way to test a tool: everything
 * but `argumentsText` may be left out.
 */
export async function runTool(
  tool: HandlerTool,
  {
    context: given,
    ...request
  }: Omit<RunToolRequest, "context"> & { context?: Partial<CallContext> },
  clock: Clock = systemClock,
): Promise<ToolOutcome> {
  const input = inputOf(tool, request.argumentsText);
  if (!input.ok) return input;
  const outer = wholeContext(given);
  if (outer.signal.aborted) return { ok: false, error: errorText(outer.signal.reason) };
  const timeoutMs = Math.min(Math.max(0, request.timeoutMs ?? tool.timeoutMs), maxTimerMs);
  const { signal, release } = runSignal(tool, { outer: outer.signal, timeoutMs, clock });
  const aborted = new Promise<ToolOutcome>((resolve) => {
    signal.addEventListener("abort", () => resolve(interruptedOutcome(tool, signal.reason)), {
      once: true,
    });
  });
  let answered = false;
  const context = contextOf(
    tool,
    { ...request, context: outer },
    { signal, answered: () => answered },
  );
  try {
    const work = handled(tool, input.value, {
      signal,
      context,
      maxOutputBytes: request.maxOutputBytes,
    });
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
  const outcome = await handled(tool, input, {
    signal,
    context,
    maxOutputBytes: request.maxOutputBytes,
  });
  answered = true;
  return outcome;
}

/* ---- Files that a run saves ---- */

/**
 * Keeps a file and resolves to its id. Given by the process that runs tools: tool code itself gets no
 * connection to any store. May reject; the tool gets the error.
 */
export type StoreFile = (bytes: Uint8Array, facts: FileFacts) => Promise<string>;

/** Files that one call may save: each is kept for days, and a card has little room. */
export const maxFilesPerCall = 8;

/** Of a file that is no image: what a chat takes, and some room. */
const maxFileBytes = 20 * 1024 * 1024;

function problemOf(
  bytes: Uint8Array,
  { mediaType, name = "" }: FileFacts,
  takesAny: boolean,
): string | undefined {
  if (!(bytes instanceof Uint8Array)) return "saveFile takes the bytes as a Uint8Array or Buffer";
  if (takesAny && !isImage(bytes)) {
    if (name.trim() === "") return "a file that is no image needs a name";
    return bytes.byteLength > 0 && bytes.byteLength <= maxFileBytes
      ? undefined
      : `the file has ${bytes.byteLength} bytes: 1 to ${maxFileBytes} can be kept`;
  }
  if (bytes.byteLength > maxImageBytes) {
    return `the file has ${bytes.byteLength} bytes, more than the ${maxImageBytes} that can be shown: make it smaller`;
  }
  const found = imageTypeOf(bytes);
  if (found === undefined) {
    return "the bytes are no PNG, JPEG, GIF or WebP image; only those can be shown: convert the file, or put text into the result";
  }
  return found === mediaType
    ? undefined
    : `the bytes are ${found}, but mediaType says ${mediaType}: correct one of them`;
}

/** Whether it can be shown. */
function isImage(bytes: Uint8Array): boolean {
  return bytes.byteLength <= maxImageBytes && imageTypeOf(bytes) !== undefined;
}

/** Settles like `work`, or rejects with the signal's reason as soon as it aborts. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** One run of a tool. */
export interface Run {
  signal: AbortSignal;
  answered: () => boolean;
}

/** The `saveFile` of one call. */
export function fileSaver(
  tool: Pick<Tool, "name" | "savesFiles">,
  store: StoreFile | undefined,
  { signal, answered }: Run,
): (bytes: Uint8Array, facts: FileFacts) => Promise<string> {
  let saved = 0;
  return async (bytes, facts) => {
    if (tool.savesFiles === false) {
      throw new Error(
        `tool ${tool.name} saves files without saying so: set savesFiles: true in its definition`,
      );
    }
    if (store === undefined) throw new Error("files cannot be saved here: the runner keeps none");
    const problem = problemOf(bytes, facts, tool.savesFiles === "any");
    if (problem !== undefined) throw new TypeError(problem);
    if (saved >= maxFilesPerCall) {
      throw new RangeError(
        `one call may save ${maxFilesPerCall} files at most: put several pictures into one`,
      );
    }
    signal.throwIfAborted();
    if (answered()) {
      throw new Error("the call is answered already: await saveFile before returning the result");
    }
    saved += 1;
    const { mediaType, name } = facts;
    const id = await unlessAborted(
      store(bytes, { mediaType, ...(name === undefined ? {} : { name }) }),
      signal,
    );
    return isImage(bytes) ? imageMarkOf(id, name ?? "") : `blob:${id}`;
  };
}

/* ---- Results and errors ---- */

/**
 * Thrown by a handler that does not know whether its action has happened: the other side was asked and never
 * answered. A `once` call then counts as unknown, any other as failed.
 */
export class OutcomeUnknownError extends Error {
  override readonly name = "OutcomeUnknownError";
}

const refusals = {
  scopes: "The person has not granted the permissions that this call needs; it was not run.",
  token: "The platform does not accept the token of this call; it was not run.",
  "app-scopes":
    "The bot's app lacks the permissions that this call needs; it was not run. An administrator can add them.",
} satisfies Record<GrantRefusal["kind"], string>;

/**
 * Thrown by a tool with `as` when the platform has refused before anything took effect. Workers see to the grant and
 * run the call again.
 */
export class GrantRefusedError extends Error {
  override readonly name = "GrantRefusedError";
  readonly refusal: GrantRefusal;

  constructor(refusal: GrantRefusal) {
    super(refusals[refusal.kind]);
    this.refusal = refusal;
  }
}

/** Thrown where the other side asks people first, and a repeat of the call harms nothing. For mounted servers alone. */
export class InputRequiredError extends Error {
  override readonly name = "InputRequiredError";
  readonly input: InputRequired;

  constructor(input: InputRequired) {
    super(`The server ${input.server} asks for input first; the call was not completed.`);
    this.input = input;
  }
}

const maxErrorBytes = 8_192;

/** Cuts text to at most `maxBytes` of UTF-8, never inside a character. */
function headOf(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text, "utf8");
  let end = Math.min(bytes.length, Math.max(0, maxBytes));
  // A byte 10xxxxxx continues a character: step back to its first byte.
  while (end > 0 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", 0, end);
}

function cut(text: string, maxBytes: number): string {
  const total = Buffer.byteLength(text);
  if (total <= maxBytes) return text;
  const marker = `\n[truncated: the output was ${total} bytes, the limit is ${maxBytes}]`;
  return headOf(text, maxBytes - Buffer.byteLength(marker)) + marker;
}

/** Rejects values that JSON drops or empties silently, so that the model does not read something else than the tool returned. */
function refuseLossy(key: string, value: unknown): unknown {
  const where = key === "" ? "the result" : JSON.stringify(key);
  if (typeof value === "function" || typeof value === "symbol") {
    throw new TypeError(`${where} is a ${typeof value}`);
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`${where} is ${value}`);
  }
  if (value instanceof Map || value instanceof Set) {
    throw new TypeError(`${where} is a ${value.constructor.name}`);
  }
  return value;
}

/** Text of an error for the model: its message, without stack, at most 8 KiB. */
export function errorText(error: unknown): string {
  let text = "the tool failed without a message";
  try {
    const message = error instanceof Error ? error.message || error.name : String(error);
    if (message !== "") text = message;
  } catch {
    // An error object whose own getters throw: the default text has to do.
  }
  return cut(text.toWellFormed(), maxErrorBytes);
}

/**
 * What a handler returned, as an outcome: plain JSON data, `undefined` as null. Data that is not
 * JSON becomes an error; more than `maxBytes` becomes its head as text with a marker.
 */
export function outcomeOfResult(value: unknown, maxBytes: number): ToolOutcome {
  try {
    if (typeof value === "string") return { ok: true, result: cut(value.toWellFormed(), maxBytes) };
    const text = JSON.stringify(value ?? null, refuseLossy);
    if (text === undefined) {
      return { ok: false, error: "the tool's result cannot be turned into JSON" };
    }
    if (Buffer.byteLength(text) > maxBytes) {
      return { ok: true, result: cut(text.toWellFormed(), maxBytes) };
    }
    return { ok: true, result: JSON.parse(text) };
  } catch (error) {
    return {
      ok: false,
      error: errorText(
        new Error(`the tool's result cannot be turned into JSON: ${errorText(error)}`),
      ),
    };
  }
}

/** No tool of that name is registered. */
export class ToolNotFoundError extends Error {
  override readonly name = "ToolNotFoundError";
  readonly toolName: string;

  constructor(toolName: string) {
    super(`unknown tool ${JSON.stringify(toolName)}`);
    this.toolName = toolName;
  }
}

/** The arguments of a call do not fit the tool's input schema; the message lists why. */
export class ToolValidationError extends TypeError {
  override readonly name = "ToolValidationError";
  readonly toolName: string;

  constructor(toolName: string, reason: string) {
    super(`invalid arguments for tool ${JSON.stringify(toolName)}: ${reason}`);
    this.toolName = toolName;
  }
}

/** A tool's function, sync or async. */
export type ToolHandler<S extends TSchema> = (input: InputOf<S>, context: ToolContext) => unknown;

/** How a plain function becomes a tool. */
export interface ToolRegistration<S extends TSchema> {
  /** Default: the function's own name. */
  name?: string;
  description: string;
  inputSchema: S;
  /** Default `once`, the safe one. */
  effect?: ToolEffect;
  requiresApproval?: boolean;
  timeoutMs?: number;
  savesFiles?: boolean;
  isolation?: Isolation;
}

/** A set of tools with unique names, in the order of registration. */
export interface ToolRegistry {
  /** Registers a function under a declaration and returns the same function. Throws on a duplicate or missing name. */
  register<const S extends TSchema, H extends ToolHandler<S>>(
    registration: ToolRegistration<S>,
    handler: H,
  ): H;
  /** The same in two steps: returns a function that registers what it is given and returns it. */
  register<const S extends TSchema>(
    registration: ToolRegistration<S>,
  ): <H extends ToolHandler<S>>(handler: H) => H;
  /** Adds a tool made by `defineTool`. Throws when the name is taken. */
  add(tool: Tool): void;
  /** What models read: name, description and schema of each tool. */
  specs(): ToolSpec[];
  tools(): Tool[];
  /** The tool of that name; throws {@link ToolNotFoundError}. */
  get(name: string): Tool;
  /**
   * Looks up, validates fully, runs; resolves to the handler's own return value. Rejects with
   * {@link ToolNotFoundError}, {@link ToolValidationError}, or whatever the handler throws. The handler
   * runs right here, whatever its isolation: a runner keeps that. Programs are refused.
   */
  dispatch(name: string, args: unknown, context: ToolContext): Promise<unknown>;
}

/** Checks parsed arguments; throws {@link ToolValidationError}. */
function validated(tool: Tool, args: unknown): Record<string, unknown> {
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    throw new ToolValidationError(tool.name, "arguments must be a JSON object");
  }
  const checked = tool.check(args);
  if (!checked.ok) throw new ToolValidationError(tool.name, checked.error);
  return args as Record<string, unknown>; // an object that is neither null nor an array
}

function toolOf<S extends TSchema>(
  registration: ToolRegistration<S>,
  handler: ToolHandler<S>,
): Tool {
  const { inputSchema, effect = "once", ...rest } = registration;
  const name = registration.name || handler.name;
  if (name === "") {
    throw new TypeError("a tool name is required: the function has none and none was given");
  }
  return defineTool({
    ...rest,
    name,
    input: inputSchema,
    effect,
    run: (input: InputOf<S>, context) => handler(input, context),
  });
}

/** An empty registry. */
export function createToolRegistry(): ToolRegistry {
  const byName = new Map<string, Tool>();
  const add = (tool: Tool): void => {
    if (byName.has(tool.name)) {
      throw new TypeError(`tool ${JSON.stringify(tool.name)} is registered twice`);
    }
    byName.set(tool.name, tool);
  };
  const get = (name: string): Tool => {
    const tool = byName.get(name);
    if (tool === undefined) throw new ToolNotFoundError(name);
    return tool;
  };
  function register<S extends TSchema, H extends ToolHandler<S>>(
    registration: ToolRegistration<S>,
    handler: H,
  ): H;
  function register<S extends TSchema>(
    registration: ToolRegistration<S>,
  ): <H extends ToolHandler<S>>(handler: H) => H;
  function register<S extends TSchema>(
    registration: ToolRegistration<S>,
    handler?: ToolHandler<S>,
  ): unknown {
    const registerHandler = <H extends ToolHandler<S>>(given: H): H => {
      add(toolOf(registration, given));
      return given;
    };
    return handler === undefined ? registerHandler : registerHandler(handler);
  }
  return {
    register,
    add,
    get,
    tools: () => [...byName.values()],
    specs: () => [...byName.values()].map((tool) => announcementOf(tool).spec),
    dispatch: async (name, args, context) => {
      const tool = get(name);
      if (tool.kind === "program") {
        throw new TypeError(`tool ${JSON.stringify(name)} runs programs: a runner has to`);
      }
      return await tool.run(validated(tool, args), context);
    },
  };
}
