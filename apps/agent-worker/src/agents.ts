import {
  endPaused,
  type TurnLimits,
  noticeText,
  refuseTurn,
  type SessionChoices,
  type Transition,
} from "@larkline/agent";
import type { AgentFacts, CommandFacts } from "@larkline/agent/commands";
import type { TransferTarget } from "@larkline/agent/handover";
import type { HelperFacts, HelperTarget } from "@larkline/agent/helpers";
import { languageOfMessage } from "@larkline/agent/messages";
import { hasAccess } from "@larkline/agent/permissions";
import { type TeamFacts, withoutTeam } from "@larkline/agent/team";
import { agentOfMessage } from "@larkline/process/config";
import { type InboundMessage, chatOf, peopleOf, type QueuedMessage } from "@larkline/protocol";
import { teamOfTurn, agentOfTurn, type TeamState, type TurnState } from "@larkline/protocol/turn";
import type { Agent } from "./agent.ts";
import { groupsOf } from "./approvals.ts";
import type { RunningTurn } from "./running-turn.ts";
import type { Services } from "./services.ts";
import type { TurnStart } from "./turn-output.ts";

// The agent that answers: in a turn that begins or continues, to which agents it may hand over or give a task, and
// which ones a person may choose.

/** The agent that answers a message. */
export function agentFor({ settings, agents, log }: Services, message: InboundMessage): Agent {
  const { session, agent = "default" } = message;
  const accepted = agents.get(agent);
  if (accepted !== undefined) return accepted;
  const { name } = agentOfMessage(settings, message);
  log.warn(
    { session, agent, answeredBy: name },
    "the agent of a message is not configured any more",
  );
  const found = agents.get(name);
  if (found === undefined) throw new RangeError(`no agent ${name}`); // it is one of them
  return found;
}

/** Money is counted by prices. */
export function warnOfMissingPrices({ settings, agents, log }: Services): void {
  if (!settings.budgets.budgets.some(({ usd }) => usd !== undefined)) return;
  for (const agent of agents.values()) {
    const all = [undefined, ...agent.config.models].flatMap(
      (name) => agent.modelOf(name).chain.models,
    );
    const free = all.filter(
      ({ inputPricePer1M, outputPricePer1M }) => inputPricePer1M + outputPricePer1M === 0,
    );
    if (free.length === 0) continue;
    const facts = { agent: agent.name, models: [...new Set(free.map(({ id }) => id))].join(", ") };
    log.warn(
      facts,
      "budgets in money do not count these models: their prices are unknown (models[] can give them)",
    );
  }
}

/** Who answers a message. */
export interface Speaker {
  agent: Agent;
  /** The checkpoint, with that agent as the one that answers. */
  turn: TurnState | undefined;
  /** The agent that the message is for does not answer this person here. */
  isRefused: boolean;
  /** The agent that answered is not configured any more: the session forgets it. */
  isGone: boolean;
  /** The note to the person about it, if any. */
  notes: string[];
}

/**
 * Chooses the agent that answers. A turn that continues keeps its agent. A new turn gets the agent that the session was
 * handed over to, if it is still configured and the person may use it; otherwise the agent that the message is for.
 */
export async function speakerIn(
  services: Services,
  { turn, head, settings }: TurnStart,
): Promise<Speaker> {
  const { message } = turn ?? head;
  const entry = agentFor(services, message);
  const team = turn === undefined ? undefined : teamOfTurn(turn);
  if (turn !== undefined && team !== undefined) return memberIn(services, turn, { team, entry });
  const wanted = turn === undefined ? agentOfSession(settings, message) : turn.agent;
  const active = wanted === undefined ? undefined : services.agents.get(wanted);
  const speak = (agent: Agent, note?: "agentGone" | "agentElsewhere"): Speaker => {
    const language = languageOfMessage(message, agent.speech.texts);
    const notes =
      note === undefined
        ? []
        : [noticeText(note, language, { agent: wanted ?? "", now: agent.name })];
    return { agent, turn, isRefused: false, isGone: note === "agentGone", notes };
  };
  const isGone = wanted !== undefined && active === undefined;
  if (turn !== undefined) {
    if (!isGone) return speak(active ?? entry);
    const { agent: _gone, ...rest } = turn;
    return { ...speak(entry, "agentGone"), turn: rest };
  }
  if (active !== undefined && (await answers(services, active, message))) return speak(active);
  const isRefused = !(await answers(services, entry, message));
  const note = active === undefined ? "agentGone" : "agentElsewhere";
  return { ...speak(entry, wanted === undefined ? undefined : note), isRefused };
}

