import { createRequire } from "node:module";
import type { LocalText, ParseResult } from "@larkline/protocol";
import type {
  Actor,
  CallAuthority,
  CallInput,
  RiskLevel,
  ToolAnnouncement,
  ToolEffect,
  ToolIdentity,
  ToolIdentityNeed,
  ToolLimits,
} from "@larkline/protocol/tool";
import type { Static, TSchema } from "@larkline/protocol/type";
import type * as DefinitionCheck from "./definition-check.ts";
import { completedIsolation, type Isolation, type ResolvedIsolation } from "./isolation.ts";

/** What a tool says of a file that it saves. */
export interface FileFacts {
  /** `image/png`, `image/jpeg`, `image/gif` or `image/webp`; of tools with `savesFiles: "any"` any other, too. */
  mediaType: string;
  /** For people: shown where the image cannot be; what a file is called in the chat. */
  name?: string;
}

/** What a tool gets besides its input. */
export interface ToolContext {
  /**
   * The same for every retry of the call, also for one that a person asks for because it is not known whether
   * it took effect: use it as idempotency key towards other systems.
   */
  callId: string;
  turnId: string;
  /** Aborts at the deadline, on cancellation and on shutdown. The call is answered then, whatever the tool does. */
  signal: AbortSignal;
  /** Person and place the call acts for. */
  actor: Actor;
  /** What allows the call: the policy, a rule, or the people who approved it. */
  authority: CallAuthority;
  /** As whom the call acts on the platform: for tools with `as`. Its token is good for this call alone: keep it nowhere. */
  identity?: ToolIdentity;
  /**
   * For tools with `looks`: the call began at this time in a runner that has died, and what became of it is not known.
   * Read only, and return the result when what that run has made is there; throw otherwise: a person is asked then.
   */
  beganAtMs?: number;
  /** What people answered to the MCP server that gives the tool: for mounted servers alone. */
  input?: CallInput;
  /** Reports progress; `fraction` is clamped to 0..1. Ignored once the call is answered. */
  progress(fraction: number, detail?: string): void;
  /** Writes a line to the runner's log and to the session's events. Keep content and secrets out of it. */
  log(message: string, fields?: Record<string, unknown>): void;
  /**
   * Keeps an image for some days, so that the answer can show it: for tools with `savesFiles`.
   * Resolves to the Markdown that names it, `![name](blob:...)`, to be put into the result: the tool's
   * description asks the model to write it where the person is to see the image. Rejects when
   * the bytes are no PNG, JPEG, GIF or WebP image of at most 10 MiB or not what `mediaType` says,
   * after 8 files of one call, when it cannot be stored, and when the call is over.
   * With `savesFiles: "any"` other files of at most 20 MiB are kept, too: resolves to `blob:...`, which `send_file`
   * takes in place of a path.
   */
  saveFile(bytes: Uint8Array, facts: FileFacts): Promise<string>;
  /**
   * Runs the work when no other call of this runner, in any of its processes, works at the object, such as a table whose
   * parallel changes a service refuses. People take turns. Absent outside of runners, and in tools that do not run
   * `inline`.
   */
  exclusive?: Exclusive;
}

/** Rejects, without running the work, with the signal's reason when that comes first. */
export type Exclusive = <T>(
  object: string,
  /** `everyMs`: in place of one call at a time, this least time between the beginnings of two. */
  options: { signal: AbortSignal; everyMs?: number },
  work: () => Promise<T>,
) => Promise<T>;

/** Input type of a schema: inferred from TypeBox and from literal JSON Schema, otherwise an object of unknown values. */
export type InputOf<S extends TSchema> =
  unknown extends Static<S> ? Record<string, unknown> : Static<S>;

