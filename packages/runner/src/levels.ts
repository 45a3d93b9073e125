import { existsSync } from "node:fs";
import { isAbsolute, normalize } from "node:path";
import {
  openSandbox,
  probeTiers,
  type Sandbox,
  type SandboxCommand,
  type SandboxEvent,
  type SandboxSession,
  type SandboxTier,
  type TierFinding,
} from "@larkline/sandbox";
import { systemClock, type Clock, type Random } from "@larkline/protocol/clock";
import { inputOf, runTool, type IsolationLevel, type Tool } from "@larkline/tool-kit";
import type { ToolLevel } from "./level.ts";
import { createProcessLevel, type ProcessLevelOptions } from "./process-level.ts";
import { outermost, readablePaths } from "./readable-paths.ts";
import { createSandboxLevel, lendingNeeds, sandboxEntry, sandboxNeeds } from "./sandbox-level.ts";
import { pathOfModule, type LoadedTools } from "./tool-modules.ts";

export interface LevelsOptions extends ProcessLevelOptions {
  loaded: LoadedTools;
  /** Tiers that the operator accepts. Default: all. */
  tiers?: readonly SandboxTier[] | undefined;
  /** Whether a sandbox is accepted in which programs get far more memory than they may have. Default: no. */
  allowUnboundedMemory?: boolean;
  random?: Random | undefined;
  onSandboxEvent(event: SandboxEvent): void;
  /** A tier was attacked: at the start those up to the first that holds, and that one at every `recheck`. */
  onFinding(finding: TierFinding): void;
}

/** All levels that the tools of a runner ask for. */
export interface Levels extends ToolLevel {
  /** See {@link ToolLevel}; rejects with an {@link IsolationRefusedError}. */
  warm(): Promise<void>;
  /** The tier of the sandbox in use and whether it holds; undefined when no tool needs one. */
  sandbox(): { tier: string; holds: boolean } | undefined;
  /** Starts a program that lives on in a sandbox of its own. Rejects where none holds, and after `close`. */
  start(command: SandboxCommand): Promise<SandboxSession>;
  /** Attacks the sandbox in use again; programs are refused from now on while it does not hold. */
  recheck(): Promise<void>;
}

/** The host cannot give a tool the isolation that it asks for. One line. */
export class IsolationRefusedError extends Error {
  override readonly name = "IsolationRefusedError";
}

const waysOut =
  "Install bubblewrap and let this process make user namespaces, or run on a kernel with Landlock (6.12 or newer), " +
  "or offer the tool from a runner on another machine, or take it out of this runner.";

/** The other tiers deny sockets altogether. */
const tierWithNetwork: SandboxTier = "bwrap";

