import { MessageError } from "./message-error.ts";
import { Type, type Static, type TSchema } from "../type.ts";
import { systemClock, type Clock } from "../clock.ts";
import { compileJsonSchema } from "../json-schema.ts";
import { parserOf, type ParseResult, type Parser } from "../schema.ts";

// Messages between agents, and events of agents, as AutoGen AgentChat writes them: what the program holds is what is on
// the wire. The schemas accept what `loadMessage` accepts: fields with a default may be absent, unknown ones may be there.

// RFC 3339, "Internet Date/Time Format"; without an offset it is UTC. Days exist, leap years included.
const leapYear = "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const longMonth = "(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])";
const shortMonth = "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)";
const date = `(?:\\d{4}-(?:${longMonth}|${shortMonth}|02-(?:0[1-9]|1\\d|2[0-8]))|${leapYear}-02-29)`;
const time = "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?";
const offset = "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
const leapSecond = "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00)?";
const Timestamp = Type.String({ pattern: `^${date}[Tt](?:${time}${offset}?|${leapSecond})$` });

export const RequestUsage = Type.Object({
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
});
export type RequestUsage = Static<typeof RequestUsage>;

/** Bytes of an image in base64, without a data-URL prefix. */
export const Image = Type.Object({
  data: Type.String({
    pattern: "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
  }),
});
export type Image = Static<typeof Image>;

export const FunctionCall = Type.Object({
  id: Type.String(),
  /** JSON text, as the model wrote it. */
  arguments: Type.String(),
  name: Type.String(),
});
export type FunctionCall = Static<typeof FunctionCall>;

export const FunctionExecutionResult = Type.Object({
  content: Type.String(),
  name: Type.String(),
  call_id: Type.String(),
  /** Null: it is not known. */
  is_error: Type.Optional(Type.Union([Type.Boolean(), Type.Null()], { default: null })),
});

export const CodeBlock = Type.Object({ code: Type.String(), language: Type.String() });
export const CodeResult = Type.Object({ exit_code: Type.Integer(), output: Type.String() });

export const memoryMimeTypes = [
  "text/plain",
  "application/json",
  "text/markdown",
  "image/*",
  "application/octet-stream",
] as const;

export const MemoryContent = Type.Object({
  /** Text, base64 of bytes (`application/octet-stream`), an object, or an image. */
  content: Type.Union([Type.String(), Type.Record(Type.String(), Type.Unknown())]),
  /** One of {@link memoryMimeTypes}, or any other. */
  mime_type: Type.String(),
  metadata: Type.Optional(
    Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()], { default: null }),
  ),
});

const TextsAndImages = Type.Array(Type.Union([Type.String(), Image]));

const SystemMessage = Type.Object({ content: Type.String(), type: Type.Literal("SystemMessage") });
const UserMessage = Type.Object({
  content: Type.Union([Type.String(), TextsAndImages]),
  source: Type.String(),
  type: Type.Literal("UserMessage"),
});
const AssistantMessage = Type.Object({
  content: Type.Union([Type.String(), Type.Array(FunctionCall)]),
  /** What it thought, or wrote beside its calls. */
  thought: Type.Optional(Type.Union([Type.String(), Type.Null()], { default: null })),
  source: Type.String(),
  type: Type.Literal("AssistantMessage"),
});
const FunctionExecutionResultMessage = Type.Object({
  content: Type.Array(FunctionExecutionResult),
  type: Type.Literal("FunctionExecutionResultMessage"),
});

/** A message of a model's context. In a list each has to name its type. */
export const LlmMessage = Type.Union([
  SystemMessage,
  UserMessage,
  AssistantMessage,
  FunctionExecutionResultMessage,
]);

/** What every message and event has. */
const common = {
  /** The agent that sent it. */
  source: Type.String(),
  /** What models used to make it. */
  models_usage: Type.Optional(Type.Union([RequestUsage, Type.Null()], { default: null })),
  metadata: Type.Optional(Type.Record(Type.String(), Type.String(), { default: {} })),
  /** Absent: now. */
  created_at: Type.Optional(Timestamp),
};

