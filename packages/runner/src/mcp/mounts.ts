import { createHash } from "node:crypto";
import {
  deadline,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import type { ToolEffect } from "@larkline/protocol/tool";
import { mcpToolSettings, type Env, type McpServerConfig } from "@larkline/process/config";
import { createGuardedFetch, type SandboxCommand, type SandboxSession } from "@larkline/sandbox";
import {
  type Tool,
  defineTool,
  InputRequiredError,
  OutcomeUnknownError,
  type ToolContext,
} from "@larkline/tool-kit";
import type {
  Client,
  Tool as ListedTool,
  Progress,
  CallToolResult,
  ReadResourceResult,
  InputRequiredResult,
} from "@modelcontextprotocol/client";
import {
  type McpEvent,
  type McpTransport,
  connectForCall,
  connectMcp,
  loadSdk,
  type McpServer,
  type McpToolPolicy,
} from "./connection.ts";
import { askedBy, Elicitations } from "./elicitation.ts";

interface McpMountsOptions {
  servers: readonly McpServerConfig[];
  /** Where the variables are that servers name. */
  environment: Env;
  /** Starts a server that is a program, contained. */
  openSession(command: SandboxCommand): Promise<SandboxSession>;
  /** What is offered is another list now. */
  onChange(): void;
  onEvent(event: McpEvent): void;
  clock?: Clock | undefined;
  random?: Random | undefined;
}

/** Mounts servers, from `start` on. */
export function openMcpMounts(options: McpMountsOptions): McpMounts {
  return new OpenMounts(options);
}

/** The tools of all MCP servers that a runner mounts. */
export interface McpMounts {
  /** Begins to connect; the tools of servers come as these are reached. To be called once. */
  start(): void;
  /** Of two servers whose tools come to the same name, the one named first has it. */
  tools(): Tool[];
  find(name: string): Tool | undefined;
  /** Name of the server that gives a tool; undefined when none does. */
  serverOf(name: string): string | undefined;
  /** Whether a tool of this name may come yet: its server was not reached since this process has started. */
  awaits(name: string): boolean;
  /** Leaves a tool out for a while, because another runner offers it with another definition. False when it is none of these. */
  exclude(name: string): boolean;
  close(): Promise<void>;
}

/** What a server names and the environment lacks, a line each. */
export function missingVariables(server: McpServerConfig, environment: Env): string[] {
  return Object.values(variablesOf(server))
    .filter((variable) => (environment[variable] ?? "") === "")
    .map(
      (variable) => `mcp.servers.${server.name} needs the variable ${variable}, which is not set.`,
    );
}

/** Then the other one may be gone, or have followed the same change. */
const excludedMs = 15_000;

class OpenMounts implements McpMounts {
  readonly #options: McpMountsOptions;
  readonly #clock: Clock;
  readonly #excludedUntilMs = new Map<string, number>();
  #mounts: readonly McpMount[] = [];

  constructor(options: McpMountsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  start(): void {
    const options = this.#options;
    const { onChange, onEvent, random = systemRandom } = options;
    const clock = this.#clock;
    this.#mounts = options.servers.map((server) =>
      mountMcpServer(
        {
          name: server.name,
          transport: transportOf(server, options),
          policyOf: (hints) => mcpToolSettings(server, hints),
          connectTimeoutMs: server.connectTimeoutMs,
          elicitation: server.elicitation,
        },
        { onChange, onEvent, clock, random },
      ),
    );
  }

  tools(): Tool[] {
    const nowMs = this.#clock.monotonic();
    const isOffered = ({ name }: Tool): boolean => (this.#excludedUntilMs.get(name) ?? 0) <= nowMs;
    return this.#all().filter(isOffered);
  }

  find(name: string): Tool | undefined {
    return this.#all().find((tool) => tool.name === name);
  }

  serverOf(name: string): string | undefined {
    return this.#mounts.find((mount) => mount.tools().some((tool) => tool.name === name))?.server;
  }

  awaits(name: string): boolean {
    const isListed = (server: string): boolean =>
      this.#mounts.some((mount) => mount.server === server && mount.listed());
    return this.#options.servers.some(
      (server) => name.startsWith(`${server.name}_`) && !isListed(server.name),
    );
  }

  exclude(name: string): boolean {
    if (this.find(name) === undefined) return false;
    this.#excludedUntilMs.set(name, this.#clock.monotonic() + excludedMs);
    return true;
  }

  async close(): Promise<void> {
    await Promise.all(this.#mounts.map(async (mount) => await mount.close()));
  }

  #all(): Tool[] {
    const byName = new Map<string, Tool>();
    for (const tool of this.#mounts.flatMap((mount) => mount.tools())) {
      if (!byName.has(tool.name)) byName.set(tool.name, tool);
    }
    return [...byName.values()];
  }
}

function transportOf(
  server: McpServerConfig,
  { environment, openSession }: McpMountsOptions,
): McpTransport {
  const { access } = server;
  const values = valuesOf(variablesOf(server), environment);
  if (access.kind === "http") {
    return {
      kind: "http",
      url: new URL(access.url),
      headers: values,
      fetch: createGuardedFetch(access.allowPrivate ? { allowPrivate: () => true } : {}),
    };
  }
  const { command, args, readable, network } = access;
  const open = async (): Promise<SandboxSession> => {
    const session = await openSession({ command, args, readable, network, env: values });
    session.stderr.resume(); // an unread pipe would stop the server once it is full
    return session;
  };
  return { kind: "stdio", open };
}

/** Values of the named variables; {@link missingVariables} has made sure that they are there. */
function valuesOf(
  names: Readonly<Record<string, string>>,
  environment: Env,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(names).map(([key, variable]) => [key, environment[variable] ?? ""]),
  );
}

