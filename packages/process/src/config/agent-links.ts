import { allAbilities } from "@larkline/agent";
import type { Handoff } from "@larkline/agent/handover";
import type { HelperLink } from "@larkline/agent/helpers";
import type { Access } from "@larkline/agent/permissions";
import type { TeamSettings } from "@larkline/agent/team";
import { outputFormProblem } from "@larkline/protocol";
import { schemaProblem } from "@larkline/protocol/json-schema";
import { transferName, transferPrefix } from "@larkline/protocol/tool";
import type { AgentInput, ConfigInput, TeamInput } from "./config-schema.ts";
import { didYouMean } from "./did-you-mean.ts";

// How agents are tied to each other and to people: whom each may hand over to, with whom it answers in a team, and whom
// it answers.

/** Null where nothing restricts it. */
export function accessOf({ people, roles, chats }: AgentInput): Access | null {
  if (people === undefined && roles === undefined && chats === undefined) return null;
  return { people: people ?? null, roles: roles ?? null, chats: chats ?? null };
}

export function handoffsOf({ handoffs = [] }: AgentInput): Handoff[] {
  return handoffs.map((each) => {
    const {
      agent,
      when,
      context = "all",
      input,
    } = typeof each === "string" ? { agent: each } : each;
    return {
      agent,
      context,
      ...(when === undefined ? {} : { when }),
      ...(input === undefined ? {} : { input }),
    };
  });
}

export function teamOf({
  members,
  select,
  selector = {},
  end = {},
  reply = "last",
}: TeamInput): TeamSettings {
  const { prompt, repeat = false } = selector;
  return { members, select, prompt, repeat, end: { ...end, messages: end.messages ?? 12 }, reply };
}

/** Everything that is wrong with teams. `known`: the agents. */
export function teamProblems(
  teams: Readonly<Record<string, TeamInput>>,
  known: readonly string[],
): string[] {
  return Object.entries(teams).flatMap(([name, { members, select, selector, end = {} }]) => {
    const where = `teams.${name}`;
    const twice = members.filter((member, at) => members.indexOf(member) !== at);
    return [
      ...(known.includes(name) ? [`${where} has the name of an agent`] : []),
      ...members.flatMap((member) => {
        if (member === name) return [`${where}.members names the team itself`];
        if (Object.hasOwn(teams, member)) {
          return [`${where}.members names the team '${member}': members are agents`];
        }
        const unknown = `${where}.members names the unknown agent '${member}'${didYouMean(member, known)}`;
        return known.includes(member) ? [] : [unknown];
      }),
      ...[...new Set(twice)].map((member) => `${where}.members names '${member}' twice`),
      ...(end.from ?? []).flatMap((member) =>
        members.includes(member)
          ? []
          : [`${where}.end.from names '${member}', who is no member${didYouMean(member, members)}`],
      ),
      ...(end.from !== undefined && end.mention === undefined
        ? [`${where}.end.from says whose \`mention\` counts, and there is none`]
        : []),
      ...(selector !== undefined && select !== "model"
        ? [`${where}.selector is for select: "model" alone`]
        : []),
    ];
  });
}

const helperMs = 600_000;

/** A team is an agent with members: links name both in the same way. */
export function helpersOf({ helpers = [] }: AgentInput): HelperLink[] {
  return helpers.map(({ team = "", agent = team, ...helper }) => ({
    timeoutMs: helperMs,
    ...helper,
    agent,
  }));
}

/** Everything that is wrong with hand-overs, helpers and roles of agents. */
export function agentLinkProblems(input: ConfigInput, known: readonly string[]): string[] {
  const { agents = {}, roles = {}, teams = {} } = input;
  const problems = Object.entries(agents).flatMap(([name, agent]) => {
    const unknownRoles = (agent.roles ?? []).filter((role) => !Object.hasOwn(roles, role));
    return [
      ...handoffsOf(agent).flatMap((handoff) => handoffProblems({ name, agent, handoff, known })),
      ...repeated(handoffsOf(agent)).map(
        (twice) => `agents.${name}.handoffs names '${twice}' twice`,
      ),
      ...(agent.helpers ?? []).flatMap((helper) =>
        targetProblems(`agents.${name}.helpers`, helper, known, teams),
      ),
      ...helpersOf(agent).flatMap((helper) => helperProblems({ name, agent, helper })),
      ...unknownRoles.map(
        (role) =>
          `agents.${name}.roles names the unknown role '${role}'${didYouMean(role, Object.keys(roles))}`,
      ),
    ];
  });
  return [...problems, ...helperCycles(agents, teams)];
}

type HelperInput = NonNullable<AgentInput["helpers"]>[number];