const textFields = { ...common, content: Type.String() };
const typeOf = <N extends string>(name: N) => Type.Optional(Type.Literal(name, { default: name }));
const retryAttempt = Type.Integer();

/** The schemas of the messages that agents exchange; `StructuredMessage` is apart. */
export const chatMessageSchemas = {
  TextMessage: Type.Object({ ...textFields, type: typeOf("TextMessage") }),
  MultiModalMessage: Type.Object({
    ...common,
    content: TextsAndImages,
    type: typeOf("MultiModalMessage"),
  }),
  StopMessage: Type.Object({ ...textFields, type: typeOf("StopMessage") }),
  ToolCallSummaryMessage: Type.Object({ ...textFields, type: typeOf("ToolCallSummaryMessage") }),
  HandoffMessage: Type.Object({
    ...textFields,
    target: Type.String(),
    /** What the target is given of the conversation. */
    context: Type.Optional(Type.Array(LlmMessage, { default: [] })),
    type: typeOf("HandoffMessage"),
  }),
} as const;

/** The schemas of what agents tell people and programs. */
export const agentEventSchemas = {
  ToolCallRequestEvent: Type.Object({
    ...common,
    content: Type.Array(FunctionCall),
    type: typeOf("ToolCallRequestEvent"),
  }),
  ToolCallExecutionEvent: Type.Object({
    ...common,
    content: Type.Array(FunctionExecutionResult),
    type: typeOf("ToolCallExecutionEvent"),
  }),
  MemoryQueryEvent: Type.Object({
    ...common,
    content: Type.Array(MemoryContent),
    type: typeOf("MemoryQueryEvent"),
  }),
  UserInputRequestedEvent: Type.Object({
    ...common,
    request_id: Type.String(),
    content: Type.Optional(Type.Literal("", { default: "" })),
    type: typeOf("UserInputRequestedEvent"),
  }),
  ModelClientStreamingChunkEvent: Type.Object({
    ...textFields,
    type: typeOf("ModelClientStreamingChunkEvent"),
  }),
  ThoughtEvent: Type.Object({ ...textFields, type: typeOf("ThoughtEvent") }),
  SelectSpeakerEvent: Type.Object({
    ...common,
    content: Type.Array(Type.String()),
    type: typeOf("SelectSpeakerEvent"),
  }),
  CodeGenerationEvent: Type.Object({
    ...common,
    /** 0: the first. */
    retry_attempt: retryAttempt,
    content: Type.String(),
    code_blocks: Type.Array(CodeBlock),
    type: typeOf("CodeGenerationEvent"),
  }),
  CodeExecutionEvent: Type.Object({
    ...common,
    retry_attempt: retryAttempt,
    result: CodeResult,
    type: typeOf("CodeExecutionEvent"),
  }),
} as const;

/** Its `type` names the form of its content. */
export const StructuredMessage = Type.Object({
  ...common,
  content: Type.Record(Type.String(), Type.Unknown()),
  /** Text with `{field}` for a field of the content; null: the content as JSON. */
  format_string: Type.Optional(Type.Union([Type.String(), Type.Null()], { default: null })),
  type: Type.Optional(
    Type.Unsafe<`StructuredMessage[${string}]`>(
      Type.String({ pattern: "^StructuredMessage\\[.+\\]$" }),
    ),
  ),
});

/** A message that agents exchange, as it may be written. */
export const ChatMessage = Type.Union(Object.values(chatMessageSchemas));
/** What agents tell people and programs, as it may be written. */
export const AgentEvent = Type.Union(Object.values(agentEventSchemas));

const schemas = { ...chatMessageSchemas, ...agentEventSchemas };

/** With every field that has a default. */
type Complete<T> = T extends readonly (infer E)[]
  ? Complete<E>[]
  : T extends object
    ? { [K in keyof T]-?: Complete<Exclude<T[K], undefined>> }
    : T;

/** What a class of messages takes: fields with a default may be absent. */
export type FieldsOf<N extends MessageType> = Static<(typeof schemas)[N]>;
export type MessageOf<N extends MessageType> = {
  [K in MessageType]: Complete<Static<(typeof schemas)[K]>>;
}[N];
export type MessageType = keyof typeof schemas;

