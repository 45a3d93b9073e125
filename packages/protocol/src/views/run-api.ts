import { Type, type Static } from "../type.ts";
import { RunModelOptions, GivenResponseId, RunMetadata } from "../inbox.ts";
import { OutputForm } from "../output-form.ts";
import type { RunState } from "./item-view.ts";
import { ItemUsage, RunItem, EasyMessage } from "./run-items.ts";
import { ApiApproval, ApiQuestion } from "./api-approval.ts";

// Runs as the HTTP API takes and returns them. The names are wire format and appear nowhere in the core.

/** Body of `POST /v1/runs`. */
export const RunRequest = Type.Object(
  {
    /** What the person says: a text, or items of the Responses API that end with a user message, read by `parseInput`. */
    input: Type.Union([Type.String(), Type.Array(Type.Unknown(), { maxItems: 2_000 })]),
    /** Name of the agent that answers; absent: `default`. */
    agent: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    /** Continues this conversation; absent: a new one. */
    session_id: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" })),
    /** Makes a repeated request mean the same run; needs `session_id`. */
    message_id: Type.Optional(Type.String({ pattern: "^[\\x21-\\x7e]{1,100}$" })),
    /** Tool calls of the run come after those of others. */
    background: Type.Optional(Type.Boolean()),
    /** What the end of the connection does to the run, where the request follows it; absent: `continue`. */
    on_disconnect: Type.Optional(Type.Enum(["cancel", "continue"])),
    /** Options of the model requests, each in place of the agent's. */
    model: Type.Optional(RunModelOptions),
    /** The form of the answer, in place of the agent's; the schema has at most 32 KB. */
    output: Type.Optional(OutputForm),
    /**
     * The last of `response_ids` of an earlier run: the vendor has kept what was said until then, and gets this message alone.
     * For agents with `storeResponses`, without earlier items in `input`.
     */
    previous_response_id: Type.Optional(GivenResponseId),
    /** For the client itself; returned with the report of the run. */
    metadata: Type.Optional(RunMetadata),
  },
  { additionalProperties: false },
);
export type RunRequest = Static<typeof RunRequest>;

/** See `RunState` of item-view.ts; `waiting` is also for tools here. */
const runStates: readonly RunState[] = [
  "queued",
  "running",
  "waiting",
  "done",
  "error",
  "cancelled",
];

/**
 * Answer to `GET /v1/runs/<id>`. Totals are those of the steps that have ended. `response_ids`, `interruptions` and
 * `children` are those of one page each.
 */
export const RunReport = Type.Object({
  run_id: Type.String(),
  session_id: Type.String(),
  state: Type.Unsafe<RunState>(Type.Enum([...runStates])),
  /** The agent that was asked; null when that is no longer known. */
  agent: Type.Union([Type.String(), Type.Null()]),
  /** The agent that has, or had, the last word. */
  last_agent: Type.String(),
  final_output: Type.Union([Type.String(), Type.Null()]),
  /** The answer as a JSON value, where the agent answers in a form of its own. */
  output: Type.Optional(Type.Unknown()),
  /** With what its helpers have used, as the costs are. */
  usage: ItemUsage,
  cost_usd: Type.Number(),
  /** One for each model step: the vendor's id of its answer, or null. */
  response_ids: Type.Array(Type.Union([Type.String(), Type.Null()])),
  /** Why a run that was not finished normally has ended; empty otherwise. */
  reason: Type.String(),
  error: Type.Union([
    Type.Null(),
    Type.Object({
      code: Type.String(),
      message: Type.String(),
      suggestion: Type.String(),
      retryable: Type.Boolean(),
    }),
  ]),
  /** Approvals that it waits for, as `GET /v1/approvals` shows them. */
  interruptions: Type.Array(Type.Union([ApiApproval, ApiQuestion])),
  /** Runs that work for this one. */
  children: Type.Array(Type.String()),
  /** As the request gave it. */
  metadata: RunMetadata,
  /** Epoch ms of its first event and of its end; null before. */
  created_at: Type.Union([Type.Integer(), Type.Null()]),
  ended_at: Type.Union([Type.Integer(), Type.Null()]),
  /** For `after` of the next page of the lists; null where this was the last one. */
  next: Type.Union([Type.String(), Type.Null()]),
});
export type RunReport = Static<typeof RunReport>;

/** Answer to `POST /v1/runs` before the run has ended. */
export const RunStarted = Type.Object({
  run_id: Type.String(),
  session_id: Type.String(),
  trace_id: Type.String(),
});

/** Body of `POST /v1/sessions/<id>/commands`. */
export const CommandRequest = Type.Object(
  {
    /** An order as people write it in a chat, such as `/new` or `/status`. */
    command: Type.String(),
    /** Name of the agent whose commands are meant, and that answers; absent: `default`. */
    agent: RunRequest.properties.agent,
    /** Makes a repeated request mean the same order. */
    message_id: RunRequest.properties.message_id,
  },
  { additionalProperties: false },
);

/** Answer to an order that needs no run. */
export const CommandAnswer = Type.Object({ text: Type.String() });

/** Answer to `POST /v1/runs/<id>/cancel`. */
export const RunCancelled = Type.Object({
  run_id: Type.String(),
  state: Type.Enum(["cancelling", "ended"]),
  error: Type.Optional(Type.String()),
});

/** Answer to a request that was refused. */
export const ApiError = Type.Object({
  /** Says what to change, with the name of the field. */
  error: Type.String(),
  /** For programs. */
  code: Type.Optional(Type.String()),
});

const sessionStates = ["idle", "queued", "running", "waiting"] as const;
export type SessionState = (typeof sessionStates)[number];

/** Answer to `GET /v1/sessions/<id>`. */
export const SessionReport = Type.Object({
  session_id: Type.String(),
  /** `waiting`: for tools or people. */
  state: Type.Enum([...sessionStates]),
  /** Messages of the conversation that are kept. */
  messages: Type.Integer(),
  /** Messages that are not answered yet, the one under way included. */
  waiting: Type.Integer(),
  /** The beginning of its first message. */
  title: Type.String(),
  /** Model steps of all its runs that have ended, and what these have used: the numbers of the newest `session_info`. */
  turn_count: Type.Integer(),
  input_tokens: Type.Integer(),
  output_tokens: Type.Integer(),
  cost_usd: Type.Number(),
  /** Calls of these runs that people or policies have refused. */
  denials: Type.Integer(),
  /** Approvals that it waits for, as `GET /v1/approvals` shows them. */
  interruptions: Type.Array(Type.Union([ApiApproval, ApiQuestion])),
});
export type SessionReport = Static<typeof SessionReport>;

/** Answer to `GET /v1/memories`: those of the caller, then those of the session, the newest first. */
export const Memories = Type.Object({
  memories: Type.Array(
    Type.Object({
      id: Type.String(),
      owner: Type.Enum(["person", "chat"]),
      text: Type.String(),
      /** Epoch ms. */
      created_at: Type.Integer(),
      used_at: Type.Integer(),
    }),
  ),
  /** The caller wants nothing remembered. */
  off: Type.Boolean(),
});
export type Memories = Static<typeof Memories>;

/** Answer to `GET /v1/sessions/<id>/items`. */
export const SessionItems = Type.Object({
  session_id: Type.String(),
  /** Oldest first: items of runs, and messages of people as a run can be given them. */
  items: Type.Array(Type.Unsafe<RunItem | EasyMessage>(Type.Union([RunItem, EasyMessage]))),
  /** For `after` of the next page; null where there is none yet. */
  next: Type.Union([Type.String(), Type.Null()]),
});
export type SessionItems = Static<typeof SessionItems>;
