import { afterEach, describe, expect, it, vi } from "vitest";
import { silentLogger } from "./logger.ts";
import { Metrics } from "./metrics.ts";
import { startOpsServer, type OpsServer, type ReadyCheck } from "./ops-server.ts";

let server: OpsServer | undefined;

async function start(ready: ReadyCheck, readyDeadlineMs = 2_000) {
  const metrics = new Metrics({ service: "agent-worker" });
  const common = { host: "127.0.0.1", port: 0, metrics, logger: silentLogger };
  server = await startOpsServer({ ...common, ready, readyDeadlineMs });
  const { port } = server;
  const get = (path: string, method = "GET") =>
    fetch(`http://127.0.0.1:${port}${path}`, { method });
  return { metrics, port, get };
}

afterEach(async () => {
  await server?.close();
  await server?.close();
});

describe("startOpsServer", () => {
  it("answers /health while a dependency is down", async () => {
    const { get } = await start(async () => ({ redis: false }));
    const response = await get("/health");
    expect([response.status, await response.json()]).toEqual([200, { status: "ok" }]);
  });

  it("answers /ready with 200 when every check holds", async () => {
    const { get } = await start(async () => ({ redis: true }));
    const response = await get("/ready");
    expect([response.status, await response.json()]).toEqual([
      200,
      { status: "ready", checks: { redis: true } },
    ]);
  });

  it("answers /ready with 503 and names the failing check", async () => {
    const { get } = await start(async () => ({ redis: false, queue: true }));
    const response = await get("/ready");
    expect(response.status).toBe(503);
    expect(await response.json()).toEqual({
      status: "not ready",
      checks: { redis: false, queue: true },
    });
  });

  it("stays ready, and says so, when one of several dependencies of a kind is lost", async () => {
    const { get } = await start(async () => ({ one: true, other: "lost" }));
    const response = await get("/ready");
    expect([response.status, await response.json()]).toEqual([
      200,
      { status: "ready", checks: { one: true, other: "lost" } },
    ]);
  });

  it("answers /ready with 503 when the check fails", async () => {
    const { get } = await start(() => Promise.reject(new Error("down")));
    expect((await get("/ready")).status).toBe(503);
  });

  it("answers /ready with 503 when the check never ends", async () => {
    const { get } = await start(() => new Promise(() => {}), 20);
    expect((await get("/ready")).status).toBe(503);
  });

  it("answers 500 when metrics cannot be read, and continues to answer", async () => {
    const { get, metrics } = await start(async () => ({}));
    vi.spyOn(metrics, "text").mockRejectedValueOnce(new Error("no metrics"));
    expect((await get("/metrics")).status).toBe(500);
    expect((await get("/metrics?name=any")).status).toBe(200);
  });

  it("answers HEAD without a body, and 404 to every other path and method", async () => {
    const { get } = await start(async () => ({}));
    const head = await get("/health", "HEAD");
    expect([head.status, await head.text()]).toEqual([200, ""]);
    expect((await get("/")).status).toBe(404);
    expect((await get("/ready", "POST")).status).toBe(404);
  });

  it("rejects when the port is taken", async () => {
    const { metrics, port } = await start(async () => ({}));
    const second = startOpsServer({
      host: "127.0.0.1",
      port,
      metrics,
      logger: silentLogger,
      ready: async () => ({}),
    });
    await expect(second).rejects.toMatchObject({ code: "EADDRINUSE" });
  });

  it("serves the metrics of the process", async () => {
    const { get, metrics } = await start(async () => ({}));
    metrics
      .createCounter("larkline_turns_total", { description: "Turns.", labels: ["outcome"] })
      .add(1, { outcome: "done" });
    metrics
      .createObservableGauge("larkline_waiting", { description: "Waiting turns." })
      .addCallback((result) => result.observe(7));
    metrics.createHistogram("larkline_step_seconds", { description: "Model step." }).record(0.3);
    const response = await get("/metrics");
    const text = await response.text();
    expect(response.headers.get("content-type")).toContain("text/plain");
    expect(text).toContain('larkline_turns_total{outcome="done",service="agent-worker"} 1');
    expect(text).toContain('larkline_waiting{service="agent-worker"} 7');
    expect(text).toContain('larkline_step_seconds_bucket{le="0.5",service="agent-worker"} 1');
    expect(text).toContain("process_cpu_seconds_total");
  });
});
