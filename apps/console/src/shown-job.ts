import { parserOf, ToolJob, TurnJob } from "@larkline/protocol";

/** What a job is about, without what people and models wrote. */
export type JobFacts =
  | { kind: "turn"; session: string; gen: number }
  | { kind: "call"; call: ToolJob }
  /** Not written by this version. */
  | { kind: "unknown" };

const parseTurn = parserOf(TurnJob);
const parseCall = parserOf(ToolJob);

export function jobFactsOf(data: unknown): JobFacts {
  const call = parseCall(data);
  if (call.ok) return { kind: "call", call: call.value };
  const turn = parseTurn(data);
  return turn.ok ? { kind: "turn", session: turn.value.session, gen: turn.value.gen } : { kind: "unknown" };
}

const hidden = "hidden";

/** The data of a job as the board shows it: arguments and the signature stay out. */
export function shownJobData(data: unknown): Record<string, unknown> {
  const facts = jobFactsOf(data);
  if (facts.kind === "turn") return { session: facts.session, generation: facts.gen };
  if (facts.kind === "unknown") return { data: hidden };
  const { session, turnId, callId, name, effect, attempt, actor, queuedAtMs, deadlineMs } = facts.call;
  return {
    session,
    turn: turnId,
    call: callId,
    tool: name,
    effect,
    attempt,
    app: actor.app,
    person: actor.userId,
    chat: actor.chatId,
    handedOutAt: new Date(queuedAtMs).toISOString(),
    deadlineAt: new Date(deadlineMs).toISOString(),
    arguments: `${hidden} (${facts.call.arguments.length} characters)`,
  };
}
