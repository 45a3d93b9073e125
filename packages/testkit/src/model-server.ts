import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { readAnthropic, writeAnthropic } from "./model-server-anthropic.ts";
import { readChat, writeChat } from "./model-server-chat.ts";
import { demoScript } from "./model-server-demo.ts";
import { readResponses, writeResponses } from "./model-server-responses.ts";
import {
  frame,
  Refusal,
  type JsonObject,
  type ModelDialect,
  type ModelFault,
  type ModelScript,
  type NormalisedRequest,
  type ScriptedReply,
} from "./model-server-script.ts";

export interface ModelServerOptions {
  /** What the model says; {@link demoScript} by default. */
  script?: ModelScript;
  /** 0 or nothing picks a free port. */
  port?: number;
  /** Loopback by default. */
  host?: string;
  /** The one key that is accepted; without it any key is, but one has to be sent. */
  apiKey?: string;
  /** How many of the latest requests are kept. 1,000 by default. */
  keepRequests?: number;
}

/** A running scripted model server. */
export interface ModelServer {
  /** Base URL for `ANTHROPIC_BASE_URL`; OpenAI clients take `${url}/v1`. Any path prefix works. */
  readonly url: string;
  /** The latest requests, refused ones included, oldest first. */
  readonly requests: readonly NormalisedRequest[];
  /** TCP connections accepted so far. */
  readonly connections: number;
  /** Answers that the client broke off before they were complete. */
  readonly aborted: number;
  setScript(script: ModelScript): void;
  /** Breaks what is still open and frees the port. Idempotent. */
  close(): Promise<void>;
}

interface Dialect {
  read(body: JsonObject, headers: Record<string, string>): Omit<NormalisedRequest, "headers">;
  write(reply: ScriptedReply, request: NormalisedRequest): string[];
}

const dialects: Record<ModelDialect, Dialect> = {
  anthropic: { read: readAnthropic, write: writeAnthropic },
  "openai-chat": { read: readChat, write: writeChat },
  "openai-responses": { read: readResponses, write: writeResponses },
};

const endings: readonly [string, ModelDialect][] = [
  ["/messages", "anthropic"],
  ["/chat/completions", "openai-chat"],
  ["/responses", "openai-responses"],
];

const maxBodyBytes = 32 * 1024 * 1024;

function dialectOf(incoming: IncomingMessage): ModelDialect {
  const path = (incoming.url ?? "").split("?")[0] ?? "";
  const match = endings.find(([ending]) => path.endsWith(ending));
  if (incoming.method !== "POST" || match === undefined) {
    throw new Refusal(404, "not_found_error", `no route ${path}`);
  }
  return match[1];
}

function checkKey(incoming: IncomingMessage, apiKey: string | undefined): void {
  const { authorization, "x-api-key": own } = incoming.headers;
  const key =
    typeof own === "string" && own !== "" ? own : (authorization ?? "").replace(/^Bearer /, "");
  if (key === "" || (apiKey !== undefined && key !== apiKey)) {
    throw new Refusal(401, "authentication_error", "invalid x-api-key");
  }
}

async function bodyOf(incoming: IncomingMessage): Promise<JsonObject> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of incoming as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > maxBodyBytes) {
      throw new Refusal(413, "request_too_large", "Request exceeds the maximum size");
    }
    pieces.push(piece);
  }
  try {
    const body: unknown = JSON.parse(Buffer.concat(pieces).toString("utf8"));
    if (typeof body === "object" && body !== null) return body as JsonObject; // JSON text of an object
  } catch {
    // falls through: both kinds of bad JSON get the same answer
  }
  throw new Refusal(400, "invalid_request_error", "The request body is not a JSON object");
}

function sendRefusal(
  response: ServerResponse,
  refusal: Refusal,
  extra: Record<string, string> = {},
): void {
  const error = { type: refusal.kind, code: refusal.kind, message: refusal.message };
  response.writeHead(refusal.status, {
    "content-type": "application/json",
    "request-id": "req_scripted",
    ...extra,
  });
  response.end(JSON.stringify({ type: "error", error }));
}

function faultFrame(fault: ModelFault): string {
  if (fault.kind === "garbage") return "event: message_delta\ndata: {not json\n\n";
  if (fault.kind !== "error_event") return "";
  const error = { type: fault.type, code: fault.type, message: fault.message };
  return frame({ type: "error", error, message: fault.message }, "error");
}

/** The frames that arrive, and what happens after them. */
function planOf(
  frames: readonly string[],
  fault: ModelFault | undefined,
): { frames: string[]; fault?: ModelFault } {
  if (fault === undefined || fault.kind === "status" || fault.kind === "silent") {
    return { frames: [...frames] };
  }
  const kept = frames.slice(0, fault.afterFrames);
  const extra = faultFrame(fault);
  return { frames: extra === "" ? kept : [...kept, extra], fault };
}

async function sendSlowly(
  response: ServerResponse,
  frames: readonly string[],
  reply: ScriptedReply,
): Promise<void> {
  const { firstDelayMs = 0, delayMs = 0 } = reply;
  if (firstDelayMs > 0) await delay(firstDelayMs);
  response.flushHeaders();
  for (const [at, text] of frames.entries()) {
    if (at === reply.waits?.afterFrames) await reply.waits.until;
    if (response.destroyed) return;
    response.write(text);
    if (delayMs > 0) await delay(delayMs);
  }
}

