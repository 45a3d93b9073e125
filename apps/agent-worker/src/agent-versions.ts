import { createBudgetBook, type BudgetBook } from "@larkline/agent/budgets";
import {
  agentBounds,
  agentHash,
  coveredFields,
  narrowChange,
  withChanges,
  type LarklineConfig,
} from "@larkline/process/config";
import type { Logger } from "@larkline/process/telemetry";
import type { Clock } from "@larkline/protocol/clock";
import type { TurnState } from "@larkline/protocol/turn";
import type {
  AddedProviders,
  AgentVersion,
  OrderAct,
  AgentVersions,
  AgentChange,
} from "@larkline/store/operations";
import { LRUCache } from "lru-cache";
import { AddedModels } from "./added-models.ts";
import { Agent, agentsOf, type AgentModels } from "./agent.ts";

// Operators change agents at the console while turns run. Each change makes a revision of all agents, and a turn keeps
// the revision that it began with: it runs with services whose agents and budgets are those of that revision.

/** What revisions differ in, as the file has it. */
export function asInFile(settings: LarklineConfig, models: AgentModels) {
  return {
    agents: agentsOf(settings, models),
    budgetBook: createBudgetBook(settings.budgets),
    revision: 0,
    changedAgents: new ChangedAgents(models),
  };
}

/** What revisions differ in. */
interface Revised {
  agents: ReadonlyMap<string, Agent>;
  budgetBook: BudgetBook;
  revision: number;
}

/** The services of a worker, as far as revisions depend on them. */
interface OfAgents extends Revised {
  settings: LarklineConfig;
  agentVersions: AgentVersions;
  addedProviders: AddedProviders;
  clock: Clock;
  log: Logger;
}

/** Revisions whose services are kept: those that turns under way have. */
const maxRevisions = 50;

/** Refresh interval of the versions, for a worker that missed the notification, ms. */
const refreshMs = 2_000;

/** The agents of the file, as operators have changed them. */
export class ChangedAgents {
  /** Whether every agent is as in the file. */
  isEmpty = true;
  /** The last one; 0: the file. */
  #revision = 0;
  /** Those of servers that operators have added. */
  readonly added = new AddedModels();
  readonly models: AgentModels;
  /** Versions that were reported as covering an edit of the file, by agent. */
  readonly #reported = new Map<string, number>();
  readonly #made = new LRUCache<number, Revised>({ max: maxRevisions });

  constructor(models: AgentModels) {
    this.models = models;
  }

  /** Knows every version from now on. While Redis is away, what was read last stays. */
  async follow(services: OfAgents, signal: AbortSignal): Promise<void> {
    if (!services.settings.changesAgents) return;
    const { agentVersions, clock, log } = services;
    const refresh = (): void =>
      void this.refresh(services).catch((error: unknown) =>
        log.warn({ error }, "versions of agents were not read"),
      );
    await agentVersions.watch(refresh, signal);
    await this.refresh(services);
    signal.addEventListener("abort", clock.every(refreshMs, refresh), { once: true });
  }

  async refresh(services: OfAgents): Promise<void> {
    const { agentVersions, log } = services;
    // Turns that begin with a version whose server has changed reach it as it is now.
    if (await this.added.refresh(services)) this.#made.clear();
    const { isNew, refused } = await agentVersions.refresh();
    for (const version of refused) {
      log.error(
        { ...version },
        "a version of an agent does not count: it is damaged, or its seal is not one of this deployment",
      );
    }
    if (!isNew) return;
    const known = [...agentVersions.known().values()].flat();
    this.#revision = Math.max(0, ...known.map(({ revision }) => revision));
    this.isEmpty = this.#revision === 0;
    this.#made.clear();
    this.#reportCovered(services);
  }

