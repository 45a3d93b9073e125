import {
  callPieces,
  checkToolNames,
  demand,
  frame,
  freshId,
  listOf,
  objectOf,
  piecesOf,
  textOf,
  usageOf,
  type JsonObject,
  type NormalisedMessage,
  type NormalisedRequest,
  type ScriptedReply,
} from "./model-server-script.ts";

const roles = new Set(["system", "developer", "user", "assistant", "tool"]);
const partTypes: Record<string, string> = {
  user: "text image_url file",
  assistant: "text refusal",
  tool: "text",
};

function contentText(content: unknown, role: string): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  let text = "";
  for (const item of listOf(content, "content")) {
    const part = objectOf(item, "content part");
    const type = textOf(part["type"], "content part type");
    demand(
      (partTypes[role] ?? "text").split(" ").includes(type),
      `Invalid content type '${type}' for role '${role}'`,
    );
    if (type === "text") text += textOf(part["text"], "content part text");
    if (type === "image_url") {
      textOf(objectOf(part["image_url"], "image_url")["url"], "image_url.url");
    }
  }
  return text;
}

function callsOf(message: JsonObject): NormalisedMessage["calls"] {
  if (message["tool_calls"] === undefined) return [];
  const calls = listOf(message["tool_calls"], "tool_calls");
  demand(
    calls.length > 0,
    "Invalid 'messages[].tool_calls': empty array. Expected an array with minimum length 1",
  );
  return calls.map((item) => {
    const call = objectOf(item, "tool_call");
    demand(call["type"] === "function", "tool_calls[].type: expected 'function'");
    const called = objectOf(call["function"], "tool_calls[].function");
    return {
      id: textOf(call["id"], "tool_calls[].id"),
      name: textOf(called["name"], "tool_calls[].function.name"),
      arguments: textOf(called["arguments"], "tool_calls[].function.arguments"),
    };
  });
}

interface WireMessage {
  wireRole: string;
  message: NormalisedMessage;
}

function isSystem(read: WireMessage): boolean {
  return read.wireRole === "system" || read.wireRole === "developer";
}

function readMessage(item: unknown, at: number): WireMessage {
  const message = objectOf(item, `messages[${at}]`);
  const wireRole = textOf(message["role"], `messages[${at}].role`);
  demand(roles.has(wireRole), `Invalid value for messages[${at}].role: '${wireRole}'`);
  const text = contentText(message["content"], wireRole);
  const calls = wireRole === "assistant" ? callsOf(message) : [];
  demand(
    calls.length > 0 || message["content"] !== null,
    `Invalid value for 'content': expected a string, got null (messages[${at}])`,
  );
  const id =
    wireRole === "tool" ? textOf(message["tool_call_id"], `messages[${at}].tool_call_id`) : "";
  const role = wireRole === "assistant" || wireRole === "tool" ? wireRole : "user";
  const results = wireRole === "tool" ? [{ id, content: text, isError: false }] : [];
  return { wireRole, message: { role, text, calls, results } };
}

function checkPairs(messages: readonly NormalisedMessage[]): void {
  let open = new Set<string>();
  for (const [at, message] of messages.entries()) {
    const [result] = message.results;
    if (result !== undefined) {
      demand(
        open.delete(result.id),
        `messages[${at}]: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.`,
      );
      continue;
    }
    demandAnswered(open);
    open = new Set(message.calls.map((call) => call.id));
  }
  demandAnswered(open);
}

function demandAnswered(open: ReadonlySet<string>): void {
  demand(
    open.size === 0,
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. " +
      `The following tool_call_ids did not have response messages: ${[...open].join(", ")}`,
  );
}

function toolsOf(body: JsonObject): NormalisedRequest["tools"] {
  if (body["tools"] === undefined) return [];
  const tools = listOf(body["tools"], "tools");
  demand(tools.length > 0, "Invalid 'tools': empty array. Expected an array with minimum length 1");
  demand(
    tools.length <= 128,
    `Invalid 'tools': array too long. Expected maximum length 128, got ${tools.length}`,
  );
  const declared = tools.map((item) => {
    const tool = objectOf(item, "tools[]");
    demand(tool["type"] === "function", "tools[].type: expected 'function'");
    return objectOf(tool["function"], "tools[].function");
  });
  checkToolNames(declared.map((tool) => textOf(tool["name"], "tools[].function.name")));
  return declared.map((tool) => ({
    name: String(tool["name"]),
    description: String(tool["description"] ?? ""),
    inputSchema: objectOf(tool["parameters"] ?? {}, "tools[].function.parameters"),
  }));
}

