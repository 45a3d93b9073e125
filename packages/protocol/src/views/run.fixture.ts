import * as fc from "fast-check";
import type { EngineEvent, EventRecord } from "../event.ts";
import type { RunFacts } from "./engine-view.ts";

// Runs as workers write them: what a model says, step by step, with crashes in between.

type Block = { type: "text" | "thinking"; pieces: string[] };

/** An attempt of a step that broke off: its words are void. `whole`: how many of its blocks had ended. */
interface BrokenAttempt {
  blocks: Block[];
  whole: number;
  reason: string;
}

export interface PlannedCall {
  id: string;
  toolName: string;
  input: Record<string, unknown>;
  output: string;
  isError: boolean;
  kind: "plain" | "handoff" | "helper" | "mcp" | "code";
  approval: boolean;
}

interface PlannedStep {
  broken: BrokenAttempt[];
  blocks: Block[];
  calls: PlannedCall[];
}

/** How a run ends after its last step. */
type Ending = "" | "max_tokens" | "refusal" | "cancelled" | "error" | "max_turns_reached";

export interface PlannedRun {
  facts: RunFacts;
  steps: PlannedStep[];
  ending: Ending;
  /** Blocks are emitted when they end, not when the step does. */
  blocksAtOnce: boolean;
  /** Stored by the version before: fields are absent. */
  former: boolean;
}

const piece = fc.constantFrom("a", "Hello ", "世界", "\n", "```", "x y", "😀");
const block: fc.Arbitrary<Block> = fc.record({
  type: fc.constantFrom("text", "thinking"),
  pieces: fc.array(piece, { minLength: 1, maxLength: 4 }),
});
const blocks = fc.array(block, { maxLength: 4 });

const call = fc.record({
  kind: fc.constantFrom("plain", "plain", "plain", "handoff", "helper", "mcp", "code"),
  output: fc.constantFrom("", "sunny", '{"t":25}', "permission_denied: no. It was not run."),
  isError: fc.boolean(),
  approval: fc.boolean(),
});

const step = fc.record({
  broken: fc.array(
    fc.record({
      blocks,
      whole: fc.nat(3),
      reason: fc.constantFrom("crash", "stream_truncated", "api_overloaded"),
    }),
    { maxLength: 2 },
  ),
  blocks,
  calls: fc.array(call, { maxLength: 3 }),
});

const names = {
  plain: "weather",
  handoff: "transfer_to_writer",
  helper: "research",
  mcp: "files_read",
  code: "run_python",
};

/** Any run. Only its last step can do without calls. */
export const plannedRun: fc.Arbitrary<PlannedRun> = fc
  .record({
    steps: fc.array(step, { minLength: 1, maxLength: 4 }),
    ending: fc.constantFrom<Ending>(
      "",
      "",
      "",
      "max_tokens",
      "refusal",
      "cancelled",
      "error",
      "max_turns_reached",
    ),
    blocksAtOnce: fc.boolean(),
    former: fc.boolean(),
    child: fc.boolean(),
  })
  .map(({ steps, ending, blocksAtOnce, former, child }) => ({
    facts: {
      runId: "api.s1-3",
      sessionId: "s1",
      agent: "default",
      startedAtMs: 1_700_000_000_000,
      ...(child ? { parentRunId: "api.s0-9" } : {}),
    },
    ending,
    blocksAtOnce,
    former,
    steps: steps.map((planned, index) => ({
      ...planned,
      calls: planned.calls.flatMap((one, at) => {
        // What comes after the last calls of a run that is broken off there is not emitted.
        if (index === steps.length - 1 && ending !== "max_turns_reached") return [];
        const input = one.kind === "code" ? { code: "print(1)" } : { city: "Paris", at };
        return [{ ...one, id: `c${index}_${at}`, toolName: names[one.kind], input }];
      }),
    })),
  }));

const usage = { inputTokens: 10, outputTokens: 5, cacheReadTokens: 3, cacheCreationTokens: 2 };

/** The deltas of blocks, and the events of those that have ended. */
function told(
  said: readonly Block[],
  { blocksAtOnce, whole }: { blocksAtOnce: boolean; whole: number },
): EngineEvent[] {
  const joined = blocksAtOnce ? said : joinedText(said);
  const ends: EngineEvent[] = joined.map(({ type, pieces }) => ({ type, text: pieces.join("") }));
  if (!blocksAtOnce) return [...said.flatMap(deltasOf), ...(whole >= said.length ? ends : [])];
  return said.flatMap((one, index) => [
    ...deltasOf(one),
    ...(index < whole ? ends.slice(index, index + 1) : []),
  ]);
}

function deltasOf({ type, pieces }: Block): EngineEvent[] {
  return pieces.map((text) => ({ type: type === "text" ? "text_delta" : "thinking_delta", text }));
}

/** Adjacent text is one block where blocks are emitted at the end of a step. */
function joinedText(said: readonly Block[]): Block[] {
  const all: Block[] = [];
  for (const one of said) {
    const last = all.at(-1);
    if (last?.type === "text" && one.type === "text") last.pieces = [...last.pieces, ...one.pieces];
    else all.push({ ...one });
  }
  return all;
}

/** The text of a step. */
export function textOfStep({ blocks: said }: Pick<PlannedStep, "blocks">): string {
  return said.flatMap(({ type, pieces }) => (type === "text" ? pieces : [])).join("");
}

