import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { FormatsPlugin } from "ajv-formats";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";

const folder = new URL("conformance/chat-messages/", import.meta.url);
const addFormats = createRequire(import.meta.url)("ajv-formats") as FormatsPlugin; // a CommonJS function

/** The schema of each class of chat messages, as its library publishes it, compiled. */
export const publishedSchemas: ReadonlyMap<string, ValidateFunction> = compiled();

/** `strict: false`: they use OpenAPI's keyword `discriminator`. `binary` is a format of OpenAPI, too. */
function compiled(): Map<string, ValidateFunction> {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats(ajv);
  const files = readdirSync(folder).filter((file) => file.endsWith(".schema.json"));
  return new Map(
    files.map((file) => {
      const schema = JSON.parse(readFileSync(new URL(file, folder), "utf8")) as object; // data of this folder
      return [file.replace(".schema.json", ""), ajv.compile(schema)];
    }),
  );
}

/** What the published schema of a class has against a value. */
export function problemsOf(className: string, value: unknown): string[] {
  const validate = publishedSchemas.get(className);
  if (validate === undefined) throw new Error(`there is no schema of ${className}`);
  return validate(value)
    ? []
    : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}
