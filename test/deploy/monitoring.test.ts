import { execFile, spawnSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
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
const targets = panels.flatMap((panel) => (panel["targets"] ?? []) as { expr: string; legendFormat: string }[]);

/** What the processes show: what the documentation lists, what the code creates, and what Node's own library brings. */
function shownMetrics(): Set<string> {
  const listed = rowsUnder(textOf("docs/observability.md"), "metric").map(([name = ""]) => name.replaceAll("`", ""));
  const sources = globSync(["apps/*/src/*.ts", "packages/*/src/*.ts"], { cwd: root }).map((file) =>
    readFileSync(join(root, file), "utf8"),
  );
  const created = sources.flatMap((text) =>
    [...text.matchAll(/\bname: "(larkline_\w+)"/g)].map(([, name = ""]) => name),
  );
  const ofNode = ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"];
  return new Set([...listed, ...created, ...ofNode, "nodejs_eventloop_lag_p99_seconds"]);
}

const shown = [...shownMetrics()];

function metricsIn(expr: string): string[] {
  const names = [...expr.matchAll(/\b(?:larkline|process|nodejs)_\w+/g)].map(([name]) => name);
  return names.map((name) => name.replace(/_seconds_(?:bucket|count|sum)$/, "_seconds"));
}

describe("infra/prometheus/alerts.yaml", () => {
  it("looks at metrics that processes show", () => {
    expect(shown.length).toBeGreaterThan(30);
    for (const { alert, expr } of rules) expect(shown, alert).toEqual(expect.arrayContaining(metricsIn(expr)));
  });

  it("has for each alert what it means and what to do, in docs/operations.md, and nothing there without one", () => {
    const sections = [...textOf("docs/operations.md").matchAll(/^### (Larkline\w+)$/gm)].map(([, name]) => name);
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

  it("shows metrics that processes show", () => {
    expect(targets.length).toBeGreaterThan(30);
    for (const { expr } of targets) expect(shown, expr).toEqual(expect.arrayContaining(metricsIn(expr)));
  });

  it("has each panel in a place of its own, with a number and a title of its own", () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
    const taken = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)}:${y + Math.floor(index / w)}`),
    );
    expect(new Set(taken).size).toBe(taken.length);
    for (const { gridPos } of panels) expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
  });

  it("is told of Prometheus where the composition has it", () => {
    const { datasources } = parse(textOf("infra/grafana/provisioning/datasources/prometheus.yaml")) as {
      datasources: { type: string; url: string }[];
    };
    expect(datasources).toMatchObject([{ type: "prometheus", url: "http://prometheus:9090" }]);
    const { providers } = parse(textOf("infra/grafana/provisioning/dashboards/larkline.yaml")) as {
      providers: { options: { path: string } }[];
    };
    const mounted = textOf("infra/compose/compose.yaml").match(/\.\.\/grafana\/dashboards:(\S+):ro/)?.[1];
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
        throw new Error(error instanceof Error && "stderr" in error ? String(error.stderr) : String(error));
      },
    );
  }

  it("takes the configuration of Prometheus", async () => {
    expect(await promtool(["check", "config", join(root, "infra/prometheus/prometheus.yaml")])).toContain(
      `SUCCESS: ${rules.length} rules found`,
    );
  });

  it("takes the queries of the dashboard", async () => {
    const asked = targets.map(({ expr }, index) => ({
      record: `panel:${index}`,
      expr: expr.replaceAll("$__rate_interval", "1m"),
    }));
    const file = { groups: [{ name: "dashboard", rules: asked }] };
    expect(await promtool(["check", "rules"], file)).toContain(`SUCCESS: ${asked.length} rules found`);
  });

  it("raises each alert where it is needed, it alone, and none where all is well", async () => {
    expect(Object.keys(alertCases)).toEqual(rules.map(({ alert }) => alert));
    expect(await promtool(["test", "rules"], promtoolTests(alertsFile))).toContain("SUCCESS");
  });
});