/** Variables that a server names, by what they become: names of variables, or of headers. */
function variablesOf({ access }: McpServerConfig): Readonly<Record<string, string>> {
  return access.kind === "http"
    ? access.headers
    : Object.fromEntries(access.env.map((name) => [name, name]));
}

/** Mounts a server: connects in the background, follows its list of tools, comes back after every break. */
export function mountMcpServer(
  server: McpServer,
  { onChange, onEvent, clock, random }: MountOptions,
): McpMount {
  let tools: readonly Tool[] = [];
  let isConnected = false;
  let isListed = false;

  const mount = (listed: readonly ListedTool[], client: Client): Tool[] => {
    const mounted = new Map<string, Tool>();
    const add = (name: string, make: () => Tool | undefined): void => {
      try {
        const tool = make();
        if (tool !== undefined) mounted.set(tool.name, tool);
      } catch (error) {
        onEvent({
          type: "tool_refused",
          server: server.name,
          tool: name,
          reason: messageOf(error),
        });
      }
    };
    // First, so that a tool of the server with that name wins.
    if (client.getServerCapabilities()?.resources !== undefined) {
      add("read_resource", () => resourceReader(server, clients));
    }
    let left = maxListCharacters;
    for (const tool of listed) {
      left -= JSON.stringify([tool.description, tool.inputSchema]).length;
      const isTooMuch = left < 0;
      add(tool.name, () => {
        if (isTooMuch) {
          throw new RangeError(`the list of tools has more than ${maxListCharacters} characters`);
        }
        return mountedTool(server, tool, { clients, clock });
      });
    }
    return [...mounted.values()];
  };

  const connection = connectMcp({
    server,
    onTools: (listed, client) => {
      tools = mount(listed, client);
      isListed = true;
      onChange();
    },
    onEvent: (event) => {
      isConnected = event.type === "connected";
      onEvent(event);
    },
    clock,
    random,
  });
  const clients: ClientSource = {
    get: async (signal) => await connection.client(signal),
    renew: async (client) => await connection.renew(client),
  };

  return {
    server: server.name,
    tools: () => tools,
    connected: () => isConnected,
    listed: () => isListed,
    close: async () => await connection.close(),
  };
}

