import { Type, type Static } from "./type.ts";
import { HandoffContext, Message } from "./content.ts";
import { SessionKey, Needs } from "./session.ts";
import { HelperWait, InboundMessage } from "./inbox.ts";
import { CallWords, ShownTool, ShownContribution } from "./reply-view.ts";
import {
  InputRequired,
  InputResponse,
  ToolOutcome,
  ToolEffect,
  ToolDigest,
  ToolIdentityNeed,
  CallAuthority,
} from "./tool.ts";
import { ApprovalId } from "./approval.ts";

/** What the server of a call asks people, and what they have answered so far. */
const OpenInput = Type.Object({
  asked: InputRequired,
  responses: Type.Record(Type.String(), InputResponse),
  /** How often the server has asked. */
  rounds: Type.Integer({ minimum: 1 }),
});

/**
 * Where a call of the current batch stands. Every call reaches `done` with exactly one outcome
 * before the next model step.
 */
export const CallState = Type.Object({
  id: Type.String(),
  name: Type.String(),
  /** Parsed arguments; `{}` when the model's text was no JSON object (such calls are done at once). */
  arguments: Type.Record(Type.String(), Type.Unknown()),
  /** `waiting_approval`: people decide whether it runs; `waiting_outcome`: what becomes of an unknown outcome. */
  state: Type.Enum(["running", "waiting_approval", "waiting_outcome", "done"]),
  outcome: Type.Optional(ToolOutcome),
  /** Epoch ms after which the call is answered with a timeout. */
  deadlineMs: Type.Optional(Type.Integer()),
  /** Whose attempt it is: handed out again, it goes to the same runner, even if another offers the tool by then. */
  runner: Type.Optional(Type.String()),
  effect: Type.Optional(ToolEffect),
  /** What its runner announced of the tool: goes along with the call. */
  toolDigest: Type.Optional(ToolDigest),
  /** As whom its tool acts, as its runner announced it. */
  identity: Type.Optional(ToolIdentityNeed),
  /** The platform has refused the token of the attempt before. */
  tokenRefused: Type.Optional(Type.Boolean()),
  /** Its runner had no living instance when it was handed out: the call waits for one. */
  runnerIsAway: Type.Optional(Type.Boolean()),
  /** How long one run may take, ms: its deadline is counted anew whenever people let it run. */
  timeoutMs: Type.Optional(Type.Integer({ minimum: 1 })),
  /** Names of arguments whose values no card shows, even when the tool is gone by then. */
  secrets: Type.Optional(Type.Array(Type.String())),
  /** What people read of it. */
  words: Type.Optional(CallWords),
  /** Its tool has limits, so its jobs go to a queue of their own: to the same one, also when its runner is gone by then. */
  limited: Type.Optional(Type.Boolean()),
  /** Epoch ms at which it was handed out. */
  startedAtMs: Type.Optional(Type.Integer()),
  /** Epoch ms of its present attempt, where attempts before it found their runner away. */
  handedOutAgainAtMs: Type.Optional(Type.Integer()),
  /** Absent: the first. */
  attempt: Type.Optional(Type.Integer({ minimum: 2 })),
  /** The approval it waits for. */
  approvalId: Type.Optional(ApprovalId),
  /** The ability that has asked people before the call may start, while it waits for them; absent: the policy or its own tool. */
  askedBy: Type.Optional(Type.String()),
  /** Its server asks people (`waiting_approval`), or has their answers. */
  input: Type.Optional(OpenInput),
  /** Absent: the policy. */
  authority: Type.Optional(CallAuthority),
  /** The call hands over to another agent: `done` from the start, and answered when all other calls are. */
  handoff: Type.Optional(Type.Object({ to: Type.String(), context: HandoffContext })),
  /** The call is a task for another agent, which works on it in this session. */
  helper: Type.Optional(
    Type.Object({
      agent: Type.String(),
      session: SessionKey,
      /** As last reported to its asker. */
      wait: Type.Optional(HelperWait),
    }),
  ),
});
export type CallState = Static<typeof CallState>;

const TurnTotals = Type.Object({
  inputTokens: Type.Integer(),
  outputTokens: Type.Integer(),
  costUsd: Type.Number(),
  cacheReadTokens: Type.Integer(),
  cacheCreationTokens: Type.Integer(),
});

