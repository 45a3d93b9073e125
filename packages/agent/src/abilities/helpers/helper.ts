import {
  childSessionOf,
  turnIdOf,
  type ControlEntry,
  type HelperUse,
  type HelperWait,
  type InboundMessage,
  type OutputForm,
  type ParseResult,
} from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import { isTerminal, type EngineEvent, type EventOf } from "@larkline/protocol/event";
import { compileJsonSchema } from "@larkline/protocol/json-schema";
import {
  denial,
  askPersonName,
  builtInRunner,
  type ToolOutcome,
  type ToolSpec,
} from "@larkline/protocol/tool";
import {
  agentOfTurn,
  calledHelpersOf,
  type CalledHelpers,
  type CallState,
  type TurnState,
} from "@larkline/protocol/turn";
import { textHead } from "../../texts/index.ts";
import { addressContextOf } from "../../turn/context.ts";
import {
  withState,
  type Ability,
  type EntryEffect,
  type SeenCall,
  type TurnEnvironment,
} from "../../turn/ability.ts";
import type { Transition, TurnLimits } from "../../turn/facts.ts";

/*
 * A helper: the model calls another agent like a tool. The call opens a child session, whose one message is the task; its
 * run is a turn like any other, and what it ends with is the outcome of the call. The asker waits as for a tool. When its
 * turn is cancelled it cancels its helpers first, and ends when all of them have ended.
 */

/** The tool as models see it. */
export interface HelperTool {
  readonly spec: ToolSpec;
  /** Checks a task in words; absent where the arguments have a schema that the deployer wrote. */
  readonly checkTask?: (given: unknown) => ParseResult<unknown>;
}

/** A helper of the agent that answers. */
export interface HelperTarget {
  readonly agent: string;
  readonly tool: HelperTool;
  readonly timeoutMs: number;
  /** The acting person may use that agent here; otherwise it is not offered. */
  readonly isAllowed: boolean;
}

/** What bounds the helpers of a turn. */
export interface HelperFacts {
  /** The helpers, by the name of their tool. */
  readonly targets: ReadonlyMap<string, HelperTarget>;
  /** Every worker can run them: while one of the version before lives, none is started. */
  readonly isReady: boolean;
}

declare module "../../turn/ability.ts" {
  interface AbilityFacts {
    /** The helpers that the agent that answers may call; absent where it has none. */
    helpers?: HelperFacts | undefined;
  }
}

/** The ability of agents that have helpers. */
export const helpers: Ability<CalledHelpers> = {
  name: "helpers",
  toolNames: [],
  ownCalls: {
    specs: offered,
    takes: (name, { known }) => known?.helpers?.targets.has(name) === true,
    mark: "helper",
    stopFirst: true,
    prepare: ({ call, given, repeated }, { turn, env, before }) => {
      const event = { helper: env.known?.helpers?.targets.get(call.name)?.agent ?? "" };
      const outcome =
        repeated ?? helperRefusal({ name: call.name, given }, turn, { env, opened: before });
      return outcome === undefined
        ? { call: helperCall(call, turn, env), event }
        : { call, outcome, event };
    },
    onOpen: (turn, { length }) => {
      const { calls, steps } = calledIn(turn);
      return withState(turn, helpers, { calls: calls + length, steps });
    },
  },
  onTask: taskEvents,
  beforeStep: (turn, { limits }) => (hasStepsLeft(turn, limits) ? undefined : { limit: true }),
  onEntry: (entry, turn) => (entry.type === "helper_waits" ? withWait(turn, entry) : undefined),
  seenCall: taskSeen,
  onOutcome: (call, { outcome, used }, { turn, env }) => ({
    turn: withHelperUse(turn, used),
    outcome: lateOutcome(call, outcome, env.nowMs),
  }),
  onAnswer: ({ call: { helper }, output, turn, state }) => ({
    state,
    events: helper === undefined ? [] : [answerEvent(turn, helper, output)],
  }),
};

const maxShownTask = 80;

/** The helper, the first words of its task, and what people are asked by it or below it. */
function taskSeen({ helper, arguments: given }: CallState): SeenCall | undefined {
  if (helper === undefined) return undefined;
  const { agent, wait } = helper;
  const task = typeof given["task"] === "string" ? given["task"] : JSON.stringify(given);
  const shown = { agent, task: textHead(task.trim(), maxShownTask) };
  return wait === undefined
    ? { shown: { helper: shown }, waits: false }
    : {
        shown: { helper: { ...shown, wait: { about: wait.about, tool: wait.tool } } },
        waits: true,
      };
}

