import type { Usage } from "@larkline/protocol/model-stream";

/** The three vendor interfaces the scripted server speaks. */
export type ModelDialect = "anthropic" | "openai-chat" | "openai-responses";

export interface ScriptedCall {
  /** Made up when left out. */
  id?: string;
  name: string;
  /** Text is streamed as it is, also when it is no JSON. */
  arguments: Record<string, unknown> | string;
}

/** One message of a request, the same for every dialect. */
export interface NormalisedMessage {
  role: "user" | "assistant" | "tool";
  text: string;
  /** The texts in it, where clients merge messages of one role that follow each other. */
  blocks?: string[];
  calls: { id: string; name: string; arguments: string }[];
  results: { id: string; content: string; isError: boolean }[];
}

/** What the client asked, whatever interface it used. `body` is what it really sent. */
export interface NormalisedRequest {
  dialect: ModelDialect;
  model: string;
  system: string;
  messages: NormalisedMessage[];
  tools: { name: string; description: string; inputSchema: Record<string, unknown> }[];
  body: Record<string, unknown>;
  headers: Record<string, string>;
}

/** How an answer goes wrong. `afterFrames` counts the frames that still arrive; 0 = none. */
export type ModelFault =
  /** Refuses with this HTTP status; a vendor-like body is made when none is given. */
  | {
      kind: "status";
      status: number;
      headers?: Record<string, string>;
      message?: string;
      type?: string;
      /** Sent as it is in place of the vendor's form, such as the page of a proxy. */
      body?: string;
    }
  /** Takes the request and never answers. */
  | { kind: "silent" }
  /** Sends a comment now and then, and nothing more. */
  | { kind: "pinging"; afterFrames: number; everyMs: number }
  /** Repeats the last frame that still arrives until the client disconnects. */
  | { kind: "endless"; afterFrames: number }
  /** Breaks the connection. */
  | { kind: "cut"; afterFrames: number }
  /** Ends the body as if all were well, without the vendor's last frames. */
  | { kind: "end"; afterFrames: number }
  /** Keeps the connection open and says nothing more. */
  | { kind: "hang"; afterFrames: number }
  /** Reports an error inside the stream. */
  | { kind: "error_event"; afterFrames: number; type: string; message: string }
  /** Sends a frame that is no JSON. */
  | { kind: "garbage"; afterFrames: number };

/** What the model says. Everything is optional; an empty reply is an empty answer. */
export interface ScriptedReply {
  thinking?: { text: string; signature?: string } | { redacted: string };
  /** An array is sent piece by piece. */
  text?: string | readonly string[];
  calls?: readonly ScriptedCall[];
  /** Argument pieces of all calls mixed, the last call first. */
  interleaved?: boolean;
  /** Chosen from the content when left out; any vendor value is sent as it is. */
  stopReason?: string;
  usage?: Partial<Usage>;
  /** The vendor's id of the answer; a new one when left out, `""` none. */
  responseId?: string;
  /** Before the first frame, and between frames. */
  firstDelayMs?: number;
  delayMs?: number;
  /** Says no more than so many frames until the promise has settled. */
  waits?: { afterFrames: number; until: Promise<unknown> };
  fault?: ModelFault;
  /** A recorded stream, sent as it is in place of everything above except faults, waits and delays. */
  frames?: readonly string[];
}

export type ModelScript = (request: NormalisedRequest) => ScriptedReply | Promise<ScriptedReply>;

/** A request the server refuses, as the vendor would. */
export class Refusal extends Error {
  readonly status: number;
  readonly kind: string;

  constructor(status: number, kind: string, message: string) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

/** Throws a 400 unless the fact holds. */
export function demand(fact: boolean, message: string): void {
  if (!fact) throw new Refusal(400, "invalid_request_error", message);
}

export type JsonObject = Record<string, unknown>;

/** The value as object, or a 400 that names it. */
export function objectOf(value: unknown, name: string): JsonObject {
  demand(
    typeof value === "object" && value !== null && !Array.isArray(value),
    `${name}: Input should be an object`,
  );
  return value as JsonObject; // checked just above
}

/** The value as list, or a 400 that names it. */
export function listOf(value: unknown, name: string): unknown[] {
  demand(Array.isArray(value), `${name}: Input should be a valid list`);
  return value as unknown[]; // checked just above
}

/** The value as text, or a 400 that names it. */
export function textOf(value: unknown, name: string): string {
  demand(typeof value === "string", `${name}: Input should be a valid string`);
  return value as string; // checked just above
}

/** Tool names as the vendors take them: unique, letters, digits, `_` and `-`. */
export function checkToolNames(names: readonly string[]): void {
  for (const name of names) {
    demand(/^[A-Za-z0-9_-]{1,64}$/.test(name), `tools: invalid tool name '${name}'`);
  }
  demand(new Set(names).size === names.length, "tools: Tool names must be unique.");
}

/** The pieces a text is streamed in. */
export function piecesOf(text: ScriptedReply["text"]): readonly string[] {
  if (typeof text !== "string") return text ?? [];
  return text === "" ? [] : (text.match(/[\s\S]{1,24}/g) ?? []);
}

/** The complete argument text of a call. */
export function argumentsOf(call: ScriptedCall): string {
  return typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments);
}

/** The usage of an answer; what the script leaves out is guessed from the sizes. */
export function usageOf(reply: ScriptedReply, request: NormalisedRequest): Usage {
  const said = piecesOf(reply.text).join("").length + (reply.calls?.length ?? 0) * 20;
  let asked = request.system.length;
  for (const message of request.messages) asked += message.text.length;
  return {
    inputTokens: Math.ceil(asked / 4) + 8,
    outputTokens: Math.ceil(said / 4) + 1,
    cacheReadTokens: 0,
    cacheCreationTokens: 0,
    ...reply.usage,
  };
}

/** Call pieces in the order they are streamed: each argument text in two halves. */
export function callPieces(
  reply: ScriptedReply,
): { index: number; first: boolean; piece: string }[] {
  const halves = (reply.calls ?? []).map((call, index) => {
    const text = argumentsOf(call);
    const middle = Math.ceil(text.length / 2);
    return [
      { index, first: true, piece: text.slice(0, middle) },
      { index, first: false, piece: text.slice(middle) },
    ];
  });
  if (reply.interleaved !== true) return halves.flat();
  const backwards = halves.toReversed();
  return [
    ...backwards.flatMap((pair) => pair.slice(0, 1)),
    ...backwards.flatMap((pair) => pair.slice(1)),
  ];
}

let nextId = 0;

/** An id that is unique in this process. */
export function freshId(prefix: string): string {
  nextId += 1;
  return `${prefix}${nextId.toString(36).padStart(8, "0")}${Math.random().toString(36).slice(2, 12)}`;
}

/** One server-sent event. */
export function frame(data: unknown, event?: string): string {
  const lines = `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
  return event === undefined ? lines : `event: ${event}\n${lines}`;
}