/** What the calls of vendors for one model step have used, those whose answers were thrown away included. */
export const StepUse = Type.Object({
  inputTokens: Type.Integer(),
  outputTokens: Type.Integer(),
  cacheReadTokens: Type.Integer(),
  cacheCreationTokens: Type.Integer(),
  costUsd: Type.Number(),
  /** Calls of vendors. */
  attempts: Type.Integer(),
  /** A vendor has not said all of it. */
  estimated: Type.Boolean(),
});
export type StepUse = Static<typeof StepUse>;

/** A model step that is asked again later, because no model has answered. */
export const PutOffStep = Type.Object({
  /** Epoch ms before which no model is asked. */
  atMs: Type.Integer(),
  /** Epoch ms of its first failure. */
  sinceMs: Type.Integer(),
  /** How often it was put off. */
  rounds: Type.Integer({ minimum: 1 }),
  /** How long a vendor was waited for because it asked for that, ms. */
  askedWaitMs: Type.Integer({ minimum: 0 }),
  /** The model that failed last, and how. */
  model: Type.String(),
  code: Type.String(),
  used: StepUse,
});
export type PutOffStep = Static<typeof PutOffStep>;

/** The model step whose calls are open: reported as the end of the step once all are answered. */
export const OpenStep = Type.Object({
  /** What the model wrote beside the calls. */
  text: Type.String(),
  inputTokens: Type.Integer(),
  outputTokens: Type.Integer(),
  costUsd: Type.Number(),
  /** Most tokens the model could have written. */
  maxTokens: Type.Integer(),
  cacheReadTokens: Type.Integer(),
  cacheCreationTokens: Type.Integer(),
  /** The model that answered. */
  model: Type.Optional(Type.String()),
  /** The id under which the vendor knows the answer. */
  responseId: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  attempts: Type.Optional(Type.Integer()),
  estimated: Type.Optional(Type.Boolean()),
});
export type OpenStep = Static<typeof OpenStep>;

/**
 * What the model said in the open step. It enters the history together with the results of its calls:
 * between the two the turns of other people may have written there.
 */
export const HeldStep = Type.Object({
  message: Message,
  /** `argumentsHashOf` the JSON of the last message of the history when the step ended; absent when there was none. */
  after: Type.Optional(Type.String()),
});
export type HeldStep = Static<typeof HeldStep>;

/** The agent that answers in a turn. */
export function agentOfTurn({ agent, message }: Pick<TurnState, "agent" | "message">): string {
  return agent ?? message.agent ?? "default";
}

/** What the person has seen of the turn: enough for another worker to continue the same card. */
export const ShownSoFar = Type.Object({
  /** The texts of the finished steps, joined by blank lines. */
  text: Type.String(),
  /** The end of what the model thought. */
  thinking: Type.String(),
  /** How long that took. */
  thinkingMs: Type.Optional(Type.Integer({ minimum: 0 })),
  /** The latest answered calls. */
  tools: Type.Array(ShownTool),
  earlierTools: Type.Integer({ minimum: 0 }),
  /** Contributions of a team that have ended, the latest. */
  contributions: Type.Optional(Type.Array(ShownContribution)),
  /** Notes beside the answer, such as which files could not be read. */
  notes: Type.Array(Type.String()),
  /** From the receipt of its message until its first text was visible, ms. */
  firstTextMs: Type.Optional(Type.Integer({ minimum: 0 })),
});
export type ShownSoFar = Static<typeof ShownSoFar>;

/** A team at work in a turn. Its member that answers is the agent of the turn. */
export const TeamState = Type.Object({
  name: Type.String(),
  /** Contributions that have ended. */
  said: Type.Integer({ minimum: 0 }),
  /** Steps of the turn when its member began to speak. */
  fromStep: Type.Integer({ minimum: 0 }),
  /** Tokens that the turn had used when the team began. */
  fromTokens: Type.Integer({ minimum: 0 }),
  /** A model is to choose who speaks next: the agent of the turn has spoken last. */
  choosing: Type.Optional(Type.Literal(true)),
  /** Once it has ended: whose contribution is the answer, where that is not the last one. */
  answeredBy: Type.Optional(Type.String()),
});
export type TeamState = Static<typeof TeamState>;

