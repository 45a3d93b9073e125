import { chartOf, type Chart } from "@larkline/protocol/chart";
import { LineReader, type Context } from "./answer.ts";

// Charts on cards: the platform draws them ("Chart component"; VChart specification without code).

/** Most charts of a card ("Chart component": five). */
export const maxChartsPerCard = 5;

/** The component of a chart. */
export function chartElement(chart: Chart, elementId: string): Record<string, unknown> {
  return { tag: "chart", element_id: elementId, aspect_ratio: "16:9", chart_spec: specOf(chart) };
}

function specOf({ type, title = "", data, x, y, series }: Chart): Record<string, unknown> {
  const shared = {
    type,
    ...(title === "" ? {} : { title: { text: title } }),
    data: [{ id: "values", values: data }],
  };
  if (type === "pie") {
    const legends = { visible: true, orient: "bottom" };
    return { ...shared, categoryField: x, valueField: y, label: { visible: true }, legends };
  }
  const isNamed = series !== undefined;
  return {
    ...shared,
    xField: isNamed && type === "bar" ? [x, series] : x,
    yField: y,
    ...(isNamed ? { seriesField: series, legends: { visible: true, orient: "bottom" } } : {}),
  };
}

/** A piece of an answer: text with what is open where it begins, or a chart. */
export type AnswerPiece = { slice: string; context: Context } | { chart: Chart };

/** The slice of an answer, parted at the fences `chart` that can be drawn; undefined where it has none. */
export function chartPieces(slice: string, context: Context): AnswerPiece[] | undefined {
  const reader = new LineReader(slice, context, { end: "line" });
  const pieces: AnswerPiece[] = [];
  let text = { from: 0, context };
  let open: { start: number; code: string[] } | undefined;
  let charts = 0;
  for (let line = reader.next(); line !== undefined; line = reader.next()) {
    if (line.kind === "fence-open" && line.fence?.language === "chart" && line.fence.indent === 0) {
      open = { start: line.start, code: [] };
    } else if (line.kind === "code") {
      open?.code.push(line.text);
    } else if (line.kind === "fence-close" && open !== undefined) {
      const chart = charts < maxChartsPerCard ? readChart(open.code.join("\n")) : undefined;
      if (chart !== undefined) {
        charts += 1;
        pieces.push(
          { slice: slice.slice(text.from, open.start), context: text.context },
          { chart },
        );
        text = { from: line.end, context: reader.context() };
      }
      open = undefined;
    }
  }
  return charts === 0
    ? undefined
    : [...pieces, { slice: slice.slice(text.from), context: text.context }];
}

function readChart(json: string): Chart | undefined {
  try {
    return chartOf(JSON.parse(json));
  } catch {
    return undefined;
  }
}