/** The tools of helpers that the person may use, while the turn may call any. */
function offered(turn: TurnState, { known = {}, limits }: TurnEnvironment): ToolSpec[] {
  const { isReady, targets } = known.helpers ?? {
    isReady: false,
    targets: new Map<string, HelperTarget>(),
  };
  const depth = turn.message.task?.path.length ?? 0;
  if (!isReady || depth >= maxHelperDepth || calledIn(turn).calls >= limits.maxHelpers) return [];
  return [...targets.values()].flatMap(({ isAllowed, tool }) => (isAllowed ? [tool.spec] : []));
}

function calledIn(turn: TurnState): CalledHelpers {
  return calledHelpersOf(turn) ?? { calls: 0, steps: 0 };
}

/** How one agent may call another one, as the configuration has it. */
export interface HelperLink {
  /** Or a team. */
  readonly agent: string;
  /** The name of the tool that it is offered as. */
  readonly as: string;
  readonly description?: string;
  /** Arguments of the call, a JSON Schema of type object; absent: a task in words. */
  readonly input?: Readonly<Record<string, unknown>>;
  /** The form of its answers, in place of that agent's own. */
  readonly output?: OutputForm;
  readonly maxSteps?: number;
  readonly timeoutMs: number;
}

/** How far below the run of a person's message helpers work. */
const maxHelperDepth = 3;

/** Most bytes of the arguments of one call: as much as a job of a tool may have. */
const maxTaskBytes = 200_000;

const taskInput = {
  type: "object",
  properties: {
    task: {
      type: "string",
      minLength: 1,
      description:
        "What is to be done, with all that has to be known for it: the helper sees nothing else.",
    },
  },
  required: ["task"],
  additionalProperties: false,
} as const;

let checkTask: HelperTool["checkTask"];

/** The tool that a helper is called by. `description`: of the agent, for others. */
export function helperTool(link: HelperLink, description: string | undefined): HelperTool {
  const { agent, as, input } = link;
  const sentences = [
    `Gives a task to the helper ${agent}, which works on it alone and answers here.`,
    ...[link.description ?? description].filter((one) => one !== undefined),
  ];
  const spec = {
    name: as,
    description: sentences.join(" "),
    inputSchema: { ...(input ?? taskInput) },
  };
  if (input !== undefined) return { spec };
  return { spec, checkTask: (given) => (checkTask ??= compileJsonSchema(taskInput))(given) };
}

/** Why a helper cannot be called; undefined where it can. `opened`: calls of helpers in this step before it. */
function helperRefusal(
  { name, given }: { name: string; given: ParseResult<unknown> },
  turn: TurnState,
  { env, opened }: { env: TurnEnvironment; opened: number },
): ToolOutcome | undefined {
  const { known = {}, limits } = env;
  const target = known.helpers?.targets.get(name);
  if (target === undefined) {
    return failed(`tool_not_found: there is no helper ${JSON.stringify(name)}.`);
  }
  if (!target.isAllowed) return denial(`this person may not use the agent ${target.agent} here.`);
  if (known.helpers?.isReady !== true) {
    return failed("Helpers cannot be started at the moment. Do it yourself, or try again later.");
  }
  if ((turn.message.task?.path.length ?? 0) >= maxHelperDepth) {
    return failed(
      `Helpers may have helpers ${maxHelperDepth} deep at most: this task was not given out. Do it yourself.`,
    );
  }
  if (calledIn(turn).calls + opened >= limits.maxHelpers) {
    const most = `A turn has ${limits.maxHelpers} helpers at most`;
    return failed(`${most}: this task was not given out. Answer with what you have.`);
  }
  if (stepsWithHelpers(turn) >= limits.maxStepsWithHelpers) {
    return failed(noStepsLeft(limits.maxStepsWithHelpers));
  }
  const { tool } = target;
  const checked = given.ok
    ? (tool.checkTask?.(given.value) ?? env.schemas.check(tool.spec.inputSchema, given.value))
    : given;
  if (!checked.ok) {
    return failed(`The arguments do not fit: ${checked.error}. The task was not given out.`);
  }
  const bytes = given.ok ? Buffer.byteLength(JSON.stringify(given.value)) : 0;
  if (bytes <= maxTaskBytes) return undefined;
  return failed(
    `The arguments are too large (${bytes} bytes, at most ${maxTaskBytes}). The task was not given out.`,
  );
}

function noStepsLeft(most: number): string {
  return `All ${most} model steps of this message and its helpers are used: the task was not given out.`;
}

/** Model steps of a turn and of all helpers below it that have ended. */
function stepsWithHelpers(turn: TurnState): number {
  return turn.steps + calledIn(turn).steps;
}

/** Steps of a person's message that has called helpers; below it they are counted before each. */
function hasStepsLeft(turn: TurnState, { maxStepsWithHelpers }: TurnLimits): boolean {
  return stepsWithHelpers(turn) < maxStepsWithHelpers;
}

