import { isDeepStrictEqual } from "node:util";
import { argumentsHashOf, verifyCall, type CallClaims, type ParseResult, type ToolJob } from "@larkline/protocol";

export interface EnvelopeCheck {
  /** `runnerKeyOf` the deployment's key and this runner's name. */
  runnerKey: string;
  runner: string;
}

/** What the claims have to say about a job, by the name under which a mismatch is reported. */
function expectedOf(job: ToolJob, runner: string): Partial<CallClaims> {
  const { name, session, turnId, callId, attempt, actor } = job;
  const argumentsHash = argumentsHashOf(job.arguments);
  return { runner, tool: name, session, turnId, callId, attempt, argumentsHash, actor };
}

/**
 * The claims of a job's envelope if it is genuine and about this very job; otherwise what is wrong, in
 * words that hold no secret. Whoever can write into the queue and has no key gets nothing run.
 */
export function checkEnvelope(
  job: ToolJob,
  { runnerKey, runner }: EnvelopeCheck,
  nowMs: number,
): ParseResult<CallClaims> {
  const verified = verifyCall(runnerKey, job.envelope, nowMs);
  if (!verified.ok) return verified;
  const claims: Record<string, unknown> = verified.value;
  const wrong = Object.entries(expectedOf(job, runner)).find(
    ([name, value]) => !isDeepStrictEqual(claims[name], value),
  );
  return wrong === undefined ? verified : { ok: false, error: `it is for another ${wrong[0]}` };
}
