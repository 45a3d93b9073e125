import { existsSync, readdirSync } from "node:fs";
import {
  eventCatalogue,
  instrumentCatalogue,
  metricCatalogue,
  prometheusName,
  spanCatalogue,
  type MetricFacts,
  type ObservationFacts,
} from "@larkline/process/telemetry";
import { describe, expect, it } from "vitest";
import { root, rowsUnder, sourcesBelow, textOf } from "./document.ts";

const text = textOf("docs/observability.md");

const documented = rowsUnder(text, "metric").map(([name = ""]) => name.replaceAll("`", ""));

const folders = ["apps", "packages"].flatMap((folder) =>
  readdirSync(`${root}/${folder}`)
    .map((name) => `${folder}/${name}/src`)
    // A package that is gone may have left its node_modules.
    .filter((sources) => existsSync(`${root}/${sources}`)),
);

describe("docs/observability.md", () => {
  it("names every metric that there is, and no other one", () => {
    const catalogue = Object.entries<MetricFacts>(metricCatalogue).map(([name, facts]) =>
      prometheusName(name, facts),
    );
    const others = folders
      .flatMap(sourcesBelow)
      .flatMap((source) =>
        [...source.matchAll(/\.create[A-Z]\w+\(\s*"(larkline_[a-z_]+)"/g)].map(
          ([, name = ""]) => name,
        ),
      );
    expect(new Set(others)).toEqual(new Set(Object.keys(instrumentCatalogue)));
    expect(documented.toSorted()).toEqual([...catalogue, ...new Set(others)].toSorted());
  });

  it("says of which kind a metric is by its name", () => {
    const catalogue = Object.entries<MetricFacts>(metricCatalogue).map(
      ([name, facts]) => [prometheusName(name, facts), facts] as const,
    );
    for (const [name, { kind }] of catalogue) expect(kind, name).toBe(kindOf(name));
    for (const [name, { kind, by }] of Object.entries(instrumentCatalogue)) {
      const isState = by.includes("console") && kind === "gauge";
      expect(kind, name).toBe(isState ? "gauge" : kindOf(name));
    }
  });

  it.each([
    ["ingress", "apps/ingress/src"],
    ["agent-worker", "apps/agent-worker/src"],
    ["tool-runner", "packages/runner/src"],
  ] as const)(
    "says of everything that %s tells observers that it comes from there",
    (service, folder) => {
      const catalogue: Record<string, ObservationFacts> = {
        ...eventCatalogue,
        ...spanCatalogue,
        ...metricCatalogue,
      };
      const told = sourcesBelow(folder).flatMap((source) =>
        [
          ...source.matchAll(
            /\b(?:startSpan\(|eventName: |samples\[)"([a-z_.]+)"|\bsamples\.([a-z_]+)/g,
          ),
        ].map(([, name, sample = ""]) => name ?? sample),
      );
      expect(told).not.toEqual([]);
      for (const name of told) expect(catalogue[name]?.by, name).toContain(service);
    },
  );
});

function kindOf(metric: string): string {
  if (metric.endsWith("_total")) return "counter";
  return metric.endsWith("_seconds") ? "histogram" : "gauge";
}
