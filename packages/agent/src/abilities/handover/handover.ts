import type { ParseResult } from "@larkline/protocol";
import { compileJsonSchema } from "@larkline/protocol/json-schema";
import {
  denial,
  transferPrefix,
  type ToolSpec,
  transferName,
  type ToolOutcome,
} from "@larkline/protocol/tool";
import { agentOfTurn, type CallState, type TurnState, iterationsOf } from "@larkline/protocol/turn";
import {
  type Ability,
  type PreparedOwn,
  type SettledOwn,
  type TurnEnvironment,
  withState,
} from "../../turn/ability.ts";
import type { Transition, TurnModel } from "../../turn/facts.ts";
import { stepStart, after, withNeeds } from "../../turn/step.ts";
import { continueTeam, endsInstead, passedOn, refusedByEnd, type TeamFacts } from "../team/team.ts";

/** The ability of agents that may hand over, and of members of teams that do. */
export const handover: Ability<readonly string[]> = {
  name: "handover",
  toolNames: [],
  ownCalls: {
    specs: offered,
    mark: "handoff",
    takes: (name, { known, tools }) =>
      known?.handover?.has(name) === true || (name.startsWith(transferPrefix) && !tools.has(name)),
    mayRepeat: true,
    prepare: ({ call, given }, { turn, env, before }): PreparedOwn => {
      const target = env.known?.handover?.get(call.name);
      const event = target === undefined ? {} : { handoff: target.to };
      const outcome = transferRefusal({ name: call.name, given }, turn, {
        env,
        isSecond: before > 0,
      });
      if (target === undefined || outcome !== undefined) {
        return { call, outcome: outcome ?? denial("there is no such agent."), event };
      }
      return {
        call: {
          ...call,
          state: "done",
          words,
          handoff: { to: target.to, context: target.context },
        },
        event,
      };
    },
    settle,
  },
  needs: () => "hand-over",
};

/** What people read in place of the name of such a call. */
const words: NonNullable<CallState["words"]> = { title: { zh: "转交", en: "Hand over" } };

/** The calls of hand-overs that the person may use. */
function offered(turn: TurnState, env: TurnEnvironment): ToolSpec[] {
  const targets = env.known?.handover;
  if (targets === undefined || !mayHandOver(turn, env)) return [];
  return [...targets.values()].flatMap(({ isAllowed, tool }) => (isAllowed ? [tool.spec] : []));
}

/** All other calls of the step are answered: the next agent answers, unless that cannot be any more. */
function settle(call: CallState, turn: TurnState, env: TurnEnvironment): SettledOwn {
  const { outcome, target, endsTeam } = settledTransfer(call, turn, env, refusedByEnd(turn, env));
  if (endsTeam === true) {
    return { outcome, end: (open, records) => endsInstead(open, records, env) };
  }
  if (target === undefined) return { outcome };
  const { to, context } = target;
  return {
    outcome,
    handoff: { callId: call.id, from: agentOfTurn(turn), to, context },
    next: (answered) => handedOver(answered, target, { call, env }),
  };
}

/** The next agent answers, of a team its first member; `next` is the turn without the calls of the step. */
function handedOver(
  next: TurnState,
  target: TransferTarget,
  { call, env: { texts } }: { call: CallState; env: TurnEnvironment },
): Transition {
  const { to, context, model, team } = target;
  const within = passedOn(next, target, call);
  if (within !== undefined) return within;
  const from = agentOfTurn(next);
  const turn = withNeeds(withHandOver({ ...next, agent: to }, from));
  const changed = {
    type: "agent_changed",
    from,
    to,
    reason: "handoff",
    callId: call.id,
    context,
  } as const;
  if (team !== undefined) {
    return after({ history: [], events: [changed] }, continueTeam(turn, { team, texts }));
  }
  const events = [changed, stepStart(turn.steps, model)];
  return { turn, history: [], events, next: { do: "model" }, handedOver: true };
}

/*
 * A hand-over: the model calls `transfer_to_<agent>`, and from the next step on that agent answers. No runner sees
 * such a call. It is answered when all other calls of its step are, by the decision that ends the round, so that call,
 * result, `agent_changed` and the next agent are stored by one write.
 */

/** A hand-over of the agent that answers. */
export interface TransferTarget {
  readonly to: string;
  readonly context: "all" | "last";
  /** The acting person may use that agent; otherwise it is not offered. */
  readonly isAllowed: boolean;
  /** The model of that agent. */
  readonly model: TurnModel;
  readonly tool: TransferTool;
  /** The team that answers then, where the agent is one. */
  readonly team?: TeamFacts;
}

/** The call as models see it. */
export interface TransferTool {
  readonly spec: ToolSpec;
  /** Checks a reason alone; absent where the arguments have a schema that the deployer wrote. */
  readonly checkReason?: (given: unknown) => ParseResult<unknown>;
}

declare module "../../turn/ability.ts" {
  interface AbilityFacts {
    /** The hand-overs of the agent that answers, by the name of their call; absent where it has none. */
    handover?: ReadonlyMap<string, TransferTarget> | undefined;
  }
}

