import {
  compileJsonSchema,
  parserOf,
  ToolAnnouncement,
  type Actor,
  type ParseResult,
  type ToolEffect,
} from "@larkline/protocol";
import type { Static, TSchema } from "typebox";
import type { FileFacts } from "./saved-files.ts";

/**
 * How far a tool is kept away from its runner, fixed when it is defined. `inline`: trusted code
 * inside the runner's process, nothing is contained.
 */
export type Isolation = "inline";

/** What a tool gets besides its input. */
export interface ToolContext {
  /** The same for every retry of the call: use it as idempotency key towards other systems. */
  callId: string;
  turnId: string;
  /** Aborts at the deadline, on cancellation and on shutdown. The call is answered then, whatever the tool does. */
  signal: AbortSignal;
  /** Person and place the call acts for. */
  actor: Actor;
  /** Reports progress; `fraction` is clamped to 0..1. Ignored once the call is answered. */
  progress(fraction: number, detail?: string): void;
  /** Writes a line to the runner's log. Keep content and secrets out of it. */
  log(message: string, fields?: Record<string, unknown>): void;
  /**
   * Keeps an image for some days, so that the answer can show it: for tools with `savesFiles`.
   * Resolves to the Markdown that names it, `![name](blob:...)`, to be put into the result: the model
   * is told by the tool's description to write it where the person is to see the image. Rejects when
   * the bytes are no PNG, JPEG, GIF or WebP image of at most 10 MiB or not what `mediaType` says,
   * after 8 files of one call, when it cannot be stored, and when the call is over.
   */
  saveFile(bytes: Uint8Array, facts: FileFacts): Promise<string>;
}

/** Input type of a schema: inferred from TypeBox and from literal JSON Schema, otherwise an object of unknown values. */
export type InputOf<S extends TSchema> = unknown extends Static<S> ? Record<string, unknown> : Static<S>;

/** What an author writes. */
export interface ToolDefinition<S extends TSchema> {
  /** Letters, digits, `_` and `-`, at most 64: what all model vendors accept. */
  name: string;
  /** Tells the model when and how to use the tool. */
  description: string;
  /** TypeBox or plain JSON Schema (2020-12) of type object. Input is checked against all of it before `run`. */
  input: S;
  /** What running a call twice would do. `once` calls are never started a second time. */
  effect: ToolEffect;
  /** Ask a person before running. Default false. */
  requiresApproval?: boolean;
  /** Deadline of one run in ms, 1 to 3,600,000. Default 60,000. */
  timeoutMs?: number;
  /** Default `inline`. */
  isolation?: Isolation;
  /** The tool calls `saveFile`: its description is completed by how models show what it saves. Default false. */
  savesFiles?: boolean;
  /**
   * Does the work. The result is a JSON value (`undefined` counts as null); a thrown error's
   * message is told to the model, so it must hold no secret.
   */
  run(input: InputOf<S>, context: ToolContext): unknown;
}

const toolMark: unique symbol = Symbol.for("larkline.tool");

/** A tool that passed all checks of its definition. */
export interface Tool {
  readonly [toolMark]: true;
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Record<string, unknown>;
  readonly effect: ToolEffect;
  readonly requiresApproval: boolean;
  readonly timeoutMs: number;
  readonly isolation: Isolation;
  readonly savesFiles: boolean;
  /** Checks parsed arguments against the whole input schema. */
  readonly check: (input: unknown) => ParseResult<unknown>;
  /** Runs the handler; only input that passed `check` may be given. */
  readonly run: (input: Record<string, unknown>, context: ToolContext) => unknown;
}

const defaultTimeoutMs = 60_000;
const maxTimeoutMs = 3_600_000;
const maxSchemaCharacters = 65_536;
/** Completes the description of a tool that saves files. */
const showingHint =
  "Images in the result are Markdown such as ![name](blob:...): the person does not see them there. " +
  "To show one, write its Markdown in the answer exactly as it stands in the result.";
const parseAnnouncement = parserOf(ToolAnnouncement);

function invalid(name: unknown, problem: string): TypeError {
  return new TypeError(`tool ${JSON.stringify(name) ?? "without a name"}: ${problem}`);
}

function plainSchema(name: string, input: unknown): Record<string, unknown> {
  if (typeof input !== "object" || input === null) throw invalid(name, "input must be a JSON Schema object");
  // Through JSON, because that is how models and runners exchange it; TypeBox keeps marks of its own on schemas.
  const text = JSON.stringify(input);
  if (text.length > maxSchemaCharacters) throw invalid(name, `input schema exceeds ${maxSchemaCharacters} characters`);
  const schema = JSON.parse(text) as Record<string, unknown>; // an object, as checked above
  if (schema["type"] !== "object") throw invalid(name, 'input must be a schema of type "object"');
  return schema;
}

function compiled(name: string, schema: Record<string, unknown>): Tool["check"] {
  try {
    return compileJsonSchema(schema);
  } catch (error) {
    throw invalid(name, `input schema does not compile: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/**
 * Makes a tool of a definition. Throws a TypeError that names the tool when the definition is
 * invalid: a name or description that vendors refuse, an input schema that is not of type object
 * or does not compile, an unknown effect or isolation level, a timeout out of range.
 */
export function defineTool<const S extends TSchema>(definition: ToolDefinition<S>): Tool {
  const { name, effect, requiresApproval = false, timeoutMs = defaultTimeoutMs, savesFiles = false } = definition;
  const description = savesFiles ? `${definition.description} ${showingHint}` : definition.description;
  const isolation = definition.isolation ?? "inline";
  if (typeof definition.run !== "function") throw invalid(name, "run must be a function");
  if (isolation !== "inline") throw invalid(name, `isolation level ${JSON.stringify(isolation)} does not exist`);
  const inputSchema = plainSchema(name, definition.input);
  const announcement = { spec: { name, description, inputSchema }, effect, requiresApproval, timeoutMs };
  const parsed = parseAnnouncement(announcement);
  if (!parsed.ok) throw invalid(name, parsed.error);
  if (timeoutMs > maxTimeoutMs) throw invalid(name, `timeoutMs must be at most ${maxTimeoutMs}`);
  const run = definition.run.bind(definition);
  return {
    [toolMark]: true,
    name,
    description,
    inputSchema,
    effect,
    requiresApproval,
    timeoutMs,
    isolation,
    savesFiles,
    check: compiled(name, inputSchema),
    // The schema is the proof of the type: callers run `check` first.
    run: (input, context) => run(input as InputOf<S>, context),
  };
}

/** Whether a value (a module's default export) was made by {@link defineTool}. */
export function isTool(value: unknown): value is Tool {
  return typeof value === "object" && value !== null && toolMark in value && value[toolMark] === true;
}

/** What a runner tells the workers about a tool. */
export function announcementOf(tool: Tool): ToolAnnouncement {
  return {
    spec: { name: tool.name, description: tool.description, inputSchema: tool.inputSchema },
    effect: tool.effect,
    requiresApproval: tool.requiresApproval,
    timeoutMs: tool.timeoutMs,
  };
}