/** What authors say of every tool. */
interface ToolFacts<S extends TSchema> {
  /** Letters, digits, `_` and `-`, at most 64: what all model vendors accept. */
  name: string;
  /** Says to the model when and how to use the tool. */
  description: string;
  /** TypeBox or plain JSON Schema (2020-12) of type object. Input is checked against all of it before the tool runs. */
  input: S;
  /** What running a call twice would do. `once` calls are never started a second time, but see `repeatMs`. */
  effect: ToolEffect;
  /**
   * Of a `once` tool all of whose writes carry a key made of `context.callId` that the other side knows for longer: a call
   * that was cut off by the death of its runner runs again, under the same id, within so many ms of its beginning, 1 to
   * 3,600,000. Default: never; then a person is asked what became of it.
   */
  repeatMs?: number;
  /** Ask a person before running. Default false. */
  requiresApproval?: boolean;
  /** How much harm a call can do; decides how loudly a person is asked. Default `medium`. */
  risk?: RiskLevel;
  /** What people read in place of the name: one text, or one for each language. */
  title?: LocalText;
  /**
   * What a call does, in a sentence: "Add a note: {text}", where `{text}` is the value of that argument. People read it
   * on cards, and before they approve. It may name any argument of the input that is no secret.
   */
  summary?: LocalText;
  /** Names of arguments, at any depth, whose values no card and no log shows. */
  secrets?: readonly string[];
  /** The argument that says what is done, such as `command`: permission rules match it. */
  subject?: string;
  /**
   * Names of arguments that hold addresses which the tool reaches (URLs, hosts); `[]` when it reaches none that it is
   * given. Once a conversation holds text from outside, people are asked about addresses that no person named. Default:
   * every argument that looks like an address counts as one.
   */
  addresses?: readonly string[];
  /**
   * The tool is called again and again with the same arguments, as to see whether something has happened. Of other
   * tools the third such call in a row is not run. Default false.
   */
  poll?: boolean;
  /**
   * Whose token of the platform a call gets as `context.identity`: that of the person who asks, the bot's, or `either`
   * (the person's where there is a grant with the `scopes`, otherwise the bot's; say in the result which it was).
   * Absent: none.
   */
  as?: ToolIdentityNeed["as"];
  /** What the person must have granted before a call begins, at most 20 permissions; they are asked for what is missing. */
  scopes?: readonly string[];
  /** Bounds over all instances of the runner; further calls wait. */
  limits?: ToolLimits;
  /** Deadline of one run in ms, 1 to 3,600,000. Default 60,000. */
  timeoutMs?: number;
}

/** What an author writes. */
export interface ToolDefinition<S extends TSchema> extends ToolFacts<S> {
  /** Default `process`. */
  isolation?: Isolation;
  /**
   * The tool calls `saveFile`: its description is completed by how models show what it saves. `any`: also files that
   * cannot be shown, but sent to a chat. Not in a sandbox. Default false.
   */
  savesFiles?: boolean | "any";
  /**
   * Of a `once` tool that can tell what an earlier run of the call has made: a call that was cut off by the death of its
   * runner runs again with `context.beganAtMs`, to read only. What it throws then is an unknown outcome. Default false.
   */
  looks?: boolean;
  /**
   * Does the work. The result is a JSON value (`undefined` counts as null); the model reads
   * a thrown error's message, so it must hold no secret.
   */
  run(input: InputOf<S>, context: ToolContext): unknown;
}

/** Source text to run, with files for its working directory. What it leaves there goes into the call's result. */
export interface ToolProgram {
  runtime: "node" | "python" | "bash";
  code: string;
  /** A JSON value: `input` in JavaScript and Python, JSON text in `$INPUT` of a shell. */
  input?: unknown;
  files?: readonly { name: string; bytes: Uint8Array }[];
}

/** What an author writes of a tool that runs untrusted programs, such as those of a model. */
export interface ProgramToolDefinition<S extends TSchema> extends ToolFacts<S> {
  /** Default and only choice `sandbox`: less is refused. */
  isolation?: Isolation;
  /** Makes the program of a call. Runs in the runner, so it must not interpret the input. The model reads what it throws. */
  program(input: InputOf<S>): ToolProgram;
}

const toolMark: unique symbol = Symbol.for("larkline.tool");

interface AnyTool {
  readonly [toolMark]: true;
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Record<string, unknown>;
  readonly effect: ToolEffect;
  readonly requiresApproval: boolean;
  readonly timeoutMs: number;
  readonly risk: RiskLevel;
  readonly title: LocalText | undefined;
  readonly summary: LocalText | undefined;
  readonly secrets: readonly string[];
  readonly subject: string | undefined;
  readonly addresses: readonly string[] | undefined;
  readonly poll: boolean;
  readonly limits: ToolLimits | undefined;
  readonly as: ToolIdentityNeed["as"] | undefined;
  readonly scopes: readonly string[];
  readonly repeatMs: number | undefined;
  readonly looks: boolean;
  readonly isolation: ResolvedIsolation;
  readonly savesFiles: boolean | "any";
  /** Checks parsed arguments against the whole input schema. */
  readonly check: (input: unknown) => ParseResult<unknown>;
}

