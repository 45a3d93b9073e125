/** A JSON object of which nothing is known yet. */
export type JsonObject = Record<string, unknown>;

/** The value when it is an object and no list, otherwise undefined. */
export function objectOf(value: unknown): JsonObject | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
}

/** The object that a JSON text holds; undefined for anything else. */
export function parsedObject(text: string): JsonObject | undefined {
  try {
    return objectOf(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** A text field of the object; empty when it is missing or no text. */
export function textField(object: JsonObject | undefined, name: string): string {
  const value = object?.[name];
  return typeof value === "string" ? value : "";
}
