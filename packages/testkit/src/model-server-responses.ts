import {
  argumentsOf,
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

const partTypes: Record<string, string> = {
  user: "input_text input_image input_file",
  assistant: "output_text refusal",
};

function contentText(content: unknown, role: string): string {
  if (typeof content === "string") return content;
  let text = "";
  for (const item of listOf(content, "content")) {
    const part = objectOf(item, "content part");
    const type = textOf(part["type"], "content part type");
    const allowed = partTypes[role] ?? "input_text";
    demand(
      allowed.split(" ").includes(type),
      `Invalid value: '${type}'. Supported values are: '${allowed.replaceAll(" ", "', '")}'.`,
    );
    if (typeof part["text"] === "string") text += part["text"];
  }
  return text;
}

function empty(role: NormalisedMessage["role"]): NormalisedMessage {
  return { role, text: "", calls: [], results: [] };
}

/** Items of the vendor's own tools, which come back as they were. */
const hostedItems: ReadonlySet<string> = new Set(
  (
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_call mcp_list_tools " +
    "mcp_approval_request mcp_approval_response compaction"
  ).split(" "),
);

function readCall(item: JsonObject): NormalisedMessage {
  const call = {
    id: textOf(item["call_id"], "call_id"),
    name: textOf(item["name"], "name"),
    arguments: textOf(item["arguments"], "arguments"),
  };
  return { ...empty("assistant"), calls: [call] };
}

function readItem(value: unknown, at: number): NormalisedMessage {
  const item = objectOf(value, `input[${at}]`);
  const type = item["type"] ?? "message";
  if (type === "function_call") return readCall(item);
  if (type === "function_call_output") {
    const content = contentText(item["output"], "user");
    return {
      ...empty("tool"),
      results: [{ id: textOf(item["call_id"], "call_id"), content, isError: false }],
    };
  }
  if (type === "reasoning") {
    textOf(item["id"], "reasoning.id");
    listOf(item["summary"], "reasoning.summary");
    return empty("assistant");
  }
  if (hostedItems.has(String(type))) {
    if (type !== "mcp_approval_response") textOf(item["id"], "id");
    return empty("assistant");
  }
  demand(type === "message", `Invalid value: '${String(type)}' (input[${at}].type)`);
  const role = textOf(item["role"], `input[${at}].role`);
  demand(
    ["user", "assistant", "system", "developer"].includes(role),
    `Invalid value: '${role}' (input[${at}].role)`,
  );
  return {
    ...empty(role === "assistant" ? "assistant" : "user"),
    text: contentText(item["content"], role),
  };
}

function checkPairs(messages: readonly NormalisedMessage[]): void {
  const calls = new Set(messages.flatMap((message) => message.calls.map((call) => call.id)));
  for (const { id } of messages.flatMap((message) => message.results)) {
    demand(calls.delete(id), `No tool call found for function call output with call_id ${id}.`);
  }
  demand(calls.size === 0, `No tool output found for function call ${[...calls].join(", ")}.`);
}

function toolsOf(body: JsonObject): NormalisedRequest["tools"] {
  if (body["tools"] === undefined) return [];
  const tools = listOf(body["tools"], "tools").map((tool) => objectOf(tool, "tools[]"));
  for (const tool of tools) {
    demand(tool["type"] === "function", "tools[].type: expected 'function'");
  }
  checkToolNames(tools.map((tool) => textOf(tool["name"], "tools[].name")));
  return tools.map((tool) => ({
    name: String(tool["name"]),
    description: String(tool["description"] ?? ""),
    inputSchema: objectOf(tool["parameters"] ?? {}, "tools[].parameters"),
  }));
}

/** Checks a body of `POST /v1/responses` as strictly as the vendor and reads it. */
export function readResponses(body: JsonObject): Omit<NormalisedRequest, "headers"> {
  const model = textOf(body["model"], "model");
  const input =
    typeof body["input"] === "string" ? [{ role: "user", content: body["input"] }] : body["input"];
  const messages = listOf(input, "input").map(readItem);
  demand(messages.length > 0, "Invalid 'input': empty array");
  const { temperature } = body;
  demand(
    temperature === undefined ||
      (typeof temperature === "number" && temperature >= 0 && temperature <= 2),
    "Invalid 'temperature': expected a value between 0 and 2",
  );
  checkPairs(messages);
  const instructions = body["instructions"];
  return {
    dialect: "openai-responses",
    model,
    system: typeof instructions === "string" ? instructions : "",
    messages,
    tools: toolsOf(body),
    body,
  };
}

type Emit = (type: string, data: JsonObject) => void;

function writeReasoning(
  emit: Emit,
  thinking: NonNullable<ScriptedReply["thinking"]>,
  output: JsonObject[],
): void {
  const at = output.length;
  const id = freshId("rs_");
  const text = "text" in thinking ? thinking.text : "";
  const encrypted = "text" in thinking ? (thinking.signature ?? freshId("enc")) : thinking.redacted;
  emit("response.output_item.added", {
    output_index: at,
    item: { id, type: "reasoning", summary: [] },
  });
  for (const delta of piecesOf(text)) {
    emit("response.reasoning_summary_text.delta", {
      output_index: at,
      item_id: id,
      summary_index: 0,
      delta,
    });
  }
  const summary = text === "" ? [] : [{ type: "summary_text", text }];
  const item = { id, type: "reasoning", summary, encrypted_content: encrypted };
  emit("response.output_item.done", { output_index: at, item });
  output.push(item);
}

function writeText(
  emit: Emit,
  pieces: readonly string[],
  context: { output: JsonObject[]; refused: boolean },
): void {
  const at = context.output.length;
  const id = freshId("msg_");
  const message = { id, type: "message", role: "assistant" };
  const kind = context.refused ? "refusal" : "output_text";
  emit("response.output_item.added", {
    output_index: at,
    item: { ...message, status: "in_progress", content: [] },
  });
  for (const delta of pieces) {
    emit(`response.${kind}.delta`, { output_index: at, item_id: id, content_index: 0, delta });
  }
  const text = pieces.join("");
  const part = context.refused
    ? { type: "refusal", refusal: text }
    : { type: "output_text", text, annotations: [] };
  const item = { ...message, status: "completed", content: [part] };
  emit("response.output_item.done", { output_index: at, item });
  context.output.push(item);
}

function writeCalls(emit: Emit, reply: ScriptedReply, output: JsonObject[]): void {
  const base = output.length;
  const items = (reply.calls ?? []).map((call) => ({
    id: freshId("fc_"),
    type: "function_call",
    call_id: call.id ?? freshId("call_"),
    name: call.name,
    arguments: argumentsOf(call),
  }));
  for (const { index, first, piece } of callPieces(reply)) {
    const item = items[index];
    const at = base + index;
    if (first) {
      emit("response.output_item.added", { output_index: at, item: { ...item, arguments: "" } });
    }
    emit("response.function_call_arguments.delta", {
      output_index: at,
      item_id: item?.id,
      delta: piece,
    });
  }
  for (const [index, item] of items.entries()) {
    emit("response.output_item.done", {
      output_index: base + index,
      item: { ...item, status: "completed" },
    });
  }
  output.push(...items);
}

function ending(reply: ScriptedReply): { type: string; fields: JsonObject } {
  const reasons: Record<string, string> = {
    max_tokens: "max_output_tokens",
    content_filter: "content_filter",
  };
  const reason = reasons[reply.stopReason ?? ""];
  return reason === undefined
    ? { type: "response.completed", fields: { status: "completed" } }
    : {
        type: "response.incomplete",
        fields: { status: "incomplete", incomplete_details: { reason } },
      };
}

/** The frames of one answer, as the vendor streams them. */
export function writeResponses(reply: ScriptedReply, request: NormalisedRequest): string[] {
  const usage = usageOf(reply, request);
  const base = {
    id: reply.responseId ?? freshId("resp_"),
    object: "response",
    model: request.model,
  };
  const frames: string[] = [];
  const output: JsonObject[] = [];
  const emit: Emit = (type, data) =>
    frames.push(frame({ type, sequence_number: frames.length, ...data }, type));
  emit("response.created", { response: { ...base, status: "in_progress", output: [] } });
  if (reply.thinking !== undefined) writeReasoning(emit, reply.thinking, output);
  const pieces = piecesOf(reply.text);
  if (pieces.length > 0) {
    writeText(emit, pieces, { output, refused: reply.stopReason === "refusal" });
  }
  writeCalls(emit, reply, output);
  const input = usage.inputTokens + usage.cacheReadTokens + usage.cacheCreationTokens;
  const counts = {
    input_tokens: input,
    input_tokens_details: { cached_tokens: usage.cacheReadTokens },
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + usage.outputTokens,
  };
  const end = ending(reply);
  emit(end.type, { response: { ...base, ...end.fields, output, usage: counts } });
  return frames;
}
