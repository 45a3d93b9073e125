import {
  noUse,
  readChoice,
  selectionRequest,
  speakerChosen,
  withUse,
  wordGoesOn,
  type Choice,
  type DecidingFacts,
  type TeamFacts,
  type Transition,
  type TurnLimits,
} from "@larkline/agent";
import type { TeamState, TurnState } from "@larkline/protocol";
import type { Agent, Speaker, WordFacts } from "./agents.ts";
import type { ModelSteps } from "./model-step.ts";
import type { Services } from "./services.ts";
import type { RunningTurn } from "./turn-run.ts";

// Teams in a worker: who has the word in a turn that continues, whom of a team its person may use, and the choice that a
// model makes. What becomes of all that is decided by the turn machine (packages/agent).

/**
 * Who has the word in a turn of a team. A member that is gone is followed by another one. Without its team a member
 * answers alone.
 */
export function memberIn(
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
  const { team: _team, ...rest } = turn;
  return { ...speaker, agent: member ?? entry, turn: rest };
}

/** The team that has the word in a run, or gets it with the turn that begins, and the bounds of the turn then. */
export function teamOfRun(
  services: Services,
  { agent, first, stored: { turn } }: Pick<RunningTurn, "agent" | "first" | "stored">,
  facts: WordFacts,
): { together?: Agent; team?: TeamFacts; limits: TurnLimits } {
  const together = turn.team === undefined ? agent : services.agents.get(turn.team.name);
  const team = together === undefined ? undefined : teamFactsOf(services, together, facts);
  if (together === undefined || team === undefined) return { limits: first.limits };
  // A contribution has as many steps as a turn of its agent.
  const maxIterations = (turn.team?.fromStep ?? 0) + agent.limits.maxIterations;
  return { together, team, limits: { ...first.limits, maxIterations } };
}

/** A team for the person of a turn: whom of its members they may use. */
export function teamFactsOf({ agents }: Services, { name, config }: Agent, facts: WordFacts): TeamFacts | undefined {
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

/**
 * Asks the model of a team who speaks next, up to three times; the next in order where that leads to no member. Undefined
 * when it was broken off.
 */
export async function chooseSpeaker(
  { stored }: RunningTurn,
  steps: ModelSteps,
  { facts, overBudget }: { facts: DecidingFacts | undefined; overBudget: () => Promise<Transition | undefined> },
): Promise<Transition | undefined> {
  const { turn: before } = stored;
  // Its team is not configured any more: its member answers alone.
  if (facts === undefined) return { turn: before, history: [], events: [], next: { do: "model" } };
  if (before.team?.choosing !== true) return wordGoesOn(before, facts);
  const wrong: Choice[] = [];
  for (;;) {
    const refused = await overBudget();
    if (refused !== undefined) return refused;
    const { turn } = stored;
    const answer = await steps.choose(selectionRequest(turn, facts, wrong));
    stored.take({ turn: withUse(turn, answer.use ?? noUse), history: [], events: [], next: { do: "choose" } });
    if (answer.brokenOff === true) return undefined;
    const failed = answer.late ? "the answer of the model took too long." : answer.failure?.message;
    const read = readChoice(turn, answer.text, { team: facts.team, tries: wrong.length + 1 });
    if (failed !== undefined) return speakerChosen(stored.turn, { why: failed }, facts);
    if (read.isFinal) return speakerChosen(stored.turn, { speaker: read.speaker, why: read.problem }, facts);
    wrong.push(read);
  }
}
