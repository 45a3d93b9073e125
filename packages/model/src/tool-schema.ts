import type { ModelWarning } from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import type { ModelRequest } from "./backend.ts";
import type { VendorProfile } from "./profile.ts";

/*
 * Schemas of tools as vendors take them. One schema that a vendor refuses would refuse every request of the agent, and
 * tools of MCP servers come from strangers. What is sent is never stricter than the tool's own schema, by which the
 * call is checked later.
 */

type Schema = Record<string, unknown>;

/** What all vendors refuse at the top of a schema (OpenAI "Function calling", Anthropic "Tool use"). */
const refusedAtTop = [
  "allOf",
  "anyOf",
  "oneOf",
  "enum",
  "const",
  "not",
  "if",
  "then",
  "else",
  "$ref",
] as const;

/** What is left of a schema in its plainest form. */
const plainKeywords = new Set(["type", "description", "properties", "required", "items"]);

/** A deeper schema is cut there: anything fits. */
const maxDepth = 32;

/** The members that are read of one `allOf`, `anyOf` or `oneOf`. */
const maxMembers = 100;

export type SentTool = { tool: ToolSpec } | { problem: string };

type Rules = Pick<VendorProfile, "name" | "schemaWithout"> & { isPlain: boolean };

/** Kept, since every step offers the same. */
const sentTools = new WeakMap<ToolSpec, Map<string, SentTool>>();

/**
 * The request with its tools as the vendor takes them; a warning names each one that has to be left out. A request that
 * is `plain` has the schemas in their plainest form.
 */
export function withSentTools(
  request: ModelRequest,
  { name, schemaWithout }: Pick<VendorProfile, "name" | "schemaWithout">,
): { request: ModelRequest; warnings: ModelWarning[] } {
  const { tools = [] } = request;
  const rules = { name, schemaWithout, isPlain: request.plain === true };
  const made = tools.map((spec) => sentTool(spec, rules));
  if (made.every((one, at) => "tool" in one && one.tool === tools[at])) {
    return { request, warnings: [] };
  }
  const warnings = made.flatMap((one, at): ModelWarning[] => {
    if ("tool" in one) return [];
    const message = `The tool ${tools[at]?.name ?? ""} is not offered to the model: ${one.problem}.`;
    return [{ type: "warning", code: "tool_left_out", message }];
  });
  return {
    request: { ...request, tools: made.flatMap((one) => ("tool" in one ? [one.tool] : [])) },
    warnings,
  };
}

function sentTool(spec: ToolSpec, rules: Rules): SentTool {
  const key = `${rules.name} ${rules.isPlain}`;
  const known = sentTools.get(spec) ?? new Map<string, SentTool>();
  const made = known.get(key) ?? toolAsSent(spec, rules);
  sentTools.set(spec, known.set(key, made));
  return made;
}

/** Why no model can be offered a tool; undefined where it can. */
export function toolProblem(spec: ToolSpec): string | undefined {
  const made = toolAsSent(spec, { schemaWithout: [], isPlain: false });
  return "problem" in made ? made.problem : undefined;
}

/** A tool as a vendor takes it, or why there is no such form of it. */
export function toolAsSent(
  spec: ToolSpec,
  { schemaWithout, isPlain }: Omit<Rules, "name">,
): SentTool {
  const top = objectSchema(spec.inputSchema, spec.inputSchema, 0);
  if (top === undefined) return { problem: "its arguments are no object" };
  const without = new Set(schemaWithout);
  const isKept = isPlain
    ? (word: string) => plainKeywords.has(word)
    : (word: string) => !without.has(word);
  const schema = isPlain || without.size > 0 ? pruned(top, isKept, 0) : top;
  return { tool: schema === spec.inputSchema ? spec : { ...spec, inputSchema: schema } };
}

