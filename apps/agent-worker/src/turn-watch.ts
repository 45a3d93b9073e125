import type { StepResult } from "@larkline/agent";
import { costOf, type ModelChain, type ModelInfo } from "@larkline/model";
import {
  isCanary,
  traceparentOfMessage,
  turnIdOf,
  type CallState,
  type InboundMessage,
  type ModelRetry,
  type ToolOutcome,
  type TurnState,
  sharedNow,
  type Usage,
} from "@larkline/protocol";
import { scrubText, silentTelemetry, type Tags, type Telemetry } from "@larkline/process/telemetry";
import type { TurnStart } from "./turn-store.ts";

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
  telemetry: Telemetry;
  tags: Tags;
  message: InboundMessage;
}

/** Tells of the claim, and what it heals. */
function tellClaim({ telemetry, tags, message }: Watching, { tries, turn }: TurnStart): void {
  const { events } = telemetry;
  const resumed = turn !== undefined;
  const waited = resumed ? {} : { queuedMs: Math.max(0, sharedNow() - message.createdAtMs) };
  events.emit({ eventName: "turn.claimed", attributes: { ...tags, ...waited, tries, resumed } });
  if (tries > 0) events.emit({ eventName: "turn.healed", attributes: { ...tags, what: "crash", tries } });
}

function tokensOf(usage: Usage): Record<string, number> {
  const { inputTokens, outputTokens, cacheReadTokens = 0, cacheCreationTokens = 0 } = usage;
  return { input: inputTokens, output: outputTokens, cache_read: cacheReadTokens, cache_write: cacheCreationTokens };
}

/** Counts what each call of a vendor has used, as budgets count it; returns what the step's span says of it. */
function tellUse({ samples }: Telemetry, chain: ModelChain, step: StepResult): Tags {
  for (const { model: asked, usage } of step.uses ?? []) {
    const info = infoOf(chain, asked);
    const { id: model } = info;
    for (const [kind, count] of Object.entries(tokensOf(usage))) {
      if (count > 0) samples["model.tokens"].add(count, { model, kind });
    }
    const cost = costOf(usage, info);
    if (cost > 0) samples["model.cost_usd"].add(cost, { model });
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
  { telemetry, tags }: Watching,
  { chain, purpose }: { chain: ModelChain; purpose: string },
  run: () => Promise<StepResult>,
): Promise<StepResult> {
  const { tracer, samples } = telemetry;
  const startedMs = performance.now();
  const step = tracer.startSpan("model.step", { attributes: { ...tags, model: chain.primary.id, purpose } });
  let result: StepResult | undefined;
  let outcome = "failed";
  try {
    result = await run();
    outcome = result.brokenOff === true ? "broken_off" : (result.failure?.code ?? "ok");
    return result;
  } finally {
    const { id: model } = infoOf(chain, result?.model);
    samples["model.step_seconds"].record((performance.now() - startedMs) / 1_000, { model, outcome });
    const facts = result === undefined ? {} : { ...tellUse(telemetry, chain, result), ...refusalTags(result) };
    if (outcome !== "ok") step.recordException(outcome);
    step.setAttributes({ model, outcome, ...facts }).end();
  }
}

/** Tells of a call that the worker has run itself. */
export function tellBuiltInRan(
  { events }: Telemetry,
  { message, turnId }: TurnState,
  call: CallState,
  { outcome, ranMs }: { outcome: ToolOutcome; ranMs: number },
): void {
  const tags = { traceparent: traceparentOfMessage(message), session: message.session, turn: turnId };
  const facts = { call: call.id, tool: call.name, outcome: outcome.ok ? "ok" : "error", ranMs: Math.round(ranMs) };
  events.emit({ eventName: "call.outcome", attributes: { ...tags, ...facts } });
}

/** Whether the person has seen text of an earlier step. */
function hasSpoken({ shown }: TurnState): boolean {
  return shown !== undefined && shown.text.trim() !== "";
}

/** Tells of a call that nobody answered in time. */
export function tellLate({ events }: Telemetry, { message, turnId }: TurnState, call: CallState): void {
  const { session } = message;
  const { id, name: tool, runner = "" } = call;
  const tags = { traceparent: traceparentOfMessage(message), session, turn: turnId };
  events.emit({ eventName: "turn.healed", attributes: { ...tags, what: "deadline", call: id, tool, runner } });
}

/** Begins to watch a claim of a turn. */
export function watchTurn(given: Telemetry, start: TurnStart): TurnWatch {
  const { session, head } = start;
  const telemetry = isCanary(session) ? silentTelemetry : given;
  const { message } = head;
  const turn = turnIdOf(session, head.seq);
  const tags = { traceparent: traceparentOfMessage(message), session, turn };
  const watching: Watching = { telemetry, tags, message };
  const { tracer, events, samples } = telemetry;
  tellClaim(watching, start);
  const run = tracer.startSpan("turn.run", { attributes: tags });
  const channel = message.reply.channel === "feishu" ? "feishu" : "api";
  const sinceReceipt = (): number => Math.max(0, sharedNow() - message.createdAtMs);
  let isFirstText = start.tries === 0 && (start.turn === undefined || !hasSpoken(start.turn));
  return {
    step: async (chain, purpose, work) => await watchStep(watching, { chain, purpose }, work),
    retried: ({ model, code, waitMs, attempt, problem, requestId = "" }) => {
      const facts = { model, code, waitMs, attempt, problem: scrubText(problem), requestId };
      events.emit({ eventName: "model.retried", attributes: { ...tags, ...facts } });
      samples["model.retries"].add(1, { model, code });
    },
    text: () => {
      if (!isFirstText) return;
      isFirstText = false;
      const ms = sinceReceipt();
      events.emit({ eventName: "stream.first_text", attributes: { ...tags, ms } });
      samples.first_text_seconds.record(ms / 1_000, { channel });
    },
    judged: (calls) => {
      for (const { id, name, state } of calls) {
        const attributes = { ...tags, call: id, tool: name, decision: decisions[state] };
        events.emit({ eventName: "call.judged", attributes });
      }
    },
    handedOut: (calls) => {
      for (const { id, name, runner = "", attempt = 1 } of calls) {
        events.emit({ eventName: "call.handed_out", attributes: { ...tags, call: id, tool: name, runner, attempt } });
      }
    },
    joined: (other) => {
      const attributes = { traceparent: traceparentOfMessage(other), session, turn, outcome: "joined" };
      events.emit({ eventName: "turn.ended", attributes });
    },
    ended: (outcome, committed) => {
      run.setAttributes({ outcome }).end();
      if (!committed) return;
      events.emit({ eventName: "turn.ended", attributes: { ...tags, outcome } });
      samples.turn_seconds.record(sinceReceipt() / 1_000, { outcome });
    },
  };
}
