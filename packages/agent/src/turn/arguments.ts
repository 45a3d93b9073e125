import { argumentsHashOf, type ToolCall } from "@larkline/protocol";

// The arguments of a call, as the model has written them.

/** The parsed arguments of a call. With a `problem` the call does not run, and the model reads the problem. */
type ParsedArguments =
  | { ok: true; value: Record<string, unknown> }
  | { ok: false; problem: string };

/** Empty text counts as `{}`; anything else must be the JSON text of an object. */
export function parseArguments(text: string): ParsedArguments {
  if (text.trim() === "") return { ok: true, value: {} };
  let value: unknown;
  try {
    value = JSON.parse(text);
    // Some open models encode them twice.
    if (typeof value === "string" && value.trimStart().startsWith("{")) value = JSON.parse(value);
  } catch {
    return { ok: false, problem: "The arguments are not valid JSON. The tool was not run." };
  }
  if (!isObject(value)) {
    return { ok: false, problem: "The arguments must be a JSON object. The tool was not run." };
  }
  return isTooDeep(value)
    ? { ok: false, problem: "The arguments are nested too deeply. The tool was not run." }
    : { ok: true, value };
}

/** How deep arguments are looked at for text that stands for another value. */
const coercedDepth = 10;

/**
 * Arguments with each text that is one other value in JSON as that value, where the schema allows no text: some open
 * models write `"5"` for a number and a list as its JSON. The same object where nothing is another.
 */
export function coercedArguments(
  given: Record<string, unknown>,
  schema: Readonly<Record<string, unknown>>,
  depth = 0,
): Record<string, unknown> {
  const { properties } = schema;
  if (depth > coercedDepth || !isObject(properties)) return given;
  let coerced = given;
  for (const [name, value] of Object.entries(given)) {
    const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
    const fitted = isObject(own) ? coercedValue(value, own, depth) : value;
    if (fitted !== value) coerced = { ...coerced, [name]: fitted };
  }
  return coerced;
}

function coercedValue(value: unknown, schema: Record<string, unknown>, depth: number): unknown {
  if (isObject(value)) return coercedArguments(value, schema, depth + 1);
  if (Array.isArray(value)) {
    const { items } = schema;
    if (!isObject(items) || depth > coercedDepth) return value;
    const fitted = value.map((one: unknown) => coercedValue(one, items, depth + 1));
    return fitted.every((one, at) => one === value[at]) ? value : fitted;
  }
  const { type } = schema;
  if (typeof value !== "string" || typeof type !== "string" || type === "string") return value;
  try {
    const read: unknown = JSON.parse(value);
    return isOfType(read, type) ? read : value;
  } catch {
    return value;
  }
}

function isOfType(value: unknown, type: string): boolean {
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  if (type === "null") return value === null;
  if (type === "integer") return Number.isSafeInteger(value);
  return type === "number" ? Number.isFinite(value) : typeof value === type;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Deeper values cannot be written as JSON again: that is recursive. */
const maxDepth = 200;

function isTooDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return true;
    level = level.flatMap((one) =>
      typeof one === "object" && one !== null ? Object.values(one) : [],
    );
  }
  return false;
}

/** Identifies a call by tool and arguments. */
export function signatureOf({
  name,
  arguments: text,
}: Pick<ToolCall, "name" | "arguments">): string {
  const parsed = parseArguments(text);
  return `${name} ${argumentsHashOf(parsed.ok ? JSON.stringify(parsed.value) : text)}`;
}
