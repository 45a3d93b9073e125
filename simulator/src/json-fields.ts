import { fieldError } from "./platform-error.ts";

export type JsonObject = Record<string, unknown>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The parsed object, or undefined when the text is not a JSON object. */
export function parseJsonObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function stringField(body: JsonObject, field: string): string {
  const value = body[field];
  if (typeof value !== "string" || value === "") throw fieldError(field, "is required");
  return value;
}

export function optionalStringField(body: JsonObject, field: string): string | undefined {
  const value = body[field];
  if (value === undefined || value === null || value === "") return undefined;
  if (typeof value !== "string") throw fieldError(field, "must be a string");
  return value;
}

export function booleanField(body: JsonObject, field: string): boolean {
  const value = body[field];
  if (value === undefined || value === null) return false;
  if (typeof value !== "boolean") throw fieldError(field, "must be a boolean");
  return value;
}
