import {
  startFeishuSimulator,
  type FeishuSimulator,
  type SimulatorOptions,
} from "@larkline/simulator";
import { afterEach, describe, expect, it } from "vitest";
import { AppInspector } from "./app-inspector.ts";
import { appManifest, missingScopes } from "./app-manifest.ts";
import { registerApp, type RegistrationLink } from "./app-registration.ts";

const open: FeishuSimulator[] = [];

afterEach(async () => {
  for (const simulator of open.splice(0)) await simulator.close();
});

async function start(
  registration: SimulatorOptions["registration"] = {},
): Promise<FeishuSimulator> {
  const simulator = await startFeishuSimulator({
    apps: [],
    registration: { intervalSeconds: 0.02, ...registration },
  });
  open.push(simulator);
  return simulator;
}

/** Registers and lets `person` do something with the link. */
async function register(
  simulator: FeishuSimulator,
  person: (link: RegistrationLink) => void,
  options: { signal?: AbortSignal; slowDownMs?: number; timeoutMs?: number } = {},
) {
  return await registerApp({
    domain: simulator.url,
    name: "Larkline",
    onLink: person,
    signal: new AbortController().signal,
    ...options,
  });
}

describe("registerApp", () => {
  it("creates an app with every scope, event and callback that is asked for by default", async () => {
    const simulator = await start();
    const created = await register(
      simulator,
      ({ url }) => void simulator.registrations.confirm(url),
    );
    expect(created).toMatchObject({ kind: "created", domain: simulator.url });
    if (created.kind !== "created") return;
    const inspector = new AppInspector(created);
    const granted = await inspector.grantedScopes();
    expect(missingScopes(granted, ["required", "recommended"])).toEqual([]);
    const optional = appManifest.scopes.filter(({ level }) => level === "optional");
    expect(missingScopes(granted, ["optional"])).toEqual(optional);
    const { events, callbacks } = await inspector.subscriptions();
    expect([...(events ?? [])].sort()).toEqual(
      appManifest.events.flatMap(({ name, level }) => (level === "optional" ? [] : [name])).sort(),
    );
    expect(callbacks).toEqual(appManifest.callbacks.map(({ name }) => name));
    expect(await inspector.bot()).toMatchObject({ name: "Larkline", status: "enabled" });
    inspector.close();
  });

  it("waits until a person has decided", async () => {
    const simulator = await start();
    let link = "";
    const registration = register(simulator, ({ url }) => (link = url));
    await expect.poll(() => simulator.registrations.polls).toBeGreaterThan(3);
    simulator.registrations.confirm(link);
    expect((await registration).kind).toBe("created");
  });

  it("polls less often after a slow_down", async () => {
    const simulator = await start();
    simulator.registrations.demandSlowDown(2);
    const startedMs = performance.now();
    const created = await register(
      simulator,
      ({ url }) => void simulator.registrations.confirm(url),
      {
        slowDownMs: 150,
      },
    );
    expect(created.kind).toBe("created");
    // After the first demand at least 150 ms, after the second at least 300 ms: a poll earlier breaks the rule.
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(440);
    expect(simulator.registrations.polls).toBe(3);
  });

  it("asks again at once where people of Lark register", async () => {
    const simulator = await start({ intervalSeconds: 60 });
    const created = await register(
      simulator,
      ({ url }) => void simulator.registrations.confirm(url, { brand: "lark" }),
    );
    expect(created).toMatchObject({ kind: "created", domain: simulator.url });
    expect(simulator.registrations.polls).toBe(2);
  });

  it("says that the person refused", async () => {
    const simulator = await start();
    expect(await register(simulator, ({ url }) => simulator.registrations.refuse(url))).toEqual({
      kind: "denied",
    });
  });

  it("says that the link has expired, whichever side notices first", async () => {
    const short = await start({ expiresInSeconds: 0.1 });
    expect(await register(short, () => undefined)).toEqual({ kind: "expired" });
    const simulator = await start();
    simulator.faults.add({
      match: { path: "/oauth/v1/app/registration" },
      times: 1,
      action: {
        kind: "respond",
        status: 200,
        body: {
          device_code: "unknown",
          verification_uri_complete: "https://example.com/?user_code=1",
          interval: 0,
        },
      },
    });
    expect(await register(simulator, () => undefined)).toEqual({
      kind: "failed",
      reason: "invalid_grant",
    });
    simulator.faults.add({
      match: { path: "/oauth/v1/app/registration" },
      times: 1,
      action: { kind: "respond", status: 400, body: { error: "expired_token" } },
    });
    expect(await register(simulator, () => undefined)).toMatchObject({
      kind: "failed",
      reason: "expired_token",
    });
  });

  it("continues after polls without an answer, and after an answer that is no JSON", async () => {
    const simulator = await start();
    const links: string[] = [];
    const begin = async () =>
      await register(
        simulator,
        ({ url }) => {
          links.push(url);
          simulator.registrations.confirm(url);
          const match = { path: "/oauth/v1/app/registration" };
          simulator.faults.add({ match, times: 1, action: { kind: "drop" } });
          simulator.faults.add({ match, times: 1, action: { kind: "hang" } });
          simulator.faults.add({
            match,
            times: 1,
            action: { kind: "respond", status: 502, body: "<html>" },
          });
        },
        { timeoutMs: 2_000 },
      );
    let created = await begin();
    // Polls alone are repeated: the first question fails where this process stands still for longer than it may take.
    while (links.length === 0) created = await begin();
    expect(created.kind).toBe("created");
  });

  it("stops at once when it is cancelled", async () => {
    const simulator = await start({ intervalSeconds: 60 });
    const controller = new AbortController();
    const registration = register(simulator, () => setImmediate(() => controller.abort()), {
      signal: controller.signal,
    });
    expect(await registration).toEqual({ kind: "cancelled" });
  });

  it("says what the server answered when it cannot begin", async () => {
    const simulator = await start();
    simulator.faults.add({
      action: { kind: "respond", status: 403, body: { error: "unsupported_region" } },
    });
    expect(await register(simulator, () => undefined)).toEqual({
      kind: "failed",
      reason: "unsupported_region",
    });
    await simulator.close();
    expect(await register(simulator, () => undefined)).toEqual({
      kind: "failed",
      reason: "no answer",
    });
  });

  it("refuses a link that is no web address", async () => {
    const simulator = await start();
    const body = { device_code: "d", verification_uri_complete: "javascript:alert(1)" };
    simulator.faults.add({ action: { kind: "respond", status: 200, body } });
    expect(await register(simulator, () => undefined)).toMatchObject({ kind: "failed" });
  });
});

describe("the app manifest", () => {
  it("takes a wider scope for the narrow ones it covers", () => {
    const names = missingScopes(new Set(["im:message", "im:chat"]), ["required"]).map(
      ({ name }) => name,
    );
    expect(names).toContain("im:message.p2p_msg:readonly");
    expect(names).not.toContain("im:message:send_as_bot");
    expect(names).not.toContain("im:chat:readonly");
  });

  it("names nothing twice", () => {
    const { scopes, events, callbacks } = appManifest;
    const names = [...scopes, ...events, ...callbacks].map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });
});
