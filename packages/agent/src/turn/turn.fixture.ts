import { questions } from "../abilities/questions/question.ts";
import { toolsOfAbilities, type TurnEnvironment } from "./ability.ts";
import { allAbilities } from "../abilities/index.ts";
import { toolCallDelta } from "@larkline/model";
import type { ControlEntry, InboundMessage, QueuedMessage } from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import { compileJsonSchema } from "@larkline/protocol/json-schema";
import { argumentsHashOf } from "@larkline/protocol/runner";
import type { ToolAnnouncement, ToolCall, ToolOutcome } from "@larkline/protocol/tool";
import type { TurnState } from "@larkline/protocol/turn";
import { transferTool, type TransferTarget } from "../abilities/handover/handover.ts";
import type { TeamFacts } from "../abilities/team/team.ts";
import type { Question } from "../permissions/policy.ts";
import type {
  StepResult,
  CallPolicy,
  NextAction,
  Transition,
  TurnModel,
  TurnLimits,
} from "./facts.ts";
import { createAccumulator } from "./stream.ts";
import { turnLimits } from "./step.ts";
import { startTurn } from "./turn.ts";

/** USD per token, so that costs in tests are easy to follow. */
const price = { input: 0.25, output: 0.5 };

export const testModel: TurnModel = {
  info: { id: "scripted-1", contextWindow: 200_000, maxOutputTokens: 8_192 },
  costUsd: ({ inputTokens, outputTokens }) =>
    inputTokens * price.input + outputTokens * price.output,
};

/** What is asked about every call of `deploy`, and about unknown outcomes of `charge`. */
export const testQuestion: Question = {
  deciders: { requester: true, people: ["ou_boss"], roles: [], fourEyes: false, count: 1 },
  reason: "It changes production.",
  risk: "medium",
  expiresAtMs: 9_000_000,
};

/** Runs everything but `deploy`, which people are asked about, and `erase`, which is always refused. */
export const testCallPolicy: CallPolicy = {
  verdict: ({ name }) => {
    if (name === "deploy") return { do: "ask", question: testQuestion, findings: [] };
    if (name === "erase") return { do: "refuse", reason: "nothing is erased here.", findings: [] };
    return { do: "run", authority: { by: "policy" }, findings: [] };
  },
  unknownOutcome: ({ name }) => (name === "charge" ? testQuestion : undefined),
};

export function announcement(
  name: string,
  fields: Partial<ToolAnnouncement> = {},
): ToolAnnouncement {
  const spec = { name, description: name, inputSchema: { type: "object" } };
  return { spec, effect: "pure", requiresApproval: false, timeoutMs: 10_000, ...fields };
}

export function environment(
  fields: Partial<TurnEnvironment> & { maxIterations?: number; bounds?: Partial<TurnLimits> } = {},
): TurnEnvironment {
  const { maxIterations, bounds, ...rest } = fields;
  const tools = [
    announcement("weather"),
    announcement("clock", { timeoutMs: 3_600_000 }),
    announcement("deploy", { requiresApproval: true, effect: "once", secrets: ["pin"] }),
    announcement("erase", { effect: "once" }),
    announcement("charge", { effect: "once" }),
  ];
  return {
    nowMs: 1_000_000,
    limits: turnLimits({ ...bounds, ...(maxIterations === undefined ? {} : { maxIterations }) }),
    tools: new Map(tools.map((tool) => [tool.spec.name, { runner: "main", announcement: tool }])),
    callPolicy: testCallPolicy,
    abilities: allAbilities,
    place: { settings: {}, people: { roles: [], answerMs: 600_000 } },
    schemas: { check: (schema, value) => compileJsonSchema(schema)(value) },
    model: testModel,
    texts: "en",
    ...rest,
  };
}

/** The same with the tool that asks people, of an agent that may. */
export function askingEnvironment(
  plain: TurnEnvironment,
  roles: readonly string[] = [],
): TurnEnvironment {
  const place = { settings: { questions: true }, people: { roles, answerMs: 60_000 } };
  const { message } = startRun().turn;
  return {
    ...plain,
    place,
    tools: new Map([...plain.tools, ...toolsOfAbilities([questions], place, message)]),
  };
}

export const expertModel: TurnModel = {
  ...testModel,
  info: { ...testModel.info, id: "scripted-expert" },
};

/** `default` may hand over to `expert`, `expert` back with the last message alone; `vault` is for other people. */
export function transfersOf(speaker: string): ReadonlyMap<string, TransferTarget> {
  const targetsOf: Readonly<Record<string, [string, TransferTarget["context"]][]>> = {
    default: [
      ["expert", "all"],
      ["vault", "all"],
    ],
    expert: [["default", "last"]],
  };
  const targets = (targetsOf[speaker] ?? []).map(([to, context]): TransferTarget => ({
    to,
    context,
    isAllowed: to !== "vault",
    model: to === "expert" ? expertModel : testModel,
    tool: transferTool({ agent: to, context }, `The agent ${to}.`),
  }));
  return new Map(targets.map((target) => [target.tool.spec.name, target]));
}

