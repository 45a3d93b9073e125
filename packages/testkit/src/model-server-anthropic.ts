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

const knownFields = new Set(
  (
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k stop_sequences metadata thinking " +
    "output_config service_tier cache_control speed container inference_geo diagnostics"
  ).split(" "),
);

interface Block extends JsonObject {
  type: string;
}

function blocksOf(content: unknown, name: string): Block[] {
  if (typeof content === "string") {
    demand(content !== "", `${name}: user messages must have non-empty content`);
    return [{ type: "text", text: content }];
  }
  const list = listOf(content, `${name}.content`);
  demand(list.length > 0, `${name}: content must have at least one block`);
  return list.map((item, at) => {
    const block = objectOf(item, `${name}.content.${at}`);
    return { ...block, type: textOf(block["type"], `${name}.content.${at}.type`) };
  });
}

function checkText(block: Block): void {
  demand(
    textOf(block["text"], "text").trim() !== "",
    "messages: text content blocks must contain non-whitespace text",
  );
}

function checkImage(block: Block): void {
  const source = objectOf(block["source"], "image.source");
  if (source["type"] === "url") {
    return demand(textOf(source["url"], "url").startsWith("https://"), "image: bad URL");
  }
  demand(source["type"] === "base64", "image.source.type: Input should be 'base64' or 'url'");
  demand(
    /^image\/(jpeg|png|gif|webp)$/.test(textOf(source["media_type"], "media_type")),
    "image: bad media_type",
  );
  demand(/^[A-Za-z0-9+/]+=*$/.test(textOf(source["data"], "data")), "image: invalid base64 data");
}

function checkToolUse(block: Block): void {
  demand(
    /^[A-Za-z0-9_-]+$/.test(textOf(block["id"], "tool_use.id")),
    "tool_use.id: String should match pattern",
  );
  textOf(block["name"], "tool_use.name");
  objectOf(block["input"], "tool_use.input");
}

function checkToolResult(block: Block): void {
  const { content } = block;
  if (content === undefined || typeof content === "string") return;
  for (const inner of blocksOf(content, "tool_result")) checkBlock(inner, "user");
}

const allowedBlocks: Record<string, string> = {
  text: "user assistant",
  image: "user",
  tool_result: "user",
  tool_use: "assistant",
  thinking: "assistant",
  redacted_thinking: "assistant",
  server_tool_use: "assistant",
  web_search_tool_result: "assistant",
  code_execution_tool_result: "assistant",
  mcp_tool_use: "assistant",
  mcp_tool_result: "assistant",
};

function checkBlock(block: Block, role: string): void {
  const roles = allowedBlocks[block.type] ?? "";
  demand(
    roles.includes(role),
    `messages: ${block.type} blocks are not allowed in ${role} messages`,
  );
  if (block.type === "text") checkText(block);
  if (block.type === "image") checkImage(block);
  if (block.type === "tool_use") checkToolUse(block);
  if (block.type === "tool_result") checkToolResult(block);
  if (block.type === "thinking") {
    textOf(block["thinking"], "thinking.thinking");
    demand(
      textOf(block["signature"], "thinking.signature") !== "",
      "thinking.signature: Field required",
    );
  }
  if (block.type === "redacted_thinking") textOf(block["data"], "redacted_thinking.data");
}

interface Turn {
  role: string;
  blocks: Block[];
}

function turnsOf(body: JsonObject): Turn[] {
  const turns: Turn[] = [];
  for (const [at, item] of listOf(body["messages"], "messages").entries()) {
    const message = objectOf(item, `messages.${at}`);
    const role = textOf(message["role"], `messages.${at}.role`);
    demand(
      role === "user" || role === "assistant",
      `messages.${at}.role: Input should be 'user' or 'assistant'`,
    );
    const blocks = blocksOf(message["content"], `messages.${at}`);
    for (const block of blocks) checkBlock(block, role);
    const last = turns.at(-1);
    if (last?.role === role) last.blocks.push(...blocks);
    else turns.push({ role, blocks });
  }
  demand(turns.length > 0, "messages: at least one message is required");
  demand(turns[0]?.role === "user", "messages: first message must use the user role");
  const last = turns.at(-1);
  const hasPaused = last?.blocks.some(({ type }) => type === "server_tool_use") === true;
  demand(
    last?.role === "user" || hasPaused,
    "This model does not support assistant message prefill.",
  );
  return turns;
}

