import type {
  Attributes,
  BatchObservableCallback,
  Counter,
  Gauge,
  Histogram,
  Meter,
  MetricOptions,
  Observable,
  ObservableCallback,
  UpDownCounter,
} from "@opentelemetry/api";
import { collectDefaultMetrics, Registry } from "prom-client";
import {
  eventCatalogue,
  instrumentCatalogue,
  metricCatalogue,
  prometheusName,
  type MetricFacts,
  type ObservationFacts,
  type ObservedService,
} from "./observations.ts";
import type { Tags, TelemetryAdapter } from "./telemetry.ts";

/** What a metric counts, and by which labels. */
export interface InstrumentOptions extends MetricOptions {
  /** Attributes that tell series apart; all others are left out. Without any there is one series, shown from the start. */
  labels?: readonly string[];
}

const durationBuckets = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300,
] as const;

/**
 * The metrics of one process: the meter that product code creates its instruments with, and what Prometheus reads. An
 * instrument is its full name (`larkline_turns_total`); asked for twice it is the same one. Without options it is what
 * the catalogue of `observations.ts` declares under its name. Durations are in seconds,
 * sizes in bytes; default buckets suit durations from 1 ms to 5 minutes.
 */
export class Metrics implements Meter {
  /** Media type of {@link text}. */
  readonly contentType: string;
  /** Those of Node itself: CPU, memory, event loop. */
  readonly #node = nodeMetrics();
  readonly #service: string;
  readonly #instruments = new Map<string, Instrument>();
  readonly #callbacks = new Set<() => void | Promise<void>>();

  constructor({ service }: { service: string }) {
    this.#service = service;
    this.#node.setDefaultLabels({ service });
    this.contentType = this.#node.contentType;
  }

  createCounter<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): Counter<Labels> {
    return this.#instrument(name, "counter", options);
  }

  createHistogram<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): Histogram<Labels> {
    return this.#instrument(name, "histogram", options);
  }

  createGauge<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): Gauge<Labels> {
    return this.#instrument(name, "gauge", options);
  }

  createUpDownCounter<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): UpDownCounter<Labels> {
    return this.#instrument(name, "gauge", options);
  }

  createObservableGauge<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): Observable<Labels> {
    return this.#observable(this.#instrument(name, "gauge", options));
  }

  createObservableCounter<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): Observable<Labels> {
    return this.#observable(this.#instrument(name, "counter", options));
  }

  createObservableUpDownCounter<Labels extends Attributes = Attributes>(
    name: string,
    options?: InstrumentOptions,
  ): Observable<Labels> {
    return this.#observable(this.#instrument(name, "gauge", options));
  }

  /** The callback is awaited at each scrape. What it does not observe then is absent. */
  addBatchObservableCallback<Labels extends Attributes = Attributes>(
    callback: BatchObservableCallback<Labels>,
    observables: Observable<Labels>[],
  ): void {
    const instruments = observables
      .filter((one) => one instanceof ObservedInstrument)
      .map(({ instrument }) => instrument);
    this.#callbacks.add(async () => {
      const observed: [Instrument, number, Attributes | undefined][] = [];
      const observe = (observable: Observable<Labels>, value: number, labels?: Labels): void => {
        if (observable instanceof ObservedInstrument) {
          observed.push([observable.instrument, value, labels]);
        }
      };
      await callback({ observe });
      for (const instrument of instruments) instrument.clear();
      for (const [instrument, value, labels] of observed) instrument.record(value, labels);
    });
  }

  removeBatchObservableCallback(): void {
    // Processes observe until they end.
  }

  /** All metrics in the text format of Prometheus ("Exposition formats"). */
  async text(): Promise<string> {
    await Promise.all([...this.#callbacks].map(async (callback) => await callback()));
    const own = [...this.#instruments.values()].map((instrument) => instrument.text(this.#service));
    return `${own.join("\n\n")}\n\n${await this.#node.metrics()}`;
  }

  #instrument(name: string, kind: Kind, options: InstrumentOptions = declared(name)): Instrument {
    const known = this.#instruments.get(name);
    if (known !== undefined) return known;
    const instrument = new Instrument(name, kind, options);
    this.#instruments.set(name, instrument);
    return instrument;
  }

  #observable(instrument: Instrument): Observable<Attributes> {
    return new ObservedInstrument(instrument, this.#callbacks);
  }
}

/** Facts of the process, collected once however many apps it has. */
let collected: Registry | undefined;

/**
 * How often the delay of the event loop is measured, ms. The least delay that its histogram knows: a loop that is not
 * late has this one. Each time wakes the process, so that prom-client's 10 ms are a quarter of what one at rest does.
 */
const loopDelayEveryMs = 100;

function nodeMetrics(): Registry {
  if (collected === undefined) {
    collected = new Registry();
    collectDefaultMetrics({ register: collected, eventLoopMonitoringPrecision: loopDelayEveryMs });
  }
  const registry = new Registry();
  for (const { name } of collected.getMetricsAsArray()) {
    const metric = collected.getSingleMetric(name);
    if (metric !== undefined) registry.registerMetric(metric);
  }
  return registry;
}

function declared(name: string): InstrumentOptions {
  const { help, labels, buckets } = instrumentCatalogue[name] ?? {};
  return {
    ...(help !== undefined && { description: help }),
    ...(labels !== undefined && { labels }),
    ...(buckets !== undefined && { advice: { explicitBucketBoundaries: [...buckets] } }),
  };
}

/** Read at each scrape, for facts that others hold. */
class ObservedInstrument implements Observable<Attributes> {
  readonly instrument: Instrument;
  readonly #all: Set<() => void | Promise<void>>;

  constructor(instrument: Instrument, all: Set<() => void | Promise<void>>) {
    this.instrument = instrument;
    this.#all = all;
  }

  addCallback(callback: ObservableCallback<Attributes>): void {
    const { instrument } = this;
    this.#all.add(async () => {
      const observed: [number, Attributes | undefined][] = [];
      await callback({ observe: (value, labels) => void observed.push([value, labels]) });
      instrument.clear();
      for (const [value, labels] of observed) instrument.record(value, labels);
    });
  }

  removeCallback(): void {
    // As of the meter.
  }
}

