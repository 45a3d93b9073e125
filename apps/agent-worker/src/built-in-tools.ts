import { resultShare, type TurnLimits } from "@larkline/agent";
import type { CallState, ToolOutcome, TurnState } from "@larkline/protocol";
import { readResultName, type AvailableTool, type ResultDesk } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { readResult, readResultAnnouncement } from "./read-result.ts";
import { within } from "./within.ts";

/** Stands for the workers where a call names its runner; no runner can be called so. */
export const builtInRunner = "(worker)";

/** Tools that workers run themselves. */
export interface BuiltInTools {
  /** By name; these names are taken, whatever runners offer. */
  readonly offered: ReadonlyMap<string, AvailableTool>;
  /** Runs a call of one of them; they are all pure. Never rejects: what goes wrong is an outcome. */
  run(turn: TurnState, call: CallState): Promise<ToolOutcome>;
}

/** Whoever hands out calls waits for this. */
const readMs = 10_000;

export function createBuiltInTools(deps: { desk: ResultDesk; limits: TurnLimits; logger: Logger }): BuiltInTools {
  const { desk, limits, logger } = deps;
  const offered = new Map([[readResultName, { runner: builtInRunner, announcement: readResultAnnouncement }]]);
  return {
    offered,
    run: async ({ message: { session }, turnId, calls }, call) => {
      if (call.name !== readResultName) return { ok: false, error: `tool_not_found: there is no tool '${call.name}'.` };
      try {
        const room = resultShare(limits, calls.length);
        return await within(readMs, readResult(desk, { session, input: call.arguments, room }));
      } catch (error) {
        logger.warn({ error, session, turnId, callId: call.id }, "a stored result was not read");
        return { ok: false, error: "The stored result cannot be read at the moment. Try again later." };
      }
    },
  };
}