/** A call of a helper, as it is handed out. */
function helperCall(call: CallState, turn: TurnState, env: TurnEnvironment): CallState {
  const target = env.known?.helpers?.targets.get(call.name);
  if (target === undefined) return call;
  const { agent, timeoutMs } = target;
  return {
    ...call,
    runner: builtInRunner,
    effect: "idempotent",
    timeoutMs,
    deadlineMs: env.nowMs + timeoutMs,
    helper: { agent, session: childSessionOf(turn.message.session, turn.turnId, call.id) },
  };
}

/** Helpers of a turn that have not ended. */
export function runningHelpers({ calls }: TurnState): CallState[] {
  return calls.filter(({ state, helper }) => state === "running" && helper !== undefined);
}

const maxAddresses = 100;

/** The message that begins the work of a helper. `history`: the conversation of its asker; `isTeam`: a team is to work. */
export function taskMessage(
  call: CallState,
  turn: TurnState,
  link: Pick<HelperLink, "agent" | "input" | "output" | "maxSteps">,
  {
    nowMs,
    history,
    isTeam = false,
  }: { nowMs: number; history: readonly Message[]; isTeam?: boolean },
): InboundMessage {
  const { message, turnId, steps } = turn;
  const { app, tenant, sender, chatType, language, background, traceparent, task: above } = message;
  const session = call.helper?.session ?? "";
  const { task } = call.arguments;
  const text =
    link.input === undefined && typeof task === "string"
      ? task
      : JSON.stringify(call.arguments, null, 2);
  return {
    needs: needsOfTask(link, isTeam),
    v: 1,
    session,
    id: session,
    app,
    ...(tenant === undefined ? {} : { tenant }),
    sender,
    chatType,
    parts: [{ type: "text", text }],
    createdAtMs: nowMs,
    reply: { channel: "none" },
    ...(language === undefined ? {} : { language }),
    ...(background === undefined ? {} : { background }),
    ...(traceparent === undefined ? {} : { traceparent }),
    agent: link.agent,
    foreign: true,
    addresses: [...addressContextOf(history, message, false).named].slice(0, maxAddresses),
    ...(link.output === undefined ? {} : { output: link.output }),
    task: {
      session: message.session,
      turnId,
      callId: call.id,
      as: call.name,
      rootTurnId: above?.rootTurnId ?? turnId,
      path: [...(above?.path ?? []), agentOfTurn(turn)],
      reply: above?.reply ?? message.reply,
      rootSteps: above?.rootSteps ?? steps,
      ...(link.maxSteps === undefined ? {} : { maxSteps: link.maxSteps }),
    },
  };
}

/** What a worker has to know to work on a task. */
function needsOfTask({ output }: Pick<HelperLink, "output">, isTeam: boolean): string[] {
  return ["helpers", ...(isTeam ? ["team"] : []), ...(output === undefined ? [] : ["run-options"])];
}

/** What the run of a helper begins with: word of its task. */
function taskEvents(
  { task, parts, id }: InboundMessage,
  agent: string,
): EventOf<"teammate_message_received">[] {
  if (task === undefined) return [];
  const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  return [
    teammateMessage({
      from: task.path.at(-1) ?? "",
      to: agent,
      messageType: "task_assignment",
      id,
      text,
    }),
  ];
}

/** Word of the answer of a helper, for the run of its asker. */
function answerEvent(
  turn: TurnState,
  helper: NonNullable<CallState["helper"]>,
  text: string,
): EventOf<"teammate_message_received"> {
  const id = turnIdOf(helper.session, 1);
  return teammateMessage({
    from: helper.agent,
    to: agentOfTurn(turn),
    messageType: "task_result",
    id,
    text,
  });
}

/** What people are asked before this turn, or a helper below it, can continue; undefined: nothing. */
export function waitOf({ calls }: Pick<TurnState, "calls">): HelperWait | undefined {
  for (const { state, approvalId, name: tool, arguments: given, helper, input } of calls) {
    if (state === "running" && helper?.wait !== undefined) return helper.wait;
    if (approvalId === undefined || (state !== "waiting_approval" && state !== "waiting_outcome")) {
      continue;
    }
    const { question } = given;
    const asked = tool === askPersonName && typeof question === "string" ? question : undefined;
    const isServers = state === "waiting_approval" && input !== undefined;
    const about = asked === undefined && !isServers ? "approval" : "question";
    return { id: approvalId, about, tool, bytes: Buffer.byteLength(asked ?? tool) };
  }
  return undefined;
}