function checkSettings(body: JsonObject): void {
  const { temperature, response_format: format } = body;
  demand(
    temperature === undefined ||
      (typeof temperature === "number" && temperature >= 0 && temperature <= 2),
    "Invalid 'temperature': expected a value between 0 and 2",
  );
  if (format === undefined) return;
  const { type, json_schema: schema } = objectOf(format, "response_format");
  demand(
    type !== "json_schema" || schema !== undefined,
    "Missing required parameter: 'response_format.json_schema'",
  );
}

/** Checks a body of `POST /v1/chat/completions` as strictly as the vendor and reads it. */
export function readChat(body: JsonObject): Omit<NormalisedRequest, "headers"> {
  const model = textOf(body["model"], "model");
  const all = listOf(body["messages"], "messages").map(readMessage);
  demand(
    all.length > 0,
    "Invalid 'messages': empty array. Expected an array with minimum length 1",
  );
  checkSettings(body);
  const tools = toolsOf(body);
  const messages = all.filter((read) => !isSystem(read)).map((read) => read.message);
  checkPairs(messages);
  const system = all
    .filter(isSystem)
    .map((read) => read.message.text)
    .join("\n\n");
  return { dialect: "openai-chat", model, system, messages, tools, body };
}

const finishReasons: Record<string, string> = {
  end_turn: "stop",
  tool_use: "tool_calls",
  max_tokens: "length",
  refusal: "content_filter",
};

function finishOf(reply: ScriptedReply): string {
  if (reply.stopReason !== undefined) return finishReasons[reply.stopReason] ?? reply.stopReason;
  return (reply.calls?.length ?? 0) > 0 ? "tool_calls" : "stop";
}

function deltasOf(reply: ScriptedReply): JsonObject[] {
  const deltas: JsonObject[] = [{ role: "assistant", content: "" }];
  if (reply.thinking !== undefined && "text" in reply.thinking) {
    for (const piece of piecesOf(reply.thinking.text)) deltas.push({ reasoning_content: piece });
  }
  for (const content of piecesOf(reply.text)) deltas.push({ content });
  for (const { index, first, piece } of callPieces(reply)) {
    const call = reply.calls?.[index];
    const head = first ? { id: call?.id ?? freshId("call_"), type: "function" } : {};
    const named = first ? { name: call?.name ?? "" } : {};
    deltas.push({ tool_calls: [{ index, ...head, function: { ...named, arguments: piece } }] });
  }
  return deltas;
}

/** The frames of one answer, as the vendor streams them. */
export function writeChat(reply: ScriptedReply, request: NormalisedRequest): string[] {
  const usage = usageOf(reply, request);
  const id = reply.responseId ?? freshId("chatcmpl-");
  const base = { id, object: "chat.completion.chunk", created: 0, model: request.model };
  const chunk = (delta: JsonObject, finish: string | null) =>
    frame({ ...base, choices: [{ index: 0, delta, finish_reason: finish }] });
  const frames = deltasOf(reply).map((delta) => chunk(delta, null));
  frames.push(chunk({}, finishOf(reply)));
  const options = request.body["stream_options"];
  if (
    typeof options === "object" &&
    options !== null &&
    "include_usage" in options &&
    options.include_usage === true
  ) {
    const prompt = usage.inputTokens + usage.cacheReadTokens + usage.cacheCreationTokens;
    frames.push(
      frame({
        ...base,
        choices: [],
        usage: {
          prompt_tokens: prompt,
          completion_tokens: usage.outputTokens,
          total_tokens: prompt + usage.outputTokens,
          prompt_tokens_details: { cached_tokens: usage.cacheReadTokens },
        },
      }),
    );
  }
  frames.push(frame("[DONE]"));
  return frames;
}
