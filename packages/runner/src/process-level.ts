import { lstatSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parserOf } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import {
  ToolOutcome,
  type Actor,
  type CallAuthority,
  type ToolIdentity,
} from "@larkline/protocol/tool";
import { Type, type Static } from "@larkline/protocol/type";
import { ProcessCallError } from "@larkline/sandbox";
import {
  errorText,
  inputOf,
  interruptedOutcome,
  type RunToolRequest,
  type Tool,
} from "@larkline/tool-kit";
import { ChildRoom, createChildSlots, type ChildSlots, type SlotCall } from "./child-slots.ts";
import type { BeginCall, ToolLevel } from "./level.ts";
import type { LentPackages, LoadedTools } from "./tool-modules.ts";

export interface ProcessLevelOptions {
  loaded: LoadedTools;
  /** The runner's variables, of which tools get what they name. */
  environment: Readonly<Record<string, string | undefined>>;
  /** Calls at once for each set of settings, and children at most. */
  concurrency: number;
  /** Children beside the warm ones that fit into memory, over all sets. Default: as many as calls at once. */
  childrenAtMost?: number;
  clock?: Clock | undefined;
  /** A line that a tool's process wrote. */
  onLine(line: string, stream: "stdout" | "stderr"): void;
  /** A message of a tool's process was no good and is dropped. */
  onDropped(tool: string, reason: string): void;
}

const warmChildren = 1;

/** The named variables that are set. */
export function pickedEnv(
  environment: ProcessLevelOptions["environment"],
  names: readonly string[],
): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = environment[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

function failed(tool: Tool, error: unknown, request: RunToolRequest): ToolOutcome {
  const { context, timeoutMs = tool.timeoutMs } = request;
  if (!(error instanceof ProcessCallError)) return { ok: false, error: errorText(error) };
  switch (error.failure) {
    case "handler": // the host could not load the tool
      return { ok: false, error: errorText(error) };
    case "cancelled":
      return interruptedOutcome(tool, context.signal.reason ?? error);
    case "timeout":
      return interruptedOutcome(
        tool,
        `tool ${tool.name} did not answer within ${timeoutMs} ms and was stopped`,
      );
    case "closed":
      return interruptedOutcome(tool, "the runner was stopped during the call");
    default:
      return neverRan(error)
        ? { ok: false, error: errorText(error) }
        : interruptedOutcome(tool, error);
  }
}

/** The outcome of a call for which no process was free: it had no effect. */
function neverBegan(error: unknown, signal: AbortSignal): ToolOutcome {
  return { ok: false, error: signal.aborted ? errorText(signal.reason) : errorText(error) };
}

/** No child could be started. */
function neverRan({ failure, exitCode, signal }: ProcessCallError): boolean {
  return failure === "crashed" && exitCode === undefined && signal === undefined;
}

/**
 * The child was ended from outside or by another of its calls. The tool is not to blame, so it is run again in a fresh
 * child of its own.
 */
function mayRepeat(tool: Tool, error: unknown): boolean {
  if (tool.effect === "once" || !(error instanceof ProcessCallError)) return false;
  const { failure, childFault } = error;
  if (callsPerChild(tool) > 1) {
    return failure === "crashed" || failure === "oom" || failure === "protocol";
  }
  return failure === "crashed" && !childFault;
}

function callsPerChild({ isolation: { concurrency = 1 } }: Tool): number {
  return concurrency;
}

const hasBegunBefore: BeginCall = async () => await Promise.resolve(undefined);

/** Tools with the same key share children, which have so many calls at once. */
function keyOf({ isolation: { env, memoryMb } }: Tool, callsAtOnce: number): string {
  return JSON.stringify([env.toSorted(), memoryMb, callsAtOnce]);
}

/**
 * A directory of this user alone: what lies in it is run. Kept for the next runner, which starts its children from it.
 * Undefined where it belongs to, or can be read or changed by, another user.
 */
function codeCacheOfUser(): string | undefined {
  const user = process.getuid?.() ?? 0;
  const path = join(tmpdir(), `larkline-code-${user}`);
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const facts = lstatSync(path);
    return facts.isDirectory() && facts.uid === user && (facts.mode & 0o077) === 0
      ? path
      : undefined;
  } catch {
    return undefined; // children compile what they load, each for itself
  }
}