/** A function of the deployer as a tool. */
export interface HandlerTool extends AnyTool {
  readonly kind: "handler";
  /** Runs the handler; only input that passed `check` may be given. */
  readonly run: (input: Record<string, unknown>, context: ToolContext) => unknown;
}

/** A tool that runs programs in a sandbox. */
export interface ProgramTool extends AnyTool {
  readonly kind: "program";
  /** Makes the program; only input that passed `check` may be given. */
  readonly program: (input: Record<string, unknown>) => ToolProgram;
}

/** A tool that passed all checks of its definition. */
export type Tool = HandlerTool | ProgramTool;

const defaultTimeoutMs = 60_000;
const maxTimeoutMs = 3_600_000;
const maxSchemaCharacters = 65_536;
/** Completes the description of a tool that saves files. */
const showingHint =
  "Images in the result are Markdown such as ![name](blob:...): the person does not see them there. " +
  "To show one, write its Markdown in the answer exactly as it is in the result.";
const sendingHint =
  "A file in the result is a name such as blob:blob_...: the person does not have it yet. " +
  "To give it to them, call send_file with that name as the path; where there is no such tool, say that it cannot be sent here.";

const require = createRequire(import.meta.url);

/** Loaded when it is first needed: processes that only run tools start without it. */
function definitionCheck(): typeof DefinitionCheck {
  return require("@larkline/tool-kit/definition-check") as typeof DefinitionCheck; // as package.json says
}

function invalid(name: unknown, problem: string): TypeError {
  return new TypeError(`tool ${JSON.stringify(name) ?? "without a name"}: ${problem}`);
}

function plainSchema(name: string, input: unknown): Record<string, unknown> {
  if (typeof input !== "object" || input === null) {
    throw invalid(name, "input must be a JSON Schema object");
  }
  // Through JSON, because that is how models and runners exchange it; TypeBox keeps marks of its own on schemas.
  const text = JSON.stringify(input);
  if (text.length > maxSchemaCharacters) {
    throw invalid(name, `input schema exceeds ${maxSchemaCharacters} characters`);
  }
  const schema = JSON.parse(text) as Record<string, unknown>; // an object, as checked above
  if (schema["type"] !== "object") throw invalid(name, 'input must be a schema of type "object"');
  return schema;
}