/** A server whose tools can be called like any others. */
export interface McpMount {
  /** Its name. */
  readonly server: string;
  /**
   * Its tools as last listed; empty until it was reached for the first time. They stay while the
   * connection is lost: a call waits for it, up to its own deadline.
   */
  tools(): readonly Tool[];
  /** Whether it has ever said which tools it has. */
  listed(): boolean;
  /** Whether it is connected now. */
  connected(): boolean;
  /** Ends the connection, and a server that was started for it. Idempotent. */
  close(): Promise<void>;
}

interface MountOptions {
  /** The list is another one now. */
  onChange(): void;
  onEvent(event: McpEvent): void;
  clock?: Clock;
  random?: Random;
}

/** Limits all that one server says of its tools: it is announced every few seconds, and models read it. */
const maxListCharacters = 1_048_576;

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface ClientSource {
  /** The connected client, waiting for it if need be. */
  get(signal: AbortSignal): Promise<Client>;
  /** The server does not know the session of this client any more. */
  renew(client: Client): Promise<void>;
}

/** A tool of a server as one of ours; undefined when policy hides it. Throws when vendors would refuse it, or its schema is too long. */
export function mountedTool(
  server: McpServer,
  listed: ListedTool,
  { clients, clock = systemClock }: { clients: ClientSource; clock?: Clock | undefined },
): Tool | undefined {
  const policy = policyOf(server, listed);
  if (policy.hidden) return undefined;
  const { effect, requiresApproval, timeoutMs, risk } = policy;
  const description = (listed.description ?? listed.title ?? listed.name).slice(0, 8_000);
  const title = (listed.title ?? listed.annotations?.title ?? "").trim().slice(0, 100);
  const tool = defineTool({
    name: mountedName(server.name, listed.name),
    ...(title === "" ? {} : { title }),
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
      const call = { server: server.name, context, timeoutMs };
      const wait = { signal: context.signal, timeoutMs, clock };
      const client = await connected(server, async (signal) => await clients.get(signal), wait);
      const mayAskInside =
        server.elicitation && effect !== "once" && client.getProtocolEra() !== "modern";
      if (!mayAskInside) {
        const run = async (known: Client) =>
          await callListed(listed, given, { ...call, client: known });
        return await inLivingSession(run, client, { clients, effect, signal: context.signal });
      }
      const asked = new Elicitations(server.name, context.input, clock);
      const open = async (signal: AbortSignal): ReturnType<typeof connectForCall> =>
        await connectForCall(server, { ask: (request) => asked.answer(request), signal, clock });
      const own = await connected(server, open, wait);
      try {
        return await callListed(listed, given, { ...call, client: own.client, asked });
      } finally {
        asked.close();
        await own.close();
      }
    },
  });
  return { ...tool, inputSchema: foreignSchema(listed) };
}

/** The server has not done what it was asked for, because it has forgotten the session. */
class SessionForgottenError extends Error {}

/** A call that a server refused because it has forgotten its sessions is made once more in a new one, if it may be repeated. */
async function inLivingSession<T>(
  run: (client: Client) => Promise<T>,
  client: Client,
  { clients, effect, signal }: { clients: ClientSource; effect: ToolEffect; signal: AbortSignal },
): Promise<T> {
  try {
    return await run(client);
  } catch (error) {
    if (!(error instanceof SessionForgottenError)) throw error;
    await clients.renew(client);
    if (effect === "once") throw error;
    return await run(await clients.get(signal));
  }
}

/** What is left of the time of a call when it gives up waiting for the connection. */
const spareShare = 0.1;

/** What is connected, as soon as it is. A call that has not reached its server in time has surely done nothing. */
async function connected<T>(
  { name }: McpServer,
  connect: (signal: AbortSignal) => Promise<T>,
  { signal, timeoutMs, clock }: { signal: AbortSignal; timeoutMs: number; clock: Clock },
): Promise<T> {
  const late = deadline(clock, Math.floor(timeoutMs * (1 - spareShare)));
  try {
    return await connect(AbortSignal.any([signal, late]));
  } catch (error) {
    signal.throwIfAborted();
    const why = late.aborted ? "it is not connected" : messageOf(error);
    throw new Error(`mcp_connection_error: the MCP server ${name} was not reached: ${why}`, {
      cause: error,
    });
  }
}