/** How one agent may hand over to another one, as the configuration has it. */
export interface Handoff {
  readonly agent: string;
  /** When to hand over, in words for the model. */
  readonly when?: string;
  readonly context: "all" | "last";
  /** Further arguments of the call: a JSON Schema of type object. */
  readonly input?: JsonObject;
}

type JsonObject = Readonly<Record<string, unknown>>;

const reason = {
  type: "string",
  description: "Why you hand over, and what is to be done: the next agent reads it.",
} as const;

let checkReason: TransferTool["checkReason"];

/** The call that a hand-over is made by. `description`: of the agent, for others. */
export function transferTool(
  { agent, when, input }: Handoff,
  description: string | undefined,
): TransferTool {
  const { properties, required } = input ?? {};
  const inputSchema = {
    ...input,
    type: "object",
    properties: { reason, ...(isObject(properties) ? properties : {}) },
    required: ["reason", ...(Array.isArray(required) ? (required as unknown[]) : [])],
  };
  const sentences = [
    `Hands this conversation over to the agent ${agent}, who answers from then on.`,
    ...[description, when === undefined ? undefined : `Use it: ${when}`].filter(
      (one) => one !== undefined,
    ),
  ];
  const spec = { name: transferName(agent), description: sentences.join(" "), inputSchema };
  if (input !== undefined) return { spec };
  return { spec, checkReason: (given) => (checkReason ??= compileJsonSchema(inputSchema))(given) };
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The key in the checkpoint. */
const stateName = "handover";

/** The agents that have handed a turn over, in order: one entry for each hand-over. The first has begun it. */
export function handedOverBy({ abilities }: Pick<TurnState, "abilities">): readonly string[] {
  return (abilities[stateName] ?? []) as readonly string[]; // written below alone
}

/** The turn after one more hand-over. */
function withHandOver(turn: TurnState, from: string): TurnState {
  return withState(turn, { name: stateName }, [...handedOverBy(turn), from]);
}

/** Members of a team may hand over as often as the team's own limit allows. */
function mayHandOver(turn: TurnState, { limits, known }: TurnEnvironment): boolean {
  return known?.team !== undefined || handedOverBy(turn).length < limits.maxTransfers;
}

/** Why the hand-over cannot be made; undefined where it can. `isSecond`: another call of the step was first. */
function transferRefusal(
  { name, given }: { name: string; given: ParseResult<unknown> },
  turn: TurnState,
  { env, isSecond }: { env: TurnEnvironment; isSecond: boolean },
): ToolOutcome | undefined {
  const target = env.known?.handover?.get(name);
  const { maxTransfers } = env.limits;
  if (name === transferName(agentOfTurn(turn))) {
    return failed("You are the active agent already: nothing was handed over.");
  }
  if (target === undefined) return failed(noSuchAgent(name));
  if (!target.isAllowed) return notAllowed(target.to);
  if (!mayHandOver(turn, env)) {
    return failed(
      `A turn has ${maxTransfers} hand-overs at most: nothing was handed over. Answer yourself.`,
    );
  }
  if (isSecond) {
    return failed("Another call of this step hands over already: this one does nothing.");
  }
  const { tool } = target;
  const checked = given.ok
    ? (tool.checkReason?.(given.value) ?? env.schemas.check(tool.spec.inputSchema, given.value))
    : given;
  return checked.ok
    ? undefined
    : failed(`The arguments do not fit: ${checked.error}. Nothing was handed over.`);
}

function noSuchAgent(name: string): string {
  return `tool_not_found: there is no agent to hand over to by ${JSON.stringify(name)}. Nothing was handed over.`;
}

function notAllowed(agent: string): ToolOutcome {
  return denial(`this person may not use the agent ${agent} here. Nothing was handed over.`);
}

function failed(error: string): ToolOutcome {
  return { ok: false, error };
}

/** What becomes of the pending hand-over now that all other calls of its step are answered. */
interface SettledTransfer {
  call: CallState;
  outcome: ToolOutcome;
  /** The agent that answers next; absent: nothing is handed over. */
  target?: TransferTarget;
  /** The team of the turn ends instead. */
  endsTeam?: true;
}

/**
 * The end of a pending hand-over: the configuration may have changed since the call was made. `ended`: why the team of
 * the turn ends with this step.
 */
function settledTransfer(
  call: CallState,
  turn: TurnState,
  { known, limits }: TurnEnvironment,
  ended: string | undefined,
): SettledTransfer {
  const target = known?.handover?.get(call.name);
  const refused = (error: string): SettledTransfer => ({ call, outcome: failed(error) });
  if (target === undefined) return refused(noSuchAgent(call.name));
  if (!target.isAllowed) return { call, outcome: notAllowed(target.to) };
  const isLast = iterationsOf(turn) >= limits.maxIterations;
  if (isLast) return refused("The turn has no further steps: nothing was handed over.");
  if (ended !== undefined) return { ...refused(ended), endsTeam: true };
  return { call, outcome: { ok: true, result: `Transferred to ${target.to}.` }, target };
}