/** What the turn keeps of its requests to models, between its steps. */
const ModelRequests = Type.Object({
  /** Requests that only continued an answer which had paused: they count as steps do. */
  pauses: Type.Integer({ minimum: 0 }),
  /** The next step has failed and waits. */
  putOff: Type.Optional(PutOffStep),
  /** What requests between two steps have used: counted with the step that follows. */
  otherUse: Type.Optional(StepUse),
  /** No summary of the conversation could be made: only an overflow is a reason to ask for one again. */
  summaryFailed: Type.Boolean(),
  /** An event has reported that a request nearly fills the model's window. */
  windowWarned: Type.Boolean(),
});

/** What the turn keeps of all its calls so far, those of finished steps included. */
const CallsSoFar = Type.Object({
  /** None is given twice. */
  ids: Type.Array(Type.String()),
  /** Calls of the last step by name and hash of the arguments, each with the number of steps in a row that made it. */
  repeated: Type.Record(Type.String(), Type.Integer({ minimum: 1 })),
  /** Calls that people or policies have refused. */
  refused: Type.Integer({ minimum: 0 }),
  /** MCP servers of which an event has named all tools. */
  mcpServers: Type.Array(Type.String()),
});

/** The form of checkpoints that this version writes and reads. Raise it with each change that older code would misread. */
export const checkpointForm = 2;

/** The checkpoint of a turn: together with the history, all that another worker needs to continue after a crash. */
export const TurnState = Type.Object({
  v: Type.Literal(checkpointForm),
  needs: Type.Optional(Needs),
  turnId: Type.String(),
  message: InboundMessage,
  startedAtMs: Type.Integer(),
  /** The agent that answers; absent: the one that the message is for. */
  agent: Type.Optional(Type.String()),
  /** Agents are as operators had changed them by this revision; absent: as in the file. */
  revision: Type.Optional(Type.Integer({ minimum: 1 })),
  /** Runs of later messages that have joined this turn. */
  absorbed: Type.Array(Type.String()),
  /** Model steps finished so far; the iteration limit counts these over the whole turn. */
  steps: Type.Integer({ minimum: 0 }),
  requests: ModelRequests,
  totals: TurnTotals,
  /** The step whose calls are open, and what the model said in it. Present while `calls` is not empty. */
  round: Type.Optional(Type.Object({ step: OpenStep, held: HeldStep })),
  calls: Type.Array(CallState),
  called: CallsSoFar,
  /** Waiting for people while nothing else is done: `ms` so far, which are no part of the duration, and since when now. */
  waiting: Type.Object({
    ms: Type.Integer({ minimum: 0 }),
    sinceMs: Type.Optional(Type.Integer()),
  }),
  shown: ShownSoFar,
  /** What each ability keeps, by its name. */
  abilities: Type.Record(Type.String(), Type.Unknown()),
  /** Why the turn is cancelled, while it waits for calls that end before it does. */
  stopping: Type.Optional(Type.String()),
});
export type TurnState = Static<typeof TurnState>;

/** The checkpoint of a turn that has done nothing yet. */
export function blankTurn(about: Pick<TurnState, "turnId" | "message" | "startedAtMs">): TurnState {
  return {
    v: checkpointForm,
    ...about,
    absorbed: [],
    steps: 0,
    requests: { pauses: 0, summaryFailed: false, windowWarned: false },
    totals: {
      inputTokens: 0,
      outputTokens: 0,
      costUsd: 0,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
    },
    calls: [],
    called: { ids: [], repeated: {}, refused: 0, mcpServers: [] },
    waiting: { ms: 0 },
    shown: { text: "", thinking: "", tools: [], earlierTools: 0, notes: [] },
    abilities: {},
  };
}

/** The team that answers in a turn, as the ability `team` keeps it; undefined where an agent answers alone. */
export function teamOfTurn({ abilities }: Pick<TurnState, "abilities">): TeamState | undefined {
  return abilities["team"] as TeamState | undefined; // written by that ability alone
}

/** Helpers that a turn has called, and the model steps that those which have ended took, with all below them. */
export interface CalledHelpers {
  readonly calls: number;
  readonly steps: number;
}

/** What the ability `helpers` keeps; undefined where the turn has called none. */
export function calledHelpersOf({
  abilities,
}: Pick<TurnState, "abilities">): CalledHelpers | undefined {
  return abilities["helpers"] as CalledHelpers | undefined; // written by that ability alone
}

/** The requests that the iteration limit counts: finished steps, and those that continued an answer which had paused. */
export function iterationsOf({ steps, requests }: Pick<TurnState, "steps" | "requests">): number {
  return steps + requests.pauses;
}