class ProcessLevel implements ToolLevel {
  readonly #options: ProcessLevelOptions;
  readonly #codeCache = codeCacheOfUser();
  /** One set of children for each environment, size of memory and number of calls that a child has at once. */
  readonly #slots = new Map<string, ChildSlots>();
  readonly #room: ChildRoom;

  constructor(options: ProcessLevelOptions) {
    this.#options = options;
    this.#room = new ChildRoom(options.childrenAtMost ?? options.concurrency);
    for (const tool of options.loaded.registry.tools()) {
      if (tool.isolation.level === "process") this.#slotsOf(tool, callsPerChild(tool));
    }
  }

  async run(tool: Tool, request: RunToolRequest, begin: BeginCall): Promise<ToolOutcome> {
    const input = inputOf(tool, request.argumentsText);
    if (!input.ok) return input;
    const { signal } = request.context;
    if (signal.aborted) return { ok: false, error: errorText(signal.reason) };
    const { clock = systemClock } = this.#options;
    const calledMs = clock.monotonic();
    let hasBegun = false;
    const beginNow: BeginCall = async () => {
      const instead = await begin();
      hasBegun = instead === undefined;
      return instead;
    };
    try {
      return await this.#call(tool, input.value, {
        ...request,
        begin: beginNow,
        callsAtOnce: callsPerChild(tool),
      });
    } catch (error) {
      if (!hasBegun) return neverBegan(error, signal);
      if (!mayRepeat(tool, error) || signal.aborted) return failed(tool, error, request);
    }
    const { endsWithinMs = Infinity } = request;
    const again = {
      ...request,
      endsWithinMs: Math.max(1, endsWithinMs - (clock.monotonic() - calledMs)),
    };
    return await this.#call(tool, input.value, {
      ...again,
      begin: hasBegunBefore,
      callsAtOnce: 1,
    }).catch((error: unknown) => failed(tool, error, request));
  }

  async warm(): Promise<void> {
    await Promise.all([...this.#slots.values()].map(async (slots) => await slots.warm()));
  }

  async close(): Promise<void> {
    await Promise.all([...this.#slots.values()].map(async (slots) => await slots.close()));
  }

  async #call(
    tool: Tool,
    input: Record<string, unknown>,
    { callsAtOnce, ...request }: RunToolRequest & { begin: BeginCall; callsAtOnce: number },
  ): Promise<ToolOutcome> {
    const { loaded, onDropped } = this.#options;
    const { signal, progress, log, ...facts } = request.context;
    const { context } = request;
    const body = (): HostCall => ({
      module: loaded.modules.get(tool.name) ?? "",
      tool: tool.name,
      input,
      facts: context.identity === undefined ? facts : { ...facts, identity: context.identity },
      maxOutputBytes: request.maxOutputBytes ?? 262_144,
      lend: loaded.lend,
      isShared: callsAtOnce > 1,
    });
    const call: SlotCall = {
      body,
      begin: request.begin,
      endsWithinMs: request.endsWithinMs,
    };
    const answer = await this.#slotsOf(tool, callsAtOnce).call(call, {
      signal,
      timeoutMs: request.timeoutMs ?? tool.timeoutMs,
      onEvent: (message) => {
        const event = parseHostEvent(message);
        if (!event.ok) onDropped(tool.name, event.error);
        else if (event.value.kind === "progress") {
          progress(event.value.fraction, event.value.detail);
        } else log(event.value.message, event.value.fields);
      },
      onRequest: async (message) => await this.#answer(tool, message, request),
    });
    if ("instead" in answer) return answer.instead;
    const outcome = parseHostOutcome(answer.answer);
    return outcome.ok
      ? outcome.value
      : { ok: false, error: `the process of tool ${tool.name} gave no outcome` };
  }

  async #answer(tool: Tool, message: unknown, { storeFile }: RunToolRequest): Promise<string> {
    const asked = parseHostRequest(message);
    if (!asked.ok) {
      this.#options.onDropped(tool.name, asked.error);
      throw new Error("the runner does not know that request");
    }
    if (storeFile === undefined) {
      throw new Error("files cannot be saved here: the runner keeps none");
    }
    const { base64, mediaType, name } = asked.value;
    return await storeFile(Buffer.from(base64, "base64"), {
      mediaType,
      ...(name === undefined ? {} : { name }),
    });
  }

  #slotsOf(tool: Tool, callsAtOnce: number): ChildSlots {
    const key = keyOf(tool, callsAtOnce);
    const known = this.#slots.get(key);
    if (known !== undefined) return known;
    const { environment, concurrency, onLine, loaded, clock } = this.#options;
    const { env, memoryMb } = tool.isolation;
    const slots = createChildSlots({
      most: Math.ceil(concurrency / callsAtOnce),
      callsAtOnce,
      room: this.#room,
      // Few calls are retried because another call ended their child.
      warm: callsAtOnce === callsPerChild(tool) ? warmChildren : 0,
      memoryMb,
      env: pickedEnv(environment, env),
      codeCache: this.#codeCache,
      load: { load: this.#modulesWith(keyOf(tool, callsPerChild(tool))), lend: loaded.lend },
      onLine,
      clock,
    });
    this.#slots.set(key, slots);
    return slots;
  }

  #modulesWith(key: string): string[] {
    const { registry, modules } = this.#options.loaded;
    const tools = registry
      .tools()
      .filter(
        (tool) => tool.isolation.level === "process" && keyOf(tool, callsPerChild(tool)) === key,
      );
    return [...new Set(tools.flatMap(({ name }) => modules.get(name) ?? []))];
  }
}

