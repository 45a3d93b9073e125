import { createServer, type Server } from "node:http";
import { systemRandom, systemClock } from "@larkline/protocol";
import { openTestStores } from "@larkline/store/testing";
import { Metrics, silentLogger } from "@larkline/process/telemetry";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { startCanary, type Canary } from "./canary.ts";

/** What the HTTP API answers; undefined: nothing at all. */
let answer: { status: number; body: string } | undefined;
let asked: { authorization: string | undefined; body: unknown }[];
let ingress: Server;
let url: string;
const canaries: Canary[] = [];

const done = {
  status: 200,
  body: 'data: {"type":"user_message","content":"/new"}\n\ndata: {"type":"done","final":"ok"}\n\n',
};

beforeEach(async () => {
  asked = [];
  answer = done;
  ingress = createServer((request, response) => {
    let body = "";
    request.on("data", (data: Buffer) => (body += data.toString()));
    request.on("end", () => {
      asked.push({ authorization: request.headers.authorization, body: JSON.parse(body) });
      if (answer !== undefined) response.writeHead(answer.status).end(answer.body);
    });
  });
  await new Promise<void>((resolve) => ingress.listen(0, "127.0.0.1", resolve));
  const address = ingress.address();
  url = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
});

afterEach(async () => {
  await Promise.all(canaries.splice(0).map(async (canary) => await canary.close()));
  ingress.closeAllConnections();
  await new Promise((resolve) => ingress.close(resolve));
});

/** Consoles of one deployment: what one keeps the others read, and a duty is taken by one of them, from `begun` on. */
function deployment(intervalMs: number, begun: Promise<unknown> = Promise.resolve()) {
  const { lookups } = openTestStores();
  let takenUntilMs = 0;
  const takeDuty = async (_duty: string, _id: string, ttlMs: number): Promise<boolean> => {
    await begun;
    if (performance.now() < takenUntilMs) return false;
    takenUntilMs = performance.now() + ttlMs;
    return true;
  };
  return () => {
    const metrics = new Metrics({ service: "console" });
    const deps = {
      clock: systemClock,
      random: systemRandom,
      lookups,
      presence: { takeDuty },
      metrics,
      logger: silentLogger,
    };
    const canary = startCanary({ url, token: "s3cret", intervalMs, ...deps });
    canaries.push(canary);
    return { canary, text: async () => await metrics.text() };
  };
}

const patience = { timeout: 60_000, interval: 10 };

describe("startCanary", () => {
  it("sends an order that no model sees, into its own session, with the token of the API", async () => {
    const { canary, text } = deployment(60_000)();
    await vi.waitFor(
      async () => expect(await text()).toMatch(/^larkline_canary_seconds_count\{.*\} 1$/m),
      patience,
    );
    expect(asked).toEqual([
      {
        authorization: "Bearer s3cret",
        body: { message: "/new", session_id: "larkline-canary", on_disconnect: "cancel" },
      },
    ]);
    expect(await canary.isAlive()).toBe(true);
    const [, seconds] =
      /^larkline_canary_success_timestamp_seconds\{.*\} ([\d.]+)$/m.exec(await text()) ?? [];
    expect(Math.abs(Number(seconds) - Date.now() / 1_000)).toBeLessThan(60);
  });

  it.each([
    ["the run fails", { status: 200, body: 'data: {"type":"error","message":"ERROR: x"}\n\n' }],
    ["ingress refuses", { status: 401, body: '{"error":"no"}' }],
    [
      "the run breaks off",
      { status: 200, body: 'data: {"type":"user_message","content":"/new"}\n\n' },
    ],
    ["there is no answer", undefined],
  ])(
    "counts three misses as dead when %s, and one that comes through as alive again",
    async (_title, trouble) => {
      answer = trouble;
      const begun = Promise.withResolvers<void>();
      const { canary, text } = deployment(500, begun.promise)();
      expect(await canary.isAlive().finally(begun.resolve)).toBe(true);
      await vi.waitFor(async () => expect(await canary.isAlive()).toBe(false), patience);
      expect(
        Number(/^larkline_canary_failures_total\{.*\} (\d+)$/m.exec(await text())?.[1]),
      ).toBeGreaterThanOrEqual(3);
      answer = done;
      await vi.waitFor(async () => expect(await canary.isAlive()).toBe(true), patience);
    },
  );

  it("of several consoles one sends, and all know what became of it", async () => {
    answer = undefined;
    const startedMs = performance.now();
    const start = deployment(500);
    const [one, other] = [start(), start()];
    await vi.waitFor(async () => expect(await other.canary.isAlive()).toBe(false), patience);
    expect(await one.canary.isAlive()).toBe(false);
    expect(asked.length).toBeLessThanOrEqual((performance.now() - startedMs) / 450 + 1);
  });

  it("continues when Redis is away for a while, which is no miss", async () => {
    let isAway = true;
    const { lookups } = openTestStores();
    const takeDuty = async (): Promise<boolean> =>
      isAway ? await Promise.reject(new Error("away")) : true;
    // A message may take as long as its interval; the next one is tried sooner here.
    const after = (ms: number, work: () => void) => systemClock.after(Math.min(ms, 20), work);
    const deps = {
      clock: { ...systemClock, after },
      random: systemRandom,
      lookups,
      presence: { takeDuty },
      metrics: new Metrics({ service: "c" }),
      logger: silentLogger,
    };
    const canary = startCanary({ url, token: undefined, intervalMs: 10_000, ...deps });
    canaries.push(canary);
    await canary.isAlive();
    expect(asked).toEqual([]);
    isAway = false;
    await vi.waitFor(() => expect(asked.length).toBeGreaterThan(0), patience);
    expect(await canary.isAlive()).toBe(true);
  });
});
