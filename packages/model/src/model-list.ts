import type { ParseResult } from "@larkline/protocol";

/** The interfaces a model can be reached through. */
export type ModelProvider = "anthropic" | "openai" | "openai-responses";

/** One entry of `MODEL`. */
export interface ModelChoice {
  provider: ModelProvider;
  id: string;
}

const providers: readonly ModelProvider[] = ["anthropic", "openai", "openai-responses"];

function parseChoice(text: string): ParseResult<ModelChoice> {
  const slash = text.indexOf("/");
  const provider = providers.find((name) => name === text.slice(0, Math.max(slash, 0)));
  const id = text.slice(slash + 1).trim();
  if (provider === undefined || id === "") {
    return { ok: false, error: `'${text}' is not <provider>/<model id>; providers are ${providers.join(", ")}` };
  }
  return { ok: true, value: { provider, id } };
}

/**
 * Parses `MODEL`: `anthropic/<id>`, `openai/<id>` or `openai-responses/<id>`, a comma separates
 * fallbacks. The id may hold further slashes. Every wrong entry is named in the error.
 */
export function parseModelList(text: string): ParseResult<ModelChoice[]> {
  const entries = text
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length === 0) return { ok: false, error: "no model is named" };
  const choices: ModelChoice[] = [];
  const errors: string[] = [];
  for (const entry of entries) {
    const parsed = parseChoice(entry);
    if (parsed.ok) choices.push(parsed.value);
    else errors.push(parsed.error);
  }
  return errors.length > 0 ? { ok: false, error: errors.join("; ") } : { ok: true, value: choices };
}
