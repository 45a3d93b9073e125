import type { ModelInfo } from "@larkline/model";
import type { OutputForm } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { Message, TextPart, ThinkingPart, LeftOut } from "@larkline/protocol/content";
import type { EngineEvent, PersonMessage } from "@larkline/protocol/event";
import type {
  ModelFailure,
  StopReason,
  Usage,
  ModelWarning,
} from "@larkline/protocol/model-stream";
import type { StandingApproval } from "@larkline/protocol/schedule";
import type { CallAuthority, ToolAnnouncement, ToolCall } from "@larkline/protocol/tool";
import type { CallState, StepUse, TurnState } from "@larkline/protocol/turn";
import type { NoticeName } from "../texts/index.ts";
import type { AddressContext, Question, Verdict } from "../permissions/policy.ts";

// What decisions of a turn answer, and the facts that they are made of; all facts together are `TurnEnvironment` (`ability.ts`).

/** A decision. Write `turn`, `history` and `events` together, then do `next`. */
export interface Transition {
  turn: TurnState;
  /** Messages to append. */
  history: Message[];
  events: EngineEvent[];
  next: NextAction;
  /** What people are asked from now on; the same write stores it. */
  asked?: Approval[];
  /** Waiting messages that have joined this turn, and their runs, which end here. */
  absorbed?: AbsorbedMessage[];
  /**
   * The context of models from now on: `summary`, if given, and the last `keep` messages, including those
   * of this write. Save it before other messages are added to the history.
   */
  context?: { keep: number; summary?: Message };
  /** The choices of the session from now on. */
  settings?: SessionChoices;
  /** Another agent answers from now on, or is to be chosen: the write comes before the next request to a model. */
  handedOver?: true;
}

/** Choices of a session that outlive its turns. */
export interface SessionChoices {
  /** `<provider>/<id>` in place of the agent's model. */
  model?: string;
  /** The agent that answers in messages that are for the agent `from`. */
  agent?: { from: string; to: string };
}

/** A message that has become part of the turn of another one. */
export interface AbsorbedMessage {
  seq: number;
  runId: string;
  person: PersonMessage;
}

/** What the worker does after it has saved a transition. */
export type NextAction =
  /** Run a model step on the whole history, then call `afterStep`. */
  | { do: "model" }
  /** Hand these calls to their runners, then wait for entries. */
  | { do: "tools"; calls: CallState[]; wait: true }
  /** Tell these helpers to stop, then wait for entries: the turn is cancelled, and ends when they have. */
  | { do: "stop"; calls: CallState[] }
  /** Nothing to start: wait for entries. */
  | { do: "wait" }
  /** Compact the conversation because a person asked for it, then call `commandDone`. */
  | { do: "compact" }
  /** Ask the model of the team who speaks next, then call `speakerChosen`. */
  | { do: "choose" }
  /** The turn is over. `reply` is the text for the person; `reason` as in the `done` event, or the error's code. */
  | { do: "finish"; reply: string | undefined; reason: string };

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
  /** Later messages that may join one turn, so that a busy chat cannot keep it running. */
  maxAbsorbed: number;
  /** Rejections in one turn after which further calls are refused without asking. */
  maxDenials: number;
  /** Hand-overs of one turn. */
  maxTransfers: number;
  /** Helpers that one turn may call. */
  maxHelpers: number;
  /** Model steps of a person's message and of all helpers below it, where it has any. */
  maxStepsWithHelpers: number;
}

/**
 * The policy of the deployment for the person, chat and time of the turn. Must not throw. In a worker it is
 * `TurnPolicy` (apps/agent-worker/src/call-policy.ts), which asks `decideCall` (permissions/decide-call.ts).
 */
export interface CallPolicy {
  /** Whether a call runs, needs an approval or is refused. `name` is one of the offered tools. */
  verdict(call: WantedCall): Verdict;
  /** What lets a call run where an ability wants its person's permission: the schedule whose run this is may make it. */
  allowedAhead?(call: WantedCall): CallAuthority | undefined;
  /** The question to people about a `once` call that may have taken effect. Undefined: the model learns that the outcome is unknown. */
  unknownOutcome(call: WantedCall): Question | undefined;
}

/** A tool call as the policy sees it. */
export interface WantedCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Addresses that people named, and whether text from outside was read. */
  readonly addressContext?: AddressContext;
  /** Decides as if the turn were the run of a schedule that may do this without asking. */
  readonly allowed?: readonly StandingApproval[];
}