const longestName = 64;

/** As of tools that are written here, in characters. */
const longestSchema = 65_536;

/** `<server>_<tool>` in the characters that all vendors accept; what had to be changed or cut ends in a hash. */
function mountedName(server: string, tool: string): string {
  const wanted = `${server}_${tool}`;
  const clean = wanted.replaceAll(/[^A-Za-z0-9_-]/g, "_");
  if (clean === wanted && clean.length <= longestName) return clean;
  const hash = createHash("sha256").update(wanted).digest("hex").slice(0, 8);
  return `${clean.slice(0, longestName - 9)}_${hash}`;
}

function policyOf(
  { policyOf: decide }: McpServer,
  { name, annotations = {} }: ListedTool,
): McpToolPolicy {
  const readOnly = annotations.readOnlyHint === true;
  return decide({ name, readOnly, idempotent: readOnly || annotations.idempotentHint === true });
}

/**
 * The schema as models read it. Only the server checks arguments against it: here a pattern of a
 * stranger could block this process without end.
 */
function foreignSchema({ inputSchema }: ListedTool): Record<string, unknown> {
  const { $schema: _draft, ...schema } = inputSchema;
  const { length } = JSON.stringify(schema);
  if (length > longestSchema) {
    throw new RangeError(`its input schema has ${length} characters, more than ${longestSchema}`);
  }
  return schema;
}

interface ListedCall {
  server: string;
  client: Client;
  context: ToolContext;
  timeoutMs: number;
  /** What a server of an older revision asks inside the call, on a connection for this call alone. */
  asked?: Elicitations;
}

/**
 * Calls a tool of the server. Where the server asks people first, the call ends in an {@link InputRequiredError}, and the
 * answers come with the next attempt, to whichever instance of this runner has it.
 */
async function callListed(
  { name }: ListedTool,
  input: Record<string, unknown>,
  { server, client, context, timeoutMs, asked }: ListedCall,
): Promise<string> {
  const { input: given } = context;
  const isStateless = client.getProtocolEra() === "modern";
  const answers =
    given === undefined ? {} : { inputResponses: given.responses, ...stateOf(given.state) };
  const params = { name, arguments: input, ...(isStateless ? { ...answers, _meta: mayAsk } : {}) };
  const options = callOptions(context, timeoutMs);
  if (asked !== undefined) options.signal = AbortSignal.any([options.signal, asked.signal]);
  const result: CallToolResult | InputRequiredResult = await client
    .callTool(params, { ...options, allowInputRequired: isStateless })
    .catch(async (error: unknown) => await Promise.reject(asked?.open ?? (await asFailure(error))));
  if (asked?.open !== undefined) throw asked.open;
  if (isInputRequired(result)) {
    const needed = askedBy(server, result);
    throw needed.ok
      ? new InputRequiredError(needed.value)
      : new Error(`${needed.error}. It did nothing`);
  }
  const text = await textOfResult(result, context);
  if (result.isError === true) {
    throw new Error(text === "" ? "the tool failed without a message" : text);
  }
  return text;
}

/** Said with calls alone: what a server may ask while it is called, people can be asked. Addresses to visit are not. */
const mayAsk = { "io.modelcontextprotocol/clientCapabilities": { elicitation: { form: {} } } };

function stateOf(state: string | undefined): { requestState?: string } {
  return state === undefined ? {} : { requestState: state };
}