function refused(tool: Tool, reason: string): IsolationRefusedError {
  return new IsolationRefusedError(
    `tool ${JSON.stringify(tool.name)} asks for isolation "${tool.isolation.level}": ${reason}`,
  );
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function fileOf(url: string | undefined): string[] {
  return url === undefined ? [] : [pathOfModule(url) ?? []].flat();
}

/** What the module of a handler has to read. */
function readableFor(tool: Tool, { modules, lend }: LoadedTools): string[] {
  const wrong = tool.isolation.readable.find(
    (path) => !isAbsolute(path) || normalize(path) !== path || !existsSync(path),
  );
  if (wrong !== undefined) {
    throw refused(tool, `${JSON.stringify(wrong)} in its readable is no absolute path that exists`);
  }
  try {
    // Only the needed parts of this package and the lender: each path is a mount, which costs time at every start.
    const lent = Object.fromEntries((lend?.names ?? []).map((name) => [name, "whole"] as const));
    const paths = [
      ...readablePaths(
        sandboxEntry,
        lend === undefined ? sandboxNeeds : { ...sandboxNeeds, ...lendingNeeds },
      ),
      ...fileOf(modules.get(tool.name)).flatMap((file) => readablePaths(file)),
      ...fileOf(lend?.lender).flatMap((file) => readablePaths(file, lent)),
    ];
    return [...outermost(paths), ...tool.isolation.readable];
  } catch (error) {
    throw refused(tool, `what its module needs cannot be found: ${messageOf(error)}`);
  }
}

/** The message of its error says what was found, and what can be done. */
async function openLocal(options: LevelsOptions): Promise<Sandbox> {
  const { tiers, allowUnboundedMemory, clock, random, onSandboxEvent, onFinding } = options;
  const accepted = {
    ...(tiers === undefined ? {} : { tiers }),
    allowUnboundedMemory: allowUnboundedMemory === true,
  };
  const opening = await openSandbox({ ...accepted, clock, random, onEvent: onSandboxEvent });
  if (!opening.ok) {
    const found = opening.findings.map(({ tier, reason }) => `${tier}: ${reason}`).join("; ");
    throw new Error(`no sandbox holds on this host (${found}). ${waysOut}`);
  }
  for (const finding of opening.findings) onFinding(finding);
  return opening.sandbox;
}

function isSandboxed({ isolation }: Tool): boolean {
  return isolation.level === "sandbox";
}

/** In control groups of version 2 only a process that has none of its own beside it can make groups for sandboxes. */
function sandboxedFirst(tools: Tool[]): Tool[] {
  return tools.toSorted((one, other) => Number(isSandboxed(other)) - Number(isSandboxed(one)));
}

class OpenLevels implements Levels {
  readonly #options: LevelsOptions;
  readonly #levels = new Map<IsolationLevel, ToolLevel>();
  #sandbox: Promise<Sandbox> | undefined;
  #tier: string | undefined;
  #problem: string | undefined;
  #closed = false;

  constructor(options: LevelsOptions) {
    this.#options = options;
    this.#levels.set("inline", createInlineLevel(options.clock));
  }

  async open(): Promise<void> {
    for (const tool of sandboxedFirst(this.#options.loaded.registry.tools())) {
      const { level } = tool.isolation;
      const isHandler = tool.kind === "handler" && level !== "inline";
      if (isHandler && !this.#options.loaded.modules.has(tool.name)) {
        throw refused(
          tool,
          'it was made in the middle of a program, where no other process finds it. Only "inline" is left',
        );
      }
      if (!this.#levels.has(level)) this.#levels.set(level, await this.#opened(tool));
    }
  }

  async run(...[tool, request, begin]: Parameters<ToolLevel["run"]>): ReturnType<ToolLevel["run"]> {
    const level = this.#levels.get(tool.isolation.level);
    if (level === undefined) {
      return { ok: false, error: `this runner has no isolation ${tool.isolation.level}` };
    }
    return await level.run(tool, request, begin);
  }

  async warm(): Promise<void> {
    const tools = this.#options.loaded.registry.tools();
    for (const [name, level] of this.#levels) {
      const first = tools.find(({ isolation }) => isolation.level === name);
      await level.warm?.().catch((error: unknown) => {
        throw first === undefined ? error : refused(first, messageOf(error));
      });
    }
  }

  sandbox(): { tier: string; holds: boolean } | undefined {
    return this.#tier === undefined
      ? undefined
      : { tier: this.#tier, holds: this.#problem === undefined };
  }

  async recheck(): Promise<void> {
    const tier = this.#tier;
    if (tier === undefined) return;
    const { clock, random } = this.#options;
    const allowUnboundedMemory = this.#options.allowUnboundedMemory === true;
    const findings = await probeTiers({
      tiers: [tier as SandboxTier],
      allowUnboundedMemory,
      clock,
      random,
    }); // it came from openSandbox
    const finding = findings.find((each) => each.tier === tier) ?? {
      tier,
      holds: false,
      reason: "it is gone",
    };
    this.#problem = finding.holds ? undefined : finding.reason;
    this.#options.onFinding(finding);
  }

  async start(command: SandboxCommand): Promise<SandboxSession> {
    if (this.#closed) throw new Error("the runner is stopping");
    const sandbox = await this.#localSandbox();
    const refusal = this.#refusal();
    if (refusal !== undefined) throw new Error(refusal);
    return await sandbox.open(command);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#levels.values()].map(async (level) => await level.close()));
    const sandbox = await this.#sandbox?.catch(() => undefined); // then there is none to close
    await sandbox?.close();
  }

  async #opened(tool: Tool): Promise<ToolLevel> {
    const { level } = tool.isolation;
    if (level === "process") return createProcessLevel(this.#options);
    return await this.#local(tool);
  }

  async #local(first: Tool): Promise<ToolLevel> {
    const { loaded, environment, clock = systemClock } = this.#options;
    const handlers = loaded.registry
      .tools()
      .filter((tool) => tool.kind === "handler" && tool.isolation.level === "sandbox");
    const readable = new Map(handlers.map((tool) => [tool.name, readableFor(tool, loaded)]));
    const sandbox = await this.#localSandbox().catch((error: unknown) => {
      throw refused(first, messageOf(error));
    });
    const networked = loaded.registry
      .tools()
      .find(({ isolation }) => isolation.level === "sandbox" && isolation.network !== "none");
    if (networked !== undefined && sandbox.tier !== tierWithNetwork) {
      await sandbox.close();
      throw refused(
        networked,
        `the sandbox of this host (${sandbox.tier}) has no network to give. ${waysOut}`,
      );
    }
    return createSandboxLevel({
      sandbox,
      refusal: () => this.#refusal(),
      loaded,
      environment,
      readable,
      clock,
    });
  }

  async #localSandbox(): Promise<Sandbox> {
    this.#sandbox ??= openLocal(this.#options);
    const sandbox = await this.#sandbox.catch((error: unknown) => {
      this.#sandbox = undefined; // the next try may find what is missing
      throw error;
    });
    this.#tier = sandbox.tier;
    return sandbox;
  }

  #refusal(): string | undefined {
    return this.#problem === undefined
      ? undefined
      : "the sandbox of this runner does not hold any more: nothing is run in it";
  }
}

/**
 * Opens what the tools ask for, and nothing else. Rejects with an {@link IsolationRefusedError} when
 * the host cannot give it: nothing falls back to less.
 */
export async function openLevels(options: LevelsOptions): Promise<Levels> {
  const levels = new OpenLevels(options);
  try {
    await levels.open();
    return levels;
  } catch (error) {
    await levels.close();
    throw error;
  }
}

/** Tools in the runner's own process. */
export function createInlineLevel(clock: Clock = systemClock): ToolLevel {
  return {
    run: async (tool, request, begin) => {
      if (tool.kind === "handler") {
        const input = inputOf(tool, request.argumentsText);
        if (!input.ok) return input;
        const { endsWithinMs = Infinity, timeoutMs = tool.timeoutMs } = request;
        const calledMs = clock.monotonic();
        const instead = await begin();
        const leftMs = endsWithinMs - (clock.monotonic() - calledMs);
        return (
          instead ??
          (await runTool(tool, { ...request, timeoutMs: Math.min(timeoutMs, leftMs) }, clock))
        );
      }
      return { ok: false, error: `tool ${tool.name} runs programs, which need a sandbox` };
    },
    close: async () => await Promise.resolve(),
  };
}