  /** An author who edits the file must learn that operators have changed the same, and that theirs counts. */
  #reportCovered({ settings, agentVersions, log }: OfAgents): void {
    for (const [agent, versions] of agentVersions.known()) {
      const version = versions.at(-1);
      const config = Object.hasOwn(settings.agents, agent) ? settings.agents[agent] : undefined;
      if (version === undefined || config === undefined || config.team !== null) continue;
      const bounds = agentBounds(settings, config, this.added.names());
      // As long as the agent is as it was when the version was made, its author knows.
      if (version.file === agentHash(bounds)) continue;
      const covered = coveredFields(bounds, version.change);
      if (covered.length === 0 || this.#reported.get(agent) === version.number) continue;
      this.#reported.set(agent, version.number);
      log.warn(
        { agent, covered: covered.join(", "), version: version.number, by: version.by },
        "the console's version of an agent covers what larkline.config.ts says of it: edits of these fields have no effect",
      );
    }
  }

  /**
   * Returns the services of a turn that begins, or of one that continues with the agents that it began with.
   */
  async servicesOf<S extends OfAgents>(services: S, turn: TurnState | undefined): Promise<S> {
    if (!services.settings.changesAgents) return services;
    const wanted = turn === undefined ? this.#revision : (turn.revision ?? 0);
    // Another worker knew of it first.
    if (wanted > this.#revision) await this.refresh(services);
    return wanted === 0 ? services : { ...services, ...this.#at(services, wanted) };
  }

  #at(services: OfAgents, revision: number): Revised {
    const made = this.#made.get(revision);
    if (made !== undefined) return made;
    const versions = versionsAt(services, revision);
    const changes = new Map<string, AgentChange>(
      [...versions].map(([name, { change }]) => [name, change]),
    );
    const { settings } = services;
    const changed = withChanges(settings, changes, this.added.names());
    const agents = new Map(services.agents);
    for (const [name, { config, limits, model }] of changed.agents) {
      const models = this.models.ofAgents.get(name);
      if (models === undefined) continue;
      const chosen =
        model === undefined
          ? undefined
          : (models.offered.get(model) ?? this.added.choice(this.models, config, model));
      const usual = chosen ?? models.usual;
      const { number } = versions.get(name) ?? {};
      agents.set(name, new Agent({ ...settings, limits }, config, { ...models, usual }, number));
    }
    const { budgets } = changed;
    const budgetBook =
      budgets === settings.budgets ? services.budgetBook : createBudgetBook(budgets);
    const ofRevision = { agents, budgetBook, revision };
    this.#made.set(revision, ofRevision);
    return ofRevision;
  }
}

/** The version of each agent in a revision. Where it is not kept any more, the oldest that is. */
function versionsAt({ agentVersions, log }: OfAgents, revision: number): Map<string, AgentVersion> {
  const found = new Map<string, AgentVersion>();
  for (const [name, versions] of agentVersions.known()) {
    const [oldest] = versions;
    const version = versions.findLast((one) => one.revision <= revision);
    if (version !== undefined) found.set(name, version);
    else if (oldest !== undefined && oldest.number > 1) {
      log.warn(
        { agent: name, revision, now: oldest.number },
        "a turn has outlived the version of an agent that it began with",
      );
      found.set(name, oldest);
    }
  }
  return found;
}

/** Gives an agent of the file the version that an operator wants, if the file allows all of it. */
export async function changeAgent(
  services: OfAgents & { changedAgents: ChangedAgents },
  by: string,
  { agent, base, change, note }: OrderAct<"change_agent">,
): Promise<"done" | "conflict" | "full" | "not_possible"> {
  const { settings, agentVersions, changedAgents, clock } = services;
  const config = Object.hasOwn(settings.agents, agent) ? settings.agents[agent] : undefined;
  if (!settings.changesAgents || config === undefined || config.team !== null) {
    return "not_possible";
  }
  // Another worker may just have added the server of its model.
  await changedAgents.refresh(services);
  const bounds = agentBounds(settings, config, changedAgents.added.names());
  if (narrowChange(bounds, change).problems.length > 0) return "not_possible";
  const about = note === undefined ? {} : { note };
  return await agentVersions.add({
    agent,
    base,
    change,
    by,
    ...about,
    atMs: clock.now(),
    file: agentHash(bounds),
  });
}
