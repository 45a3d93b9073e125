import type { ParseResult } from "@larkline/protocol";

/** The interfaces a model can be reached through. */
export type ProviderType = "anthropic" | "openai" | "openai-responses";

/** One entry of `MODEL`. */
export interface ModelChoice {
  /** Name of a provider: one of the interfaces, or of the configuration's own. */
  provider: string;
  id: string;
}

const entryForm = /^([a-z][a-z0-9-]*)\/(.+)$/;

/**
 * Parses `MODEL`: `<provider>/<model id>`, a comma separates fallbacks. The id may hold further slashes. Every
 * wrong entry is named in the error. Whether a provider exists is not looked at.
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
    const [, provider, id] = entryForm.exec(entry) ?? [];
    if (provider === undefined || id === undefined) errors.push(`'${entry}' is not <provider>/<model id>`);
    else choices.push({ provider, id });
  }
  return errors.length > 0 ? { ok: false, error: errors.join("; ") } : { ok: true, value: choices };
}