/**
 * The member that answers in a turn of a team. If it is not configured any more, another one follows. Without its team
 * a member answers alone.
 */
function memberIn(
  { agents }: Services,
  turn: TurnState,
  { team, entry }: { team: TeamState; entry: Agent },
): Speaker {
  const speaker = { turn, isRefused: false, isGone: false, notes: [] };
  const together = agents.get(team.name);
  const member = turn.agent === undefined ? undefined : agents.get(turn.agent);
  if (together !== undefined && together.config.team !== null) {
    if (member === undefined || team.choosing === true) return { ...speaker, agent: together };
    return { ...speaker, agent: member };
  }
  return { ...speaker, agent: member ?? entry, turn: withoutTeam(turn) };
}

/** Whether an agent answers the person of a message in its chat. A team answers if one of its members does. */
async function answers(
  services: Services,
  agent: Agent,
  message: InboundMessage,
): Promise<boolean> {
  for (const one of agentsIn(services, agent)) {
    if (await answersAlone(services, one, message)) return true;
  }
  return false;
}

/** Their groups are looked up where they can decide it. */
async function answersAlone(
  services: Services,
  { config: { access } }: Agent,
  message: InboundMessage,
): Promise<boolean> {
  if (access === null) return true;
  const { app, sender, session } = message;
  const { reply } = peopleOf(message);
  const { roles: known } = services.settings.permissions;
  const may = (groups: readonly string[]): boolean =>
    hasAccess(access, { person: { id: sender.id, groups }, chatId: chatOf(message), known });
  if (may([])) return true;
  const named = (access.roles ?? []).flatMap((role) =>
    Object.hasOwn(known, role) ? (known[role]?.groups ?? []) : [],
  );
  if (reply.channel === "none" || !may(named)) return false;
  try {
    return may(await groupsOf(services, app, sender.id));
  } catch (error) {
    services.log.warn(
      { error, session },
      "user groups unknown; an agent that depends on them does not answer",
    );
    return false;
  }
}

/** The agent that a session was handed over to; undefined where its messages go to the agent that they are for. */
function agentOfSession({ agent }: SessionChoices, message: InboundMessage): string | undefined {
  return agent !== undefined && agent.from === (message.agent ?? "default") ? agent.to : undefined;
}

/** The agents whose rights count for an agent: its own, of a team those of its members. */
export function agentsIn({ agents }: Services, agent: Agent): Agent[] {
  const { team } = agent.config;
  return team === null ? [agent] : team.members.flatMap((name) => agents.get(name) ?? []);
}

/** Whether an operator has paused it. */
export function isPaused({ pauses }: Services, agent: string): boolean {
  return pauses.hasAny && pauses.of("agent", agent) !== undefined;
}

/** The end of the turn when a model would be asked and the agent that answers, or its team, is paused. */
export function pausedEnd(
  services: Services,
  { agent, stored: { turn } }: Pick<RunningTurn, "agent" | "stored">,
  next: Transition["next"],
): Transition | undefined {
  if (next.do !== "model" && next.do !== "compact" && next.do !== "choose") return undefined;
  const name = pausedIn(services, turn, agent.name);
  return name === undefined ? undefined : endPaused(turn, name, agent.speech.texts);
}

/** The team of a turn, or the agent that answers in it, if an operator has paused it. */
export function pausedIn(
  services: Services,
  turn: TurnState,
  agent = agentOfTurn(turn),
): string | undefined {
  return [teamOfTurn(turn)?.name ?? agent, agent].find((one) => isPaused(services, one));
}

/** Whether the person may use an agent here. */
export type MayUse = (agent: Agent) => boolean;

/** The facts that decide which agents may answer. */
export interface WordFacts {
  chosenModel: string | undefined;
  mayUse: MayUse;
}

/**
 * The hand-overs of the agent that answers, by the name of their call; undefined where it has none. In a team they lead
 * to its members only. `team`: the team of the turn.
 */
