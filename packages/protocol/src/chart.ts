import { Type, type Static } from "./type.ts";
import { parserOf } from "./schema.ts";

// A chart that a tool returns or a model writes: numbers, and which of them stand where.

const field = Type.String({ minLength: 1, maxLength: 60 });
const most = { values: 200, characters: 8_000 };

/** Numbers as people see them drawn. */
export const Chart = Type.Object(
  {
    type: Type.Enum(["bar", "line", "area", "pie"]),
    title: Type.Optional(Type.String({ maxLength: 100 })),
    /** Rows: each has the same fields. */
    data: Type.Array(
      Type.Record(field, Type.Union([Type.String({ maxLength: 100 }), Type.Number()])),
      { minItems: 1, maxItems: most.values },
    ),
    /** The field that names a bar, a point or a slice. */
    x: field,
    /** The field with its number. */
    y: field,
    /** The field that tells rows of one series from those of another. */
    series: Type.Optional(field),
  },
  { additionalProperties: false },
);
export type Chart = Static<typeof Chart>;

const parseChart = parserOf(Chart);

/** A chart in our words, or in those of VChart; undefined where it is none that can be drawn. */
export function chartOf(value: unknown): Chart | undefined {
  if (!isObject(value)) return undefined;
  const { data, title } = value;
  const written = {
    type: value["type"],
    title: isObject(title) ? title["text"] : title,
    data: rowsOf(data),
    x: value["x"] ?? value["xField"] ?? value["categoryField"],
    y: value["y"] ?? value["yField"] ?? value["valueField"],
    series: value["series"] ?? value["seriesField"],
  };
  const given = Object.entries(written).filter(([, each]) => each !== undefined);
  const parsed = parseChart(Object.fromEntries(given));
  if (!parsed.ok || JSON.stringify(parsed.value).length > most.characters) return undefined;
  const { data: rows, x, y, series } = parsed.value;
  const isWhole = rows.every(
    (row) =>
      Object.hasOwn(row, x) &&
      typeof row[y] === "number" &&
      (series === undefined || Object.hasOwn(row, series)),
  );
  return isWhole ? parsed.value : undefined;
}

/** Of VChart: `{ values }`, or a list of such. */
function rowsOf(data: unknown): unknown {
  const [first]: unknown[] = Array.isArray(data) ? data : [data];
  return isObject(first) && Array.isArray(first["values"]) ? first["values"] : data;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
