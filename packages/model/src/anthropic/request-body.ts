import type Anthropic from "@anthropic-ai/sdk";
import { outputLimit, type ModelInfo, type ModelRequest } from "../index.ts";
import type { ModelWarning } from "@larkline/protocol";
import { markHistory, systemWithMarks } from "./cache-marks.ts";
import { vendorTurns, type VendorTurn } from "./message-blocks.ts";

/** The newest API version has no sampling values any more (vendor page "Versions"); see {@link RequestBody}. */
type Body = Anthropic.Messages.MessageCreateParamsStreaming & { temperature?: number; top_p?: number };
type Tool = Anthropic.Messages.Tool;

/** The vendor's least thinking budget, and what has to be left for the answer. */
const leastBudget = 1_024;
const answerTokens = 1_024;
const thinkingBudgets = { low: 2_048, medium: 8_192, high: 16_384 };

/** Models that take a fixed thinking budget; later ones decide themselves (vendor guide "Adaptive thinking"). */
const fixedBudget = /^claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-\d{8}|$))/;

export interface RequestBody {
  body: Body;
  /** Pins the last API version that takes sampling values, when there are any. */
  headers: Record<string, string>;
  warnings: ModelWarning[];
}

/** A fixed budget needs thinking at the start of a tool loop; a loop begun by another model has none. */
function loopHasThinking(turns: readonly VendorTurn[]): boolean {
  const last = turns.findLast((turn) => turn.role === "assistant");
  const inLoop = turns.at(-1)?.content.some((block) => block.type === "tool_result") === true;
  const first = last?.content[0]?.type;
  return !inLoop || first === "thinking" || first === "redacted_thinking";
}

interface Thinking {
  fields: Partial<Body>;
  warnings: ModelWarning[];
}

function thinkingOf(request: ModelRequest, turns: readonly VendorTurn[], maxTokens: number): Thinking {
  const asks = request.needsThinking === true;
  if (!fixedBudget.test(request.model)) {
    const effort = request.effort === undefined ? {} : { output_config: { effort: request.effort } };
    // Later models hide their thinking unless asked, and with it what they say between tool calls.
    const thinking = asks ? { thinking: { type: "adaptive" as const, display: "summarized" as const } } : {};
    return { fields: { ...thinking, ...effort }, warnings: [] };
  }
  if (!asks || !loopHasThinking(turns)) return { fields: {}, warnings: [] };
  // The budget counts towards the limit, which is the caller's word.
  const budget = Math.min(thinkingBudgets[request.effort ?? "medium"], maxTokens - answerTokens);
  if (budget >= leastBudget) return { fields: { thinking: { type: "enabled", budget_tokens: budget } }, warnings: [] };
  const message = `A limit of ${maxTokens} output tokens leaves no room for thinking; none is asked for.`;
  return { fields: {}, warnings: [{ type: "warning", code: "thinking_dropped", message }] };
}

interface Override {
  value: number;
  warning?: ModelWarning;
}

function overridden(code: string, name: string, value: number): Override {
  return {
    value: 1,
    warning: { type: "warning", code, message: `${name} ${value} does not go with thinking; 1.0 is sent.` },
  };
}

/** The two values that thinking is known to refuse (vendor guide "Extended thinking"). */
function samplingOf(request: ModelRequest, thinks: boolean): { fields: Partial<Body>; warnings: ModelWarning[] } {
  const temperature = request.temperature ?? null;
  const topP = request.topP ?? null;
  const fields: Partial<Body> = {};
  const warnings: ModelWarning[] = [];
  const apply = (name: "temperature" | "top_p", override: Override) => {
    fields[name] = override.value;
    if (override.warning !== undefined) warnings.push(override.warning);
  };
  if (temperature !== null) {
    const conflict = thinks && temperature !== 1;
    apply(
      "temperature",
      conflict ? overridden("temperature_overridden", "temperature", temperature) : { value: temperature },
    );
  }
  if (topP !== null) {
    apply("top_p", thinks && topP < 0.95 ? overridden("top_p_overridden", "topP", topP) : { value: topP });
  }
  return { fields, warnings };
}

function toolsOf(request: ModelRequest): Tool[] {
  return (request.tools ?? []).map((tool) => ({
    name: tool.name,
    description: tool.description,
    input_schema: { ...tool.inputSchema, type: "object" },
  }));
}

/** The vendor binds an answer to a schema, and knows no form of "any JSON object". */
function formatOf({ responseFormat: format }: ModelRequest, info: Readonly<ModelInfo>): Body["output_config"] {
  if (format?.type !== "json_schema" || format.jsonSchema === undefined || !info.supportsJsonSchema) return {};
  return { format: { type: "json_schema", schema: format.jsonSchema } };
}

/** The vendor's request. */
export function requestBody(request: ModelRequest, info: Readonly<ModelInfo>): RequestBody {
  const turns = vendorTurns(request.messages, request.model);
  const tools = toolsOf(request);
  const system = systemWithMarks(request, info);
  markHistory({ system, tools, turns }, info);
  const maxTokens = outputLimit(request, info);
  const thinking = info.supportsThinking ? thinkingOf(request, turns, maxTokens) : { fields: {}, warnings: [] };
  const sampling = samplingOf(request, thinking.fields.thinking !== undefined);
  const outputConfig = { ...thinking.fields.output_config, ...formatOf(request, info) };
  const samples = Object.keys(sampling.fields).length > 0;
  return {
    headers: samples ? { "anthropic-version": "2023-06-01" } : {},
    body: {
      model: request.model,
      max_tokens: maxTokens,
      stream: true,
      ...(system.length > 0 ? { system } : {}),
      messages: turns,
      ...(tools.length > 0 ? { tools } : {}),
      ...thinking.fields,
      ...(Object.keys(outputConfig).length > 0 ? { output_config: outputConfig } : {}),
      ...sampling.fields,
    },
    warnings: [...thinking.warnings, ...sampling.warnings],
  };
}
