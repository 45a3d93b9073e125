import { createHash } from "node:crypto";
import { afterEach, expect, it } from "vitest";
import { startTestIngress, type TestIngress } from "./ingress.fixture.ts";

const keys = { ann: "key-of-ann-0123456789", bob: "key-of-bob-0123456789" };
const closing: TestIngress[] = [];

afterEach(async () => {
  for (const ingress of closing.splice(0)) await ingress.close();
});

const agent = { instructions: "test", schedules: true };

async function api() {
  const digests = Object.entries(keys).map(
    ([name, key]) => `${name}:${createHash("sha256").update(key).digest("hex")}`,
  );
  const script: Parameters<typeof startTestIngress>[0] = {
    env: { API_KEYS: digests.join(",") },
    settings: { agents: { default: agent } },
    script: async (text, { emit }) => await emit({ type: "text_delta", text: `[${text}]` }),
  };
  const ingress = await startTestIngress(script);
  closing.push(ingress);
  const call = async (method: string, path: string, body?: unknown, as: "ann" | "bob" = "ann") => {
    const response = await fetch(`${ingress.url}/v1/${path}`, {
      method,
      headers: { authorization: `Bearer ${keys[as]}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    // Each is an object with what the test looks at.
    return { status: response.status, body: JSON.parse(text || "{}") as Record<string, unknown> };
  };
  return { ingress, call };
}

const water = {
  title: "Water",
  task: "Say: drink water.",
  cron: "0 9 * * 1",
  zone: "Asia/Shanghai",
};

it("makes, shows, changes, pauses, runs and deletes a caller's schedules", async () => {
  const { call } = await api();
  const made = await call("POST", "schedules", water);
  expect(made).toMatchObject({
    status: 201,
    body: { title: "Water", state: "active", zone: "Asia/Shanghai", missed: "late", why: null },
  });
  const { id, next, session_id } = made.body as { id: string; next: number[]; session_id: string };
  expect(next.map((at) => new Date(at).toISOString().slice(11))).toEqual(
    Array.from({ length: 3 }, () => "01:00:00.000Z"),
  );
  expect(await call("POST", "schedules", water)).toMatchObject({ status: 200, body: { id } });
  expect(await call("GET", "schedules")).toMatchObject({ body: { schedules: [{ id }] } });
  const one = `schedules/${id}`;
  expect(await call("GET", one)).toMatchObject({ body: { id, log: [] } });
  expect(await call("PATCH", one, { state: "paused" })).toMatchObject({
    status: 200,
    body: { state: "paused", next: [] },
  });
  expect(await call("PATCH", one, { state: "active", every: "PT1H", title: "Tea" })).toMatchObject({
    status: 200,
    body: { title: "Tea", state: "active", timing: { kind: "every", everyMs: 3_600_000 } },
  });
  const started = await call("POST", `${one}/run`);
  expect(started).toMatchObject({ status: 202, body: { session_id } });
  const run = `runs/${String(started.body["run_id"])}`;
  await expect
    .poll(async () => (await call("GET", run)).body["final_output"], { timeout: 60_000 })
    .toContain("Say: drink water.]");
  expect(await call("DELETE", one)).toEqual({ status: 204, body: {} });
  expect((await call("GET", one)).status).toBe(404);
});

it("shows a caller nothing of the schedules of others, nor of their runs", async () => {
  const { call } = await api();
  const { id = "" } = (await call("POST", "schedules", water)).body as { id?: string };
  await call("POST", `schedules/${id}/run`);
  expect((await call("GET", "schedules", undefined, "bob")).body).toEqual({ schedules: [] });
  const attempts = await Promise.all([
    call("GET", `schedules/${id}`, undefined, "bob"),
    call("PATCH", `schedules/${id}`, { state: "paused" }, "bob"),
    call("DELETE", `schedules/${id}`, undefined, "bob"),
    call("POST", `schedules/${id}/run`, undefined, "bob"),
    call("GET", `sessions/sched-${id}`, undefined, "bob"),
  ]);
  expect(attempts.map(({ status }) => status)).toEqual([404, 404, 404, 404, 404]);
  expect((await call("GET", `schedules/${id}`)).body).toMatchObject({ state: "active" });
});

it("refuses wrong wishes, and names the field", async () => {
  const { call } = await api();
  const wrong = [
    [{ ...water, cron: "* * * * *" }, "every 5 minutes"],
    [{ ...water, zone: "Mars/Olympus" }, "Mars/Olympus"],
    [{ ...water, at: "2099-01-01T09:00" }, "exactly one of"],
    [{ title: "Water", cron: "0 9 * * 1" }, "task"],
    [{ ...water, agent: "nurse" }, "agents.nurse.schedules"],
  ] as const;
  for (const [body, reason] of wrong) {
    const { status, body: answer } = await call("POST", "schedules", body);
    expect([status, answer["error"]]).toEqual([400, expect.stringContaining(reason)]);
  }
  for (let hour = 0; hour < 20; hour += 1) {
    const { status } = await call("POST", "schedules", { ...water, cron: `0 ${hour} * * *` });
    expect(status).toBe(201);
  }
  expect(await call("POST", "schedules", water)).toMatchObject({
    status: 409,
    body: { code: "full" },
  });
});
