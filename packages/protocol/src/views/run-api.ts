import { Type, type Static } from "typebox";
import { ApiApproval } from "../api-approval.ts";
import type { RunState } from "./item-view.ts";
import { ItemUsage } from "./run-items.ts";

// Runs as the HTTP API takes and tells them. The names are wire format and appear nowhere in the core.

/** Body of `POST /v1/runs`. */
export const RunRequest = Type.Object({
  /** What the person says: a text, or items of the Responses API that end with a user message, read by `parseInput`. */
  input: Type.Union([Type.String(), Type.Array(Type.Unknown(), { maxItems: 2_000 })]),
  /** Name of the agent that answers; absent: `default`. */
  agent: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
  /** Goes on with this conversation; absent: a new one. */
  session_id: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" })),
  /** Makes a repeated request mean the same run; needs `session_id`. */
  message_id: Type.Optional(Type.String({ pattern: "^[\\x21-\\x7e]{1,100}$" })),
  /** Tool calls of the run come after those of others. */
  background: Type.Optional(Type.Boolean()),
  /** What the end of the connection does to the run, where the request follows it; absent: `continue`. */
  on_disconnect: Type.Optional(Type.Enum(["cancel", "continue"])),
});
export type RunRequest = Static<typeof RunRequest>;

/** See `RunState` of item-view.ts; `waiting` is also for tools here. */
const runStates: readonly RunState[] = ["queued", "running", "waiting", "done", "error", "cancelled"];

/** Answer to `GET /v1/runs/<id>`. Totals are those of the steps that have ended. */
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
  usage: ItemUsage,
  cost_usd: Type.Number(),
  /** One for each model step: the vendor's id of its answer, or null. */
  response_ids: Type.Array(Type.Union([Type.String(), Type.Null()])),
  /** Why a run that was not finished normally has ended; empty otherwise. */
  reason: Type.String(),
  error: Type.Union([
    Type.Null(),
    Type.Object({ code: Type.String(), message: Type.String(), suggestion: Type.String(), retryable: Type.Boolean() }),
  ]),
  /** Approvals that it waits for, as `GET /v1/approvals` shows them. */
  interruptions: Type.Array(ApiApproval),
  /** Epoch ms of its first event and of its end; null before. */
  created_at: Type.Union([Type.Integer(), Type.Null()]),
  ended_at: Type.Union([Type.Integer(), Type.Null()]),
});
export type RunReport = Static<typeof RunReport>;
