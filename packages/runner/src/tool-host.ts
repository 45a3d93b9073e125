/* What the processes do that run tools of level `process`: see process-level.ts. */
import { once } from "node:events";
import { flushCompileCache } from "node:module";
import { serveCalls, type CallContext } from "@larkline/sandbox/child";
import {
  errorText,
  runToEnd,
  toolsOfModule,
  trustDefinitions,
  type CallContext as ToolCallContext,
  type HandlerTool,
} from "@larkline/tool-kit";
import type { HostLoad } from "./child-slots.ts";
import type { HostCall, HostEvent, HostRequest } from "./process-level.ts";
import type { LentPackages } from "./tool-modules.ts";

const modules = new Map<string, Promise<Map<string, HandlerTool>>>();
const leastProgressMs = 50;
/** A tool that logs in a loop would keep its runner busy. */
const maxLines = 1_000;

async function load(module: string): Promise<Map<string, HandlerTool>> {
  const tools = await toolsOfModule(module);
  return new Map(
    tools.flatMap((tool) => (tool.kind === "handler" ? [[tool.name, tool] as const] : [])),
  );
}

/** Loaded once: what a module keeps in memory lives as long as this process. */
async function loadedModule(
  module: string,
  lend: LentPackages | undefined,
): Promise<Map<string, HandlerTool>> {
  if (lend !== undefined && modules.size === 0) {
    (await import("@larkline/process/lent-packages")).lendPackages(lend.names, lend.lender);
  }
  const loading = modules.get(module) ?? load(module);
  modules.set(module, loading);
  return await loading;
}

async function loadAll({ load: all, lend }: HostLoad): Promise<null> {
  for (const module of all) {
    await loadedModule(module, lend).catch((error: unknown) => {
      throw new Error(`${module} cannot be loaded in a process of its own: ${errorText(error)}`, {
        cause: error,
      });
    });
  }
  flushCompileCache(); // for those that start after this one, which may be killed
  return null;
}

/** Passes on the newest report, at most one every 50 ms. */
function createProgress(emit: (event: HostEvent) => void): {
  report: ToolCallContext["progress"];
  flush(): void;
} {
  let sentMs = 0;
  let waiting: HostEvent | undefined;
  let timer: NodeJS.Timeout | undefined;
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (waiting === undefined) return;
    emit(waiting);
    waiting = undefined;
    sentMs = performance.now();
  };
  return {
    flush,
    report: (fraction, detail) => {
      waiting = {
        kind: "progress",
        fraction,
        ...(detail === undefined ? {} : { detail: String(detail) }),
      };
      const restMs = sentMs + leastProgressMs - performance.now();
      if (restMs <= 0) flush();
      else timer ??= setTimeout(flush, restMs);
    },
  };
}

function createLog(emit: (event: HostEvent) => void): ToolCallContext["log"] {
  let lines = 0;
  return (message, fields) => {
    lines += 1;
    if (lines > maxLines) return;
    const event = {
      kind: "log",
      message: lines === maxLines ? "further lines are left out" : String(message),
    } as const;
    emit(fields === undefined ? event : { ...event, fields });
  };
}

async function run(call: HostCall, { signal, emit, request }: CallContext): Promise<unknown> {
  const tool = (await loadedModule(call.module, call.lend)).get(call.tool);
  if (tool === undefined) {
    throw new Error(`tool ${JSON.stringify(call.tool)} is not in its module any more`);
  }
  const progress = createProgress(emit);
  const ended = runToEnd(tool, call.input, {
    context: { ...call.facts, signal, progress: progress.report, log: createLog(emit) },
    maxOutputBytes: call.maxOutputBytes,
    storeFile: async (bytes, { mediaType, name }) => {
      const base64 = Buffer.from(bytes).toString("base64");
      const file: HostRequest = {
        kind: "saveFile",
        base64,
        mediaType,
        ...(name === undefined ? {} : { name }),
      };
      return String(await request(file));
    },
  });
  // A tool that ignores the abort is killed with its process if it has one to itself. In a shared process this answer
  // shows that it is not blocked, so the process lives until its other calls have ended.
  const outcome = await (call.isShared === true ? Promise.race([ended, abortOf(signal)]) : ended);
  progress.flush();
  return outcome;
}

async function abortOf(signal: AbortSignal): Promise<null> {
  if (!signal.aborted) await once(signal, "abort");
  return null;
}

/** Serves the calls of the runner until it ends. */
export function serveTools(): void {
  trustDefinitions();
  serveCalls(async (body, context) => {
    const asked = body as HostCall | HostLoad; // the runner is the only one that can reach this process
    return "load" in asked ? await loadAll(asked) : await run(asked, context);
  });
}
