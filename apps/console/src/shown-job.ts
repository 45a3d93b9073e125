import { FinishedCall, finishedCallOf, parserOf, ToolJob, TurnJob } from "@larkline/protocol";

/** What a job is about, without what people and models wrote. */
export type JobFacts =
  | { kind: "turn"; session: string; gen: number }
  | { kind: "call"; call: ToolJob }
  /** A call whose job has finished. */
  | { kind: "finished"; call: FinishedCall }
  /** Not written by this version. */
  | { kind: "unknown" };

const parseTurn = parserOf(TurnJob);
const parseCall = parserOf(ToolJob);
const parseFinished = parserOf(FinishedCall);

export function jobFactsOf(data: unknown): JobFacts {
  const call = parseCall(data);
  if (call.ok) return { kind: "call", call: call.value };
  const finished = parseFinished(data);
  if (finished.ok) return { kind: "finished", call: finished.value };
  const turn = parseTurn(data);
  return turn.ok ? { kind: "turn", session: turn.value.session, gen: turn.value.gen } : { kind: "unknown" };
}

const hidden = "hidden";

/** The data of a job as the board shows it: arguments and the signature stay out. Of a finished call no more is kept. */
export function shownJobData(data: unknown): Record<string, unknown> {
  const facts = jobFactsOf(data);
  if (facts.kind === "turn") return { session: facts.session, generation: facts.gen };
  if (facts.kind === "unknown") return { data: hidden };
  const call = facts.kind === "finished" ? facts.call : finishedCallOf(facts.call);
  const { session, turnId, callId, name, effect, attempt, queuedAtMs, deadlineMs, argumentsLength } = call;
  return {
    session,
    turn: turnId,
    call: callId,
    tool: name,
    effect,
    attempt,
    ...(facts.kind === "call" && {
      app: facts.call.actor.app,
      person: facts.call.actor.userId,
      chat: facts.call.actor.chatId,
    }),
    handedOutAt: new Date(queuedAtMs).toISOString(),
    deadlineAt: new Date(deadlineMs).toISOString(),
    arguments: `${facts.kind === "call" ? hidden : "not kept"} (${argumentsLength} characters)`,
  };
}
