import type { StepResult } from "@larkline/agent";
import { costOf, type ModelChain, type ModelInfo } from "@larkline/model";
import {
  isCanary,
  traceparentOfMessage,
  turnIdOf,
  type CallState,
  type InboundMessage,
  type ModelRetry,
  type TurnState,
  sharedNow,
  type Usage,
} from "@larkline/protocol";
import { scrubText, unobserved, type Observation, type Tags } from "@larkline/process/telemetry";
import type { BuiltInTools } from "./tools.ts";
import type { TurnStart } from "./turn-run.ts";

/** What observers hear of one claim of a turn. Ids, numbers and names of tools and models only. */
export interface TurnWatch {
  /** Runs a request to a model; `purpose` is `answer` or `summary`. */
  step(chain: ModelChain, purpose: string, run: () => Promise<StepResult>): Promise<StepResult>;
  /** A call of a vendor went wrong and is followed by another one. */
  retried: (retry: ModelRetry) => void;
  /** Text of the answer has come. */
  text(): void;
  /** The policy has decided about these calls, which are new. */
  judged(calls: readonly CallState[]): void;
  handedOut(calls: readonly CallState[]): void;
  /** The message has become part of this turn. */
  joined(message: InboundMessage): void;
  /** The claim is over; `committed`: the turn as well. */
  ended(outcome: string, committed: boolean): void;
}

const decisions = {
  running: "run",
  waiting_approval: "ask",
  waiting_outcome: "ask",
  done: "refuse",
} as const satisfies Record<CallState["state"], string>;

interface Watching {
  observation: Observation;
  tags: Tags;
  message: InboundMessage;
}

/** Tells of the claim, and what it heals. */
function tellClaim({ observation, tags, message }: Watching, { tries, turn }: TurnStart): void {
  const { event } = observation;
  const resumed = turn !== undefined;
  const waited = resumed ? {} : { queuedMs: Math.max(0, sharedNow() - message.createdAtMs) };
  event("turn.claimed", { ...tags, ...waited, tries, resumed });
  if (tries > 0) event("turn.healed", { ...tags, what: "crash", tries });
}

function tokensOf(usage: Usage): Record<string, number> {
  const { inputTokens, outputTokens, cacheReadTokens = 0, cacheCreationTokens = 0 } = usage;
  return { input: inputTokens, output: outputTokens, cache_read: cacheReadTokens, cache_write: cacheCreationTokens };
}

/** Counts what each call of a vendor has used, as budgets count it; returns what the step's span says of it. */
function tellUse({ metric }: Observation, chain: ModelChain, step: StepResult): Tags {
  for (const { model: asked, usage } of step.uses ?? []) {
    const info = infoOf(chain, asked);
    const { id: model } = info;
    for (const [kind, count] of Object.entries(tokensOf(usage))) {
      if (count > 0) metric("model.tokens", count, { model, kind });
    }
    const cost = costOf(usage, info);
    if (cost > 0) metric("model.cost_usd", cost, { model });
  }
  const { inputTokens: input = 0, outputTokens: output = 0 } = step.use ?? {};
  return { input, output, calls: step.toolCalls.length };
}

function infoOf({ models, primary }: ModelChain, asked: string | undefined): ModelInfo {
  return models.find(({ id }) => id === asked) ?? primary;
}

/** What a vendor said when it refused, for operators: its text is cut and redacted already by those who log it. */
function refusalTags({ failure }: StepResult): Tags {
  const { message, requestId = "" } = failure?.vendor ?? { message: failure?.message ?? "" };
  return failure === undefined ? {} : { problem: scrubText(message), requestId };
}

