import { ApiApproval, ApiQuestion } from "@larkline/protocol/views/api-approval";
import {
  agentEventSchemas,
  chatMessageSchemas,
  StructuredMessage,
} from "@larkline/protocol/views/chat-messages";
import { eventSchemas } from "@larkline/protocol/views/engine-events";
import { RunReport } from "@larkline/protocol/views/run-api";
import {
  FunctionCall,
  FunctionCallOutput,
  itemSchemas,
  ItemUsage,
  OutputMessage,
} from "@larkline/protocol/views/run-items";
import { typesModule, typeText } from "./type-text.ts";

const heading = `// Written by \`npm run pack -- --types\` from the schemas of packages/protocol: what the server sends.`;

const pascal = (name: string): string =>
  name
    .replaceAll(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())
    .replace(/^Mcp/, "MCP");

/** packages/sdk/src/wire-types.ts, for those who install the SDK without the schemas. */
export function sdkTypes(): string {
  const events = Object.entries(eventSchemas).map(
    ([type, schema]) => [`${pascal(type)}Event`, schema] as const,
  );
  const items = Object.entries(itemSchemas).map(
    ([type, schema]) => [pascal(type), schema] as const,
  );
  const unions = [
    `/** Something that happens in a run, distinguished by \`type\`. */\nexport type EngineEvent = ${events.map(([name]) => name).join(" | ")};\n`,
    `/** Something that a run has produced, distinguished by \`type\`. */\nexport type RunItem = ${items.map(([name]) => name).join(" | ")};\n`,
  ];
  const named = {
    ...Object.fromEntries(events),
    OutputMessage,
    FunctionCall,
    FunctionCallOutput,
    ...Object.fromEntries(items),
    Usage: ItemUsage,
    Approval: ApiApproval,
    Question: ApiQuestion,
    RunReport,
  };
  return [typesModule(heading, named), ...unions, ...messageTypes()].join("\n");
}

/** The messages of the view `messages`. Their classes have no names of their own here: events have some of them. */
function messageTypes(): string[] {
  const structured = textOf([StructuredMessage]).replace(
    "type: string;",
    "type: `StructuredMessage[${string}]`;",
  );
  return [
    `/** What persons and agents say, distinguished by \`type\`. */\nexport type ChatMessage = ${textOf(Object.values(chatMessageSchemas))};\n`,
    `/** What agents report to people and programs, distinguished by \`type\`. */\nexport type AgentEvent = ${textOf(Object.values(agentEventSchemas))};\n`,
    `/** An answer in a form of its own, whose name is in \`type\`. */\nexport type StructuredMessage = ${structured};\n`,
    "/** A message of the view `messages`. */\nexport type RunMessage = ChatMessage | AgentEvent | StructuredMessage;\n",
  ];
}

function textOf(schemas: readonly object[]): string {
  return schemas.map((schema) => typeText(whole(schema), new Map())).join(" | ");
}

/** The schema of what is sent: fields that may be absent in what is read are always there. */
function whole(schema: unknown): Record<string, unknown> {
  if (typeof schema !== "object" || schema === null) return {};
  const entries = Object.entries(schema).map(([key, value]: [string, unknown]) => [
    key,
    wholeKeyword(key, value),
  ]);
  const complete = Object.fromEntries(entries) as Record<string, unknown>; // of a JSON object
  const { properties } = complete;
  if (typeof properties !== "object" || properties === null) return complete;
  return { ...complete, required: Object.keys(properties) };
}

function wholeKeyword(key: string, value: unknown): unknown {
  if (key === "items") return whole(value);
  if (key === "anyOf" && Array.isArray(value)) return value.map(whole);
  const isMap =
    (key === "properties" || key === "patternProperties") &&
    typeof value === "object" &&
    value !== null;
  return isMap
    ? Object.fromEntries(Object.entries(value).map(([name, field]) => [name, whole(field)]))
    : value;
}
