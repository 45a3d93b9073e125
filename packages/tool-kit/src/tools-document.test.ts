import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { defineTool, isolationLevels, type HandlerTool, type Isolation } from "./index.ts";

const text = readFileSync(new URL("../../../docs/tools.md", import.meta.url), "utf8");

/** The rows of the table whose first column is called so, without the head. */
function rowsUnder(head: string): string[][] {
  const rows = text.split("\n").map((line) => line.split("|").slice(1, -1));
  const from = rows.findIndex(([first = ""]) => first.trim() === head);
  const table = rows.slice(from + 2);
  const end = table.findIndex((cells) => cells.length === 0);
  return table.slice(0, end).map((cells) => cells.map((cell) => cell.trim().replaceAll("`", "")));
}

const required = {
  name: "t",
  description: "d",
  input: { type: "object" },
  effect: "pure",
} as const;
const settings: Record<string, object> = {
  env: { env: ["A"] },
  memoryMb: { memoryMb: 64 },
  concurrency: { concurrency: 2 },
  network: { network: "none" },
  limits: { limits: { processes: 2 } },
  readable: { readable: ["/usr/share"] },
};

function accepts(level: (typeof isolationLevels)[number], setting: object): boolean {
  const isolation: Isolation = { level, ...setting };
  try {
    defineTool({ ...required, isolation, run: () => null });
    return true;
  } catch {
    return false;
  }
}

describe("docs/tools.md", () => {
  it("says which settings each level takes", () => {
    const rows = rowsUnder("setting");
    expect(rows.map(([name]) => name)).toEqual(Object.keys(settings));
    for (const [name = "", ...cells] of rows) {
      for (const [column, level] of isolationLevels.entries()) {
        const answer = accepts(level, settings[name] ?? {}) ? "yes" : "no";
        expect([name, level, cells[column]]).toEqual([name, level, answer]);
      }
    }
  });

  it("names every field of a definition, with its default", () => {
    const tool: HandlerTool = defineTool({ ...required, run: () => null });
    const facts: Record<string, unknown> = { ...tool, isolation: tool.isolation.level };
    const { kind: _kind, check: _check, inputSchema: _schema, ...fields } = facts;
    const rows = rowsUnder("field");
    expect(rows.map(([name]) => name).sort()).toEqual([...Object.keys(fields), "input"].sort());
    for (const [name = "", standard = ""] of rows) {
      if (standard === "required") continue;
      const value = facts[name];
      const isNone = value === undefined || (Array.isArray(value) && value.length === 0);
      expect([name, standard]).toEqual([name, isNone ? "none" : String(value)]);
    }
  });
});
