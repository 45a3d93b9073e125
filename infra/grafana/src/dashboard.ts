import { rows, type Chart, type Row } from "./charts.ts";

/** A panel as Grafana has it: what we say of one. */
export interface Panel {
  id: number;
  type: "row" | "stat" | "timeseries";
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  [setting: string]: unknown;
}

interface Box {
  id: number;
  x: number;
  y: number;
}

const datasource = { type: "prometheus", uid: "${datasource}" };
/** Grafana's dashboards are 24 wide. */
const totalWidth = 24;
const heights = { row: 1, stat: 4, timeseries: 8 } as const;
const widths = { stat: 4, timeseries: 8 } as const;

const queryNames = "ABCDEFGH";

function targetsOf({ queries }: Chart): object[] {
  return Object.entries(queries).map(([legendFormat, expr], index) => ({
    refId: queryNames[index],
    datasource,
    expr,
    legendFormat,
  }));
}

/** Green up to the first bound, then yellow, then red; upside down where less is worse. */
function thresholdsOf({ bounds }: Chart): object {
  const [warning, critical] = bounds ?? [];
  const [first, last] = (warning ?? 0) > (critical ?? 0) ? ["red", "green"] : ["green", "red"];
  const steps = [warning, critical]
    .filter((value) => value !== undefined)
    .toSorted((a, b) => a - b);
  const colors = steps.length === 0 ? ["green"] : [first, "yellow", last];
  return {
    mode: "absolute",
    steps: colors.map((color, index) => ({ color, value: steps[index - 1] ?? null })),
  };
}

function panelOf(chart: Chart, { id, x, y }: Box): Panel {
  const type = chart.bounds === undefined ? "timeseries" : "stat";
  const options =
    type === "stat"
      ? { reduceOptions: { calcs: ["lastNotNull"] }, colorMode: "background", graphMode: "area" }
      : {
          legend: { displayMode: "list", placement: "bottom", showLegend: true },
          tooltip: { mode: "multi", sort: "desc" },
        };
  const custom =
    type === "stat"
      ? {}
      : { lineWidth: 1, fillOpacity: 10, spanNulls: 60_000, showPoints: "never" };
  return {
    id,
    type,
    title: chart.title,
    description: chart.help,
    gridPos: { x, y, w: widths[type], h: heights[type] },
    datasource,
    fieldConfig: {
      defaults: { unit: chart.unit, min: 0, custom, thresholds: thresholdsOf(chart) },
      overrides: [],
    },
    options,
    targets: targetsOf(chart),
  };
}

/** Puts panels side by side from the left, and on where the width ends; `y` is where the row begins. */
function panelsOf(
  { title, charts }: Row,
  firstId: number,
  y: number,
): { panels: Panel[]; endY: number } {
  const panels: Panel[] = [
    {
      id: firstId,
      type: "row",
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y, w: totalWidth, h: heights.row },
    },
  ];
  let [x, top, height] = [0, y + heights.row, 0];
  for (const chart of charts) {
    const { w, h } = panelOf(chart, { id: 0, x, y: top }).gridPos;
    // Panels of one height side by side.
    if (x + w > totalWidth || (height !== 0 && h !== height)) [x, top] = [0, top + height];
    panels.push(panelOf(chart, { id: firstId + panels.length, x, y: top }));
    [x, height] = [x + w, h];
  }
  return { panels, endY: top + height };
}

function allPanels(): Panel[] {
  const panels: Panel[] = [];
  let y = 0;
  for (const row of rows) {
    const laid = panelsOf(row, panels.length + 1, y);
    panels.push(...laid.panels);
    y = laid.endY;
  }
  return panels;
}

/** The dashboard that Grafana is given, as JSON. */
export function dashboard(): { panels: Panel[]; [setting: string]: unknown } {
  return {
    uid: "larkline",
    title: "Larkline",
    tags: ["larkline"],
    schemaVersion: 39,
    version: 1,
    editable: false,
    timezone: "browser",
    refresh: "30s",
    time: { from: "now-3h", to: "now" },
    templating: {
      list: [
        {
          name: "datasource",
          type: "datasource",
          query: "prometheus",
          label: "Prometheus",
          current: {},
          hide: 0,
        },
      ],
    },
    annotations: {
      list: [
        {
          name: "Alerts",
          datasource,
          enable: true,
          iconColor: "red",
          expr: 'ALERTS{alertname=~"Larkline.+", alertstate="firing"}',
          titleFormat: "{{alertname}}",
        },
      ],
    },
    panels: allPanels(),
  };
}
