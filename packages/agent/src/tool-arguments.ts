/** Arguments as the model wrote them, parsed; `problem` is told to the model instead of running the call. */
export type ParsedArguments = { ok: true; value: Record<string, unknown> } | { ok: false; problem: string };

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
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
  return isObject(value)
    ? { ok: true, value }
    : { ok: false, problem: "The arguments must be a JSON object. The tool was not run." };
}
