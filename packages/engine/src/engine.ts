import { parseInput, type ParsedInput } from "@larkline/protocol/views/item-input";
import type { InputItem } from "@larkline/protocol/views/run-items";
import {
  type EngineOptions,
  type EngineRunOptions,
  type SessionStats,
  type ReadyAgent,
  House,
} from "./house.ts";
import { EngineRun } from "./run.ts";
import { EngineTurn } from "./turn.ts";

// The turn machine of packages/agent in one process, with its state in plain memory: for tests of one's own agents, and
// for embedding. The worker of a deployment makes the same decisions and keeps every one of them in Redis; here nothing
// outlives the process but what `store` keeps.

export interface Engine {
  /**
   * A run of this session, which begins when it is first read. `input` is a text, or items as a run's `toInputList()`
   * returns them, with a user message last: those before it are the history of a new session. Throws a TypeError for
   * an unknown agent and for input that cannot be read; everything after that is an event of the run.
   */
  run(
    sessionId: string,
    input: string | readonly InputItem[],
    options?: EngineRunOptions,
  ): EngineRun;
  /** Makes a summary of the older part of the conversation. */
  compact(sessionId: string, options?: EngineRunOptions): EngineRun;
  stats(sessionId: string): SessionStats;
  /** Cancels everything and waits until it has ended. A run after it ends with the error `session_closed`. */
  close(): Promise<void>;
}

/** Makes an engine. Throws a TypeError that names what of the options cannot work. */
export function createEngine(options: EngineOptions): Engine {
  const house = new House(options);
  const start = (
    sessionId: string,
    given: ParsedInput & { command?: "compact" },
    run: EngineRunOptions,
  ): EngineRun => {
    const agent = house.agentNamed(run.agent);
    const problem =
      run.previousResponseId === undefined ? undefined : continuationProblem(agent, given);
    if (problem !== undefined) throw new TypeError(`previousResponseId: ${problem}`);
    const turn = new EngineTurn(house, house.session(sessionId), { ...given, ...run, agent });
    return new EngineRun(turn, given.history);
  };
  return {
    run: (sessionId, input, run = {}) => {
      const parsed = parseInput(input);
      if (!parsed.ok) throw new TypeError(parsed.error);
      return start(sessionId, parsed.value, run);
    },
    compact: (sessionId, run = {}) =>
      start(
        sessionId,
        { history: [], parts: [{ type: "text", text: "/compact" }], command: "compact" },
        run,
      ),
    stats: (sessionId) => house.session(sessionId).stats(),
    close: async () => await house.close(),
  };
}

/** Why a run cannot continue an answer that a vendor keeps, or undefined. */
function continuationProblem(
  { name, config }: ReadyAgent,
  { history }: ParsedInput,
): string | undefined {
  if (config.storeResponses !== true) {
    return `agent ${name} does not store its responses (storeResponses)`;
  }
  return history.length > 0
    ? "the vendor has what was said before: input is one user message"
    : undefined;
}
