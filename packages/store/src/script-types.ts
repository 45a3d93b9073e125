// `npm run script-types`: writes the types of what scripts reply, from their headers.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { replyTypeOf, scriptsBeside } from "@larkline/protocol/lua";

const folder = new URL("./lua/", import.meta.url);

/** The text of script-replies.ts. */
export function scriptTypes(): string {
  const names = readdirSync(folder).map((file) => file.slice(0, -".lua".length));
  const included = new Set(
    names.flatMap((name) => {
      const text = readFileSync(new URL(`${name}.lua`, folder), "utf8");
      return [...text.matchAll(/^-- include (\S+)$/gm)].map(([, other]) => other);
    }),
  );
  const script = scriptsBeside<Record<never, never>>(import.meta.url);
  const types = names
    .filter((name) => !included.has(name))
    .toSorted()
    .map((name) => [name, replyTypeOf(script(name))])
    .filter(([, type]) => type !== "");
  return [
    "// Written by `npm run script-types` from the headers of the scripts in the folder lua: what they reply.",
    "",
    "export interface ScriptReplies {",
    ...types.map(([name, type]) => `  ${JSON.stringify(name)}: ${type};`),
    "}",
    "",
  ].join("\n");
}

if (import.meta.main) writeFileSync(new URL("./script-replies.ts", import.meta.url), scriptTypes());
