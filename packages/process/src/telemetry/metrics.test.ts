import { describe, expect, it } from "vitest";
import { metricAdapter, Metrics } from "./metrics.ts";
import { metricCatalogue, prometheusName, type ObservedService } from "./observations.ts";
import { telemetryFor } from "./telemetry.ts";

function start(service: ObservedService) {
  const metrics = new Metrics({ service });
  const telemetry = telemetryFor([metricAdapter(metrics, service)]);
  const lines = async () =>
    (await metrics.text()).split("\n").filter((line) => line.startsWith("larkline_"));
  return { metrics, telemetry, lines };
}

describe("metricAdapter", () => {
  it("adds counters up and sorts histograms, by the labels of the catalogue alone", async () => {
    const { telemetry, lines } = start("agent-worker");
    telemetry.samples["model.tokens"].add(10, { model: "a/b", kind: "input", session: "s1" });
    telemetry.samples["model.tokens"].add(5, {
      model: "a/b",
      kind: "input",
      session: "s2",
      traceparent: "00-1-2-01",
    });
    telemetry.samples["model.step_seconds"].record(0.3, { model: "a/b", outcome: "ok" });
    const text = await lines();
    expect(text).toContain(
      'larkline_model_tokens_total{model="a/b",kind="input",service="agent-worker"} 15',
    );
    expect(text).toContain(
      'larkline_model_step_seconds_bucket{le="0.5",service="agent-worker",model="a/b",outcome="ok"} 1',
    );
    expect(text.join("\n")).not.toMatch(/session=|traceparent=/);
  });

  it("counts events and errors, the former by name", async () => {
    const { telemetry, lines } = start("ingress");
    telemetry.events.emit({
      eventName: "message.refused",
      attributes: { reason: "not_mentioned" },
    });
    telemetry.events.emit({ eventName: "message.refused", attributes: { reason: "full" } });
    telemetry.events.emit({ exception: new Error("x"), attributes: {} });
    expect(await lines()).toEqual(
      expect.arrayContaining([
        'larkline_events_total{event="message.refused",service="ingress"} 2',
        'larkline_errors_total{service="ingress"} 1',
      ]),
    );
  });

  it("keeps the number of series bounded: names that are not in the catalogue are left out, of values a hundred are kept apart", async () => {
    const metrics = new Metrics({ service: "tool-runner" });
    const adapter = metricAdapter(metrics, "tool-runner");
    for (let call = 0; call < 150; call += 1) {
      adapter.sample?.("tool.calls", 1, { tool: `tool${call}`, outcome: "ok" });
      adapter.sample?.(`made.up${call}`, 1, {});
      adapter.event?.(`made.up${call}`, {});
    }
    const text = await metrics.text();
    expect(text).not.toContain("made");
    expect(text.match(/^larkline_tool_calls_total\{/gm)).toHaveLength(101);
    expect(text).toContain(
      'larkline_tool_calls_total{tool="other",outcome="ok",service="tool-runner"} 50',
    );
  });

  it("drops what is no number, and takes a time that clocks make negative for none", async () => {
    const { telemetry, lines } = start("ingress");
    telemetry.samples["ack_seconds"].record(Number.NaN, { channel: "api", outcome: "accepted" });
    telemetry.samples["ack_seconds"].record(-3, { channel: "api", outcome: "accepted" });
    expect(await lines()).toEqual(
      expect.arrayContaining([
        'larkline_ack_seconds_count{service="ingress",channel="api",outcome="accepted"} 1',
        'larkline_ack_seconds_sum{service="ingress",channel="api",outcome="accepted"} 0',
      ]),
    );
  });

  it("has every metric of the catalogue under a name by the conventions", () => {
    for (const [name, facts] of Object.entries(metricCatalogue)) {
      const shown = prometheusName(name, facts);
      expect(shown).toMatch(
        facts.kind === "counter" ? /^larkline_[a-z_]+_total$/ : /^larkline_[a-z_]+_seconds$/,
      );
    }
  });
});
