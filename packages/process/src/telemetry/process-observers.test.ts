import { startOtlpReceiver } from "@larkline/testkit";
import { expect, it, onTestFinished } from "vitest";
import { silentLogger } from "./logger.ts";
import { createMetrics } from "./metrics.ts";
import { openObservers, type ProcessObserversOptions } from "./process-observers.ts";

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function optionsOf(changes: Partial<ProcessObserversOptions> = {}) {
  const written: unknown[] = [];
  let isClosed = false;
  const traceLog = {
    log: { append: async (...entries: unknown[]) => void written.push(...entries) },
    close: async () => {
      isClosed = true;
    },
  };
  const metrics = createMetrics({ service: "ingress" });
  const options = { service: "ingress", logger: silentLogger, metrics, traceLog, modules: [], ...changes } as const;
  return { options, metrics, written, isClosed: () => isClosed };
}

it("what is observed reaches metrics, trace log, the deployment's own observers and a collector; closing sends the rest", async () => {
  const receiver = await startOtlpReceiver();
  onTestFinished(receiver.close);
  const told: unknown[] = [];
  Reflect.set(globalThis, "toldToTest", told);
  onTestFinished(() => void Reflect.deleteProperty(globalThis, "toldToTest"));
  const source = "export default { event: (name) => globalThis.toldToTest.push(name), error() {} };";
  const modules = [`data:text/javascript,${encodeURIComponent(source)}`];
  const { options, metrics, written, isClosed } = optionsOf({ otlpEndpoint: receiver.url, modules });
  const opened = await openObservers(options);
  if (!opened.ok) throw new Error(opened.error);
  const { observation } = opened.value;
  observation.event("message.received", { traceparent });
  observation.span("message.receive", { traceparent }).end();
  await opened.value.close();
  expect(told).toEqual(["message.received"]);
  expect(await metrics.text()).toContain('larkline_events_total{event="message.received",service="ingress"} 1');
  expect(receiver.spans.map(({ name }) => name)).toEqual(["message.receive"]);
  expect(written).not.toEqual([]);
  expect(isClosed()).toBe(true);
});

it("a module without an observer is named, and nothing is opened", async () => {
  const { options } = optionsOf({ modules: ["data:text/javascript,export default 1"] });
  expect(await openObservers(options)).toEqual({ ok: false, error: expect.stringContaining("neither an observer") });
});
