import { newEngineError } from "@larkline/protocol";

/** Bounds of one turn. */
export interface TurnLimits {
  /** Model steps per turn, whatever happens in between. */
  maxIterations: number;
  /** Calls of one step that are run; the rest get an error result. */
  maxCallsPerStep: number;
  /** Calls of one step that people are asked about; further ones get an error result. */
  maxQuestionsPerStep: number;
  /** Longest time one call may run, in ms, whatever its tool announces. */
  toolTimeoutMs: number;
  /** Time a call may wait for a runner, in ms, on top of its running time. */
  toolWaitMs: number;
  /** Longest tool result the model gets, in characters; the rest is cut off with a marker. */
  maxResultChars: number;
  /** Longest results of one step together, shared equally by its calls. */
  maxStepResultChars: number;
  /** Later messages that may join one turn: a busy chat must not keep it running for good. */
  maxAbsorbed: number;
  /** Calls that people reject in one turn before nobody is asked any more. */
  maxDenials: number;
}

const defaults: TurnLimits = {
  maxIterations: 25,
  maxCallsPerStep: 64,
  maxQuestionsPerStep: 10,
  toolTimeoutMs: 600_000,
  toolWaitMs: 30_000,
  maxResultChars: 50_000,
  maxStepResultChars: 200_000,
  maxAbsorbed: 10,
  maxDenials: 3,
};

/** Fills in defaults. Throws when a limit is not a whole number above 0, naming it and its value. */
export function turnLimits(partial: Partial<TurnLimits> = {}): TurnLimits {
  const limits = { ...defaults, ...partial };
  for (const [name, value] of Object.entries(limits)) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw newEngineError("internal_error", `${name} must be a whole number of at least 1, got ${String(value)}.`, {
      suggestion: `Correct ${name} in the configuration.`,
    });
  }
  return limits;
}

/** Characters one of `calls` results of a step may have. */
export function resultShare(limits: TurnLimits, calls: number): number {
  return Math.max(1, Math.min(limits.maxResultChars, Math.floor(limits.maxStepResultChars / Math.max(1, calls))));
}
