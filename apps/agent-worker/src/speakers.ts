import {
  languageOfMessage,
  noticeText,
  refuseTurn,
  type AgentFacts,
  type CommandFacts,
  type SessionChoices,
  type TransferTarget,
  type Transition,
} from "@larkline/agent";
import { hasAccess } from "@larkline/agent/permissions";
import { agentOfTurn, type InboundMessage, type QueuedMessage, type TurnState } from "@larkline/protocol";
import { agentFor, type Agent } from "./agents.ts";
import { groupsOf, placeOf } from "./approvals.ts";
import type { Services } from "./services.ts";
import type { TurnStart } from "./turn-output.ts";

// Who has the word: in a turn that begins or continues, whom that agent may give it to, and whom a person may choose.

/** Who answers a message. */
export interface Speaker {
  agent: Agent;
  /** The checkpoint, in which that agent has the word. */
  turn: TurnState | undefined;
  /** The agent that the message is for does not answer this person here. */
  isRefused: boolean;
  /** The agent that had the word is not configured any more: the session forgets it. */
  isGone: boolean;
  /** What the person is told about it, if anything. */
  notes: string[];
}

/**
 * Who answers: in a turn that continues the agent that has the word in it, in a new one the agent that the session was
 * handed over to, if there still is one and the person may use it; otherwise the agent that the message is for.
 */
export async function speakerIn(services: Services, { turn, head, settings }: TurnStart): Promise<Speaker> {
  const { message } = turn ?? head;
  const entry = agentFor(services, message);
  const wanted = turn === undefined ? agentOfSession(settings, message) : turn.agent;
  const active = wanted === undefined ? undefined : services.agents.get(wanted);
  const speak = (agent: Agent, note?: "agentGone" | "agentElsewhere"): Speaker => {
    const language = languageOfMessage(message, agent.speech.texts);
    const notes = note === undefined ? [] : [noticeText(note, language, { agent: wanted ?? "", now: agent.name })];
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

/** Whether an agent answers the person of a message in its chat. Their groups are looked up where they can decide it. */
async function answers(services: Services, { config: { access } }: Agent, message: InboundMessage): Promise<boolean> {
  if (access === null) return true;
  const { app, reply, sender, session } = message;
  const { roles: known } = services.settings.permissions;
  const may = (groups: readonly string[]): boolean =>
    hasAccess(access, { person: { id: sender.id, groups }, chatId: placeOf(message), known });
  if (may([])) return true;
  const named = (access.roles ?? []).flatMap((role) => (Object.hasOwn(known, role) ? (known[role]?.groups ?? []) : []));
  if (reply.channel === "none" || !may(named)) return false;
  try {
    return may(await groupsOf(services, app, sender.id));
  } catch (error) {
    services.log.warn({ error, session }, "user groups unknown; an agent that depends on them does not answer");
    return false;
  }
}

/** The agent that a session was handed over to; undefined where its messages go to the agent that they are for. */
function agentOfSession({ agent }: SessionChoices, message: InboundMessage): string | undefined {
  return agent !== undefined && agent.from === (message.agent ?? "default") ? agent.to : undefined;
}

/** Whether the person may use an agent here. */
type MayUse = (agent: Agent) => boolean;

/** The hand-overs of the agent that has the word, by the name of their call; undefined where it has none. */
export function transfersOf(
  { agents }: Services,
  { agent, chosenModel, mayUse }: { agent: Agent; chosenModel: string | undefined; mayUse: MayUse },
): ReadonlyMap<string, TransferTarget> | undefined {
  if (agent.transfers.length === 0) return undefined;
  const targets = agent.transfers.flatMap(({ to, context, tool }): [string, TransferTarget][] => {
    const target = agents.get(to);
    if (target === undefined) return [];
    const { model } = target.modelOf(chosenModel);
    return [[tool.spec.name, { to, context, tool, isAllowed: mayUse(target), model }]];
  });
  return new Map(targets);
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
  { agent, model, start, mayUse }: { agent: Agent; model: string; start: TurnStart; mayUse: MayUse },
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
function agentFactsOf(services: Services, message: InboundMessage, now: string, mayUse: MayUse): AgentFacts {
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

/** The choices of a session after a turn, if they are other ones; `chosen`: by the turn itself. */
export function choicesAfter(
  turn: TurnState,
  { settings: before, isAgentGone: isGone = false }: Pick<TurnStart, "settings" | "isAgentGone">,
  chosen: SessionChoices | undefined,
): SessionChoices | undefined {
  const { handedOverBy = [], message } = turn;
  if (handedOverBy.length === 0 && (!isGone || chosen !== undefined)) return chosen;
  const { agent: _agent, ...rest } = chosen ?? before;
  const [from, to] = [message.agent ?? "default", agentOfTurn(turn)];
  return handedOverBy.length === 0 || to === from ? rest : { ...rest, agent: { from, to } };
}

/** What a process has to know to go on with a session of these choices. */
export function needsOfChoices({ agent }: SessionChoices): readonly string[] {
  return agent === undefined ? [] : ["hand-over"];
}
