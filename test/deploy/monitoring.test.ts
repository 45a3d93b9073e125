import { execFile, spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { dashboard } from "@larkline/grafana";
import { alertRuleOf } from "@larkline/k8s";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { root, rowsUnder, textOf } from "../docs/document.ts";
import { alertCases, promtoolTests } from "./alert-cases.ts";

const run = promisify(execFile);

interface Rules {
  groups: {
    name: string;
    rules: {
      alert: string;
      expr: string;
      labels: { severity: string };
      annotations: { summary: string; runbook: string };
    }[];
  }[];
}

const rulesText = textOf("infra/prometheus/alerts.yaml");
const rules = (parse(rulesText) as Rules).groups.flatMap((group) => group.rules);
const { panels } = dashboard();
const targets = panels.flatMap(
  (panel) => (panel["targets"] ?? []) as { expr: string; legendFormat: string }[],
);

/** What processes show, with its labels: what docs/observability.md lists, and what the library of Node brings. */
const shown = new Map(
  rowsUnder(textOf("docs/observability.md"), "metric").map((row) => {
    const [name = "", ...others] = row.map((cell) => cell.replaceAll("`", ""));
    // Before the last column, which says what it means.
    return [name, others.at(-2)?.split(", ").filter(Boolean) ?? []] as const;
  }),
);
for (const name of [
  "process_cpu_seconds_total",
  "process_resident_memory_bytes",
  "process_start_time_seconds",
]) {
  shown.set(name, []);
}
shown.set("nodejs_eventloop_lag_p99_seconds", []);
/** Every series has these; `le` those of a histogram. */
const everywhere = ["service", "instance", "le"];

/** Metrics and labels of a query that no process shows. */
function unknownIn(expr: string): string[] {
  const plain = expr.replaceAll(/"(?:\\.|[^"\\])*"/g, '""');
  const names = [...plain.matchAll(/\b(?:larkline|process|nodejs)_\w+/g)].map(([name]) =>
    name.replace(/_seconds_(?:bucket|count|sum)$/, "_seconds"),
  );
  const selected = [...plain.matchAll(/\b(\w+)(?==~|!~|!=|="")/g)].map(([, label = ""]) => label);
  const grouped = [...plain.matchAll(/\b(?:by|on) \(([^)]*)\)/g)].flatMap(([, labels = ""]) =>
    labels.split(", "),
  );
  const known = [...everywhere, ...names.flatMap((name) => shown.get(name) ?? [])];
  return [
    ...names.filter((name) => !shown.has(name)),
    ...[...selected, ...grouped].filter((label) => !known.includes(label)),
  ];
}

describe("infra/prometheus/alerts.yaml", () => {
  it("looks at metrics that processes show, with labels that they have", () => {
    expect(shown.size).toBeGreaterThan(30);
    for (const { alert, expr } of rules) expect(unknownIn(expr), alert).toEqual([]);
    expect(unknownIn('sum by (nobody) (larkline_workers{nothing=~"x"}) / larkline_none')).toEqual([
      "larkline_none",
      "nothing",
      "nobody",
    ]);
  });

  it("has for each alert what it means and what to do, in docs/operations.md, and nothing there without one", () => {
    const sections = [...textOf("docs/operations.md").matchAll(/^### (Larkline\w+)$/gm)].map(
      ([, name]) => name,
    );
    expect(rules.map(({ alert }) => alert)).toEqual(sections);
    for (const { alert, labels, annotations } of rules) {
      expect(annotations.runbook).toBe(`docs/operations.md#${alert.toLowerCase()}`);
      expect(["critical", "warning", "info"]).toContain(labels.severity);
      expect(annotations.summary, alert).not.toBe("");
    }
  });

  it("is what the operator of Prometheus is given (npm run k8s-alerts)", () => {
    expect(textOf("infra/k8s/monitoring/alerts.yaml")).toBe(alertRuleOf(rulesText));
  });
});

describe("the dashboard", () => {
  it("is in the file that Grafana reads (npm run dashboard)", () => {
    expect(JSON.parse(textOf("infra/grafana/dashboards/larkline.json"))).toEqual(dashboard());
  });

  it("shows metrics that processes show, with labels that they have", () => {
    expect(targets.length).toBeGreaterThan(30);
    for (const { expr, legendFormat } of targets) {
      expect(unknownIn(expr), expr).toEqual([]);
      for (const [, label = ""] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) {
        expect(unknownIn(`${expr} by (${label})`), legendFormat).toEqual([]);
      }
    }
  });

  it("has each panel in a place of its own, with a number and a title of its own", () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
    const taken = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from(
        { length: w * h },
        (_, index) => `${x + (index % w)}:${y + Math.floor(index / w)}`,
      ),
    );
    expect(new Set(taken).size).toBe(taken.length);
    for (const { gridPos } of panels) expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
  });

  it("gets the address of Prometheus where the composition has it", () => {
    const { datasources } = parse(
      textOf("infra/grafana/provisioning/datasources/prometheus.yaml"),
    ) as {
      datasources: { type: string; url: string }[];
    };
    expect(datasources).toMatchObject([{ type: "prometheus", url: "http://prometheus:9090" }]);
    const { providers } = parse(textOf("infra/grafana/provisioning/dashboards/larkline.yaml")) as {
      providers: { options: { path: string } }[];
    };
    const mounted = textOf("infra/compose/compose.yaml").match(
      /\.\.\/grafana\/dashboards:(\S+):ro/,
    )?.[1];
    expect(providers[0]?.options.path).toBe(mounted);
  });
});

// Debian's package `prometheus` brings it, and `npm test` installs that where it may.
const hasPromtool = spawnSync("promtool", ["--version"]).status === 0;

describe.skipIf(!hasPromtool)("promtool", () => {
  let folder: string;
  const alertsFile = join(root, "infra/prometheus/alerts.yaml");
  beforeAll(async () => (folder = await mkdtemp(join(tmpdir(), "larkline-promtool-"))));
  afterAll(async () => await rm(folder, { recursive: true, force: true }));

  /** What it says; it takes JSON for the YAML that it is. */
  async function promtool(words: readonly string[], file?: object): Promise<string> {
    const path = join(folder, "file.yaml");
    if (file !== undefined) await writeFile(path, JSON.stringify(file));
    return await run("promtool", [...words, ...(file === undefined ? [] : [path])]).then(
      ({ stdout }) => stdout,
      (error: unknown) => {
        throw new Error(
          error instanceof Error && "stderr" in error ? String(error.stderr) : String(error),
        );
      },
    );
  }

  it("takes the configuration of Prometheus", async () => {
    expect(
      await promtool(["check", "config", join(root, "infra/prometheus/prometheus.yaml")]),
    ).toContain(`SUCCESS: ${rules.length} rules found`);
  });

  it("takes the queries of the dashboard", async () => {
    const asked = targets.map(({ expr }, index) => ({
      record: `panel:${index}`,
      expr: expr.replaceAll("$__rate_interval", "1m"),
    }));
    const file = { groups: [{ name: "dashboard", rules: asked }] };
    expect(await promtool(["check", "rules"], file)).toContain(
      `SUCCESS: ${asked.length} rules found`,
    );
  });

  it("raises each alert where it is needed, it alone, and none where all is well", async () => {
    expect(Object.keys(alertCases)).toEqual(rules.map(({ alert }) => alert));
    expect(await promtool(["test", "rules"], promtoolTests(alertsFile))).toContain("SUCCESS");
  });
});