async function watchStep(
  { observation, tags }: Watching,
  { chain, purpose }: { chain: ModelChain; purpose: string },
  run: () => Promise<StepResult>,
): Promise<StepResult> {
  const { span, metric } = observation;
  const startedMs = performance.now();
  const step = span("model.step", { ...tags, model: chain.primary.id, purpose });
  let result: StepResult | undefined;
  let outcome = "failed";
  try {
    result = await run();
    outcome = result.brokenOff === true ? "broken_off" : (result.failure?.code ?? "ok");
    return result;
  } finally {
    const { id: model } = infoOf(chain, result?.model);
    metric("model.step_seconds", (performance.now() - startedMs) / 1_000, { model, outcome });
    const facts = result === undefined ? {} : { ...tellUse(observation, chain, result), ...refusalTags(result) };
    step.end(outcome === "ok" ? undefined : outcome, { model, outcome, ...facts });
  }
}

/** Tells of calls that are run by the worker itself. */
export function watchBuiltIns({ event }: Observation, builtIns: Pick<BuiltInTools, "run">): Pick<BuiltInTools, "run"> {
  return {
    run: async (turn, call) => {
      const startedMs = performance.now();
      const outcome = await builtIns.run(turn, call);
      const { message, turnId } = turn;
      const tags = { traceparent: traceparentOfMessage(message), session: message.session, turn: turnId };
      const ranMs = Math.round(performance.now() - startedMs);
      event("call.outcome", { ...tags, call: call.id, tool: call.name, outcome: outcome.ok ? "ok" : "error", ranMs });
      return outcome;
    },
  };
}

/** Whether the person has seen text of an earlier step. */
function hasSpoken({ shown }: TurnState): boolean {
  return shown !== undefined && shown.text.trim() !== "";
}

/** Tells of a call that nobody answered in time. */
export function tellLate({ event }: Observation, { message, turnId }: TurnState, call: CallState): void {
  const { session } = message;
  const { id, name: tool, runner = "" } = call;
  const tags = { traceparent: traceparentOfMessage(message), session, turn: turnId };
  event("turn.healed", { ...tags, what: "deadline", call: id, tool, runner });
}

/** Begins to watch a claim of a turn. */
export function watchTurn(given: Observation, start: TurnStart): TurnWatch {
  const { session, head } = start;
  const observation = isCanary(session) ? unobserved : given;
  const { message } = head;
  const turn = turnIdOf(session, head.seq);
  const tags = { traceparent: traceparentOfMessage(message), session, turn };
  const watching: Watching = { observation, tags, message };
  const { event, metric, span } = observation;
  tellClaim(watching, start);
  const run = span("turn.run", tags);
  const channel = message.reply.channel === "feishu" ? "feishu" : "api";
  const sinceReceipt = (): number => Math.max(0, sharedNow() - message.createdAtMs);
  let isFirstText = start.tries === 0 && (start.turn === undefined || !hasSpoken(start.turn));
  return {
    step: async (chain, purpose, work) => await watchStep(watching, { chain, purpose }, work),
    retried: ({ model, code, waitMs, attempt, problem, requestId = "" }) => {
      event("model.retried", { ...tags, model, code, waitMs, attempt, problem: scrubText(problem), requestId });
      metric("model.retries", 1, { model, code });
    },
    text: () => {
      if (!isFirstText) return;
      isFirstText = false;
      const ms = sinceReceipt();
      event("stream.first_text", { ...tags, ms });
      metric("first_text_seconds", ms / 1_000, { channel });
    },
    judged: (calls) => {
      for (const { id, name, state } of calls) {
        event("call.judged", { ...tags, call: id, tool: name, decision: decisions[state] });
      }
    },
    handedOut: (calls) => {
      for (const { id, name, runner = "", attempt = 1 } of calls) {
        event("call.handed_out", { ...tags, call: id, tool: name, runner, attempt });
      }
    },
    joined: (other) => {
      event("turn.ended", { traceparent: traceparentOfMessage(other), session, turn, outcome: "joined" });
    },
    ended: (outcome, committed) => {
      run.end(undefined, { outcome });
      if (!committed) return;
      event("turn.ended", { ...tags, outcome });
      metric("turn_seconds", sinceReceipt() / 1_000, { outcome });
    },
  };
}