export function transfersOf(
  services: Services,
  { agent, team, ...facts }: WordFacts & { agent: Agent; team: Agent | undefined },
): ReadonlyMap<string, TransferTarget> | undefined {
  const { agents } = services;
  const passes = [...(team?.passes.values() ?? [])].filter(({ to }) => to !== agent.name);
  const offered =
    team === undefined
      ? agent.transfers
      : passes.map((pass) => ({ ...pass, context: "all" as const }));
  if (offered.length === 0) return undefined;
  const targets = offered.flatMap(({ to, context, tool }): [string, TransferTarget][] => {
    const target = agents.get(to);
    if (target === undefined) return [];
    const { model } = target.modelOf(facts.chosenModel);
    const isAllowed = facts.mayUse(target);
    const together = teamFactsOf(services, target, facts);
    const members = together === undefined ? {} : { team: together };
    return [[tool.spec.name, { to, context, tool, isAllowed, model, ...members }]];
  });
  return new Map(targets);
}

/** The team that answers in a run, or in the turn that begins, and the bounds of that turn. */
export function teamOfRun(
  services: Services,
  { agent, first, stored: { turn } }: Pick<RunningTurn, "agent" | "first" | "stored">,
  facts: WordFacts,
): { together?: Agent; team?: TeamFacts; limits: TurnLimits } {
  const state = teamOfTurn(turn);
  const together = state === undefined ? agent : services.agents.get(state.name);
  const team = together === undefined ? undefined : teamFactsOf(services, together, facts);
  if (together === undefined || team === undefined) return { limits: first.limits };
  // A contribution has as many steps as a turn of its agent.
  const maxIterations = (state?.fromStep ?? 0) + agent.limits.maxIterations;
  return { together, team, limits: { ...first.limits, maxIterations } };
}

/** A team for the person of a turn: whom of its members they may use. */
function teamFactsOf(
  { agents }: Services,
  { name, config }: Agent,
  facts: WordFacts,
): TeamFacts | undefined {
  if (config.team === null) return undefined;
  const { members, ...settings } = config.team;
  const known = members.flatMap((member) => agents.get(member) ?? []);
  return {
    ...settings,
    name,
    members: known.map((member) => ({
      name: member.name,
      description: member.config.description,
      isAllowed: facts.mayUse(member),
      model: member.modelOf(facts.chosenModel).model,
    })),
  };
}

/** The helpers of the agent that answers. */
export function helpersOf(
  { agents, helperReadiness }: Services,
  agent: Agent,
  mayUse: MayUse,
): HelperFacts {
  const targets = [...agent.helpers].flatMap(([name, { link, tool }]): [string, HelperTarget][] => {
    const target = agents.get(link.agent);
    if (target === undefined) return [];
    return [
      [name, { agent: link.agent, tool, timeoutMs: link.timeoutMs, isAllowed: mayUse(target) }],
    ];
  });
  return { targets: new Map(targets), isReady: helperReadiness.isReady };
}

/** The end of a turn whose message is for an agent that does not answer this person; undefined for others. */
export function refusalOf(
  { clock }: Services,
  { agent, isRefused }: Speaker,
  head: QueuedMessage,
): Transition | undefined {
  if (!isRefused) return undefined;
  const language = languageOfMessage(head.message, agent.speech.texts);
  return refuseTurn(head, clock.now(), noticeText("agentRefused", language, { agent: agent.name }));
}

/** What a command depends on. */
export function commandFactsOf(
  services: Services,
  {
    agent,
    model,
    start,
    mayUse,
  }: { agent: Agent; model: string; start: TurnStart; mayUse: MayUse },
): CommandFacts {
  const { defaultModel, speech, config } = agent;
  const agents = agentFactsOf(services, start.head.message, agent.name, mayUse);
  const choices = start.settings;
  const nowMs = services.clock.now();
  return { nowMs, model, defaultModel, models: config.models, ...speech, choices, agents };
}

/**
 * What `/agent` says: the agents that the person may use among those that the conversation can come to by hand-overs from
 * the agent that its messages are for. A bot's people reach no agent in this way that its configuration does not lead to.
 */
function agentFactsOf(
  services: Services,
  message: InboundMessage,
  now: string,
  mayUse: MayUse,
): AgentFacts {
  const entry = agentFor(services, message);
  const reachable = [entry];
  for (const { transfers } of reachable) {
    for (const { to } of transfers) {
      const agent = services.agents.get(to);
      if (agent !== undefined && !reachable.includes(agent)) reachable.push(agent);
    }
  }
  const known = reachable.filter(mayUse);
  return { now, known: known.map(({ name, config: { description } }) => ({ name, description })) };
}

/** The name of an agent that answers in place of the one that the message is for. */
export function agentOtherThan(
  { agent: entry = "default" }: InboundMessage,
  { name }: Agent,
): string | undefined {
  return name === entry ? undefined : name;
}
