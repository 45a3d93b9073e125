import { describe, expect, it } from "vitest";
import { createMetricObserver } from "./metric-observer.ts";
import { createMetrics } from "./metrics.ts";
import { metricCatalogue, prometheusName, type ObservedService } from "./observations.ts";
import { observeWith } from "./observer.ts";

function start(service: ObservedService) {
  const metrics = createMetrics({ service });
  const observation = observeWith([createMetricObserver(metrics, service)]);
  const lines = async () => (await metrics.text()).split("\n").filter((line) => line.startsWith("larkline_"));
  return { metrics, observation, lines };
}

describe("createMetricObserver", () => {
  it("adds counters up and sorts histograms, by the labels of the catalogue alone", async () => {
    const { observation, lines } = start("agent-worker");
    observation.metric("model.tokens", 10, { model: "a/b", kind: "input", session: "s1" });
    observation.metric("model.tokens", 5, { model: "a/b", kind: "input", session: "s2", traceparent: "00-1-2-01" });
    observation.metric("model.step_seconds", 0.3, { model: "a/b", outcome: "ok" });
    const text = await lines();
    expect(text).toContain('larkline_model_tokens_total{model="a/b",kind="input",service="agent-worker"} 15');
    expect(text).toContain(
      'larkline_model_step_seconds_bucket{le="0.5",service="agent-worker",model="a/b",outcome="ok"} 1',
    );
    expect(text.join("\n")).not.toMatch(/session=|traceparent=/);
  });

  it("counts events and errors, the former by name", async () => {
    const { observation, lines } = start("ingress");
    observation.event("message.refused", { reason: "not_mentioned" });
    observation.event("message.refused", { reason: "full" });
    observation.error(new Error("x"), {});
    expect(await lines()).toEqual(
      expect.arrayContaining([
        'larkline_events_total{event="message.refused",service="ingress"} 2',
        'larkline_errors_total{service="ingress"} 1',
      ]),
    );
  });

  it("keeps the number of series bounded: names that are not in the catalogue are left out, of values a hundred are kept apart", async () => {
    const metrics = createMetrics({ service: "tool-runner" });
    const observer = createMetricObserver(metrics, "tool-runner");
    for (let call = 0; call < 150; call += 1) {
      observer.metric?.("tool.calls", 1, { tool: `tool${call}`, outcome: "ok" });
      observer.metric?.(`made.up${call}`, 1, {});
      observer.event(`made.up${call}`, {});
    }
    const text = await metrics.text();
    expect(text).not.toContain("made");
    expect(text.match(/^larkline_tool_calls_total\{/gm)).toHaveLength(101);
    expect(text).toContain('larkline_tool_calls_total{tool="other",outcome="ok",service="tool-runner"} 50');
  });

  it("drops what is no number, and takes a time that clocks make negative for none", async () => {
    const { observation, lines } = start("ingress");
    observation.metric("ack_seconds", Number.NaN, { channel: "api", outcome: "accepted" });
    observation.metric("ack_seconds", -3, { channel: "api", outcome: "accepted" });
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
      expect(shown).toMatch(facts.kind === "counter" ? /^larkline_[a-z_]+_total$/ : /^larkline_[a-z_]+_seconds$/);
    }
  });
});