/** A helper waits for people, or does not any more: its call knows for what, with word of it where that is new. */
function withWait(
  turn: TurnState,
  { callId, wait }: Extract<ControlEntry, { type: "helper_waits" }>,
): EntryEffect | undefined {
  const call = runningHelpers(turn).find((one) => one.id === callId);
  if (call?.helper === undefined || call.helper.wait?.id === wait?.id) return undefined;
  const { wait: _before, ...helper } = call.helper;
  const changed: CallState = { ...call, helper: wait === undefined ? helper : { ...helper, wait } };
  const next = { ...turn, calls: turn.calls.map((one) => (one === call ? changed : one)) };
  if (wait === undefined) return { turn: next, events: [] };
  const { id: messageId, bytes: payloadSize } = wait;
  const about = { from: helper.agent, to: agentOfTurn(turn), messageType: "idle_notification" };
  return {
    turn: next,
    events: [{ type: "teammate_message_received", ...about, messageId, payloadSize }],
  };
}

function teammateMessage({
  id: messageId,
  text,
  ...fields
}: {
  from: string;
  to: string;
  messageType: string;
  id: string;
  text: string;
}): EventOf<"teammate_message_received"> {
  return {
    type: "teammate_message_received",
    ...fields,
    messageId,
    payloadSize: Buffer.byteLength(text),
  };
}

/** How a helper ended, for its asker. */
export interface HelperEnd {
  outcome: ToolOutcome;
  used: HelperUse;
}

const maxQuoteChars = 2_000;

/** The outcome of a task whose turn has just ended. */
export function helperEnd({ turn, events }: Pick<Transition, "turn" | "events">): HelperEnd {
  const end = events.findLast(isTerminal);
  const { totals } = turn;
  return {
    outcome: end === undefined ? failed("The helper ended without an answer.") : outcomeOf(end),
    used: {
      steps: stepsWithHelpers(turn),
      inputTokens: totals.inputTokens,
      outputTokens: totals.outputTokens,
      cacheReadTokens: totals.cacheReadTokens ?? 0,
      cacheCreationTokens: totals.cacheCreationTokens ?? 0,
      costUsd: totals.costUsd,
    },
  };
}

function outcomeOf(end: Extract<EngineEvent, { type: "done" | "error" }>): ToolOutcome {
  if (end.type === "error") return failed(`${end.code}: the helper has failed: ${end.message}`);
  const { reason, final, output } = end;
  if (output !== undefined) return { ok: true, result: output };
  const said = final.trim() === "" ? "" : ` What it said last: ${textHead(final, maxQuoteChars)}`;
  switch (reason) {
    case "":
      return said === ""
        ? failed("The helper ended without an answer.")
        : { ok: true, result: final };
    case "max_tokens":
      return {
        ok: true,
        result: `${final}\n[The helper's answer was cut off at its longest length.]`,
      };
    case "team_limit":
      return {
        ok: true,
        result: `${final}\n[The team has reached its limit without its closing words.]`,
      };
    case "max_turns_reached":
      return failed(`The helper had no model step left before it had an answer.${said}`);
    case "output_invalid":
      return failed(`The helper's answer does not have the form that it must have.${said}`);
    case "refusal":
      return failed(`The helper refused.${said}`);
    default:
      return failed("cancelled: the helper was stopped before it had an answer.");
  }
}

function failed(error: string): ToolOutcome {
  return { ok: false, error };
}

/** The turn with what a helper has used. */
function withHelperUse(turn: TurnState, used: HelperUse | undefined): TurnState {
  if (used === undefined) return turn;
  const { totals } = turn;
  const { calls, steps } = calledIn(turn);
  return {
    ...withState(turn, helpers, { calls, steps: steps + used.steps }),
    totals: {
      ...totals,
      inputTokens: totals.inputTokens + used.inputTokens,
      outputTokens: totals.outputTokens + used.outputTokens,
      costUsd: totals.costUsd + used.costUsd,
      cacheReadTokens: (totals.cacheReadTokens ?? 0) + used.cacheReadTokens,
      cacheCreationTokens: (totals.cacheCreationTokens ?? 0) + used.cacheCreationTokens,
    },
  };
}

/** A helper that was stopped at its deadline ends as cancelled; its asker reads why. */
function lateOutcome(
  { deadlineMs, timeoutMs = 0 }: CallState,
  outcome: ToolOutcome,
  nowMs: number,
): ToolOutcome {
  const isStopped = !outcome.ok && outcome.error.startsWith("cancelled:");
  if (!isStopped || deadlineMs === undefined || nowMs < deadlineMs) return outcome;
  return failed(
    `timeout: the helper was stopped after ${Math.round(timeoutMs / 1_000)} s, before it had an answer.`,
  );
}
