import { argumentsHashOf, runnerKeyOf, signCall, type CallAuthority, type ToolJob } from "@larkline/protocol";

/** A job that nobody vouches for yet. */
export type UnsignedJob = Omit<ToolJob, "envelope">;

/** Vouches for a job towards one runner. */
export type CallSigner = (job: UnsignedJob, runner: string, authority: CallAuthority) => ToolJob;

/** Signs calls with a key of each runner's own, made from `signingKey`: no runner can make calls for another. */
export function createCallSigner(signingKey: string): CallSigner {
  const keys = new Map<string, string>();
  return (job, runner, authority) => {
    const key = keys.get(runner) ?? runnerKeyOf(signingKey, runner);
    keys.set(runner, key);
    const { session, turnId, callId, attempt, actor } = job;
    const envelope = signCall(key, {
      v: 1,
      runner,
      tool: job.name,
      session,
      turnId,
      callId,
      attempt,
      argumentsHash: argumentsHashOf(job.arguments),
      actor,
      authority,
      expiresAtMs: job.deadlineMs,
    });
    return { ...job, envelope };
  };
}
