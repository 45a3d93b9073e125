import { createHash } from "node:crypto";
import { ProtocolError, type Client, type Progress, type Tool as ListedTool } from "@modelcontextprotocol/client";
import { defineTool, OutcomeUnknownError, type Tool, type ToolContext } from "@larkline/tool-kit";
import { textOfResource, textOfResult } from "./result.ts";
import type { McpServer, McpToolPolicy } from "./server.ts";

/** Hands out the connected client, waiting for it if need be. */
export type ClientSource = (signal: AbortSignal) => Promise<Client>;

const longestName = 64;
/** As of tools that are written here, in characters. */
const longestSchema = 65_536;

/** `<server>_<tool>` in the characters that all vendors accept; what had to be changed or cut ends in a hash. */
export function mountedName(server: string, tool: string): string {
  const wanted = `${server}_${tool}`;
  const clean = wanted.replaceAll(/[^A-Za-z0-9_-]/g, "_");
  if (clean === wanted && clean.length <= longestName) return clean;
  const hash = createHash("sha256").update(wanted).digest("hex").slice(0, 8);
  return `${clean.slice(0, longestName - 9)}_${hash}`;
}

/**
 * An answer of the server is final. Anything else (the connection broke, no answer in time) leaves
 * open whether the server did what it was asked to.
 */
function asFailure(error: unknown): Error {
  if (error instanceof ProtocolError) return new Error(`the server refused: ${error.message}`);
  return new OutcomeUnknownError(error instanceof Error ? error.message : String(error));
}

interface CallOptions {
  signal: AbortSignal;
  timeout: number;
  onprogress: (progress: Progress) => void;
}

function callOptions(context: ToolContext, timeoutMs: number): CallOptions {
  return {
    signal: context.signal,
    timeout: timeoutMs,
    onprogress: ({ progress, total, message }) =>
      context.progress(total === undefined || total <= 0 ? 0 : progress / total, message),
  };
}

async function callListed(
  { name }: ListedTool,
  input: Record<string, unknown>,
  { client, context, timeoutMs }: { client: Client; context: ToolContext; timeoutMs: number },
): Promise<string> {
  const result = await client
    .callTool({ name, arguments: input }, callOptions(context, timeoutMs))
    .catch((error: unknown) => Promise.reject(asFailure(error)));
  const text = await textOfResult(result, context);
  if (result.isError === true) throw new Error(text === "" ? "the tool failed without a message" : text);
  return text;
}

function policyOf({ policyOf: decide }: McpServer, { name, annotations = {} }: ListedTool): McpToolPolicy {
  const readOnly = annotations.readOnlyHint === true;
  return decide({ name, readOnly, idempotent: readOnly || annotations.idempotentHint === true });
}

/**
 * The schema as models are told it. Only the server checks arguments against it: here a pattern of a
 * stranger could hold this process up for ever.
 */
function foreignSchema({ inputSchema }: ListedTool): Record<string, unknown> {
  const { $schema: _draft, ...schema } = inputSchema;
  const { length } = JSON.stringify(schema);
  if (length > longestSchema) {
    throw new RangeError(`its input schema has ${length} characters, more than ${longestSchema}`);
  }
  return schema;
}

/** A tool of a server as one of ours; undefined when policy hides it. Throws when vendors would refuse it, or its schema is too long. */
export function mountedTool(server: McpServer, listed: ListedTool, clients: ClientSource): Tool | undefined {
  const policy = policyOf(server, listed);
  if (policy.hidden) return undefined;
  const { effect, requiresApproval, timeoutMs, risk } = policy;
  const description = (listed.description ?? listed.title ?? listed.name).slice(0, 8_000);
  const tool = defineTool({
    name: mountedName(server.name, listed.name),
    description,
    input: { type: "object" },
    effect,
    requiresApproval,
    risk,
    timeoutMs,
    // The server itself is what is isolated: this only passes messages on.
    isolation: "inline",
    savesFiles: true,
    run: async (given: Record<string, unknown>, context) => {
      const client = await clients(context.signal);
      return await callListed(listed, given, { client, context, timeoutMs });
    },
  });
  return { ...tool, inputSchema: foreignSchema(listed) };
}

/** Reads what results only link to. */
export function resourceReader(server: McpServer, clients: ClientSource): Tool {
  const timeoutMs = 60_000;
  return defineTool({
    name: mountedName(server.name, "read_resource"),
    description: `Reads a resource of the MCP server "${server.name}" by the URI that one of its tools named.`,
    input: {
      type: "object",
      properties: { uri: { type: "string", maxLength: 2_000 } },
      required: ["uri"],
      additionalProperties: false,
    },
    effect: "pure",
    timeoutMs,
    isolation: "inline",
    savesFiles: true,
    run: async (input, context) => {
      const client = await clients(context.signal);
      const resource = await client.readResource({ uri: String(input["uri"]) }, callOptions(context, timeoutMs));
      return await textOfResource(resource, context);
    },
  });
}
