import type { EventOf, EndTexts, EngineEvent, EventRecord } from "../event.ts";
import { Type, type Static } from "../type.ts";

// The streaming contract is a view: these names are wire format and appear nowhere in the core.

const trace = {
  run_id: Type.Optional(Type.String()),
  /** Position of the event in its session; also the `id:` line of the frame. */
  seq: Type.Optional(Type.Integer({ minimum: 1 })),
};

const call = { ...trace, id: Type.Optional(Type.String()), name: Type.String() };

/** What people read at the end, see `EndTexts`. */
const endTexts = {
  reply: Type.Optional(Type.String()),
  notice: Type.Optional(Type.String()),
  notes: Type.Optional(Type.Array(Type.String())),
};

/** One frame of a streamed run. Readers ignore unknown fields and unknown types. */
export const StreamFrame = Type.Union([
  Type.Object({ type: Type.Literal("user_message"), content: Type.String(), ...trace }),
  Type.Object({ type: Type.Literal("assistant"), content: Type.String(), ...trace }),
  Type.Object({
    type: Type.Literal("tool_call"),
    args: Type.Record(Type.String(), Type.Unknown()),
    ...call,
  }),
  Type.Object({ type: Type.Literal("tool_result"), result: Type.Unknown(), ...call }),
  Type.Object({ type: Type.Literal("tool_error"), error: Type.String(), ...call }),
  Type.Object({ type: Type.Literal("done"), final: Type.String(), ...endTexts, ...trace }),
  Type.Object({
    type: Type.Literal("error"),
    message: Type.String(),
    /**
     * Why a message has no run, as far as is known: `uncertain`: it may be stored, and a request with these
     * `session_id` and `message_id` joins its run, or stores it once; `busy`, `full`: it was not stored.
     */
    code: Type.Optional(Type.String()),
    session_id: Type.Optional(Type.String()),
    message_id: Type.Optional(Type.String()),
    ...endTexts,
    ...trace,
  }),
  /** People have to decide about a call: `POST /v1/approvals/<approval_id>`. `id` is that of the call. */
  Type.Object({
    type: Type.Literal("approval_request"),
    approval_id: Type.String(),
    args: Type.Record(Type.String(), Type.Unknown()),
    message: Type.String(),
    ...call,
  }),
  /** The `assistant` frames since the last tool result are void: the answer begins anew. */
  Type.Object({ type: Type.Literal("restart"), ...trace }),
]);

export type StreamFrame = Static<typeof StreamFrame>;

/** Body of `POST /chat`. `message` empty, blank, null or absent is answered with an error frame. */
export const ChatRequest = Type.Object({
  message: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  /** Continues this conversation; absent: a new one. */
  session_id: Type.Optional(
    Type.Union([Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }), Type.Null()]),
  ),
  /** Makes a repeated request join the first one's run; needs `session_id`. */
  message_id: Type.Optional(
    Type.Union([Type.String({ pattern: "^[\\x21-\\x7e]{1,100}$" }), Type.Null()]),
  ),
  /**
   * What the end of the connection does to the run; absent: as the server is configured, which is
   * `continue` unless it says otherwise. `detach` is the former name of `continue`.
   */
  on_disconnect: Type.Optional(Type.Enum(["cancel", "continue", "detach"])),
  /** No client waits for the answer: the run's tool calls come after those of others. */
  background: Type.Optional(Type.Boolean()),
  /** Name of the agent that answers; absent: `default`. */
  agent: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
});

export type ChatRequest = Static<typeof ChatRequest>;

/** Fixed texts of error frames. */
export const streamErrors = {
  emptyMessage: "消息不能为空",
  notReady: "Agent 未初始化",
  roundLimit: "ERROR: reached maximum tool rounds",
} as const;

/** The result as the model reads it, without the handle of a stored rest, which only the model uses. */
function shownOutput({ output, storedPath }: EventOf<"tool_result">): string {
  return storedPath === "" ? output : output.replaceAll(storedPath, "…");
}

function toolResultFrame(event: EventOf<"tool_result">): StreamFrame {
  const about = { name: event.toolName, id: event.id };
  if (event.isError) return { type: "tool_error", ...about, error: event.output };
  return {
    type: "tool_result",
    ...about,
    result: event.result === undefined ? shownOutput(event) : event.result,
  };
}

function doneFrame(event: EventOf<"done">): StreamFrame {
  if (event.reason === "") return { type: "done", final: event.final, ...endTextsIn(event) };
  const isRoundLimit = event.reason === "max_turns_reached";
  const message = isRoundLimit
    ? streamErrors.roundLimit
    : `ERROR: the run was stopped (${event.reason})`;
  return { type: "error", message, ...endTextsIn(event) };
}

function endTextsIn({ reply, notice, notes }: EndTexts): EndTexts {
  return {
    ...(reply === undefined ? {} : { reply }),
    ...(notice === undefined ? {} : { notice }),
    ...(notes === undefined ? {} : { notes }),
  };
}

function frameOf(event: EngineEvent): StreamFrame | undefined {
  switch (event.type) {
    case "text_delta":
      return event.text === "" ? undefined : { type: "assistant", content: event.text };
    case "tool_use":
      return { type: "tool_call", name: event.toolName, args: event.input, id: event.id };
    case "tool_result":
      return toolResultFrame(event);
    case "done":
      return doneFrame(event);
    case "error":
      return { type: "error", message: event.message, ...endTextsIn(event) };
    case "permission_request": {
      const { id: approval_id, toolName: name, input: args, message, toolCallId } = event;
      const about = toolCallId === undefined ? {} : { id: toolCallId };
      return { type: "approval_request", approval_id, name, args, message, ...about };
    }
    case "step_restarted":
      return { type: "restart" };
    default:
      return undefined;
  }
}

/**
 * The frames that show an event to a client: none for events without a counterpart (thinking,
 * usage, ...). `user_message` has no event; the process that takes the message sends it.
 */
export function streamFramesOf(event: EngineEvent): StreamFrame[] {
  const frame = frameOf(event);
  return frame === undefined ? [] : [frame];
}

/** {@link streamFramesOf} with the optional fields that say where the frame comes from. */
export function streamFramesOfRecord({ event, runId, seq }: EventRecord): StreamFrame[] {
  return streamFramesOf(event).map((frame) => ({ ...frame, run_id: runId, seq }));
}

// JSON leaves these as they are, yet many readers take them for the end of a line.
const lineSeparators = /[\u0085\u2028\u2029]/g;

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/**
 * A frame as it goes over the wire: `data: <JSON on one line>` and a blank line. `seq` adds an
 * `id:` line in front, which a client returns as `Last-Event-ID`.
 */
export function formatSseEvent(frame: StreamFrame, seq?: number): string {
  return sseEvent({ data: frame, ...(seq === undefined ? {} : { id: `${seq}` }) });
}

/** One server-sent event (WHATWG HTML, section 9.2) whose data is JSON on one line. */
export function sseEvent({
  id,
  event,
  data,
}: {
  id?: string;
  event?: string;
  data: unknown;
}): string {
  const place = id === undefined ? "" : `id: ${id}\n`;
  const name = event === undefined ? "" : `event: ${event}\n`;
  return `${place}${name}data: ${JSON.stringify(data).replaceAll(lineSeparators, escaped)}\n\n`;
}
