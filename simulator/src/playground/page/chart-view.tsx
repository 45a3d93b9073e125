import type { VNode } from "preact";
import { type CardPart, partOf, partsOf, textOf } from "./card-part.ts";

// The chart component, as far as bots use it: bars, lines, areas and slices, with their numbers. Read by name, too.

const [width, height, margin] = [520, 260, 28];
const inks = ["#3370ff", "#00b8a9", "#ff8800", "#7f3bf5", "#f54a45", "#646a73"];

interface Row {
  x: string;
  y: number;
  series: string;
}

/** Draws a VChart specification; undefined where it has no numbers that can be read. */
export function chartView(spec: CardPart): VNode | undefined {
  const rows = rowsOf(spec);
  if (rows.length === 0) return undefined;
  const title = textOf(partOf(spec.title).text);
  const names = [...new Set(rows.map(({ series }) => series))];
  const spoken = rows
    .map(({ x, y, series }) => `${series === "" ? "" : `${series}, `}${x}: ${y}`)
    .join("; ");
  const drawn = spec.type === "pie" ? slices(rows) : plot(textOf(spec.type), rows, names);
  const legend = spec.type === "pie" ? rows.map(({ x }) => x) : names.filter((name) => name !== "");
  return (
    <figure class="chart">
      {title !== "" && <figcaption>{title}</figcaption>}
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${title} ${spoken}`.trim()}>
        {drawn}
      </svg>
      {legend.length > 0 && (
        <p class="legend">
          {legend.map((name, at) => (
            <span>
              <i style={{ background: inkOf(at) }} />
              {name}
            </span>
          ))}
        </p>
      )}
    </figure>
  );
}

function rowsOf(spec: CardPart): Row[] {
  const [data] = Array.isArray(spec.data) ? partsOf(spec.data) : [partOf(spec.data)];
  const [x] = [spec.xField ?? spec.categoryField].flat();
  const [y] = [spec.yField ?? spec.valueField].flat();
  return partsOf(data?.values).flatMap((row): Row[] => {
    const value = row[String(y)];
    if (typeof value !== "number") return [];
    return [{ x: String(row[String(x)]), y: value, series: textOf(row[textOf(spec.seriesField)]) }];
  });
}

function inkOf(at: number): string {
  return inks[at % inks.length] ?? "#3370ff";
}

function plot(type: string, rows: readonly Row[], names: readonly string[]): VNode[] {
  const places = [...new Set(rows.map(({ x }) => x))];
  const highest = Math.max(0, ...rows.map(({ y }) => y));
  const lowest = Math.min(0, ...rows.map(({ y }) => y));
  const room = height - 2 * margin;
  const top = (y: number): number => margin + ((highest - y) / (highest - lowest || 1)) * room;
  const step = (width - 2 * margin) / places.length;
  const middle = (x: string): number => margin + (places.indexOf(x) + 0.5) * step;
  const labels = places.map((place) => (
    <text x={middle(place)} y={height - 8} class="label-x">
      {place}
    </text>
  ));
  const axis = <line x1={margin} x2={width - margin} y1={top(0)} y2={top(0)} class="axis" />;
  const bar = (step * 0.7) / names.length;
  const figures = rows.map(({ x, y, series }) => {
    const aside = type === "bar" ? (names.indexOf(series) - (names.length - 1) / 2) * bar : 0;
    return (
      <text x={middle(x) + aside} y={top(Math.max(0, y)) - 5} class="figure">
        {y}
      </text>
    );
  });
  if (type === "bar") {
    const bars = rows.map(({ x, y, series }) => (
      <rect
        x={middle(x) + (names.indexOf(series) - names.length / 2) * bar}
        y={Math.min(top(0), top(y))}
        width={bar}
        height={Math.abs(top(0) - top(y))}
        fill={inkOf(names.indexOf(series))}
      />
    ));
    return [...bars, axis, ...labels, ...figures];
  }
  const lines = names.map((name, at) => {
    const points = rows
      .filter(({ series }) => series === name)
      .map(({ x, y }) => `${middle(x)},${top(y)}`);
    const [first = "", last = ""] = [points[0]?.split(",")[0], points.at(-1)?.split(",")[0]];
    const area = `${first},${top(0)} ${points.join(" ")} ${last},${top(0)}`;
    return type === "area" ? (
      <polygon points={area} fill={inkOf(at)} fill-opacity="0.35" />
    ) : (
      <polyline points={points.join(" ")} fill="none" stroke={inkOf(at)} stroke-width="2.5" />
    );
  });
  return [...lines, axis, ...labels, ...figures];
}

function slices(rows: readonly Row[]): VNode[] {
  const whole = rows.reduce((sum, { y }) => sum + Math.max(0, y), 0) || 1;
  const [x, y, radius] = [width / 2, height / 2, height / 2 - margin / 2];
  const at = (part: number): string => {
    const turn = part * 2 * Math.PI - Math.PI / 2;
    return `${x + radius * Math.cos(turn)},${y + radius * Math.sin(turn)}`;
  };
  let before = 0;
  return rows.map((row, index) => {
    const part = Math.min(0.9999, Math.max(0, row.y) / whole);
    const path = `M${x},${y} L${at(before)} A${radius},${radius} 0 ${part > 0.5 ? 1 : 0} 1 ${at(before + part)} Z`;
    before += part;
    return <path d={path} fill={inkOf(index)} class="slice" />;
  });
}