function ping(response: ServerResponse, everyMs: number): void {
  const timer = setInterval(() => response.write(": ping\n\n"), everyMs);
  response.once("close", () => clearInterval(timer));
}

/** As fast as the client reads. */
async function repeat(response: ServerResponse, text: string): Promise<void> {
  const closed = new Promise((resolve) => response.once("close", resolve));
  while (!response.destroyed) {
    if (response.write(text)) await new Promise((resolve) => setImmediate(resolve));
    else await Promise.race([closed, new Promise((resolve) => response.once("drain", resolve))]);
  }
}

async function sendStream(
  response: ServerResponse,
  frames: readonly string[],
  reply: ScriptedReply,
): Promise<void> {
  const plan = planOf(frames, reply.fault);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  const quick = (reply.firstDelayMs ?? 0) + (reply.delayMs ?? 0) === 0 && reply.waits === undefined;
  if (quick && plan.fault === undefined) return void response.end(plan.frames.join(""));
  await sendSlowly(response, quick ? [plan.frames.join("")] : plan.frames, reply);
  await endStream(response, plan.fault, plan.frames);
}

/** What comes behind the frames. */
async function endStream(
  response: ServerResponse,
  fault: ModelFault | undefined,
  frames: readonly string[],
): Promise<void> {
  if (fault?.kind === "pinging") return ping(response, fault.everyMs);
  if (fault?.kind === "endless") return await repeat(response, frames.at(-1) ?? ": endless\n\n");
  if (fault?.kind === "hang" || response.destroyed) return;
  if (fault?.kind !== "cut") return void response.end();
  // The pieces before the cut have to be on the wire, or the client sees none of them.
  response.write("", () => setImmediate(() => response.destroy()));
}

function headersOf(incoming: IncomingMessage): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(incoming.headers)) {
    if (typeof value === "string" && name !== "authorization" && name !== "x-api-key") {
      headers[name] = value;
    }
  }
  return headers;
}

class Requests {
  readonly kept: NormalisedRequest[] = [];
  readonly limit: number;

  constructor(limit: number) {
    this.limit = limit;
  }

  add(request: NormalisedRequest): void {
    this.kept.push(request);
    if (this.kept.length > this.limit * 2) this.kept.splice(0, this.kept.length - this.limit);
  }
}

interface ServerState {
  script: ModelScript;
  apiKey: string | undefined;
  requests: Requests;
  connections: number;
  aborted: number;
}

function unread(
  dialect: ModelDialect,
  body: JsonObject,
  headers: Record<string, string>,
): NormalisedRequest {
  return {
    dialect,
    model: String(body["model"] ?? ""),
    system: "",
    messages: [],
    tools: [],
    body,
    headers,
  };
}

async function answer(
  state: ServerState,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const name = dialectOf(incoming);
  const dialect = dialects[name];
  checkKey(incoming, state.apiKey);
  const body = await bodyOf(incoming);
  const headers = headersOf(incoming);
  let request: NormalisedRequest;
  try {
    request = { ...dialect.read(body, headers), headers };
  } catch (error) {
    state.requests.add(unread(name, body, headers));
    throw error;
  }
  state.requests.add(request);
  if (body["stream"] !== true) {
    throw new Refusal(400, "invalid_request_error", "This server only streams.");
  }
  const reply = await state.script(request);
  const { fault } = reply;
  if (fault?.kind === "silent") return;
  if (fault?.kind === "status" && fault.body !== undefined) {
    return void response
      .writeHead(fault.status, { "content-type": "text/html", ...fault.headers })
      .end(fault.body);
  }
  if (fault?.kind === "status") {
    const refusal = new Refusal(
      fault.status,
      fault.type ?? "api_error",
      fault.message ?? "Scripted refusal",
    );
    return sendRefusal(response, refusal, fault.headers);
  }
  await sendStream(response, reply.frames ?? dialect.write(reply, request), reply);
}

function fail(response: ServerResponse, error: unknown): void {
  if (response.headersSent) return void response.destroy();
  const message = error instanceof Error ? error.message : "The script failed";
  sendRefusal(response, error instanceof Refusal ? error : new Refusal(500, "api_error", message));
}

/**
 * Starts an HTTP server that answers like Anthropic Messages, OpenAI Chat Completions and OpenAI
 * Responses (streaming only), refuses what the vendors refuse, and says what the script says.
 */
export async function startModelServer(options: ModelServerOptions = {}): Promise<ModelServer> {
  const { host = "127.0.0.1", apiKey } = options;
  const requests = new Requests(options.keepRequests ?? 1_000);
  const state: ServerState = {
    script: options.script ?? demoScript,
    apiKey,
    requests,
    connections: 0,
    aborted: 0,
  };
  const server = createServer({ keepAliveTimeout: 60_000 }, (incoming, response) => {
    response.on("close", () => {
      if (!response.writableFinished) state.aborted += 1;
    });
    answer(state, incoming, response).catch((error: unknown) => fail(response, error));
  });
  server.on("connection", () => {
    state.connections += 1;
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, host, resolve);
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  let closing: Promise<void> | undefined;
  const close = async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return {
    url: `http://${host}:${port}`,
    requests: requests.kept,
    get connections() {
      return state.connections;
    },
    get aborted() {
      return state.aborted;
    },
    setScript: (script) => {
      state.script = script;
    },
    close: () => (closing ??= close()),
  };
}
