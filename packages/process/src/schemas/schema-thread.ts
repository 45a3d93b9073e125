import { createHash } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { compileJsonSchema, patternsOf, type PatternEngine } from "@larkline/protocol/json-schema";
import { LRUCache } from "lru-cache";
import { RE2JS } from "re2js";
import type { SchemaAnswer, SchemaJob } from "./schema-checks.ts";

/** Compiled schemas by their digest, bounded by the size of their text. */
const compiled = new LRUCache<string, ReturnType<typeof compileJsonSchema>>({ maxSize: 1_048_576 });

parentPort?.on("message", (job: SchemaJob) => parentPort?.postMessage(answerOf(job)));

function answerOf({ id, schema, value }: SchemaJob): SchemaAnswer {
  try {
    if (value === undefined) {
      for (const pattern of patternsOf(JSON.parse(schema) as object)) linearPattern(pattern);
      return { id, fits: true };
    }
    const check = checkOf(schema);
    const checked = check(JSON.parse(value));
    return checked.ok
      ? { id, fits: true }
      : { id, fits: false, error: checked.error, isUnchecked: false };
  } catch (error) {
    // The schema cannot be used, or the value is nested so deeply that the stack has overflown.
    return {
      id,
      fits: false,
      error: error instanceof Error ? error.message : String(error),
      isUnchecked: true,
    };
  }
}

function checkOf(schema: string): ReturnType<typeof compileJsonSchema> {
  const digest = createHash("sha256").update(schema).digest("base64");
  const known = compiled.get(digest);
  if (known !== undefined) return known;
  const check = compileJsonSchema(JSON.parse(schema) as object, linearPattern); // of an object, by its sender
  compiled.set(digest, check, { size: schema.length });
  return check;
}

/** `\p{Script=Han}` and its kin, which RE2 writes without the name of the property. */
const namedProperty = /\\([pP])\{(?:Script|sc|General_Category|gc)=(\w+)\}/g;

/** A pattern that matches in time linear to the text. Look-around and back-references cannot be matched so. */
const linearPattern: PatternEngine = (pattern) => {
  try {
    return RE2JS.compile(
      RE2JS.translateRegExp(pattern).replaceAll(namedProperty, String.raw`\$1{$2}`),
    );
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`the pattern ${JSON.stringify(pattern)} cannot be used (RE2 syntax): ${why}`, {
      cause: error,
    });
  }
};
