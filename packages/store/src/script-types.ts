// `npm run script-types`: writes the types of what scripts reply, from their headers.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { replyTypeOf, scriptsBeside } from "./lua.ts";

/** The text of script-replies.ts. */
export function scriptTypes(): string {
  return [
    "// Written by `npm run script-types` from the headers of the scripts in the folders lua: what they reply.",
    "",
    "export interface ScriptReplies {",
    ...[".", "queues"]
      .flatMap(repliesIn)
      .map(([name, type]) => `  ${JSON.stringify(name)}: ${type};`),
    "}",
    "",
  ].join("\n");
}

/** By name, those of the scripts that name a reply. A text that others include is no script. */
function repliesIn(place: string): [name: string, type: string][] {
  const folder = new URL(`./${place}/lua/`, import.meta.url);
  const names = readdirSync(folder).map((file) => file.slice(0, -".lua".length));
  const included = names.flatMap((name) => {
    const text = readFileSync(new URL(`${name}.lua`, folder), "utf8");
    return [...text.matchAll(/^-- include (\S+)$/gm)].map(([, other]) => other);
  });
  const script = scriptsBeside<Record<never, never>>(new URL("..", folder).href);
  return names
    .filter((name) => !included.includes(name))
    .toSorted()
    .map((name): [string, string] => [name, replyTypeOf(script(name))])
    .filter(([, type]) => type !== "");
}

if (import.meta.main) writeFileSync(new URL("./script-replies.ts", import.meta.url), scriptTypes());
