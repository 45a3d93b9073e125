import type { Logger } from "@larkline/process/telemetry";
import { agentOfTurn, traceIdOf, traceparentOfMessage, type Clock, type TurnState } from "@larkline/protocol";
import type { RunLog, RunRecord } from "@larkline/store/operations";

// The worker that commits a turn leaves a record of it, whichever worker began. Records are collected and written a few
// times a second at most: no turn waits for that, and none sends a command of its own. What a worker has collected when
// it is killed is lost.

/** What a turn leaves for its record. */
export interface EndedRun {
  turn: TurnState;
  /** Id of the model that gave the last step; empty when none was asked. */
  model: string;
  firstTextMs: number | undefined;
}

interface RunRecordsOptions {
  log: Pick<RunLog, "append">;
  clock: Clock;
  logger: Logger;
  /** How long records are collected, ms. */
  flushMs?: number;
}

const defaultFlushMs = 300;
/** Until a write that failed is tried again. */
const retryMs = 2_000;
/** Records of one write. */
const maxAtOnce = 500;
/** While Redis is away so many are kept, the newest. */
const maxKept = 10_000;

/** What this process writes down about runs that have ended. */
export class RunRecords {
  readonly #options: RunRecordsOptions;
  #waiting: RunRecord[] = [];
  #cancelTimer: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  #isFailing = false;

  constructor(options: RunRecordsOptions) {
    this.#options = options;
  }

  /** A turn is committed. Returns at once and never throws. */
  ended(run: EndedRun, outcome: string): void {
    this.#waiting.push(recordOf(run, { outcome, endedAtMs: this.#options.clock.now() }));
    if (this.#waiting.length > maxKept) this.#waiting.shift();
    this.#flushIn(this.#options.flushMs ?? defaultFlushMs);
  }

  /** Writes what is left, once. */
  async close(): Promise<void> {
    await this.#writing;
    this.#flush();
    await this.#writing;
    this.#cancelTimer?.();
  }

  #flushIn(ms: number): void {
    if (this.#writing !== undefined) return;
    this.#cancelTimer ??= this.#options.clock.after(ms, () => this.#flush());
  }

  #flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    if (this.#writing !== undefined || this.#waiting.length === 0) return;
    this.#writing = this.#write(this.#waiting.splice(0, maxAtOnce)).finally(() => {
      this.#writing = undefined;
      if (this.#waiting.length > 0) this.#flushIn(this.#isFailing ? retryMs : 0);
    });
  }

  async #write(records: RunRecord[]): Promise<void> {
    const { log, logger } = this.#options;
    try {
      await log.append(records);
      this.#isFailing = false;
    } catch (error) {
      // They may be there: readers show a run once.
      this.#waiting = [...records, ...this.#waiting].slice(-maxKept);
      if (!this.#isFailing) logger.warn({ error }, "records of runs are not written");
      this.#isFailing = true;
    }
  }
}

function recordOf(
  { turn, model, firstTextMs }: EndedRun,
  { outcome, endedAtMs }: Pick<RunRecord, "outcome" | "endedAtMs">,
): RunRecord {
  const { message, turnId, steps, totals, startedAtMs, waitedMs } = turn;
  return {
    turn: turnId,
    trace: traceIdOf(traceparentOfMessage(message)),
    message: message.id,
    person: message.sender.id,
    agent: agentOfTurn(turn),
    model,
    outcome,
    endedAtMs,
    ms: Math.max(0, endedAtMs - message.createdAtMs),
    queuedMs: Math.max(0, startedAtMs - message.createdAtMs),
    ...(firstTextMs === undefined ? {} : { firstMs: firstTextMs }),
    ...(waitedMs === undefined ? {} : { waitedMs }),
    steps,
    input: totals.inputTokens,
    output: totals.outputTokens,
    usd: Number(totals.costUsd.toPrecision(6)),
    ...toolsOf(turn),
  };
}

/** The latest calls of the turn, as many as its card can show. */
function toolsOf({ shown }: EndedRun["turn"]): Pick<RunRecord, "tools" | "failedTools"> {
  if (shown === undefined || shown.tools.length === 0) return {};
  const failed = shown.tools.filter(({ state }) => state === "failed");
  return { tools: countsOf(shown.tools), ...(failed.length === 0 ? {} : { failedTools: countsOf(failed) }) };
}

function countsOf(tools: readonly { name: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { name } of tools) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