function memberOf(name: string): TeamFacts["members"][number] {
  return {
    name,
    description: `The ${name}.`,
    isAllowed: name !== "vault",
    model: { ...testModel, info: { ...testModel.info, id: `scripted-${name}` } },
  };
}

/** The team `panel`: `writer`, `critic` and `judge`; `vault` is a member for other people. */
export function teamOf(fields: Partial<TeamFacts> = {}): TeamFacts {
  return {
    name: "panel",
    select: "round_robin",
    prompt: undefined,
    repeat: false,
    end: { messages: 12 },
    reply: "last",
    members: ["writer", "vault", "critic", "judge"].map(memberOf),
    ...fields,
  };
}

/** The hand-overs between the members of a team that work so. */
export function passesOf(
  team: TeamFacts,
  speaker: string,
): ReadonlyMap<string, TransferTarget> | undefined {
  if (team.select !== "handoff") return undefined;
  const others = team.members.filter(({ name }) => name !== speaker);
  const targets = others.map(({ name: to, isAllowed, model }): TransferTarget => ({
    to,
    context: "all",
    isAllowed,
    model,
    tool: transferTool({ agent: to, context: "all" }, undefined),
  }));
  return new Map(targets.map((target) => [target.tool.spec.name, target]));
}

/** The parts of a card that people may see: all of them. */
export const show = {
  thinking: true,
  tools: true,
  model: true,
  tokens: true,
  cost: true,
  seconds: true,
  trace: true,
};

export function queued(text = "hello", seq = 7): QueuedMessage {
  const message: InboundMessage = {
    v: 1,
    session: "cli_app.oc_1",
    id: `om_${seq}`,
    app: "cli_app",
    sender: { id: "ou_1" },
    chatType: "p2p",
    parts: [{ type: "text", text }],
    createdAtMs: 1,
    reply: { channel: "none" },
  };
  return { seq, message };
}

/** A finished step; `calls` make it stop with `tool_use` unless `stopReason` says otherwise. */
export function step(
  text: string,
  fields: Partial<Omit<StepResult, "text" | "toolCalls">> & { calls?: ToolCall[] } = {},
): StepResult {
  const { calls = [], ...rest } = fields;
  const accumulator = createAccumulator();
  accumulator.push({ type: "text_delta", text });
  for (const [index, wanted] of calls.entries()) accumulator.push(toolCallDelta(index, wanted));
  const usage = { inputTokens: 100, outputTokens: 10, cacheReadTokens: 0, cacheCreationTokens: 0 };
  const stopReason = calls.length > 0 ? "tool_use" : "end_turn";
  return { ...accumulator.result(), stopReason, usage, ...rest };
}

export function call(id: string, name = "weather", args = "{}"): ToolCall {
  return { id, name, arguments: args };
}

export function outcome(callId: string, result: unknown = "ok"): ControlEntry {
  return { type: "outcome", callId, outcome: { ok: true, result } };
}

export function failed(callId: string, error = "boom", unknown?: boolean): ControlEntry {
  const value: ToolOutcome =
    unknown === undefined ? { ok: false, error } : { ok: false, error, unknown };
  return { type: "outcome", callId, outcome: value };
}

/** The entry of an approval that is settled: that of the call with this id. */
export function decision(
  turn: TurnState,
  callId: string,
  fields: Partial<Extract<ControlEntry, { type: "decision" }>> & { note?: string } = {},
): ControlEntry {
  const { note, ...rest } = fields;
  const found = turn.calls.find(({ id }) => id === callId);
  const words = {
    approved: "approve",
    rejected: "reject",
    retried: "retry",
    done: "done",
    aborted: "abort",
  } as const;
  const { state = "approved" } = rest;
  const by = state in words ? words[state as keyof typeof words] : undefined; // checked in the same line
  return {
    type: "decision",
    approvalId: found?.approvalId ?? "0".repeat(32),
    argumentsHash: argumentsHashOf(JSON.stringify(found?.arguments ?? {})),
    state,
    decisions:
      by === undefined
        ? []
        : [
            {
              decision: by,
              by: { id: "ou_boss" },
              atMs: 1,
              ...(note === undefined ? {} : { note }),
            },
          ],
    ...rest,
  };
}

export const cancel: ControlEntry = { type: "cancel", reason: "stop" };

/** A session that applies transitions the way a worker does, and remembers everything. */
export interface Run {
  turn: TurnState;
  history: Message[];
  events: EngineEvent[];
  next: NextAction;
  apply(decide: (turn: TurnState) => Transition): Run;
}

export function startRun(head: QueuedMessage = queued(), earlier: Message[] = []): Run {
  const run: Run = {
    ...startTurn({ head, nowMs: 1_000_000, model: testModel }),
    apply(decide) {
      const transition = decide(run.turn);
      run.turn = transition.turn;
      run.history.push(...transition.history);
      run.events.push(...transition.events);
      run.next = transition.next;
      return run;
    },
  };
  run.history = [...earlier, ...run.history];
  return run;
}

export function eventsOf<T extends EngineEvent["type"]>(
  run: Run,
  type: T,
): Extract<EngineEvent, { type: T }>[] {
  return run.events.filter(
    (event): event is Extract<EngineEvent, { type: T }> => event.type === type,
  );
}
