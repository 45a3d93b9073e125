import type { Metrics } from "./metrics.ts";
import {
  eventCatalogue,
  metricCatalogue,
  prometheusName,
  type MetricFacts,
  type ObservationFacts,
  type ObservedService,
} from "./observations.ts";
import type { Observer, Tags } from "./observer.ts";

/** What stands for all values of a label after this many. */
const otherValue = "other";
const maxValues = 100;

/** Takes one sample. */
type Series = (value: number, tags: Tags) => void;

/** Values of one label; others than the first hundred are counted together. */
function createLabel(name: string): (tags: Tags) => string {
  const known = new Set<string>();
  return (tags) => {
    const value = String(tags[name] ?? "");
    if (known.has(value)) return value;
    if (known.size >= maxValues) return otherValue;
    known.add(value);
    return value;
  };
}

function createSeries(metrics: Metrics, name: string, facts: MetricFacts): Series {
  const { kind, help, labels: names } = facts;
  const labels = names.map((label) => [label, createLabel(label)] as const);
  const labelsOf = (tags: Tags) => Object.fromEntries(labels.map(([label, valueIn]) => [label, valueIn(tags)]));
  const options = { name: prometheusName(name, facts), help, labels: names };
  if (kind === "counter") {
    const counter = metrics.counter<string>(options);
    return (value, tags) => counter.add(labelsOf(tags), value);
  }
  const histogram = metrics.histogram<string>(options);
  return (value, tags) => histogram.observe(labelsOf(tags), value);
}

function ofService<T extends ObservationFacts>(catalogue: Readonly<Record<string, T>>, service: ObservedService) {
  return Object.entries(catalogue).filter(([, { by }]) => by.includes(service));
}

/**
 * Shows samples as the catalogue has them, and counts events by name and errors. What a process of this
 * kind does not have in the catalogue is left out; so are samples that are no numbers. A time below 0,
 * which clocks of different machines make, counts as 0.
 */
export function createMetricObserver(metrics: Metrics, service: ObservedService): Observer {
  const ofMetrics = ofService<MetricFacts>(metricCatalogue, service);
  const series = new Map(ofMetrics.map(([name, facts]) => [name, createSeries(metrics, name, facts)]));
  const eventNames = new Set(ofService(eventCatalogue, service).map(([name]) => name));
  const events = metrics.counter({ name: "larkline_events_total", help: "Events by name.", labels: ["event"] });
  const errors = metrics.counter({ name: "larkline_errors_total", help: "Errors that observers were told of." });
  return {
    event: (name) => {
      if (eventNames.has(name)) events.add({ event: name });
    },
    error: () => errors.add({}),
    metric: (name, value, tags) => {
      if (Number.isFinite(value)) series.get(name)?.(Math.max(0, value), tags);
    },
  };
}