export type TextMessage = MessageOf<"TextMessage">;
export type MultiModalMessage = MessageOf<"MultiModalMessage">;
export type HandoffMessage = MessageOf<"HandoffMessage">;
export type StructuredMessage = Complete<Static<typeof StructuredMessage>>;
export type LlmMessage = Complete<Static<typeof LlmMessage>>;
export type UserMessage = Complete<Static<typeof UserMessage>>;

/** A message that agents exchange. A structured message is none of this union. */
export type ChatMessage = MessageOf<keyof typeof chatMessageSchemas>;
/** What agents tell people and programs. Agents do not read it. */
export type AgentEvent = MessageOf<keyof typeof agentEventSchemas>;
export type AnyMessage = ChatMessage | AgentEvent | StructuredMessage;

const parsers = new Map<string, { schema: TSchema; parse: Parser<unknown> }>(
  Object.entries(schemas).map(([name, schema]) => [name, { schema, parse: parserOf(schema) }]),
);

/** Reads a message of a class, with defaults in place of absent fields and without unknown ones. */
export function loadMessage<N extends MessageType>(
  name: N,
  data: unknown,
  clock: Pick<Clock, "now"> = systemClock,
): ParseResult<MessageOf<N>> {
  const known = parsers.get(name);
  if (known === undefined) return { ok: false, error: unknownType(name) };
  const parsed = known.parse(data);
  if (!parsed.ok) return parsed;
  return { ok: true, value: dated(completed(known.schema, parsed.value), clock) as MessageOf<N> }; // of its schema
}

/** Makes a message of a class. Throws a {@link MessageError} when its fields are wrong. */
export function createMessage<N extends MessageType>(
  name: N,
  fields: FieldsOf<N>,
  clock: Pick<Clock, "now"> = systemClock,
): MessageOf<N> {
  const loaded = loadMessage(name, fields, clock);
  if (!loaded.ok) throw new MessageError(`${name}: ${loaded.error}`);
  return loaded.value;
}

/** A copy as JSON: every field, `type` included. */
export function dumpMessage<M extends AnyMessage>(message: M): M {
  const schema = parsers.get(message.type)?.schema ?? StructuredMessage;
  return completed(schema, message) as M; // of its schema
}

/** Reads a message or an event by its `type`; structured messages where their registry is given. */
export function parseMessage(data: unknown, models?: StructuredModels): ParseResult<AnyMessage> {
  const type = typeIn(data);
  const isStructured = typeof type === "string" && structuredName.test(type);
  return isStructured && models !== undefined ? models.load(data) : parseOneOf(schemas, data);
}

/** Reads one of the five messages that agents exchange. */
export function parseChatMessage(data: unknown): ParseResult<ChatMessage> {
  return parseOneOf(chatMessageSchemas, data) as ParseResult<ChatMessage>; // of one of these classes
}

/** Reads one of the nine events. */
export function parseAgentEvent(data: unknown): ParseResult<AgentEvent> {
  return parseOneOf(agentEventSchemas, data) as ParseResult<AgentEvent>; // of one of these classes
}

function parseOneOf(known: object, data: unknown): ParseResult<ChatMessage | AgentEvent> {
  const type = typeIn(data);
  if (type === undefined) return { ok: false, error: "type is missing" };
  if (typeof type !== "string" || !Object.hasOwn(known, type)) {
    return { ok: false, error: unknownType(type) };
  }
  return loadMessage(type as MessageType, data); // one of the known
}

function typeIn(data: unknown): unknown {
  return typeof data === "object" && data !== null && "type" in data ? data.type : undefined;
}

function unknownType(type: unknown): string {
  return `there is no message of type ${JSON.stringify(type) ?? "undefined"} here`;
}