function idsOf(turn: Turn | undefined, type: string, key: string): string[] {
  return (turn?.blocks ?? [])
    .filter((block) => block.type === type)
    .map((block) => String(block[key]));
}

function checkPairs(turns: readonly Turn[]): void {
  const seen = new Set<string>();
  for (const [at, turn] of turns.entries()) {
    const uses = idsOf(turn, "tool_use", "id");
    for (const id of uses) {
      demand(!seen.has(id), "messages: `tool_use` ids must be unique");
      seen.add(id);
    }
    const answered = idsOf(turns[at + 1], "tool_result", "tool_use_id");
    const missing = uses.filter((id) => !answered.includes(id));
    demand(
      missing.length === 0,
      `messages.${at}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${missing.join(", ")}. ` +
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    );
    checkResults(turn, idsOf(turns[at - 1], "tool_use", "id"), at);
    checkOwnCalls(turn, turns[at + 1]);
  }
}

/** Calls of the vendor's own tools have their results beside them, unless the vendor still waits for ours. */
function checkOwnCalls(turn: Turn, next: Turn | undefined): void {
  if (next === undefined || idsOf(next, "tool_result", "tool_use_id").length > 0) return;
  const answered = turn.blocks.map((block) => block["tool_use_id"]);
  for (const id of idsOf(turn, "server_tool_use", "id")) {
    demand(
      answered.includes(id),
      `messages: \`server_tool_use\` ${id} was found without a corresponding result block`,
    );
  }
}

function checkResults(turn: Turn, asked: readonly string[], at: number): void {
  const results = idsOf(turn, "tool_result", "tool_use_id");
  for (const id of results) {
    demand(
      asked.includes(id),
      `messages.${at}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}`,
    );
  }
  demand(
    new Set(results).size === results.length,
    `messages.${at}: each tool_use must have a single result. Found multiple \`tool_result\` blocks`,
  );
  const leading = turn.blocks
    .slice(0, results.length)
    .every((block) => block.type === "tool_result");
  demand(leading, `messages.${at}: \`tool_result\` blocks must come first in the message`);
}

function toolsOf(body: JsonObject): NormalisedRequest["tools"] {
  if (body["tools"] === undefined) return [];
  const tools = listOf(body["tools"], "tools").map((tool, at) => objectOf(tool, `tools.${at}`));
  checkToolNames(tools.map((tool, at) => textOf(tool["name"], `tools.${at}.name`)));
  return tools.map((tool, at) => {
    const inputSchema = objectOf(tool["input_schema"], `tools.${at}.input_schema`);
    demand(
      inputSchema["type"] === "object",
      `tools.${at}.input_schema.type: Input should be 'object'`,
    );
    return {
      name: String(tool["name"]),
      description: String(tool["description"] ?? ""),
      inputSchema,
    };
  });
}

function checkRange(body: JsonObject, name: string): void {
  const value = body[name];
  if (value === undefined) return;
  demand(typeof value === "number" && value >= 0 && value <= 1, `${name}: range: 0..1`);
}