type Kind = "counter" | "gauge" | "histogram";

/** One combination of values of the labels. */
interface Series {
  labels: string;
  /** The sum of all samples, or the last one of a gauge. */
  value: number;
  /** Of a histogram: samples by bucket, the last one for those above all. */
  buckets: number[];
}

/** What stands for all values of a label after this many. */
const otherValue = "other";
const maxValues = 100;

class Instrument
  implements
    Counter<Attributes>,
    Gauge<Attributes>,
    Histogram<Attributes>,
    UpDownCounter<Attributes>
{
  readonly #name: string;
  readonly #kind: Kind;
  readonly #help: string;
  readonly #labels: readonly string[];
  readonly #bounds: readonly number[];
  readonly #series = new Map<string, Series>();
  readonly #values: ReadonlyMap<string, Set<string>>;

  constructor(
    name: string,
    kind: Kind,
    { description = "", labels = [], advice }: InstrumentOptions,
  ) {
    this.#name = name;
    this.#kind = kind;
    this.#help = description;
    this.#labels = labels;
    this.#bounds =
      kind === "histogram" ? (advice?.explicitBucketBoundaries ?? durationBuckets) : [];
    this.#values = new Map(labels.map((label) => [label, new Set()]));
    if (labels.length === 0) this.#seriesOf({});
  }

  add(value: number, labels: Attributes = {}): void {
    this.#seriesOf(labels).value += value;
  }

  record(value: number, labels: Attributes = {}): void {
    const series = this.#seriesOf(labels);
    if (this.#kind !== "histogram") {
      series.value = value;
      return;
    }
    series.value += value;
    let at = 0;
    while (at < this.#bounds.length && value > (this.#bounds[at] ?? 0)) at += 1;
    series.buckets[at] = (series.buckets[at] ?? 0) + 1;
  }

  /** Shows nothing until the next value. */
  clear(): void {
    this.#series.clear();
  }

  text(service: string): string {
    const name = this.#name;
    const lines = [...this.#series.values()].flatMap((series) =>
      this.#linesOf(series, `service="${service}"`),
    );
    return [
      `# HELP ${name} ${escapedHelp(this.#help)}`,
      `# TYPE ${name} ${this.#kind}`,
      ...lines,
    ].join("\n");
  }

  #linesOf({ labels, value, buckets }: Series, service: string): string[] {
    const name = this.#name;
    const all = labels === "" ? service : `${labels},${service}`;
    if (this.#kind !== "histogram") return [`${name}{${all}} ${numberText(value)}`];
    const own = labels === "" ? service : `${service},${labels}`;
    let count = 0;
    const shown = [...this.#bounds, Number.POSITIVE_INFINITY].map((bound, at) => {
      count += buckets[at] ?? 0;
      return `${name}_bucket{le="${numberText(bound)}",${own}} ${count}`;
    });
    return [...shown, `${name}_sum{${own}} ${numberText(value)}`, `${name}_count{${own}} ${count}`];
  }

  #seriesOf(given: Attributes): Series {
    const labels = this.#labels;
    // A key that is made of several strings is hashed anew each time.
    let key = labels[0] === undefined ? "" : String(given[labels[0]] ?? "");
    for (let at = 1; at < labels.length; at += 1) {
      key += `\n${String(given[labels[at] ?? ""] ?? "")}`;
    }
    return this.#series.get(key) ?? this.#newSeries(given);
  }

  /** Values of a label other than the first hundred are counted together. */
  #newSeries(given: Attributes): Series {
    const values = this.#labels.map((label) => {
      const value = String(given[label] ?? "");
      const known = this.#values.get(label);
      if (known === undefined || known.has(value)) return value;
      if (known.size >= maxValues) return otherValue;
      known.add(value);
      return value;
    });
    const key = values.join("\n");
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    const labels = this.#labels
      .map((label, at) => `${label}="${escapedValue(values[at] ?? "")}"`)
      .join(",");
    const series: Series = {
      labels,
      value: 0,
      buckets: this.#kind === "histogram" ? this.#noSamples() : [],
    };
    this.#series.set(key, series);
    return series;
  }

  #noSamples(): number[] {
    return Array.from({ length: this.#bounds.length + 1 }, () => 0);
  }
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return "+Inf";
  if (value === Number.NEGATIVE_INFINITY) return "-Inf";
  return Number.isNaN(value) ? "NaN" : String(value);
}