/** A copy of a checked value in the order of its schema, with its defaults. */
function completed(schema: TSchema, value: unknown): unknown {
  const { anyOf, items, properties, default: initial } = schema as Shape; // the keywords that say where values are
  if (value === undefined) return structuredClone(initial);
  if (anyOf !== undefined) return completed(branchOf(anyOf, value), value);
  if (Array.isArray(value) && items !== undefined) {
    return value.map((item) => completed(items, item));
  }
  if (properties === undefined || typeof value !== "object" || value === null) {
    return structuredClone(value);
  }
  const given = value as Record<string, unknown>; // an object
  return Object.fromEntries(
    Object.entries(properties).map(([name, field]) => [name, completed(field, given[name])]),
  );
}

interface Shape extends TSchema {
  anyOf?: Shape[];
  items?: Shape;
  properties?: Record<string, Shape>;
  const?: unknown;
  default?: unknown;
}

/** The branch that an object, a list or anything else belongs to. Objects of several classes name theirs. */
function branchOf(branches: readonly Shape[], value: unknown): Shape {
  const plain: Shape = {};
  if (Array.isArray(value)) return branches.find(({ items }) => items !== undefined) ?? plain;
  if (typeof value !== "object" || value === null) return plain;
  const type = typeIn(value);
  const named = branches.find(
    ({ properties }) =>
      properties?.["type"]?.const !== undefined && properties["type"].const === type,
  );
  return named ?? branches.find(({ properties }) => properties !== undefined) ?? plain;
}

/** The message with the time that it was made at. */
function dated(message: unknown, clock: Pick<Clock, "now">): unknown {
  const { created_at } = message as { created_at: string | undefined }; // every class has it
  const text = created_at ?? new Date(clock.now()).toISOString();
  const whole = /(?:[Zz]|[+-]\d\d:\d\d)$/.test(text) ? text : `${text}Z`;
  return { ...(message as object), created_at: whole };
}

const structuredName = /^StructuredMessage\[(.+)\]$/;
const parseStructured = parserOf(StructuredMessage);

/** The forms of structured messages, by name: only those of known forms can be read. */
export class StructuredModels {
  readonly #models = new Map<
    string,
    { fields: string[]; check: (data: unknown) => ParseResult<unknown> }
  >();

  /** Adds a form: a JSON Schema of an object. Throws when the name is taken or it is no such schema. */
  register(name: string, schema: Readonly<Record<string, unknown>>): void {
    if (this.#models.has(name)) {
      throw new MessageError(`the form ${JSON.stringify(name)} is registered already`);
    }
    if (schema["type"] !== "object") {
      throw new MessageError(`the form ${JSON.stringify(name)} must be of type object`);
    }
    this.#models.set(name, {
      fields: Object.keys(schema["properties"] ?? {}),
      check: compileJsonSchema(schema),
    });
  }

  /** Reads a structured message. Without a `type` it is one of the form `name`. */
  load(
    data: unknown,
    name?: string,
    clock: Pick<Clock, "now"> = systemClock,
  ): ParseResult<StructuredMessage> {
    const parsed = parseStructured(data);
    if (!parsed.ok) return parsed;
    const named = structuredName.exec(parsed.value.type ?? "")?.[1] ?? name;
    if (named === undefined) return { ok: false, error: "type is missing" };
    if (name !== undefined && named !== name) {
      return { ok: false, error: `type must be StructuredMessage[${name}]` };
    }
    const model = this.#models.get(named);
    if (model === undefined) {
      return { ok: false, error: `the form ${JSON.stringify(named)} is not registered` };
    }
    const checked = model.check(parsed.value.content);
    if (!checked.ok) return { ok: false, error: `content: ${checked.error}` };
    const content = inOrder(parsed.value.content, model.fields);
    const whole = completed(StructuredMessage, {
      ...parsed.value,
      content,
      type: `StructuredMessage[${named}]`,
    });
    return { ok: true, value: dated(whole, clock) as StructuredMessage }; // of its schema
  }
}

/** The fields in the order of their declaration, then those that are not declared. */
function inOrder(
  content: Readonly<Record<string, unknown>>,
  fields: readonly string[],
): Record<string, unknown> {
  const declared = fields.filter((field) => Object.hasOwn(content, field));
  return Object.fromEntries(
    [...new Set([...declared, ...Object.keys(content)])].map((field) => [field, content[field]]),
  );
}
