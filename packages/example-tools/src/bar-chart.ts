import { defineTool, type HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { createCanvas, figuresWidth } from "./canvas.ts";

const width = 640;
const height = 360;
const margin = 24;
/** Room for a figure above or below its bar. */
const figureRoom = 20;
const maxValues = 40;
const maxValue = 1e15;
const palette = [0xffffff, 0x3370ff, 0xf54a45, 0x646a73, 0xdee0e3];
const color = { positive: 1, negative: 2, figure: 3, line: 4 } as const;

/** A value as it fits above its bar: four digits that count. */
function figureOf(value: number): string {
  const [digits = "", exponent] = String(Number(value.toPrecision(4))).split("e");
  return exponent === undefined ? digits : `${digits}e${exponent}`;
}

/** A bar for each value from left to right, with the value above it where there is room, as PNG. */
export function drawBars(values: readonly number[]): Buffer {
  const canvas = createCanvas(width, height, palette);
  const highest = Math.max(0, ...values);
  const lowest = Math.min(0, ...values);
  const span = highest - lowest || 1;
  const top = margin + figureRoom;
  const bottom = lowest < 0 ? top : margin;
  const room = height - top - bottom;
  const zeroY = top + (highest / span) * room;
  const step = (width - 2 * margin) / values.length;
  for (const [index, value] of values.entries()) {
    const length = (Math.abs(value) / span) * room;
    const isNegative = value < 0;
    const y = isNegative ? zeroY : zeroY - length;
    const bar = { x: margin + index * step + step * 0.15, y, width: step * 0.7, height: length };
    canvas.paint(bar, isNegative ? color.negative : color.positive);
    const figure = figureOf(value);
    const scale = [3, 2].find((size) => figuresWidth(figure, size) <= step - size);
    if (scale === undefined) continue;
    const footY = isNegative ? zeroY + length + 4 + 5 * scale : y - 4;
    canvas.write(
      figure,
      { x: margin + (index + 0.5) * step, y: Math.round(footY), scale },
      color.figure,
    );
  }
  canvas.paint({ x: margin, y: zeroY, width: width - 2 * margin, height: 1 }, color.line);
  return canvas.png();
}

/** Draws numbers. */
export const barChart: HandlerTool = defineTool({
  name: "bar_chart",
  description: `Draws 1 to ${maxValues} numbers as a bar chart without other labels than the numbers themselves.`,
  title: { zh: "画柱状图", en: "Draw a bar chart" },
  input: Type.Object(
    {
      values: Type.Array(Type.Number({ minimum: -maxValue, maximum: maxValue }), {
        minItems: 1,
        maxItems: maxValues,
        description: "From left to right.",
      }),
      title: Type.Optional(
        Type.String({
          maxLength: 60,
          description: "What people read where the chart cannot be shown.",
        }),
      ),
    },
    { additionalProperties: false },
  ),
  effect: "pure",
  addresses: [],
  risk: "low",
  timeoutMs: 10_000,
  savesFiles: true,
  run: async ({ values, title }, { saveFile }) => {
    const name =
      title ??
      `Bar chart of ${values.slice(0, 8).map(figureOf).join(", ")}${values.length > 8 ? ", …" : ""}`;
    return await saveFile(drawBars(values), { mediaType: "image/png", name });
  },
});
