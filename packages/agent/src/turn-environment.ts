import type {
  Approval,
  CallState,
  EngineEvent,
  Message,
  ParseResult,
  ReplyLanguage,
  TurnState,
  Usage,
} from "@larkline/protocol";
import type { ModelInfo } from "@larkline/model";
import type { Heard, Question, Verdict } from "./permissions/index.ts";
import type { StepResult } from "./accumulate.ts";
import type { OfferedTool } from "./prepared-call.ts";
import type { TurnLimits } from "./turn-limits.ts";

/** The step that is streaming right now. */
export interface LiveStep {
  text: string;
  thinking: string;
  /** What it has used, once it was broken off. */
  broken?: Pick<StepResult, "use" | "model" | "maxTokens">;
}

/** The model of a turn: facts, and the price of what it used. */
export interface TurnModel {
  info: Pick<ModelInfo, "id" | "contextWindow" | "maxOutputTokens">;
  /** USD; `model` is the one that answered, when it said so (a fallback may differ from `info`). */
  costUsd(usage: Usage, model?: string): number;
}

/** A call of a tool, as far as it is judged. */
export interface WantedCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** What the conversation says about addresses. */
  readonly heard?: Heard;
}

/** The deployment's policy, for the person, the chat and the moment of the turn. Must not throw. */
export interface CallJudge {
  /** Whether a call runs, is asked about or is refused. `name` is that of one of the offered tools. */
  verdict(call: WantedCall): Verdict;
  /** What is asked about a `once` call that may have taken effect; undefined: nobody, the model is told. */
  unknownOutcome(call: WantedCall): Question | undefined;
}

/** What a decision depends on besides the turn itself. */
export interface TurnEnvironment {
  nowMs: number;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
  judge: CallJudge;
  model: TurnModel;
  /** Reads the answer of an agent that answers in a form of its own; see `outputReader`. */
  output?: (text: string) => ParseResult<unknown>;
  /** Language of notices; without it that of the user's message. */
  texts?: ReplyLanguage;
  /** The conversation so far. With it no call gets an id that an earlier turn used. */
  history?: readonly Message[];
  /** Turns of other people wait for answers, set aside: what they hold back is in no history yet. */
  othersWait?: boolean;
  /** What a model step had said when it was broken off: a cancel keeps it. */
  live?: LiveStep;
}

/** What the worker has to do after saving a transition. */
export type NextAction =
  /** Run a model step on the whole history, then call `afterStep`. */
  | { do: "model" }
  /** Hand these calls to their runners, then wait for entries. */
  | { do: "tools"; calls: CallState[]; wait: true }
  /** Nothing to start: wait for entries. */
  | { do: "wait" }
  /** Compact the conversation because a person asked for it, then call `commandDone`. */
  | { do: "compact" }
  /** The turn is over. `reply` is the text for the person; `reason` as in the `done` event, or the error's code. */
  | { do: "finish"; reply: string | undefined; reason: string };

/** A decision. `turn`, `history` and `events` belong in one write; only then comes `next`. */
export interface Transition {
  turn: TurnState;
  /** Messages to append. */
  history: Message[];
  events: EngineEvent[];
  next: NextAction;
  /** Questions to people, for calls that wait from now on: they come into being with this write. */
  approvals?: Approval[];
  /** Waiting messages that have become part of this turn, and the runs that end with that. */
  absorbed?: { seq: number; runId: string }[];
  /**
   * What models get to see from now on: `summary`, if given, and the last `keep` messages, those of
   * this write included. Save it before anything else is added to the history.
   */
  context?: { keep: number; summary?: Message };
  /** The choices of the session from now on. */
  settings?: { model?: string };
}

/** What a decision adds to the session. */
export type Records = Pick<Transition, "history" | "events">;

/** A transition with more records before its own. */
export function after(records: Records, transition: Transition): Transition {
  return {
    ...transition,
    history: [...records.history, ...transition.history],
    events: [...records.events, ...transition.events],
  };
}