function isInputRequired(
  result: CallToolResult | InputRequiredResult,
): result is InputRequiredResult {
  return (result as { resultType?: unknown }).resultType === "input_required";
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

/**
 * An answer of the server is final. Anything else (the connection broke, no answer in time) leaves
 * open whether the server did what it was asked to.
 */
async function asFailure(error: unknown): Promise<Error> {
  const { ProtocolError, SdkHttpError } = await loadSdk();
  if (SdkHttpError.isInstance(error) && isForgotten(error)) {
    return new SessionForgottenError(
      `mcp_connection_error: the server has lost its sessions; the call was not made`,
    );
  }
  if (error instanceof ProtocolError) return new Error(`the server refused: ${error.message}`);
  return new OutcomeUnknownError(`mcp_connection_error: ${messageOf(error)}`);
}

/** As the protocol says it, and as many servers do. */
function isForgotten({ status, message }: { status: number; message: string }): boolean {
  return status === 404 || (status === 400 && /session/i.test(message));
}

/** Reads what results only link to. */
function resourceReader(server: McpServer, clients: ClientSource): Tool {
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
      const read = async (client: Client): Promise<ReadResourceResult> =>
        await client
          .readResource({ uri: String(input["uri"]) }, callOptions(context, timeoutMs))
          .catch(async (error: unknown) => await Promise.reject(await asFailure(error)));
      const { signal } = context;
      const resource = await inLivingSession(read, await clients.get(signal), {
        clients,
        effect: "pure",
        signal,
      });
      return await textOfResource(resource, context);
    },
  });
}

/** What the model reads: the parts of the result in order, or its structured form when there are none. */
async function textOfResult(result: CallToolResult, context: ToolContext): Promise<string> {
  const text = await textOfParts(result.content, async (part) => await partText(part, context));
  if (result.content.length > 0) return text;
  return result.structuredContent === undefined ? "" : JSON.stringify(result.structuredContent);
}

/** The contents of a resource, as the model reads them. */
async function textOfResource(
  { contents }: ReadResourceResult,
  context: ToolContext,
): Promise<string> {
  return await textOfParts(contents, async (resource) => await resourceText(resource, context));
}

/** Most parts of one result or resource: each may be a file that is kept. */
const maxParts = 200;

async function textOfParts<T>(
  parts: readonly T[],
  textOf: (part: T) => Promise<string>,
): Promise<string> {
  const texts: string[] = [];
  for (const part of parts.slice(0, maxParts)) texts.push(await textOf(part));
  const left = parts.length - texts.length;
  return [...texts, ...(left === 0 ? [] : [`[${left} further parts were left out]`])].join("\n");
}

type Content = CallToolResult["content"][number];

type Resource = ReadResourceResult["contents"][number];

async function partText(part: Content, context: ToolContext): Promise<string> {
  switch (part.type) {
    case "text":
      return part.text;
    case "image":
      return await imageText(part.data, part.mimeType, context);
    case "audio":
      return `[audio: ${part.mimeType}, ${sizeOf(part.data)} bytes]`;
    case "resource":
      return await resourceText(part.resource, context);
    case "resource_link":
      return `[resource ${part.uri}: ${part.name}${part.description === undefined ? "" : `, ${part.description}`}]`;
  }
}

async function resourceText(resource: Resource, context: ToolContext): Promise<string> {
  const { uri, mimeType = "text/plain" } = resource;
  if ("text" in resource) return `[resource ${uri}]\n${resource.text}`;
  if (/^text\/|[/+]json$/.test(mimeType)) {
    return `[resource ${uri}]\n${Buffer.from(resource.blob, "base64").toString("utf8")}`;
  }
  if (mimeType.startsWith("image/")) {
    return `[resource ${uri}] ${await imageText(resource.blob, mimeType, context)}`;
  }
  return `[resource ${uri}: ${mimeType}, ${sizeOf(resource.blob)} bytes, not text]`;
}

/** An image as Markdown that the answer can show; one that could not be kept is named. */
async function imageText(data: string, mediaType: string, context: ToolContext): Promise<string> {
  try {
    return await context.saveFile(Buffer.from(data, "base64"), { name: "image", mediaType });
  } catch (error) {
    return `[an image (${mediaType}, ${sizeOf(data)} bytes) that cannot be shown: ${error instanceof Error ? error.message : String(error)}]`;
  }
}

function sizeOf(base64: string): number {
  return Math.floor((base64.length * 3) / 4);
}
