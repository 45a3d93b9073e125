import { writeFileSync } from "node:fs";
import { describedKeys } from "@larkline/store/keys";
import { root, textOf } from "./document.ts";

const page = "docs/architecture.md";
const [begin, end] = ["<!-- redis-keys:begin -->", "<!-- redis-keys:end -->"];

/** docs/architecture.md with the table of keys that the code has. */
export function pageWithKeys(): string {
  const [before, rest = ""] = textOf(page).split(begin);
  const [, after] = rest.split(end);
  if (before === undefined || after === undefined) throw new Error(`${page} has no place for the table of keys`);
  return `${before}${begin}\n\n${keyTable()}\n\n${end}${after}`;
}

/** With cells as wide as their column, as the formatter has them. */
function keyTable(): string {
  const rows = [["key", "type", "content"], ...describedKeys.map(({ key, type, content }) => [key, type, content])].map(
    (row) => row.map((cell) => cell.replaceAll("|", String.raw`\|`)),
  );
  const widths = [0, 1, 2].map((at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join(" | ")} |`;
  const [head = [], ...others] = rows;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...others.map(line)].join("\n");
}

if (import.meta.main) writeFileSync(`${root}/${page}`, pageWithKeys());
