import { resultCodeIn } from "../error.ts";
import {
  engineEventTypes,
  isTerminal,
  type EngineEvent,
  type EventOf,
  type EventRecord,
} from "../event.ts";
import type { RunEvent, RunEventOf, RunRecord } from "./engine-events.ts";

// From stored events to those that others read. No module is loaded but this one's neighbours, so that it runs anywhere.

/** What is known of a run besides its events. */
export interface RunFacts {
  runId: string;
  sessionId: string;
  /** The agent that answers at first. */
  agent: string;
  /** Epoch ms: the time of events that were stored without one. */
  startedAtMs: number;
  parentRunId?: string;
}

/** The view `engine` of a whole run, or of what there is of it. */
export function engineRecords(run: RunFacts, records: Iterable<EventRecord>): RunRecord[] {
  const view = new EngineView(run);
  return Array.from(records).flatMap((record) => view.push(record) ?? []);
}

/**
 * Turns the events of one run, pushed in order from the first one, into records with all fields of the contract.
 * What a follower may not rely on is left out: events of other runs, positions that were pushed before, results and
 * ends of steps that were repeated after a crash, everything after the end, and the vendors' raw usage.
 */
export class EngineView {
  readonly #run: RunFacts;
  #lastSeq = 0;
  #agent: string;
  #ended = false;
  /** The step under way. */
  #step = { turnNumber: 0, model: "" };
  /** What may come once only. */
  readonly #seen = new Set<string>();
  readonly #totals = {
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCacheReadTokens: 0,
    totalCacheCreationTokens: 0,
    totalCostUsd: 0,
  };

  constructor(run: RunFacts) {
    this.#run = run;
    this.#agent = run.agent;
  }

  /** The record that others read; undefined when this one is left out. */
  push({
    seq,
    runId,
    event,
    agent,
    atMs,
    parentRunId = this.#run.parentRunId,
  }: EventRecord): RunRecord | undefined {
    if (runId !== this.#run.runId || seq <= this.#lastSeq) return undefined;
    this.#lastSeq = seq;
    if (this.#ended && event.type !== "session_info") return undefined;
    this.#agent = agent ?? this.#agent;
    const speaker = this.#agent;
    const complete = this.#complete(event, seq);
    if (complete === undefined) return undefined;
    this.#ended ||= isTerminal(complete);
    return {
      seq,
      runId,
      agent: speaker,
      atMs: atMs ?? this.#run.startedAtMs,
      ...(parentRunId === undefined ? {} : { parentRunId }),
      event: complete,
    };
  }

  #complete(event: EngineEvent, seq: number): RunEvent | undefined {
    switch (event.type) {
      case "turn_start":
        return this.#stepBegun(event);
      case "step_restarted":
        this.#step.model = event.model;
        return event;
      case "turn_end":
        return this.#stepEnded(event);
      case "tool_result":
        return this.#isFirst(`result ${event.id}`) ? shownResult(event, seq) : undefined;
      case "tool_progress":
        return { ...event, progress: Math.min(1, Math.max(0, event.progress)) };
      case "agent_changed":
        this.#agent = event.to;
        return event;
      case "error":
      case "done":
        return this.#terminal(event);
      case "session_info":
        return { ...event, sessionId: this.#run.sessionId };
      case "usage":
        return undefined;
      default:
        return knownTypes.has(event.type) ? event : undefined; // a later version may have stored it
    }
  }

  #isFirst(what: string): boolean {
    const isFirst = !this.#seen.has(what);
    this.#seen.add(what);
    return isFirst;
  }

  /** A step that begins a second time is one that was asked again. */
  #stepBegun(event: EventOf<"turn_start">): RunEvent {
    const isFirst = this.#isFirst(`start ${event.turnNumber}`);
    this.#step = { turnNumber: event.turnNumber, model: event.model };
    return isFirst ? event : this.#restarted("crash");
  }

  #restarted(reason: string): RunEventOf<"step_restarted"> {
    const { turnNumber, model } = this.#step;
    return { type: "step_restarted", turnNumber: Math.max(1, turnNumber), model, reason };
  }

  #stepEnded(event: EventOf<"turn_end">): RunEventOf<"turn_end"> | undefined {
    if (!this.#isFirst(`end ${event.turnNumber}`)) return undefined;
    const { cacheReadTokens = 0, cacheCreationTokens = 0, attempts = 1, estimated = false } = event;
    const { model = this.#step.model, responseId = null } = event;
    this.#totals.totalInputTokens += event.inputTokens;
    this.#totals.totalOutputTokens += event.outputTokens;
    this.#totals.totalCacheReadTokens += cacheReadTokens;
    this.#totals.totalCacheCreationTokens += cacheCreationTokens;
    this.#totals.totalCostUsd += event.costUsd;
    return {
      ...event,
      cacheReadTokens,
      cacheCreationTokens,
      model,
      responseId,
      attempts,
      estimated,
    };
  }

  #terminal(event: EventOf<"done" | "error">): RunEvent {
    return { ...this.#totals, turnCount: this.#step.turnNumber, agent: this.#agent, ...event };
  }
}

const knownTypes: ReadonlySet<string> = new Set(engineEventTypes);

/** A result without the place of its whole text, which the tool's text names, too. */
function shownResult(event: EventOf<"tool_result">, seq: number): RunEventOf<"tool_result"> {
  const { storedPath, output, isError } = event;
  const code = isError ? (resultCodeIn(output) ?? "tool_execution_error") : "";
  const shown = { ...event, storedPath: "", code: event.code ?? code } as const;
  if (storedPath === "") return { ...shown, handle: "" };
  return { ...shown, output: output.replaceAll(storedPath, "…"), handle: `result_${seq}` };
}

/**
 * The text of the model step under way, for those who read deltas: what came before a restart is void. When a run is
 * done it is what the run's `final` says.
 */
export class LiveText {
  #text = "";

  get text(): string {
    return this.#text;
  }

  push(event: EngineEvent): void {
    if (event.type === "text_delta") this.#text += event.text;
    else if (event.type === "turn_start" || event.type === "step_restarted") this.#text = "";
  }
}
