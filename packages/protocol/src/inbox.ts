import { Type, type Static } from "./type.ts";
import { UserPart, Message } from "./content.ts";
import { SessionKey, ReplyTarget, Needs, Sender } from "./session.ts";
import { OutputForm } from "./output-form.ts";
import { ScheduleRun } from "./schedule.ts";
import { ToolOutcome, CallTiming } from "./tool.ts";
import { ApprovalId, SettledState, ApprovalDecision } from "./approval.ts";
import { Traceparent } from "./trace.ts";

/** A file of a message, still on the platform. */
export const Attachment = Type.Object({
  kind: Type.Enum(["image", "file", "audio", "video"]),
  /** Message that holds it: not always the one it came with (quotes). */
  messageId: Type.String({ minLength: 1, maxLength: 128 }),
  key: Type.String({ minLength: 1, maxLength: 256 }),
  name: Type.Optional(Type.String({ maxLength: 256 })),
  durationMs: Type.Optional(Type.Integer({ minimum: 0 })),
});
export type Attachment = Static<typeof Attachment>;

/** What has to be fetched from the platform before a model can understand a message. */
export const MessageReferences = Type.Object({
  attachments: Type.Optional(Type.Array(Attachment, { maxItems: 50 })),
  /** The message that this one quotes. */
  quotedId: Type.Optional(Type.String({ maxLength: 128 })),
  /** First message of the thread, when this is the first message of the thread that the bot sees. */
  threadRootId: Type.Optional(Type.String({ maxLength: 128 })),
  /** A forwarded bundle, whose messages are fetched. */
  forwardedId: Type.Optional(Type.String({ maxLength: 128 })),
});
export type MessageReferences = Static<typeof MessageReferences>;

/** An order to the session itself, such as `/new`; taken in turn like any message. */
export const SessionCommand = Type.Object({
  name: Type.Enum(["new", "compact", "model", "agent"]),
  argument: Type.String({ maxLength: 1_000 }),
});
export type SessionCommand = Static<typeof SessionCommand>;

/** Options of the model requests of one run; each takes the place of its agent's. */
export const RunModelOptions = Type.Object(
  {
    thinking: Type.Optional(Type.Boolean()),
    effort: Type.Optional(Type.Enum(["low", "medium", "high"])),
    /** Sampling values go to the vendor unchecked. */
    temperature: Type.Optional(Type.Number()),
    topP: Type.Optional(Type.Number()),
    maxOutputTokens: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000_000 })),
  },
  { additionalProperties: false },
);
export type RunModelOptions = Static<typeof RunModelOptions>;

/** An id that a vendor gave an answer, as a request names it: without blanks, so that it cannot be anything else. */
export const GivenResponseId = Type.String({ pattern: "^[\\x21-\\x7e]{1,256}$" });

/** What a client notes about a run, for itself. */
export const RunMetadata = Type.Record(Type.String(), Type.String({ maxLength: 512 }), {
  maxProperties: 16,
  propertyNames: { minLength: 1, maxLength: 64 },
});
export type RunMetadata = Static<typeof RunMetadata>;

/** Where a task comes from that one agent has given another: who waits for its answer, and for whom all of it is done. */
export const TaskOrigin = Type.Object({
  /** The session that waits for the answer, its run, and the attempt of its call. */
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  /** The name under which the agent was called. */
  as: Type.String(),
  /** The run of the person's message. */
  rootTurnId: Type.String(),
  /** Agents from that run down to the one that asks. */
  path: Type.Array(Type.String(), { minItems: 1, maxItems: 10 }),
  /** Where that run is answered: people are asked there. */
  reply: ReplyTarget,
  /** Model steps of that run before it asked. */
  rootSteps: Type.Integer({ minimum: 0 }),
  /** Most model steps of this task. */
  maxSteps: Type.Optional(Type.Integer({ minimum: 1 })),
});
export type TaskOrigin = Static<typeof TaskOrigin>;

