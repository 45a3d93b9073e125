import { partsOf, textOf, type CardPart } from "./card-json.ts";
import type { CardContext } from "./card-view.ts";
import { inkClass, markdownView, tableView } from "./markdown-view.ts";
import { node, type ViewElement, type ViewNode } from "./view-node.ts";

const largestPage = 10;

/** A table component: all its rows, the first page at once, the others unfolded. */
export function cardTable(part: CardPart, context: CardContext): ViewElement {
  const columns = partsOf(part.columns);
  const header = columns.map((column): ViewNode[] => [textOf(column.display_name) || textOf(column.name)]);
  const rows = partsOf(part.rows).map((row) =>
    columns.map((column) => cellView(row[textOf(column.name)], textOf(column.data_type), context)),
  );
  const size = typeof part.page_size === "number" ? Math.min(largestPage, Math.max(1, part.page_size)) : 5;
  const rest = rows.slice(size);
  if (rest.length === 0) return tableView(header, rows);
  return node("div", {}, [
    tableView(header, rows.slice(0, size)),
    node("details", { class: "more-rows" }, [
      node("summary", {}, [context.words.moreRows.replace("{n}", String(rest.length))]),
      tableView(header, rest),
    ]),
  ]);
}

function cellView(value: unknown, type: string, context: CardContext): ViewNode[] {
  if (type === "lark_md" || type === "markdown") return markdownView(textOf(value), context);
  if (type === "options") {
    return partsOf(value).map((option) =>
      node("span", { class: `label ${inkClass(textOf(option.color))}` }, [textOf(option.text)]),
    );
  }
  if (type === "persons") {
    const ids: unknown[] = Array.isArray(value) ? value : [value];
    return [ids.map((id) => context.nameOf(textOf(id))).join(", ")];
  }
  if (type === "date" && typeof value === "number") return [new Date(value).toLocaleDateString()];
  return [typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "")];
}