function checkThinking(body: JsonObject, maxTokens: number): void {
  if (body["thinking"] === undefined) return;
  const thinking = objectOf(body["thinking"], "thinking");
  const on = thinking["type"] === "enabled" || thinking["type"] === "adaptive";
  if (thinking["type"] === "enabled") {
    const budget = thinking["budget_tokens"];
    demand(
      typeof budget === "number" && budget >= 1_024,
      "thinking.budget_tokens: must be at least 1024",
    );
    demand(
      Number(budget) < maxTokens,
      "`max_tokens` must be greater than `thinking.budget_tokens`",
    );
  }
  const { temperature, top_p: topP } = body;
  demand(
    !on || temperature === undefined || temperature === 1,
    "`temperature` may only be set to 1 when thinking is enabled",
  );
  demand(
    !on || topP === undefined || Number(topP) >= 0.95,
    "`top_p` must be >= 0.95 when thinking is enabled",
  );
}

function countMarks(blocks: unknown): number {
  if (!Array.isArray(blocks)) return 0;
  return blocks.filter((item: JsonObject) => item["cache_control"] !== undefined).length;
}

function marksOf(body: JsonObject): number {
  let marks = countMarks(body["system"]) + countMarks(body["tools"]);
  for (const message of listOf(body["messages"], "messages")) {
    marks += countMarks(objectOf(message, "message")["content"]);
  }
  return marks;
}

/** Gone since API version 2026-10-21 (vendor page "Versions"). */
function checkVersion(body: JsonObject, headers: Record<string, string>): void {
  if (headers["anthropic-version"] === "2023-06-01") return;
  for (const name of ["temperature", "top_p", "top_k"]) {
    demand(body[name] === undefined, `${name}: Extra inputs are not permitted`);
  }
}

function checkSettings(body: JsonObject): void {
  for (const name of Object.keys(body)) {
    demand(knownFields.has(name), `${name}: Extra inputs are not permitted`);
  }
  const { max_tokens: maxTokens } = body;
  demand(maxTokens !== undefined, "max_tokens: Field required");
  demand(
    Number.isInteger(maxTokens) && Number(maxTokens) >= 1,
    "max_tokens: Input should be at least 1",
  );
  checkRange(body, "temperature");
  checkRange(body, "top_p");
  checkThinking(body, Number(maxTokens));
  const marks = marksOf(body);
  demand(marks <= 4, `A maximum of 4 blocks with cache_control may be provided. Found ${marks}.`);
}

function systemOf(body: JsonObject): string {
  if (body["system"] === undefined) return "";
  if (typeof body["system"] === "string") return body["system"];
  const blocks = blocksOf(body["system"], "system");
  for (const block of blocks) checkText(block);
  return blocks.map((block) => String(block["text"])).join("\n\n");
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  return Array.isArray(content)
    ? content
        .map((block: JsonObject) => (typeof block["text"] === "string" ? block["text"] : ""))
        .join("")
    : "";
}

function normalise(turn: Turn): NormalisedMessage {
  const results = turn.blocks.filter((block) => block.type === "tool_result");
  const uses = turn.blocks.filter((block) => block.type === "tool_use");
  const texts = turn.blocks.filter((block) => block.type === "text");
  return {
    role:
      turn.role === "assistant"
        ? "assistant"
        : results.length > 0 && texts.length === 0
          ? "tool"
          : "user",
    text: contentText(texts),
    blocks: texts.map((block) => String(block["text"])),
    calls: uses.map((use) => ({
      id: String(use["id"]),
      name: String(use["name"]),
      arguments: JSON.stringify(use["input"]),
    })),
    results: results.map((result) => ({
      id: String(result["tool_use_id"]),
      content: contentText(result["content"]),
      isError: result["is_error"] === true,
    })),
  };
}

/** Checks a body of `POST /v1/messages` as strictly as the vendor and reads it. */
export function readAnthropic(
  body: JsonObject,
  headers: Record<string, string>,
): Omit<NormalisedRequest, "headers"> {
  checkVersion(body, headers);
  const model = textOf(body["model"], "model");
  checkSettings(body);
  const tools = toolsOf(body);
  const system = systemOf(body);
  const turns = turnsOf(body);
  checkPairs(turns);
  return {
    dialect: "anthropic",
    model,
    system,
    messages: turns.map(normalise),
    tools,
    body,
  };
}

