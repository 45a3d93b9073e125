import { readdirSync } from "node:fs";
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
import { quotedIn, root, rowsUnder, sourcesBelow, textOf } from "./document.ts";

const text = textOf("docs/observability.md");

const documented = new Map(
  rowsUnder(text, "metric").map(([name = "", ...others]): [string, string[]] => [name.replaceAll("`", ""), others]),
);

/** Without the playground, which counts for itself. */
const folders = ["apps", "packages"].flatMap((folder) =>
  readdirSync(`${root}/${folder}`).flatMap((name) => (name === "playground" ? [] : [`${folder}/${name}/src`])),
);

describe("docs/observability.md", () => {
  it("names every metric that there is, and no other one", () => {
    const catalogue = Object.entries<MetricFacts>(metricCatalogue).map(([name, facts]) => prometheusName(name, facts));
    const others = folders
      .flatMap(sourcesBelow)
      .flatMap((source) =>
        [...source.matchAll(/\.create[A-Z]\w+\(\s*"(larkline_[a-z_]+)"/g)].map(([, name = ""]) => name),
      );
    expect(new Set(others)).toEqual(new Set(Object.keys(instrumentCatalogue)));
    expect([...documented.keys()].toSorted()).toEqual([...catalogue, ...new Set(others)].toSorted());
  });

  it("says of metrics that processes take by themselves what their catalogue says", () => {
    for (const [name, { by, kind, labels, help }] of Object.entries(instrumentCatalogue)) {
      const row = documented.get(name) ?? [];
      const [shownKind, shownLabels = "", shownHelp = ""] = row.slice(-3);
      // The tables of the console name no process.
      const from = row.length === 4 ? row[0] : "console";
      const shown = { from, kind: shownKind, labels: quotedIn(shownLabels), help: shownHelp.replaceAll("`", "") };
      expect(shown, name).toEqual({ from: by.join(", "), kind, labels, help });
    }
  });

  it("says of metrics of the catalogue what it says", () => {
    for (const [name, facts] of Object.entries<MetricFacts>(metricCatalogue)) {
      const [from = "", kind, labels = "", help] = documented.get(prometheusName(name, facts)) ?? [];
      expect({ by: from.split(", "), kind, labels: quotedIn(labels), help }).toEqual(facts);
    }
  });

  it.each([
    ["ingress", "apps/ingress/src"],
    ["agent-worker", "apps/agent-worker/src"],
    ["tool-runner", "packages/runner/src"],
  ] as const)("says of everything that %s tells observers that it comes from there", (service, folder) => {
    const catalogue: Record<string, ObservationFacts> = { ...eventCatalogue, ...spanCatalogue, ...metricCatalogue };
    const told = sourcesBelow(folder).flatMap((source) =>
      [...source.matchAll(/\b(?:startSpan\(|eventName: |samples\[)"([a-z_.]+)"|\bsamples\.([a-z_]+)/g)].map(
        ([, name, sample = ""]) => name ?? sample,
      ),
    );
    expect(told).not.toEqual([]);
    for (const name of told) expect(catalogue[name]?.by, name).toContain(service);
  });

  it.each([
    ["event", eventCatalogue],
    ["span", spanCatalogue],
  ] as const)("names every %s of the catalogue, where it comes from and what it stands for", (heading, catalogue) => {
    const rows = rowsUnder(text, heading).map(([name = "", by = "", help = ""]) => [
      name.replaceAll("`", ""),
      by,
      help,
    ]);
    const facts = Object.entries<ObservationFacts>(catalogue);
    expect(rows).toEqual(facts.map(([name, { by, help }]) => [name, by.join(", "), help]));
  });
});
