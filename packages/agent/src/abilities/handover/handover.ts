import {
  agentOfTurn,
  denial,
  transferPrefix,
  type CallState,
  type ToolSpec,
  type TurnState,
} from "@larkline/protocol";
import type { Ability, PreparedOwn, SettledOwn, TurnEnvironment } from "../../turn/ability.ts";
import type { Transition } from "../../turn/facts.ts";
import { stepStart } from "../../turn/step.ts";
import { after, withNeeds } from "../../turn/transition.ts";
import { continueTeam, endsInstead, passedOn, refusedByEnd } from "../team/team.ts";
import {
  mayHandOver,
  settledTransfer,
  transferRefusal,
  withHandOver,
  type TransferTarget,
} from "./transfer.ts";

/** Of agents that may hand over, and of members of teams that do. */
export const handover: Ability<readonly string[]> = {
  name: "handover",
  toolNames: [],
  ownCalls: {
    specs: offered,
    takes: (name, { known, tools }) =>
      known?.handover !== undefined &&
      (known.handover.has(name) || (name.startsWith(transferPrefix) && !tools.has(name))),
    includes: ({ handoff }) => handoff !== undefined,
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
        call: { ...call, state: "done", handoff: { to: target.to, context: target.context } },
        event,
      };
    },
    settle,
  },
  needs: () => "hand-over",
};

/** Of those that the person may use. */
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