/** What `final` has to say. */
export function finalOf({ steps }: PlannedRun): string {
  const last = steps.at(-1);
  return last === undefined ? "" : textOfStep(last);
}

function eventsOf(run: PlannedRun): EngineEvent[] {
  const { steps, ending } = run;
  const events: EngineEvent[] = [];
  let agent = run.facts.agent;
  for (const [index, planned] of steps.entries()) {
    const turnNumber = index + 1;
    events.push({ type: "turn_start", turnNumber, model: "m1", contextWindowTokens: 200_000 });
    for (const broken of planned.broken) {
      events.push(
        ...told(broken.blocks, { ...run, whole: Math.min(broken.whole, broken.blocks.length - 1) }),
      );
      events.push({ type: "step_restarted", turnNumber, model: "m2", reason: broken.reason });
    }
    const isLast = turnNumber === steps.length;
    const isBrokenOff = isLast && (ending === "cancelled" || ending === "error");
    events.push(
      ...told(planned.blocks, { ...run, whole: isBrokenOff ? 0 : planned.blocks.length }),
    );
    events.push(...callEvents(planned));
    const attempts = planned.broken.length + 1;
    const end = {
      turnNumber,
      ...usage,
      costUsd: 0.01,
      maxTokens: 1_000,
      model: "m2",
      responseId: `resp_${index}`,
    };
    events.push({ type: "turn_end", ...end, attempts, estimated: false });
    for (const { id, kind, isError } of planned.calls) {
      if (kind !== "handoff" || isError || agent === "writer") continue;
      events.push({
        type: "agent_changed",
        from: agent,
        to: "writer",
        reason: "handoff",
        callId: id,
      });
      agent = "writer";
    }
  }
  const totalsOfRun = {
    totalInputTokens: 10 * steps.length,
    totalOutputTokens: 5 * steps.length,
    totalCacheReadTokens: 3 * steps.length,
    totalCacheCreationTokens: 2 * steps.length,
    totalCostUsd: steps.reduce((sum) => sum + 0.01, 0),
    turnCount: steps.length,
  };
  if (ending === "error") {
    events.push({
      type: "error",
      code: "api_overloaded",
      message: "busy",
      suggestion: "",
      retryable: true,
      ...totalsOfRun,
    });
  } else events.push({ type: "done", reason: ending, final: finalOf(run), ...totalsOfRun });
  return events;
}

function callEvents({ calls }: PlannedStep): EngineEvent[] {
  const uses = calls.map((one, index): EngineEvent => {
    const { id, toolName, input, kind } = one;
    return {
      type: "tool_use",
      id,
      toolName,
      input,
      ...(index === 0 ? { step: { calls: calls.length, ...usage } } : {}),
      ...(kind === "handoff" ? { handoff: "writer" } : {}),
      ...(kind === "helper" ? { helper: "researcher" } : {}),
      ...(kind === "mcp" ? { mcp: { server: "files" } } : {}),
    };
  });
  const asked = calls.flatMap(({ id, toolName, input, approval }): EngineEvent[] =>
    approval
      ? [
          {
            type: "permission_request",
            id: `p_${id}`,
            toolName,
            input,
            message: "may I?",
            toolCallId: id,
          },
        ]
      : [],
  );
  const results = calls.map(({ id, toolName, output, isError }): EngineEvent => ({
    type: "tool_result",
    id,
    toolName,
    output,
    isError,
    truncated: false,
    storedPath: "",
    ...(isError ? {} : { result: output }),
  }));
  // Results come in any order.
  return [...uses, ...asked, ...results.toReversed()];
}

/** Fields that records of the version before lack. */
const laterFields = new Set([
  "step",
  "handoff",
  "helper",
  "mcp",
  "toolCallId",
  "cacheReadTokens",
  "cacheCreationTokens",
  "model",
  "responseId",
  "attempts",
  "estimated",
  "totalCacheReadTokens",
  "totalCacheCreationTokens",
]);

function withoutLaterFields(event: EngineEvent): EngineEvent {
  const { type } = event;
  if (type === "turn_start" || type === "step_restarted") return event;
  const kept = Object.entries(event).filter(([name]) => !laterFields.has(name));
  return Object.fromEntries(kept) as EngineEvent; // as stored then
}

/** The records of a session that hold the run, and some of its neighbours. */
export function recordsOf(run: PlannedRun): EventRecord[] {
  const { facts, former } = run;
  let agent = facts.agent;
  const own = eventsOf(run).map((event): Omit<EventRecord, "seq"> => {
    const speaker = agent;
    if (event.type === "agent_changed") agent = event.to;
    if (former) return { runId: facts.runId, event: withoutLaterFields(event) };
    return { runId: facts.runId, event, agent: speaker, atMs: facts.startedAtMs + 1_000 };
  });
  const other = {
    runId: "api.s1-2",
    event: { type: "text_delta", text: "of another run" },
  } as const;
  return [other, ...own.slice(0, 3), other, ...own.slice(3)].map((record, index) => ({
    seq: index + 5,
    ...record,
  }));
}

/** Someone who reads is cut off at these positions, and reads again from a bit before: each record comes at least once. */
export function cutAt(records: readonly EventRecord[], cuts: readonly number[]): EventRecord[] {
  const ends = [
    ...cuts.map((cut) => cut % (records.length + 1)).sort((left, right) => left - right),
    records.length,
  ];
  return ends.flatMap((end, index) => records.slice(Math.max(0, (ends[index - 1] ?? 0) - 2), end));
}