/** A helper is an agent or a team. `known`: the names of both. */
function targetProblems(
  where: string,
  { agent, team, as }: HelperInput,
  known: readonly string[],
  teams: Readonly<Record<string, TeamInput>>,
): string[] {
  if ((agent === undefined) === (team === undefined)) {
    return [`${where}: '${as}' needs either an agent or a team`];
  }
  if (agent !== undefined) {
    return known.includes(agent)
      ? []
      : [`${where} names the unknown agent '${agent}'${didYouMean(agent, known)}`];
  }
  const names = Object.keys(teams);
  return team === undefined || names.includes(team)
    ? []
    : [`${where} names the unknown team '${team}'${didYouMean(team, names)}`];
}

/** Names that every agent may have tools of. */
const takenNames: readonly string[] = allAbilities.flatMap(({ toolNames }) => toolNames);

function helperProblems({
  name,
  agent,
  helper,
}: {
  name: string;
  agent: AgentInput;
  helper: HelperLink;
}): string[] {
  const where = `agents.${name}.helpers`;
  const { as, input, output } = helper;
  const form = output === undefined ? undefined : outputFormProblem(output);
  const isTwice = helpersOf(agent).filter((other) => other.as === as).length > 1;
  return [
    ...(isTwice ? [`${where}: two helpers are called '${as}'`] : []),
    ...(agent.tools?.includes(as) === true
      ? [`${where}: '${as}' is also the name of one of its tools`]
      : []),
    ...(takenNames.includes(as) ? [`${where}: '${as}' is the name of a built-in tool`] : []),
    ...(as.startsWith(transferPrefix)
      ? [`${where}: '${as}' begins like the name of a hand-over`]
      : []),
    ...(input === undefined ? [] : inputProblem(input, `${where}: the input of '${as}'`)),
    ...(form === undefined ? [] : [`${where}: the output of '${as}': ${form}`]),
  ];
}

function inputProblem(schema: Readonly<Record<string, unknown>>, where: string): string[] {
  if (schema["type"] !== "object") return [`${where} is not of type object`];
  const problem = schemaProblem(schema);
  return problem === undefined ? [] : [`${where} is no JSON Schema: ${problem}`];
}

/** Agents and teams that are helpers of themselves, directly or through others: they could call each other without end. */
function helperCycles(
  agents: Readonly<Record<string, AgentInput>>,
  teams: Readonly<Record<string, TeamInput>>,
): string[] {
  const cycles: string[] = [];
  const seen = new Set<string>();
  /** Who may work when this one does: its helpers, of a team its members. */
  const workersOf = (name: string): readonly string[] =>
    agents[name] === undefined
      ? (teams[name]?.members ?? [])
      : helpersOf(agents[name]).map(({ agent }) => agent);
  const walk = (path: readonly string[]): void => {
    const last = path.at(-1) ?? "";
    seen.add(last);
    for (const name of workersOf(last)) {
      const at = path.indexOf(name);
      if (at !== -1) cycles.push([...path.slice(at), name].join(" > "));
      else if (!seen.has(name)) walk([...path, name]);
    }
  };
  for (const name of Object.keys(agents)) if (!seen.has(name)) walk([name]);
  return cycles.map((cycle) => `agents: helpers call each other without end: ${cycle}`);
}

function repeated(handoffs: readonly Handoff[]): string[] {
  const counts = Map.groupBy(handoffs, ({ agent }) => agent);
  return [...counts].flatMap(([agent, all]) => (all.length > 1 ? [agent] : []));
}

/** Every vendor takes names of tools up to this length. */
const maxNameChars = 64;

function handoffProblems({
  name,
  agent,
  handoff,
  known,
}: {
  name: string;
  agent: AgentInput;
  handoff: Handoff;
  known: readonly string[];
}): string[] {
  const where = `agents.${name}.handoffs`;
  const { agent: to, input } = handoff;
  const tool = transferName(to);
  const problem = input === undefined ? undefined : problemOfInput(input);
  return [
    ...(known.includes(to)
      ? []
      : [`${where} names the unknown agent '${to}'${didYouMean(to, known)}`]),
    ...(to === name ? [`${where} names the agent itself`] : []),
    ...(tool.length > maxNameChars
      ? [`${where}: ${tool} is longer than ${maxNameChars} characters`]
      : []),
    ...(agent.tools?.includes(tool) === true
      ? [`${where}: ${tool} is also the name of one of its tools`]
      : []),
    ...(problem === undefined ? [] : [`${where}: the input for '${to}' ${problem}`]),
  ];
}

function problemOfInput(input: NonNullable<Handoff["input"]>): string | undefined {
  const { type, properties } = input;
  if (type !== "object") return "is not of type object";
  if (
    typeof properties === "object" &&
    properties !== null &&
    Object.hasOwn(properties, "reason")
  ) {
    return "has a property 'reason', which every hand-over has";
  }
  const problem = schemaProblem(input);
  return problem === undefined ? undefined : `is no JSON Schema: ${problem}`;
}
