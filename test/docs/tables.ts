import { writeFileSync } from "node:fs";
import {
  eventCatalogue,
  instrumentCatalogue,
  metricCatalogue,
  prometheusName,
  spanCatalogue,
  type InstrumentFacts,
  type MetricFacts,
  type ObservationFacts,
} from "@larkline/process/telemetry";
import { feishuTools } from "@larkline/feishu-tools";
import { apiTools } from "@larkline/feishu-tools/api";
import { decisionTools } from "@larkline/feishu-tools/approvals";
import { describedKeys } from "@larkline/store/keys";
import { root, textOf } from "./document.ts";

/** Rows of a table, its headings first. */
type Rows = readonly (readonly string[])[];

const toolHeads = {
  en: ["tool", "what people read", "a second run", "asks first", "permissions"],
  zh: ["工具", "给人看的名字", "再运行一次", "先问人", "权限"],
};

/** Every page with its tables, each between `<!-- <name>:begin -->` and `<!-- <name>:end -->`. */
export const tables: Readonly<Record<string, Readonly<Record<string, Rows>>>> = {
  "packages/store/src/keys.md": {
    "redis-keys": [
      ["key", "type", "written by", "read by", "content"],
      ...describedKeys().map(({ key, type, writtenBy, readBy, content }) => [
        key,
        type,
        writtenBy.join(", "),
        readBy.join(", "),
        content,
      ]),
    ],
  },
  "packages/process/src/telemetry/observations.md": {
    events: observations("event", eventCatalogue),
    spans: observations("span", spanCatalogue),
  },
  "docs/work-tools.md": {
    tools: workTools("en", feishuTools()),
    "named-tools": workTools("en", [...decisionTools(), ...apiTools()]),
  },
  "docs/zh/work-tools.md": {
    tools: workTools("zh", feishuTools()),
    "named-tools": workTools("zh", [...decisionTools(), ...apiTools()]),
  },
  "docs/observability.md": {
    metrics: [
      ["metric", "from", "labels", "meaning"],
      ...Object.entries<MetricFacts>(metricCatalogue).map(([name, facts]) =>
        metricRow(prometheusName(name, facts), facts, [facts.by.join(", ")]),
      ),
      ...instruments("processes").map(([name, facts]) =>
        metricRow(name, facts, [facts.by.join(", ")]),
      ),
    ],
    states: [
      ["metric", "labels", "meaning"],
      ...instruments("states").map(([name, facts]) => metricRow(name, facts)),
    ],
  },
};

/** The page with its tables as the code has them. */
export function pageWithTables(page: string): string {
  return Object.entries(tables[page] ?? {}).reduce((text, [name, rows]) => {
    const [begin, end] = [`<!-- ${name}:begin -->`, `<!-- ${name}:end -->`];
    const [before, rest = ""] = text.split(begin);
    const [, after] = rest.split(end);
    if (before === undefined || after === undefined) {
      throw new Error(`${page} has no place for the table ${name}`);
    }
    return `${before}${begin}\n\n${tableOf(rows)}\n\n${end}${after}`;
  }, textOf(page));
}

function observations(
  heading: string,
  catalogue: Readonly<Record<string, ObservationFacts>>,
): Rows {
  const rows = Object.entries(catalogue).map(([name, { by, help }]) => [
    `\`${name}\``,
    by.join(", "),
    help,
  ]);
  return [[heading, "from", "meaning"], ...rows];
}

function workTools(language: "en" | "zh", tools: ReturnType<typeof feishuTools>): Rows {
  const rows = tools.map(({ name, title, effect, requiresApproval, risk, scopes }) => [
    `\`${name}\``,
    typeof title === "object" ? title[language] : (title ?? ""),
    `\`${effect}\``,
    requiresApproval ? `\`${risk}\`` : "",
    scopes.map((scope) => `\`${scope}\``).join(" "),
  ]);
  return [toolHeads[language], ...rows];
}

/** Instruments of one table: what the console reads from Redis, or all others. */
function instruments(table: "states" | "processes"): [string, InstrumentFacts][] {
  const tableFor = (name: string, { by }: InstrumentFacts): typeof table => {
    return by.includes("console") && !name.startsWith("larkline_console_") ? "states" : "processes";
  };
  return Object.entries(instrumentCatalogue).filter(
    ([name, facts]) => tableFor(name, facts) === table,
  );
}

/** Without the kind, which the name says. */
function metricRow(
  name: string,
  { labels, help }: InstrumentFacts | MetricFacts,
  from: string[] = [],
): string[] {
  return [`\`${name}\``, ...from, labels.map((label) => `\`${label}\``).join(", "), help];
}

/** With cells as wide as their column, as the formatter has them. */
function tableOf(rows: Rows): string {
  const escaped = rows.map((row) => row.map((cell) => cell.replaceAll("|", String.raw`\|`)));
  const [head = [], ...others] = escaped;
  const widths = head.map((_, at) => Math.max(3, ...escaped.map((row) => widthOf(row[at] ?? ""))));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, at) => cell.padEnd((widths[at] ?? 0) - widthOf(cell) + cell.length)).join(" | ")} |`;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...others.map(line)].join(
    "\n",
  );
}

/** Chinese characters take two columns. */
function widthOf(cell: string): number {
  return cell.length + [...cell.matchAll(/[\u3000-\u303f\u4e00-\u9fff\uff00-\uff60]/g)].length;
}

if (import.meta.main) {
  for (const page of Object.keys(tables)) writeFileSync(`${root}/${page}`, pageWithTables(page));
}
