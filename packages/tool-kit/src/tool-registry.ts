import type { ToolEffect, ToolSpec } from "@larkline/protocol";
import type { TSchema } from "typebox";
import type { Isolation } from "./isolation.ts";
import { announcementOf, defineTool, type InputOf, type Tool, type ToolContext } from "./tool.ts";

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
  /** Default `once`: the one that is safe when nobody has thought about it. */
  effect?: ToolEffect;
  requiresApproval?: boolean;
  timeoutMs?: number;
  savesFiles?: boolean;
  isolation?: Isolation;
}

/** A set of tools with unique names, in the order of registration. */
export interface ToolRegistry {
  /** Registers a function under a declaration and returns the same function. Throws on a duplicate or missing name. */
  register<const S extends TSchema, H extends ToolHandler<S>>(registration: ToolRegistration<S>, handler: H): H;
  /** The same in two steps: returns a function that registers what it is given and returns it. */
  register<const S extends TSchema>(registration: ToolRegistration<S>): <H extends ToolHandler<S>>(handler: H) => H;
  /** Adds a tool made by `defineTool`. Throws when the name is taken. */
  add(tool: Tool): void;
  /** What models are told: name, description and schema of each tool. */
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
export function validated(tool: Tool, args: unknown): Record<string, unknown> {
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    throw new ToolValidationError(tool.name, "arguments must be a JSON object");
  }
  const checked = tool.check(args);
  if (!checked.ok) throw new ToolValidationError(tool.name, checked.error);
  return args as Record<string, unknown>; // an object that is neither null nor an array
}

function toolOf<S extends TSchema>(registration: ToolRegistration<S>, handler: ToolHandler<S>): Tool {
  const { inputSchema, effect = "once", ...rest } = registration;
  const name = registration.name || handler.name;
  if (name === "") throw new TypeError("a tool name is required: the function has none and none was given");
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
    if (byName.has(tool.name)) throw new TypeError(`tool ${JSON.stringify(tool.name)} is registered twice`);
    byName.set(tool.name, tool);
  };
  const get = (name: string): Tool => {
    const tool = byName.get(name);
    if (tool === undefined) throw new ToolNotFoundError(name);
    return tool;
  };
  function register<S extends TSchema, H extends ToolHandler<S>>(registration: ToolRegistration<S>, handler: H): H;
  function register<S extends TSchema>(registration: ToolRegistration<S>): <H extends ToolHandler<S>>(handler: H) => H;
  function register<S extends TSchema>(registration: ToolRegistration<S>, handler?: ToolHandler<S>): unknown {
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
      if (tool.kind === "program") throw new TypeError(`tool ${JSON.stringify(name)} runs programs: a runner has to`);
      return await tool.run(validated(tool, args), context);
    },
  };
}
