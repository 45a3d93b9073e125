import { html, type Html, type HtmlValue } from "./html.ts";

// Charts as SVG, drawn here: a handful of shapes, without scripts. What a shape shows is behind it as a tooltip; the page
// has all figures as a table for those who do not see it. A plot is stretched to its place, so texts stand beside it.

/** Colours of `style.css`. */
export type Tone = "good" | "bad" | "quiet" | "one" | "two" | "three" | "four";

export interface Series {
  name: string | Html;
  tone: Tone;
  /** One for each time; undefined: nothing to show there. */
  values: readonly (number | undefined)[];
}

export interface ChartOptions {
  title: string;
  /** Of each value, as it stands under the plot and in tooltips. */
  times: readonly string[];
  /** The time zone that they are in. */
  timeZone: string;
  series: readonly Series[];
  format(value: number): string;
  /** What is said in place of a plot where all values are missing. */
  empty: string;
  /** Beside the title, such as the sum of all. */
  figure?: HtmlValue;
}

const height = 100;
const step = 10;

/** Bars that stand upon each other. */
export function barChart(options: ChartOptions): Html {
  const { series, times, format } = options;
  const sums = times.map((_, at) => series.reduce((sum, { values }) => sum + (values[at] ?? 0), 0));
  const most = Math.max(0, ...sums);
  const bars = times.map((time, at) => {
    let top = height;
    const parts = series.map(({ tone, values }) => {
      const size = most === 0 ? 0 : ((values[at] ?? 0) / most) * height;
      top -= size;
      return (
        size > 0 &&
        html`<rect
          class="${tone}"
          x="${at * step + 1}"
          y="${rounded(top)}"
          width="${step - 2}"
          height="${rounded(size)}"
        />`
      );
    });
    return (sums[at] ?? 0) > 0 && html`<g>${tooltip(time, options, at)}${parts}</g>`;
  });
  return figureOf(options, most, most === 0 ? undefined : bars, format);
}

/** Lines, broken where there is nothing to show; a value without neighbours is a dot. */
export function lineChart(options: ChartOptions): Html {
  const { series, times, format } = options;
  const most = Math.max(0, ...series.flatMap(({ values }) => values.map((value) => value ?? 0)));
  const y = (value: number): number => rounded(height - (value / most) * (height - 4) - 2);
  const place = ({ value, at }: { value: number; at: number }): string =>
    `${at * step + step / 2} ${y(value)}`;
  const lines = series.map(({ tone, values }) => {
    const points = values.flatMap((value, at) => (value === undefined ? [] : [{ value, at }]));
    const isAlone = ({ at }: { at: number }): boolean =>
      values[at - 1] === undefined && values[at + 1] === undefined;
    const drawn = points.map(
      (point) => `${values[point.at - 1] === undefined ? "M" : "L"}${place(point)}`,
    );
    const dots = points.filter(isAlone).map((point) => `M${place(point)}h.01`);
    return html`<path class="${tone}" d="${drawn.join("")}" />${
        dots.length > 0 && html`<path class="${tone} dot" d="${dots.join("")}" />`
      }`;
  });
  const areas = times.map(
    (time, at) =>
      series.some(({ values }) => values[at] !== undefined) &&
      html`<g
        >${tooltip(time, options, at)}<rect
          class="sense"
          x="${at * step}"
          y="0"
          width="${step}"
          height="${height}"
      /></g>`,
  );
  return figureOf(options, most, most === 0 ? undefined : [...lines, ...areas], format);
}

function tooltip(time: string, { series, format }: ChartOptions, at: number): Html {
  const shown = series.filter(({ values }) => (values[at] ?? 0) !== 0);
  const figures = shown.map(
    ({ name, values }, place) => html`${place > 0 && ", "}${name} ${format(values[at] ?? 0)}`,
  );
  return html`<title>${time}: ${figures}</title>`;
}

function figureOf(
  { title, series, times, timeZone, empty, figure }: ChartOptions,
  most: number,
  shapes: HtmlValue,
  format: (value: number) => string,
): Html {
  const width = times.length * step;
  const [first = "", last = ""] = [times[0], times.at(-1)];
  return html`<figure class="chart">
    <figcaption>
      <strong>${title}</strong>
      ${figure !== undefined && html`<span class="figure">${figure}</span>`}
      ${
        series.length > 1 &&
        html`<span class="legend"
          >${series.map(({ name, tone }) => html`<span class="${tone}">${name}</span> `)}</span
        >`
      }
    </figcaption>
    ${
      shapes === undefined
        ? html`<p class="quiet plot none">${empty}</p>`
        : html`<div class="plot">
            <span class="most">${format(most)}</span>
            <svg
              viewBox="0 0 ${width} ${height}"
              preserveAspectRatio="none"
              role="img"
              aria-label="${title}"
            >
              ${shapes}
            </svg>
          </div>`
    }
    <div class="times">
      <span>${first}</span><span>${times[Math.floor(times.length / 2)] ?? ""}</span
      ><span>${last}</span>
    </div>
    <p class="zone">${timeZone}</p>
  </figure>`;
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
