import {
  type AssistantPart,
  type CallState,
  type EngineEvent,
  type Message,
  type TurnState,
  type McpOrigin,
} from "@larkline/protocol";
import { needsOfCalls, withOpened, type TurnEnvironment } from "./ability.ts";
import type { StepResult, Records, Transition } from "./facts.ts";
import { callIdsOf, isOpaque, isSendable } from "./messages.ts";
import { heldStep, isWhole } from "./held-step.ts";
import { blockEvents, leftOutOf } from "./step.ts";
import { prepareCalls, uniqueCallIds, toolUseEvent, type PreparedCall } from "./tool-call.ts";
import { signatureOf } from "./arguments.ts";
import { after, needsOf } from "./transition.ts";
import { answerCalls, nextInRound, runningCalls } from "./tool-round.ts";

// A step has asked for calls: its round begins.

/** Opens a round: stores the calls of the step, answers those that must not run, dispatches the others. */
export function openRound(turn: TurnState, step: StepResult, env: TurnEnvironment): Transition {
  const known = turn.callIds ?? [];
  const taken = new Set([...known, ...callIdsOf(env.history ?? [])]);
  // Ids of steps that are held back are in no history yet.
  const trusted =
    env.othersWait !== true && (env.history === undefined || isWhole(env.history, turn));
  // One more than is run: its result says what of the step was left out.
  const toolCalls = step.toolCalls.slice(0, env.limits.maxCallsPerStep + 1);
  const beyond = step.toolCalls.length - env.limits.maxCallsPerStep;
  const wanted = trusted ? toolCalls : toolCalls.map((call) => ({ ...call, id: "" }));
  const ids = uniqueCallIds(wanted, { turnId: turn.turnId, step: turn.steps }, taken);
  const prepared = prepareCalls(toolCalls, ids, { turn, env: withStepRead(env, step), beyond });
  const said: Message = {
    role: "assistant",
    content: contentOf(step, prepared),
    ...leftOutOf(step),
  };
  const held = heldStep(said, env.history);
  const signatures = new Set(toolCalls.map(signatureOf));
  const repeated = Object.fromEntries(
    [...signatures].map((one) => [one, (turn.repeated?.[one] ?? 0) + 1]),
  );
  const calls = prepared.map(({ call }) => call);
  const before = withOpened(turn, calls, env);
  const mcpServers = serversOf(calls, turn, env);
  const open = {
    ...before,
    ...(mcpServers.length === 0 ? {} : { mcpServers }),
    repeated,
    calls,
    callIds: [...known, ...ids],
    held,
    needs: needsOf({ ...before, calls }, ...needsOfCalls(calls, env.abilities), "held-step"),
  };
  const outcomes = prepared.flatMap(({ call, outcome }) =>
    outcome === undefined ? [] : [{ callId: call.id, outcome }],
  );
  const round = answerCalls(open, outcomes, env);
  const records: Records = {
    history: [],
    events: [
      ...blockEvents(step),
      ...toolUseEvents(prepared, step, { turn, env }),
      ...prepared.flatMap(({ events }) => events),
      ...round.events,
    ],
  };
  const asked = prepared.flatMap((one) => one.asked ?? []);
  return after(
    records,
    nextInRound({ turn: round.turn, started: runningCalls(round.turn), asked }, env),
  );
}

/** The parts of a step and its calls: in the order of the vendor where it wants that, the calls last otherwise. */
function contentOf(
  { parts, callPlaces }: StepResult,
  prepared: readonly PreparedCall[],
): AssistantPart[] {
  const content: AssistantPart[] = [];
  let taken = 0;
  for (const [at, { use }] of prepared.entries()) {
    const before = callPlaces?.[at]?.parts ?? parts.length;
    content.push(...parts.slice(taken, before), use);
    taken = Math.max(taken, before);
  }
  return [...content, ...parts.slice(taken)].filter(isSendable);
}

/** The same with what tools of the vendor have read in this step, before they led to its calls. */
function withStepRead(env: TurnEnvironment, { parts }: StepResult): TurnEnvironment {
  const read = parts.filter(isOpaque);
  return read.length === 0
    ? env
    : { ...env, history: [...(env.history ?? []), { role: "assistant", content: read }] };
}

/** The first call carries what the step has used; each the items of the vendor that come before it. */
function toolUseEvents(
  prepared: readonly PreparedCall[],
  { vendorItems = [], callPlaces }: StepResult,
  { turn: { openStep, mcpServers }, env }: { turn: TurnState; env: TurnEnvironment },
): EngineEvent[] {
  const named = new Set(mcpServers);
  const last = callPlaces === undefined ? 0 : prepared.length - 1;
  const [first, ...rest] = prepared.map((each, at) => {
    const mcp = mcpOriginOf(each.call, env, named);
    const place = callPlaces?.[at];
    const items = [...(place?.vendorItems ?? []), ...(at === last ? vendorItems : [])];
    return {
      ...toolUseEvent(each),
      ...(mcp === undefined ? {} : { mcp }),
      ...(items.length === 0 ? {} : { vendorItems: items }),
      ...(place === undefined ? {} : { blocksBefore: place.blocks }),
    };
  });
  if (first === undefined) return [];
  const {
    inputTokens = 0,
    outputTokens = 0,
    cacheReadTokens = 0,
    cacheCreationTokens = 0,
  } = openStep ?? {};
  const step = {
    calls: prepared.length,
    inputTokens,
    outputTokens,
    cacheReadTokens,
    cacheCreationTokens,
  };
  return [{ ...first, step }, ...rest];
}

/** Servers may describe a thousand tools at length: then only the one that is called is named. */
const maxListedCharacters = 100_000;

/** The server that gives the tool of a call; its first call in a run names all of its tools. Adds it to `named`. */
function mcpOriginOf(
  { name }: CallState,
  { tools }: TurnEnvironment,
  named: Set<string>,
): McpOrigin | undefined {
  const server = tools.get(name)?.announcement.mcp;
  if (server === undefined || named.has(server)) {
    return server === undefined ? undefined : { server };
  }
  named.add(server);
  const all = [...tools.values()].filter(({ announcement }) => announcement.mcp === server);
  const listed = all.map(({ announcement: { spec } }) => spec);
  return JSON.stringify(listed).length > maxListedCharacters
    ? { server }
    : { server, tools: listed };
}

/** The servers of calls, with those of earlier events. */
function serversOf(
  calls: readonly CallState[],
  { mcpServers = [] }: TurnState,
  { tools }: TurnEnvironment,
): string[] {
  const called = calls.flatMap(({ name }) => tools.get(name)?.announcement.mcp ?? []);
  return [...new Set([...mcpServers, ...called])];
}
