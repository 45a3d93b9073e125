import { ApiApproval } from "@larkline/protocol";
import { eventSchemas } from "@larkline/protocol/views/engine-events";
import {
  FunctionCall,
  FunctionCallOutput,
  itemSchemas,
  ItemUsage,
  OutputMessage,
} from "@larkline/protocol/views/run-items";
import { RunReport } from "@larkline/protocol/views/run-api";
import { typesModule } from "./type-text.ts";

const heading = `// Written by \`npm run pack -- --types\` from the schemas of packages/protocol: what the server sends.`;

const pascal = (name: string): string =>
  name.replaceAll(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase()).replace(/^Mcp/, "MCP");

/** packages/sdk/src/wire-types.ts, for those who install the SDK without the schemas. */
export function sdkTypes(): string {
  const events = Object.entries(eventSchemas).map(([type, schema]) => [`${pascal(type)}Event`, schema] as const);
  const items = Object.entries(itemSchemas).map(([type, schema]) => [pascal(type), schema] as const);
  const unions = [
    `/** Something that happens in a run, told apart by \`type\`. */\nexport type EngineEvent = ${events.map(([name]) => name).join(" | ")};\n`,
    `/** Something that a run has produced, told apart by \`type\`. */\nexport type RunItem = ${items.map(([name]) => name).join(" | ")};\n`,
  ];
  const named = {
    ...Object.fromEntries(events),
    OutputMessage,
    FunctionCall,
    FunctionCallOutput,
    ...Object.fromEntries(items),
    Usage: ItemUsage,
    Approval: ApiApproval,
    RunReport,
  };
  return [typesModule(heading, named), ...unions].join("\n");
}