/** An object schema without a combination at its top; undefined where the value can be no object. */
function objectSchema(given: unknown, root: Schema, depth: number): Schema | undefined {
  const schema = isSchema(given) ? given : {};
  if (depth > maxDepth) return {};
  const { type } = schema;
  const mayBeObject =
    type === undefined || type === "object" || (Array.isArray(type) && type.includes("object"));
  if (!mayBeObject) return undefined;
  if (type === "object" && refusedAtTop.every((word) => schema[word] === undefined)) return schema;
  const next = (member: unknown) => objectSchema(member, root, depth + 1);
  const all = [target(schema["$ref"], root), ...membersOf(schema["allOf"])]
    .filter((one) => one !== undefined)
    .map(next);
  const choices = [membersOf(schema["anyOf"]), membersOf(schema["oneOf"])].filter(
    (members) => members.length > 0,
  );
  const chosen = choices.map((members) => eitherOf(members.map(next)));
  const parts = [schema, ...all, ...chosen];
  if (parts.includes(undefined)) return undefined;
  return allOf(parts.filter((part) => part !== undefined));
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function membersOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value.slice(0, maxMembers) : [];
}

/** What a reference within the schema names. */
function target(reference: unknown, root: Schema): unknown {
  if (typeof reference !== "string" || !reference.startsWith("#/")) return undefined;
  let found: unknown = root;
  for (const step of reference.slice(2).split("/")) {
    found = isSchema(found) && Object.hasOwn(found, step) ? found[step] : undefined;
  }
  return found;
}

/** One object schema for values that fit all of these, or more values: each property as the first one has it. */
function allOf(parts: readonly Schema[]): Schema {
  const properties: Schema = {};
  for (const part of parts) {
    for (const [name, schema] of Object.entries(propertiesOf(part))) {
      if (!Object.hasOwn(properties, name)) properties[name] = schema;
    }
  }
  const [first = {}] = parts;
  const kept = Object.entries(first).filter(
    ([word]) => !refusedAtTop.includes(word as (typeof refusedAtTop)[number]),
  );
  const { additionalProperties: _closed, ...rest } = Object.fromEntries(kept);
  const required = [...new Set(parts.flatMap(requiredOf))];
  return { ...rest, type: "object", properties, ...(required.length === 0 ? {} : { required }) };
}

/** One object schema for values that fit one of these, or more values. */
function eitherOf(members: readonly (Schema | undefined)[]): Schema | undefined {
  const found = members.filter((member) => member !== undefined);
  if (found.length === 0) return undefined;
  const names = new Set(found.flatMap((member) => Object.keys(propertiesOf(member))));
  const properties = [...names].map((name) => {
    const forms = found.flatMap((member) => {
      const own = propertiesOf(member);
      return Object.hasOwn(own, name) ? [own[name]] : [];
    });
    const isOne = new Set(forms.map((form) => JSON.stringify(form))).size === 1;
    return [name, isOne ? forms[0] : { anyOf: forms }] as const;
  });
  const [first = {}, ...others] = found;
  const required = requiredOf(first).filter((name) =>
    others.every((other) => requiredOf(other).includes(name)),
  );
  return { type: "object", properties: Object.fromEntries(properties), required };
}

function propertiesOf({ properties }: Schema): Schema {
  return isSchema(properties) ? properties : {};
}

function requiredOf({ required }: Schema): string[] {
  return Array.isArray(required) ? required.filter((name) => typeof name === "string") : [];
}

const schemasByName = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
]);
const schemaLists = new Set(["allOf", "anyOf", "oneOf", "prefixItems"]);
const schemasWithin = new Set([
  "items",
  "additionalProperties",
  "not",
  "if",
  "then",
  "else",
  "contains",
  "propertyNames",
]);

/** The schema without the keywords that are not kept, at every depth. Names of properties are no keywords. */
function pruned(schema: Schema, isKept: (word: string) => boolean, depth: number): Schema {
  if (depth > maxDepth) return {};
  const within = (value: unknown) => (isSchema(value) ? pruned(value, isKept, depth + 1) : value);
  const kept = Object.entries(schema).filter(([word]) => isKept(word));
  return Object.fromEntries(
    kept.map(([word, value]) => {
      if (schemasWithin.has(word)) return [word, within(value)];
      if (schemaLists.has(word)) return [word, membersOf(value).map(within)];
      if (!schemasByName.has(word) || !isSchema(value)) return [word, value];
      return [
        word,
        Object.fromEntries(Object.entries(value).map(([name, one]) => [name, within(one)])),
      ];
    }),
  );
}
