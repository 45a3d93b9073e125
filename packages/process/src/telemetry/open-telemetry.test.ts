import { patientClock, startOtlpReceiver } from "@larkline/testkit";
import { expect, it, onTestFinished } from "vitest";
import { silentLogger } from "./logger.ts";
import { Metrics } from "./metrics.ts";
import { openTelemetry, type TelemetryOptions } from "./open-telemetry.ts";

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function optionsOf(changes: Partial<TelemetryOptions> = {}) {
  const written: unknown[] = [];
  let isClosed = false;
  const traceLog = {
    append: async (...entries: unknown[]) => void written.push(...entries),
    close: async () => {
      isClosed = true;
    },
  };
  const metrics = new Metrics({ service: "ingress" });
  const options = {
    service: "ingress",
    logger: silentLogger,
    metrics,
    traceLog,
    modules: [],
    ...changes,
  } as const;
  return { options, metrics, written, isClosed: () => isClosed };
}

it("what is observed reaches metrics, trace log, the deployment's own observers and a collector; closing sends the rest", async () => {
  const receiver = await startOtlpReceiver();
  onTestFinished(receiver.close);
  const told: unknown[] = [];
  Reflect.set(globalThis, "toldToTest", told);
  onTestFinished(() => void Reflect.deleteProperty(globalThis, "toldToTest"));
  const source =
    "export default { event: (name) => globalThis.toldToTest.push(name), error() {} };";
  const modules = [`data:text/javascript,${encodeURIComponent(source)}`];
  // Sending ends a second after the close, and the receiver is in this process.
  const sending = { otlpEndpoint: receiver.url, clock: patientClock };
  const { options, metrics, written, isClosed } = optionsOf({ ...sending, modules });
  const opened = await openTelemetry(options);
  if (!opened.ok) throw new Error(opened.error);
  const { telemetry } = opened.value;
  telemetry.events.emit({ eventName: "message.received", attributes: { traceparent } });
  telemetry.tracer.startSpan("message.receive", { attributes: { traceparent } }).end();
  await opened.value.close();
  expect(told).toEqual(["message.received"]);
  expect(await metrics.text()).toContain(
    'larkline_events_total{event="message.received",service="ingress"} 1',
  );
  expect(receiver.spans.map(({ name }) => name)).toEqual(["message.receive"]);
  expect(written).not.toEqual([]);
  expect(isClosed()).toBe(true);
});

it("a module without an observer is named, and nothing is opened", async () => {
  const { options } = optionsOf({ modules: ["data:text/javascript,export default 1"] });
  expect(await openTelemetry(options)).toEqual({
    ok: false,
    error: expect.stringContaining("neither an observer"),
  });
});