/** The model of a turn: facts, and the price of what it used. */
export interface TurnModel {
  info: Pick<ModelInfo, "id" | "contextWindow" | "maxOutputTokens">;
  /** USD; `model` is the one that answered, when it said so (a fallback may differ from `info`). */
  costUsd(usage: Usage, model?: string): number;
}

/** The step that is streaming right now. */
export interface LiveStep {
  text: string;
  thinking: string;
  /** How long it has thought, ms, and when the last thought of a row without other text came, epoch ms. */
  thinkingMs?: number;
  thoughtAtMs?: number | undefined;
  /** The model has failed, and is asked again: at `atMs`, epoch ms, or at once another one, whose name is `next`. */
  retry?: { code: string; tries: number; atMs: number; next?: string | undefined } | undefined;
  /** Its usage, set once it was aborted. */
  broken?: Pick<StepResult, "use" | "model" | "maxTokens">;
}

/** The records that a decision adds to the session. */
export type Records = Pick<Transition, "history" | "events">;

type JsonObject = Record<string, unknown>;

/** One model step, complete. */
export interface StepResult {
  /** All text of the step, joined without separator. */
  text: string;
  /**
   * The calls in ascending index order, gaps closed; ids and names may be empty when the model sent none.
   */
  toolCalls: ToolCall[];
  /** Text and thinking in the order their blocks began, adjacent text joined. */
  parts: (TextPart | ThinkingPart)[];
  /**
   * Where each call stands among the parts. Only where items of the OpenAI Responses API follow a call, whose vendor
   * wants them back in their order; otherwise calls come after all parts.
   */
  callPlaces?: CallPlace[];
  /** `other` when the stream never said. */
  stopReason: StopReason;
  usage: Usage | null;
  /** The model that answered, if the stream named it. */
  model?: string;
  /** The vendor's id of a complete answer. */
  responseId?: string;
  /** Most output tokens that the last request allowed. */
  maxTokens?: number;
  /** Requests that continued an answer which had paused. */
  pauses?: number;
  /** It has paused once more, and no further request was allowed. */
  paused?: true;
  /** Set when the stream failed; the other fields hold what arrived before. */
  failure?: ModelFailure;
  /** Every call of a vendor, including the last one; absent where the stream does not report them. */
  vendorCalls?: readonly VendorCall[];
  /** Usage of all vendor calls together, once computed. */
  use?: StepUse;
  /** The same for each call. */
  uses?: readonly { model: string | undefined; usage: Usage }[];
  /** How long it has thought, ms; absent: it did not. */
  thinkingMs?: number | undefined;
  /** The caller aborted the step. */
  brokenOff?: true;
  /** The complete events of its blocks have been published already, each when its block ended. */
  blocksTold?: true;
  /** What the vendor has refused before, and the request was made without. */
  leftOut?: LeftOut[];
  /** Items of the vendor's own tools that come after the last block. */
  vendorItems?: JsonObject[];
  warnings: ModelWarning[];
}

/** What of a step comes before a call. */
export interface CallPlace {
  /** How many of its parts, and of its complete events. */
  parts: number;
  blocks: number;
  /** Items of the vendor's own tools after the last of them, or the call before. */
  vendorItems: JsonObject[];
}

/** One call of a vendor, whether its answer counts or not. */
export interface VendorCall {
  model: string;
  /** Usage as reported so far; complete only at the end. */
  usage: Usage | null;
  /** The usage was reported at the end of a complete answer. */
  complete: boolean;
  /** Estimated output tokens. */
  writtenTokens: number;
}

/** The end of a turn in a `done` event: an answer, a limit or a cancel. */
export interface DoneEnding {
  history: Message[];
  events: EngineEvent[];
  reply: string;
  /** Why the turn ended; empty for a normal end. */
  reason: string;
  /** Text of the last model step. */
  final: string;
  /** The value of an answer that has a form. */
  output?: { value: unknown; form: OutputForm };
  /** The notice that is part of the reply. */
  notice?: NoticeName;
  /** The notice as the history holds it behind the answer. */
  historyNote?: string;
  /** The words by which a member of a team has ended it. */
  mention?: string;
}

/** A tool that can be called now, and the runner that offers it. */
export interface OfferedTool {
  runner: string;
  announcement: ToolAnnouncement;
  /** The runner has no living instance, and is expected back within this many ms; a call waits as long. */
  awayForMs?: number;
  /** Epoch ms since when the runner has living instances. */
  livingSinceMs?: number;
}