function escapedHelp(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function escapedValue(text: string): string {
  return escapedHelp(text).replaceAll('"', '\\"');
}

/**
 * Shows samples as the catalogue has them, and counts events by name and errors. What a process of this kind does not
 * have in the catalogue is left out; so are samples that are no numbers. A time below 0, which clocks of different
 * machines make, counts as 0.
 */
export function metricAdapter(metrics: Metrics, service: ObservedService): TelemetryAdapter {
  const samples = new Map(
    ofService<MetricFacts>(metricCatalogue, service).map(([name, facts]) => [
      name,
      takerOf(metrics, name, facts),
    ]),
  );
  const eventNames = new Set(ofService(eventCatalogue, service).map(([name]) => name));
  const events = metrics.createCounter("larkline_events_total");
  const errors = metrics.createCounter("larkline_errors_total");
  return {
    event: (name) => {
      if (eventNames.has(name)) events.add(1, { event: name });
    },
    error: () => errors.add(1),
    sample: (name, value, tags) => {
      if (Number.isFinite(value)) samples.get(name)?.(Math.max(0, value), tags);
    },
  };
}

function takerOf(
  metrics: Metrics,
  name: string,
  facts: MetricFacts,
): (value: number, tags: Tags) => void {
  const { kind, help: description, labels } = facts;
  const shownAs = prometheusName(name, facts);
  if (kind === "counter") {
    const counter = metrics.createCounter(shownAs, { description, labels });
    return (value, tags) => counter.add(value, tags);
  }
  const histogram = metrics.createHistogram(shownAs, { description, labels });
  return (value, tags) => histogram.record(value, tags);
}

function ofService<T extends ObservationFacts>(
  catalogue: Readonly<Record<string, T>>,
  service: ObservedService,
) {
  return Object.entries(catalogue).filter(([, { by }]) => by.includes(service));
}
