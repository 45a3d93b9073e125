import { allAbilities, toolsOfAbilities } from "@larkline/agent";
import type { Logger } from "@larkline/process/telemetry";
import type { InboundMessage, LocalText } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { readResultName } from "@larkline/protocol/tool";
import type { TurnState } from "@larkline/protocol/turn";
import type { AvailableTool, RunnerDirectory, ToolClash } from "@larkline/store/runners";
import { isDeepStrictEqual } from "node:util";
import type { Agent } from "./agent.ts";

// The tools of all runners, and the keys that calls to them are signed with.

type Tools = ReadonlyMap<string, AvailableTool>;

/** Names that are taken, whatever runners offer. */
const ownNames: ReadonlySet<string> = new Set(allAbilities.flatMap(({ toolNames }) => toolNames));

/** The agent that answers in a turn, and for which message. */
export interface SpeakingTurn {
  readonly agent: Agent;
  stored: { turn: Pick<TurnState, "message"> };
}

interface CatalogOptions {
  /** Default: yes. */
  mayActAsPeople?: boolean;
  /** Titles of tools by their names. */
  titles?: Readonly<Record<string, LocalText>>;
}

/** The tools of all living runners, kept up to date. */
export class ToolCatalog {
  readonly #runners: RunnerDirectory;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Whether tools that act as people are offered: not without `GRANT_KEY`. */
  readonly #mayActAsPeople: boolean;
  /** Of the configuration, by the names of tools. */
  readonly #titles: Readonly<Record<string, LocalText>>;
  #leftOut: readonly string[] = [];
  #tools: Tools = new Map();
  #clashes: readonly ToolClash[] = [];
  /** What was made for agents from the present tools, by what else decides it. */
  #ofAgents = new WeakMap<Agent, { own: readonly [string, AvailableTool][]; tools: Tools }[]>();
  #ofMessages = new WeakMap<InboundMessage, { agent: Agent; tools: Tools }>();

  constructor(
    runners: RunnerDirectory,
    clock: Clock,
    log: Logger,
    { mayActAsPeople = true, titles = {} }: CatalogOptions = {},
  ) {
    this.#mayActAsPeople = mayActAsPeople;
    this.#titles = titles;
    this.#runners = runners;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Reads the directory at once, on every change that it reports, and every `refreshMs`: a runner that died reports
   * nothing, its announcement expires. While Redis is away the last answer stays. Ends when `signal` aborts.
   */
  async start(signal: AbortSignal, refreshMs = 2_000): Promise<void> {
    const refresh = (): void =>
      void this.refresh().catch((error: unknown) =>
        this.#log.warn({ error }, "the tools of runners were not read"),
      );
    await this.refresh();
    await this.#runners.watch(refresh, signal);
    signal.addEventListener("abort", this.#clock.every(refreshMs, refresh), { once: true });
  }

  async refresh(): Promise<void> {
    const { tools, clashes } = await this.#runners.view();
    this.#leaveOut(tools);
    this.#giveTitles(tools);
    if (!isDeepStrictEqual(clashes, this.#clashes)) {
      this.#clashes = clashes;
      if (clashes.length > 0) {
        this.#log.warn({ clashes }, "tools are not used whose names belong to other runners");
      }
    }
    if (isDeepStrictEqual(tools, this.#tools)) return;
    this.#tools = tools;
    this.#ofAgents = new WeakMap();
    this.#ofMessages = new WeakMap();
    for (const [name, { runner }] of this.#tools) {
      if (ownNames.has(name)) {
        this.#log.warn(
          { tool: name, runner },
          "a runner offers a built-in tool's name; it is not used",
        );
      }
    }
  }

  #giveTitles(tools: Map<string, AvailableTool>): void {
    for (const [name, title] of Object.entries(this.#titles)) {
      const tool = tools.get(name);
      if (tool === undefined) continue;
      tools.set(name, { ...tool, announcement: { ...tool.announcement, title } });
    }
  }

  /** Says once which tools are left out. */
  #leaveOut(tools: Map<string, AvailableTool>): void {
    if (this.#mayActAsPeople) return;
    const asPeople = [...tools].filter(
      ([, { announcement }]) => announcement.identity?.as === "person",
    );
    for (const [name] of asPeople) tools.delete(name);
    const names = asPeople.map(([name]) => name).toSorted();
    if (names.length > 0 && !isDeepStrictEqual(names, this.#leftOut)) {
      this.#log.warn(
        { tools: names },
        "GRANT_KEY is not set: tools that act as people are not offered",
      );
    }
    this.#leftOut = names;
  }

  /** The tools of the agent that answers in a turn; the same map for as long as nothing changes. */
  ofTurn({ agent, stored: { turn } }: SpeakingTurn): Tools {
    const { message } = turn;
    const last = this.#ofMessages.get(message);
    if (last?.agent === agent) return last.tools;
    const tools = this.#offered(agent, toolsOfAbilities(allAbilities, agent.place, message));
    this.#ofMessages.set(message, { agent, tools });
    return tools;
  }

  /**
   * All of the runners', or those that the agent names, and those of its abilities; what reads long results is of use only
   * beside a tool that may have some.
   */
  #offered(agent: Agent, own: readonly [string, AvailableTool][]): Tools {
    const known = this.#ofAgents.get(agent) ?? [];
    const same = known.find((other) => isDeepStrictEqual(other.own, own));
    if (same !== undefined) return same.tools;
    const { tools: allowed } = agent.config;
    const used =
      allowed === null
        ? [...this.#tools]
        : [...this.#tools].filter(([name]) => allowed.includes(name));
    const tools = new Map([
      ...used,
      ...(used.length === 0 ? own.filter(([name]) => name !== readResultName) : own),
    ]);
    this.#ofAgents.set(agent, [...known, { own, tools }]);
    return tools;
  }

  names(): string[] {
    return [...this.#tools.keys(), ...ownNames];
  }

  /** The tool of a runner, whichever agent may use it. */
  announced(name: string): AvailableTool | undefined {
    return ownNames.has(name) ? undefined : this.#tools.get(name);
  }

  /** How the author of a tool calls it. */
  titleOf(name: string): LocalText | undefined {
    return this.#tools.get(name)?.announcement.title;
  }
}

/** The keys that calls for runners are signed with, made from the deployment's: no runner can make calls for another. */
export class RunnerKeys {
  readonly #signingKey: string;
  readonly #keys = new Map<string, string>();

  constructor(signingKey: string) {
    this.#signingKey = signingKey;
  }

  of(runner: string): string {
    const key = this.#keys.get(runner) ?? runnerKeyOf(this.#signingKey, runner);
    if (this.#keys.size < maxRunnerKeys) this.#keys.set(runner, key);
    return key;
  }
}

const maxRunnerKeys = 1_000;