/** Tools in child processes that have the tools' modules loaded. The first ones start with `warm`, or with the first call. */
export function createProcessLevel(options: ProcessLevelOptions): ToolLevel {
  return new ProcessLevel(options);
}

/* ---- What a runner and the processes of tools tell each other ---- */

/** One call on its way to a process that has loaded the tool's module. */
export interface HostCall {
  /** URL of the module that holds the tool. */
  module: string;
  tool: string;
  input: Record<string, unknown>;
  facts: {
    callId: string;
    turnId: string;
    actor: Actor;
    authority: CallAuthority;
    identity?: ToolIdentity;
    beganAtMs?: number;
  };
  maxOutputBytes: number;
  lend?: LentPackages | undefined;
  /** Other calls may run in the process. */
  isShared?: boolean;
}

/** What a sandbox loads ahead of the call that it is for: nothing here belongs to one call, or to one person. */
export type SandboxPreparation = Pick<HostCall, "module" | "tool" | "lend">;
/** The rest of a call. */
export type SandboxCall = Pick<HostCall, "input" | "facts" | "maxOutputBytes">;

const Progress = Type.Object({
  kind: Type.Literal("progress"),
  fraction: Type.Number(),
  detail: Type.Optional(Type.String()),
});
const Log = Type.Object({
  kind: Type.Literal("log"),
  message: Type.String(),
  fields: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
const SaveFile = Type.Object({
  kind: Type.Literal("saveFile"),
  base64: Type.String(),
  mediaType: Type.String(),
  name: Type.Optional(Type.String()),
});

/** What a tool reports while it runs. Its third message, the result, is the answer to the call. */
export type HostEvent = Static<typeof Progress> | Static<typeof Log>;
/** What it asks its runner to do; the answer is the id of the stored file. */
export type HostRequest = Static<typeof SaveFile>;

const parseProgress = parserOf(Progress);
const parseLog = parserOf(Log);

function kindOf(body: unknown): unknown {
  return typeof body === "object" && body !== null && "kind" in body ? body.kind : undefined;
}

/** Reads a message of a tool's process; an error value says what was wrong with it. */
export function parseHostEvent(
  body: unknown,
): ReturnType<typeof parseProgress> | ReturnType<typeof parseLog> {
  const kind = kindOf(body);
  if (kind === "progress") return parseProgress(body);
  if (kind === "log") return parseLog(body);
  return {
    ok: false,
    error: `messages of kind ${String(JSON.stringify(kind)).slice(0, 80)} do not exist`,
  };
}

export const parseHostRequest = parserOf(SaveFile);
export const parseHostOutcome = parserOf(ToolOutcome);