function compiled(name: string, schema: Record<string, unknown>): Tool["check"] {
  try {
    return definitionCheck().compileJsonSchema(schema);
  } catch (error) {
    throw invalid(
      name,
      `input schema does not compile: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

function announced(tool: Omit<AnyTool, typeof toolMark | "check">): ToolAnnouncement {
  const {
    name,
    description,
    inputSchema,
    effect,
    requiresApproval,
    timeoutMs,
    risk,
    title,
    summary,
    secrets,
    subject,
    addresses,
    poll,
    limits,
    as,
    scopes,
  } = tool;
  return {
    spec: { name, description, inputSchema },
    effect,
    requiresApproval,
    timeoutMs,
    risk,
    ...(title === undefined ? {} : { title }),
    ...(summary === undefined ? {} : { summary }),
    ...(secrets.length === 0 ? {} : { secrets: [...secrets] }),
    ...(subject === undefined ? {} : { subject }),
    ...(addresses === undefined ? {} : { addresses: [...addresses] }),
    ...(poll ? { poll } : {}),
    ...(limits === undefined ? {} : { limits }),
    ...(as === undefined ? {} : { identity: { as, scopes: [...scopes] } }),
  };
}

function repeatProblem({
  effect,
  repeatMs,
  looks,
}: Pick<AnyTool, "effect" | "repeatMs" | "looks">) {
  if (looks && effect !== "once") return "looks is for tools that are once";
  if (repeatMs === undefined) return undefined;
  if (effect !== "once") return "repeatMs is for tools that are once";
  return Number.isInteger(repeatMs) && repeatMs >= 1 && repeatMs <= maxTimeoutMs
    ? undefined
    : `repeatMs must be a whole number from 1 to ${maxTimeoutMs}`;
}

/** What makes no sense although its type is right. */
function contradictionIn(tool: Omit<AnyTool, typeof toolMark | "check">) {
  const { timeoutMs, subject, limits, inputSchema, summary, secrets, as, scopes } = tool;
  if (timeoutMs > maxTimeoutMs) return `timeoutMs must be at most ${maxTimeoutMs}`;
  const properties = inputSchema["properties"];
  const known =
    typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
  for (const [, name = ""] of (typeof summary === "object"
    ? summary.zh + summary.en
    : (summary ?? "")
  ).matchAll(placeholder)) {
    if (secrets.includes(name)) return `its summary names the secret ${JSON.stringify(name)}`;
    if (!known.includes(name)) {
      return `the ${JSON.stringify(name)} of its summary is no property of its input`;
    }
  }
  if (
    subject !== undefined &&
    (typeof properties !== "object" || properties === null || !(subject in properties))
  ) {
    return `the subject ${JSON.stringify(subject)} is no property of its input`;
  }
  if (as === undefined && scopes.length > 0) return "scopes are of no use without as";
  return limits !== undefined && Object.keys(limits).length === 0
    ? "limits names no limit"
    : undefined;
}

/** Stands for an argument in a summary. */
const placeholder = /\{([^{}]{1,100})\}/g;

interface ToolRest {
  isolation: Isolation;
  savesFiles: boolean | "any";
  looks: boolean;
}

function toolFrom<S extends TSchema>(
  facts: ToolFacts<S>,
  { isolation, savesFiles, looks }: ToolRest,
): AnyTool {
  const {
    name,
    effect,
    requiresApproval = false,
    timeoutMs = defaultTimeoutMs,
    risk = "medium",
  } = facts;
  const {
    title,
    summary,
    secrets = [],
    subject,
    addresses,
    poll = false,
    limits,
    as,
    scopes = [],
    repeatMs,
  } = facts;
  const isTrusted = definitionsAreTrusted();
  const resolved = isTrusted
    ? { ok: true as const, value: completedIsolation(isolation) }
    : definitionCheck().resolvedIsolation(isolation);
  if (!resolved.ok) throw invalid(name, resolved.error);
  const tool = {
    name,
    description: [
      facts.description,
      ...(savesFiles === false ? [] : [showingHint]),
      ...(savesFiles === "any" ? [sendingHint] : []),
    ].join(" "),
    // Not read of a trusted definition: processes that only run tools make a schema when it is read.
    inputSchema: isTrusted
      ? (facts.input as Record<string, unknown>)
      : plainSchema(name, facts.input),
    effect,
    requiresApproval,
    timeoutMs,
    risk,
    title,
    summary,
    secrets,
    subject,
    addresses,
    poll,
    limits,
    as,
    scopes,
    repeatMs,
    looks,
    isolation: resolved.value,
    savesFiles,
  };
  if (isTrusted) {
    return {
      [toolMark]: true,
      ...tool,
      check: (input) => compiled(name, plainSchema(name, facts.input))(input),
    };
  }
  const parsed = definitionCheck().parseAnnouncement(announced(tool));
  const problem = parsed.ok ? (contradictionIn(tool) ?? repeatProblem(tool)) : parsed.error;
  if (problem !== undefined) throw invalid(name, problem);
  return { [toolMark]: true, ...tool, check: compiled(name, tool.inputSchema) };
}

/**
 * Makes a tool of a definition. Throws a TypeError that names the tool when the definition is
 * invalid: a name or description that vendors refuse, an input schema that is not of type object
 * or does not compile, an unknown effect, risk or isolation level, settings that the level does not
 * take, a timeout out of range.
 */
export function defineTool<const S extends TSchema>(definition: ToolDefinition<S>): HandlerTool {
  const { name, isolation = "process", savesFiles = false, looks = false } = definition;
  if (typeof definition.run !== "function") throw invalid(name, "run must be a function");
  const tool = toolFrom(definition, { isolation, savesFiles, looks });
  const { level } = tool.isolation;
  if (level === "sandbox" && savesFiles) {
    throw invalid(
      name,
      'savesFiles needs isolation "inline" or "process": there is no saveFile in a sandbox',
    );
  }
  const run = definition.run.bind(definition);
  if (level === "sandbox" && tool.as !== undefined) {
    throw invalid(name, 'as needs isolation "inline" or "process": no token goes into a sandbox');
  }
  // The schema is the proof of the type: callers run `check` first.
  return { ...tool, kind: "handler", run: (input, context) => run(input as InputOf<S>, context) };
}

/**
 * Makes a tool that runs programs. Throws a TypeError that names the tool like {@link defineTool}, and
 * when the isolation is less than a sandbox: code that a model wrote runs nowhere else.
 */
export function defineProgramTool<const S extends TSchema>(
  definition: ProgramToolDefinition<S>,
): ProgramTool {
  const { name, isolation = "sandbox" } = definition;
  if (typeof definition.program !== "function") throw invalid(name, "program must be a function");
  const tool = toolFrom(definition, { isolation, savesFiles: false, looks: false });
  const { level } = tool.isolation;
  if (level !== "sandbox") {
    throw invalid(name, `programs run with isolation "sandbox" only, not ${JSON.stringify(level)}`);
  }
  if (tool.as !== undefined) {
    throw invalid(name, "as is for handlers only: no token goes into a sandbox");
  }
  const program = definition.program.bind(definition);
  return {
    ...tool,
    description: `${tool.description} ${showingHint}`,
    kind: "program",
    program: (input) => program(input as InputOf<S>), // checked before, as above
  };
}

/** Whether a value (a module's default export) was made by {@link defineTool} or {@link defineProgramTool}. */
export function isTool(value: unknown): value is Tool {
  return (
    typeof value === "object" && value !== null && toolMark in value && value[toolMark] === true
  );
}

/** What a runner announces to the workers about a tool. */
export function announcementOf(tool: Tool): ToolAnnouncement {
  return announced(tool);
}

/* ---- Tools and those who load their module ---- */

// Not a variable of this module: a module and its loader may have different copies of this package.
const collectorKey = Symbol.for("larkline.toolCollector");
const checkedKey = Symbol.for("larkline.toolsAreChecked");

type Collector = (tools: readonly Tool[]) => void;

interface Holder {
  [collectorKey]?: Collector | undefined;
  [checkedKey]?: boolean;
}

function holder(): Holder {
  return globalThis as Holder; // globals under symbols of our own
}

/**
 * For a process that runs tools for a runner: the runner has checked their definitions, and checks their input. After
 * this call `defineTool` checks neither, so that the process starts without loading the validators.
 */
export function trustDefinitions(): void {
  holder()[checkedKey] = true;
}

/** Whether another process has checked the definitions that this one meets. */
export function definitionsAreTrusted(): boolean {
  return holder()[checkedKey] === true;
}

/**
 * Hands tools to a process that loads the running module for its tools alone, in order to run one of
 * them. False when it was started as a program.
 */
export function offerTools(tools: readonly Tool[]): boolean {
  const collect = holder()[collectorKey];
  collect?.(tools);
  return collect !== undefined;
}

/** Runs `load` and returns its result with the tools offered meanwhile. One load at a time. */
export async function collectTools<T>(
  load: () => Promise<T>,
): Promise<{ value: T; offered: readonly Tool[] }> {
  const offered: Tool[] = [];
  const before = holder()[collectorKey];
  holder()[collectorKey] = (tools) => void offered.push(...tools);
  try {
    return { value: await load(), offered };
  } finally {
    holder()[collectorKey] = before;
  }
}

function exportedTools(module: unknown): readonly Tool[] | undefined {
  const exported: unknown =
    typeof module === "object" && module !== null && "default" in module
      ? module.default
      : undefined;
  if (isTool(exported)) return [exported];
  return Array.isArray(exported) && exported.length > 0 && exported.every(isTool)
    ? exported
    : undefined;
}

/**
 * Imports a module by its URL and returns its tools: those of its default export, or
 * those that it passes to `createRunner`. Rejects when it has none.
 */
export async function toolsOfModule(specifier: string): Promise<readonly Tool[]> {
  const { value, offered } = await collectTools(
    async (): Promise<unknown> => await import(specifier),
  );
  const tools = exportedTools(value) ?? offered;
  if (tools.length === 0) {
    throw new TypeError("its default export is neither a tool of defineTool nor an array of them");
  }
  return tools;
}