function event(data: JsonObject): string {
  return frame(data, String(data["type"]));
}

function blockFrames(index: number, start: JsonObject, deltas: readonly JsonObject[]): string[] {
  return [
    event({ type: "content_block_start", index, content_block: start }),
    ...deltas.map((delta) => event({ type: "content_block_delta", index, delta })),
    event({ type: "content_block_stop", index }),
  ];
}

function thinkingFrames(thinking: NonNullable<ScriptedReply["thinking"]>): string[] {
  if ("redacted" in thinking) {
    return blockFrames(0, { type: "redacted_thinking", data: thinking.redacted }, []);
  }
  return blockFrames(0, { type: "thinking", thinking: "", signature: "" }, [
    ...piecesOf(thinking.text).map((piece) => ({ type: "thinking_delta", thinking: piece })),
    { type: "signature_delta", signature: thinking.signature ?? freshId("sig") },
  ]);
}

function callStart(reply: ScriptedReply, at: number): JsonObject {
  const call = reply.calls?.[at];
  return { type: "tool_use", id: call?.id ?? freshId("toolu_"), name: call?.name ?? "", input: {} };
}

function interleavedCalls(reply: ScriptedReply, base: number): string[] {
  const frames: string[] = [];
  for (const { index, first, piece } of callPieces(reply)) {
    const at = base + index;
    if (first) {
      frames.push(
        event({ type: "content_block_start", index: at, content_block: callStart(reply, index) }),
      );
    }
    frames.push(
      event({
        type: "content_block_delta",
        index: at,
        delta: { type: "input_json_delta", partial_json: piece },
      }),
    );
  }
  for (const at of (reply.calls ?? []).keys()) {
    frames.push(event({ type: "content_block_stop", index: base + at }));
  }
  return frames;
}

function callFrames(reply: ScriptedReply, base: number): string[] {
  if (reply.interleaved === true) return interleavedCalls(reply, base);
  return (reply.calls ?? []).flatMap((call, at) => {
    const text = argumentsOf(call);
    const middle = Math.ceil(text.length / 2);
    const pieces = ["", text.slice(0, middle), text.slice(middle)];
    return blockFrames(
      base + at,
      callStart(reply, at),
      pieces.map((piece) => ({ type: "input_json_delta", partial_json: piece })),
    );
  });
}

/** The frames of one answer, as the vendor streams them. */
export function writeAnthropic(reply: ScriptedReply, request: NormalisedRequest): string[] {
  const usage = usageOf(reply, request);
  const stopReason = reply.stopReason ?? ((reply.calls?.length ?? 0) > 0 ? "tool_use" : "end_turn");
  const counts = {
    input_tokens: usage.inputTokens,
    cache_creation_input_tokens: usage.cacheCreationTokens,
    cache_read_input_tokens: usage.cacheReadTokens,
  };
  const id = reply.responseId ?? freshId("msg_");
  const message = { id, type: "message", role: "assistant", model: request.model, content: [] };
  const frames = [
    event({
      type: "message_start",
      message: { ...message, stop_reason: null, usage: { ...counts, output_tokens: 1 } },
    }),
  ];
  let index = 0;
  if (reply.thinking !== undefined) {
    frames.push(...thinkingFrames(reply.thinking));
    index += 1;
  }
  const pieces = piecesOf(reply.text);
  if (pieces.length > 0) {
    const deltas = pieces.map((text) => ({ type: "text_delta", text }));
    frames.push(...blockFrames(index, { type: "text", text: "" }, deltas));
    index += 1;
  }
  frames.push(...callFrames(reply, index));
  const delta = { stop_reason: stopReason, stop_sequence: null };
  frames.push(
    event({
      type: "message_delta",
      delta,
      usage: { ...counts, output_tokens: usage.outputTokens },
    }),
  );
  frames.push(event({ type: "message_stop" }));
  return frames;
}