/** A user message, normalised: mentions resolved, attachments as references. */
export const InboundMessage = Type.Object({
  needs: Type.Optional(Needs),
  v: Type.Literal(1),
  session: SessionKey,
  /** The platform's message id; with `app` it is the dedup key. */
  id: Type.String({ minLength: 1, maxLength: 200 }),
  app: Type.String({ minLength: 1 }),
  /** The platform's tenant key, where it is known. */
  tenant: Type.Optional(Type.String({ maxLength: 128 })),
  sender: Sender,
  chatType: Type.Enum(["p2p", "group", "api"]),
  parts: Type.Array(UserPart, { minItems: 1 }),
  createdAtMs: Type.Integer(),
  reply: ReplyTarget,
  /** Not fetched yet; the worker does it before the first model step. */
  references: Type.Optional(MessageReferences),
  command: Type.Optional(SessionCommand),
  /** Language of the person's own words; absent: derive it from the parts. */
  language: Type.Optional(Type.Enum(["zh", "en"])),
  /** Addresses in the person's own words; with `foreign`, set when the message is prepared. */
  addresses: Type.Optional(Type.Array(Type.String())),
  /** The parts hold what others wrote: quotes, forwarded messages, files. */
  foreign: Type.Optional(Type.Boolean()),
  /** Its number in the session, where it goes into the history with it. */
  seq: Type.Optional(Type.Integer()),
  /** No client waits for the answer: tool calls of other turns come first. */
  background: Type.Optional(Type.Boolean()),
  /** Which agent answers; absent means the default agent. */
  agent: Type.Optional(Type.String()),
  /** Absent: that of `traceparentOf`. */
  traceparent: Type.Optional(Traceparent),
  /** What a new conversation begins with, before this message; `needs` names the feature `given-history` then. */
  history: Type.Optional(Type.Array(Message, { maxItems: 2_000 })),
  /** The form of the answer, in place of the agent's; with it or `model`, `needs` names the feature `run-options`. */
  output: Type.Optional(OutputForm),
  model: Type.Optional(RunModelOptions),
  metadata: Type.Optional(RunMetadata),
  /** The answer that its turn continues, which the vendor keeps; `needs` names the feature `stored-response` then. */
  previousResponseId: Type.Optional(GivenResponseId),
  /** The message is a task of another agent, in a child session; `needs` names the feature `helpers` then. */
  task: Type.Optional(TaskOrigin),
  /** A schedule has written it, which its person has confirmed. */
  schedule: Type.Optional(ScheduleRun),
});
export type InboundMessage = Static<typeof InboundMessage>;

/** What a helper and those below it have used, as reported to its asker. */
export const HelperUse = Type.Object({
  steps: Type.Integer({ minimum: 0 }),
  inputTokens: Type.Integer({ minimum: 0 }),
  outputTokens: Type.Integer({ minimum: 0 }),
  cacheReadTokens: Type.Integer({ minimum: 0 }),
  cacheCreationTokens: Type.Integer({ minimum: 0 }),
  costUsd: Type.Number({ minimum: 0 }),
});
export type HelperUse = Static<typeof HelperUse>;

/** What a helper, or one below it, waits for: people decide about a call, or answer a question. */
export const HelperWait = Type.Object({
  /** Of the approval. */
  id: ApprovalId,
  about: Type.Enum(["approval", "question"]),
  tool: Type.String(),
  /** Of the question, or of the tool's name. */
  bytes: Type.Integer({ minimum: 0 }),
});
export type HelperWait = Static<typeof HelperWait>;

/**
 * Why a turn is cancelled: a person stopped it, took their message back, wrote the next one
 * meanwhile, or an HTTP client left.
 */
export const cancelReasons = ["stopped", "recalled", "superseded", "cancelled"] as const;
export type CancelReason = (typeof cancelReasons)[number];

/** Everything that reaches a session besides user messages. */
export const ControlEntry = Type.Union([
  Type.Object({
    needs: Type.Optional(Needs),
    type: Type.Literal("outcome"),
    /** Id of the attempt: see `attemptIdOf`. */
    callId: Type.String(),
    outcome: ToolOutcome,
    timing: Type.Optional(CallTiming),
    /** The attempt was never started and is closed now, so the call may be handed out again in another attempt. */
    unstarted: Type.Optional(Type.Boolean()),
    /** What the helper has used. */
    used: Type.Optional(HelperUse),
  }),
  /** An approval of this session is no longer pending. */
  Type.Object({
    needs: Type.Optional(Needs),
    type: Type.Literal("decision"),
    /** The turn that waits for it; absent in entries of earlier versions. */
    turnId: Type.Optional(Type.String()),
    approvalId: ApprovalId,
    /** The hash of the arguments that were approved: a call with other arguments is not run. */
    argumentsHash: Type.String(),
    state: SettledState,
    /** Who decided; empty when time or a failure did. */
    decisions: Type.Array(ApprovalDecision),
    /** Never stored: its worker could not find out whether those who decided may. */
    unchecked: Type.Optional(Type.Boolean()),
  }),
  Type.Object({
    needs: Type.Optional(Needs),
    type: Type.Literal("cancel"),
    turnId: Type.Optional(Type.String()),
    /** One of {@link cancelReasons}; any other value is treated as `stopped`. */
    reason: Type.String(),
  }),
  /** The helper of a call waits for people, or for others than before; without `wait` it does not any more. */
  Type.Object({
    needs: Type.Optional(Needs),
    type: Type.Literal("helper_waits"),
    callId: Type.String(),
    wait: Type.Optional(HelperWait),
  }),
]);
export type ControlEntry = Static<typeof ControlEntry>;

/** A user message as it waits in the inbox. `seq` counts the messages of the session from 1. */
export interface QueuedMessage {
  seq: number;
  message: InboundMessage;
  /** What is stored cannot be read: `message` has only what is needed to tell its sender so, as far as it is known. */
  unreadable?: true;
}
