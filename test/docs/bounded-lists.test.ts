import { globSync } from "node:fs";
import { expect, it } from "vitest";
import { root, textOf } from "./document.ts";

/** Lists without a limit of their own, by the schema that has them, and what limits them. */
const limitedElsewhere: Record<string, string> = {
  "apps/ingress/src/schedule-api.ts": "answers of ours: a caller's schedules",
  "packages/protocol/src/views/api-approval.ts": "answers of ours: what a session waits for",
  "packages/protocol/src/approval.ts": "stored by workers: names of a tool's secrets",
  "packages/protocol/src/content.ts": "the stored history: made by parsers with limits",
  "packages/protocol/src/inbox.ts": "stored by ingress: made by parsers with limits",
  "packages/protocol/src/reply-view.ts": "stored by workers: what a turn shows",
  "packages/protocol/src/views/stream-frame.ts": "frames of ours",
  "packages/protocol/src/tool.ts": "signed by workers: the people of an approval",
  "packages/protocol/src/turn.ts": "the checkpoint: sealed by workers",
  "packages/protocol/src/views/chat-messages.ts": "messages of ours",
  "packages/protocol/src/views/engine-events.ts": "events of ours",
  "packages/protocol/src/views/run-api.ts": "answers of ours, in pages",
  "packages/protocol/src/views/run-items.ts ModelResponse": "what the items of a step come to",
  "packages/store/src/session-files.ts": "stored by workers: 16 calls at most",
  "packages/store/src/trace-log.ts": "stored by all processes: what one message has caused",
};

interface List {
  path: string;
  schema: string;
}

/** The `Type.Array` of the sources that say nothing of their longest length. */
function unlimited(): List[] {
  const paths = globSync("{apps,packages}/*/src/**/*.ts", { cwd: root });
  return paths.filter((path) => !/\.(?:test|fixture|suite)\.ts$/.test(path)).flatMap(listsIn);
}

function listsIn(path: string): List[] {
  const text = textOf(path);
  return [...text.matchAll(/\bType\.Array\(/g)].flatMap(({ index, 0: call }) => {
    const options = lastArgument(text, index + call.length);
    if (/^\{[^{]*\bmaxItems: /.test(options)) return [];
    const schema =
      [...text.slice(0, index).matchAll(/^(?:export )?const (\w+)/gm)].at(-1)?.[1] ?? "";
    return [{ path, schema }];
  });
}

/** The last argument of a call, whose arguments begin at `from`. */
function lastArgument(text: string, from: number): string {
  let [depth, began] = [1, from];
  for (let at = from; ; at += 1) {
    const letter = text[at] ?? "";
    if ("([{".includes(letter)) depth += 1;
    if (")]}".includes(letter)) depth -= 1;
    const argument = text.slice(began, at).trim();
    if (depth === 0) return argument;
    // A comma may stand behind the last one.
    if (depth === 1 && letter === "," && !/^,\s*\)/.test(text.slice(at, at + 200))) began = at + 1;
  }
}

it("every list that comes from outside has a limit", () => {
  const isKnown = ({ path, schema }: List) =>
    path in limitedElsewhere || `${path} ${schema}` in limitedElsewhere;
  const lists = unlimited();
  expect(
    lists.filter((list) => !isKnown(list)).map(({ path, schema }) => `${path} ${schema}`),
  ).toEqual([]);
  const needed = new Set(lists.flatMap(({ path, schema }) => [path, `${path} ${schema}`]));
  expect(Object.keys(limitedElsewhere).filter((name) => !needed.has(name))).toEqual([]);
});
