/** Arguments as the model wrote them, parsed; `problem` is told to the model instead of running the call. */
export type ParsedArguments = { ok: true; value: Record<string, unknown> } | { ok: false; problem: string };

/** Deeper values cannot be written as JSON again: that is recursive. */
const maxDepth = 200;

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isTooDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return true;
    level = level.flatMap((one) => (typeof one === "object" && one !== null ? Object.values(one) : []));
  }
  return false;
}

/** Empty text counts as `{}`; anything else must be the JSON text of an object. */
export function parseArguments(text: string): ParsedArguments {
  if (text.trim() === "") return { ok: true, value: {} };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { ok: false, problem: "The arguments are not valid JSON. The tool was not run." };
  }
  if (!isObject(value)) return { ok: false, problem: "The arguments must be a JSON object. The tool was not run." };
  return isTooDeep(value)
    ? { ok: false, problem: "The arguments are nested too deeply. The tool was not run." }
    : { ok: true, value };
}
