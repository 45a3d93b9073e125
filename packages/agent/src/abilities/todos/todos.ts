import { parserOf } from "@larkline/protocol";
import type { ProgressPanel } from "@larkline/protocol/reply-view";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import { Type, type Static } from "@larkline/protocol/type";
import type { Ability } from "../../turn/ability.ts";

/*
 * The to-do list of a turn. The model writes all of it each time, people see it above the answer. It lives in the
 * checkpoint and ends with the turn.
 */

const limits = { items: 20, characters: 200 } as const;

const Todo = Type.Object({
  text: Type.String({ minLength: 1, maxLength: limits.characters }),
  state: Type.Enum(["pending", "in_progress", "done"]),
});
type Todo = Static<typeof Todo>;

const Input = Type.Object(
  { todos: Type.Array(Todo, { maxItems: limits.items }) },
  { additionalProperties: false },
);
const parse = parserOf(Input);

const tool: ToolAnnouncement = {
  spec: {
    name: "todo_write",
    description:
      "Writes your to-do list for what the person wants, all of it each time; the person sees it. Use it for work of " +
      "several steps: write the list first, then again whenever you begin or finish something.",
    inputSchema: { ...Input },
  },
  effect: "idempotent",
  requiresApproval: false,
  risk: "low",
  addresses: [],
  timeoutMs: 30_000,
};

/** The list of an agent that is configured with `todos: true`. */
export const todos: Ability<readonly Todo[]> = {
  name: "todos",
  config: Type.Boolean({
    description: "A tool to write a to-do list, which the card shows and ticks off. Default: no.",
  }),
  toolNames: [tool.spec.name],
  tools: ({ settings }) => (settings["todos"] === true ? [tool] : []),
  onCall: ({ arguments: given }) => {
    const parsed = parse(given);
    return parsed.ok
      ? { ok: true, result: { todos: parsed.value.todos } }
      : { ok: false, error: `The arguments do not fit: ${parsed.error}` };
  },
  onAnswer: ({ outcome, state }) => {
    if (!outcome.ok) return { state };
    const { todos: list } = outcome.result as { todos: Todo[] }; // by `onCall`
    return { state: list.length === 0 ? undefined : list };
  },
  panels: (list) => [panelOf(list)],
};

function panelOf(list: readonly Todo[]): ProgressPanel {
  const done = list.filter(({ state }) => state === "done").length;
  const title = {
    zh: `📋 待办：已完成 ${done}/${list.length}`,
    en: `📋 To-do: ${done} of ${list.length} done`,
  };
  return { kind: "progress", name: "todos", title, items: [...list] };
}
