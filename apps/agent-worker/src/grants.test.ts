import { GrantsApi } from "@larkline/feishu";
import { systemClock } from "@larkline/protocol/clock";
import { startFeishuSimulator } from "@larkline/simulator";
import { forgetGrant, GrantStore, type AuditRecord } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { reportMissingScopes, sweepGrants } from "./grants.ts";
import { applyOrder } from "./operator-orders.ts";
import { PersonTokens } from "./person-tokens.ts";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app", tenantKey: "t1" };
const scopes = ["task:task:read"];
const [hourMs, dayMs] = [3_600_000, 86_400_000];

/** Ann has granted something; `sweep()` is what a worker does once in a while, so much later. */
async function scene() {
  const stores = openTestStores();
  const world = newWorld(stores);
  const clock = { ...systemClock, now: stores.now };
  const simulator = await startFeishuSimulator({ apps: [app], retryDelaysMs: [], clock });
  onTestFinished(() => simulator.close());
  const ann = simulator.addUser({ name: "Ann" }).openId;
  const owner = { app: app.appId, tenant: "t1", openId: ann };
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const grants = new GrantStore({ ...stores, grantKeys: ["a".repeat(64)] });
  const records: Omit<AuditRecord, "atMs">[] = [];
  const audit = async (record: Omit<AuditRecord, "atMs">) =>
    await Promise.resolve(void records.push(record));
  const personTokens = new PersonTokens({ grants, apiOf: () => api, audit, clock });
  const services = servicesOf(world, { services: { grants, personTokens, clock } });
  const schedule = async (): Promise<void> => {
    const timing = { kind: "every", everyMs: dayMs, fromMs: clock.now() } as const;
    const of = { id: "0".repeat(16), app: app.appId, owner: { id: ann }, chatId: "oc_1" };
    const words = { title: "a", task: "b", language: "en", zone: "UTC", missed: "skip" } as const;
    const dueMs = clock.now() + dayMs;
    await world.schedules.add(
      { ...of, ...words, chatType: "p2p", timing, createdAtMs: clock.now() },
      { dueMs, alarmMs: dueMs },
    );
  };
  const sweep = async (afterMs = 0): Promise<void> => {
    await stores.advance(afterMs);
    await sweepGrants(services, new AbortController().signal);
  };
  const held = async () => await grants.book.read(owner);
  /** Refreshes, by the code of the answer. The first request for tokens was the consent. */
  const refreshes = (): number[] =>
    simulator.apiCalls
      .filter(({ path }) => path === "/open-apis/authen/v2/oauth/token")
      .map(({ code }) => code)
      .slice(1);
  const consent = async (): Promise<void> => {
    const begun = await api.startDevice(scopes);
    if (begun.state !== "started") throw new Error(begun.state);
    simulator.grants.consent(begun.device.link, ann);
    const given = await api.poll(begun.device.deviceCode);
    if (given.state !== "granted") throw new Error(given.state);
    await personTokens.accept(owner, given.tokens, { asked: scopes, issuer: api.endpoints.token });
  };
  await consent();
  /** As the platform knows it. */
  const granted = (): readonly string[] => simulator.grants.grantedTo(app.appId, ann);
  return {
    stores,
    world,
    simulator,
    services,
    personTokens,
    owner,
    schedule,
    sweep,
    held,
    refreshes,
    records,
    consent,
    granted,
  };
}

/** The platform does not answer when tokens are to be ended. */
const noAnswer = { match: { path: "/oauth/v1/revoke" }, action: { kind: "drop" } } as const;

test("a grant that a schedule needs is kept alive for a year, and its person is warned once of the end", async () => {
  const { world, owner, schedule, sweep, held, refreshes } = await scene();
  await schedule();
  await sweep(5 * dayMs - hourMs);
  expect(refreshes()).toEqual([]);
  await sweep(hourMs);
  expect(refreshes()).toEqual([0]);
  for (let day = 5; day < 350; day += 5) await sweep(5 * dayMs + 1_000);
  expect(refreshes()).toHaveLength(70);
  expect(new Set(refreshes())).toEqual(new Set([0]));
  expect(world.sent).toEqual([]);
  for (let day = 350; day < 360; day += 1) await sweep(dayMs);
  const day = new Date((await held())?.consentEndsAtMs ?? 0).toISOString().slice(0, 10);
  expect(world.sent.map(({ target, text }) => [target.chatId, text])).toEqual([
    [owner.openId, expect.stringContaining(`On ${day} it is a year`)],
  ]);
});

test("a grant that no schedule needs ends unused, and one whose refresh fails is tried again", async () => {
  const { simulator, schedule, sweep, held, refreshes } = await scene();
  await sweep(5 * dayMs);
  await sweep(hourMs);
  expect(refreshes()).toEqual([]);
  await schedule();
  simulator.grants.setRefresh(app.appId, "off");
  await sweep(hourMs);
  expect(refreshes()).toEqual([20_074]);
  expect(await held()).toMatchObject({
    state: "active",
    refreshError: { reason: "app 20074", atMs: expect.any(Number) },
  });
  simulator.grants.setRefresh(app.appId, "on");
  await sweep(299_000);
  expect(refreshes()).toHaveLength(1);
  await sweep(1_000);
  expect(refreshes()).toEqual([20_074, 0]);
  expect(await held()).not.toHaveProperty("refreshError");
});

test("a person's end of a grant ends it at the platform, too", async () => {
  const { simulator, services, owner, sweep, held, records } = await scene();
  const end = { ...owner, reason: "person", by: owner.openId, atMs: Date.now() + 1 };
  await services.grantEnds.add(end);
  await sweep();
  expect(simulator.grants.grantedTo(app.appId, owner.openId)).toEqual([]);
  expect(await services.personTokens?.tokenFor(owner, scopes)).toEqual({
    state: "consent",
    scopes,
  });
  expect(await held()).toMatchObject({ state: "revoked", ended: { reason: "person" } });
  const about = { app: owner.app, tenant: owner.tenant, userId: owner.openId };
  expect(records.at(-1)).toEqual({ kind: "grant_ended", ...about, result: owner.openId });
});

test("an end that the platform does not answer holds here at once, and is asked for until it does", async () => {
  const { simulator, services, owner, sweep, held, granted } = await scene();
  simulator.faults.add(noAnswer);
  const end = { ...owner, reason: "person", by: owner.openId, atMs: Date.now() + 1 };
  await services.grantEnds.add(end);
  await sweep();
  expect(await held()).toMatchObject({ state: "revoked" });
  expect(granted()).not.toEqual([]);
  await sweep(300_000);
  simulator.faults.clear();
  await sweep(299_000);
  expect(granted()).not.toEqual([]);
  await sweep(1_000);
  expect(granted()).toEqual([]);
  const asked = simulator.apiCalls.length;
  await sweep(300_000);
  expect(simulator.apiCalls).toHaveLength(asked);
});

test("an end that the platform never answers is given up when its tokens are over", async () => {
  const { simulator, services, owner, sweep } = await scene();
  simulator.faults.add(noAnswer);
  const end = { ...owner, reason: "person", by: owner.openId, atMs: Date.now() + 1 };
  await services.grantEnds.add(end);
  await sweep();
  expect(await services.grants?.endings(Number.MAX_SAFE_INTEGER, 10)).toHaveLength(1);
  await sweep(7 * dayMs + 1);
  expect(await services.grants?.endings(Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
});

test("a person whose data is deleted is forgotten at the platform, too", async () => {
  const { stores, simulator, owner, sweep, held, granted } = await scene();
  await forgetGrant(stores, owner);
  expect(await held()).toBeUndefined();
  expect(granted()).not.toEqual([]);
  simulator.faults.add(noAnswer);
  await sweep();
  simulator.faults.clear();
  await sweep(300_000);
  expect(granted()).toEqual([]);
});

test("what a person grants after an end that waits for the platform does not end with it", async () => {
  const { simulator, services, owner, consent, sweep, held, granted } = await scene();
  simulator.faults.add(noAnswer);
  const end = { ...owner, reason: "person", by: owner.openId, atMs: Date.now() + 1 };
  await services.grantEnds.add(end);
  await sweep();
  simulator.faults.clear();
  await sweep(1);
  await consent();
  await sweep(300_000);
  expect(granted()).not.toEqual([]);
  expect(await held()).toMatchObject({ state: "active" });
});

test("a refresh whose grant ends meanwhile leaves no tokens at the platform", async () => {
  const { simulator, personTokens, owner, held, granted } = await scene();
  const path = "/open-apis/authen/v2/oauth/token";
  simulator.faults.add({ match: { path }, times: 1, action: { kind: "delay", delayMs: 300 } });
  const refreshing = personTokens.keepAlive(owner);
  // The platform has refused to end the old ones.
  const refusal = { kind: "respond", status: 404, body: "404 page not found" } as const;
  simulator.faults.add({ match: { path: "/oauth/v1/revoke" }, times: 2, action: refusal });
  await personTokens.end(owner, { reason: "person", by: owner.openId, atMs: Date.now() + 60_000 });
  await refreshing;
  expect(await held()).toMatchObject({ state: "revoked" });
  expect(granted()).toEqual([]);
});

test("a worker that stops waits for the answers to its refreshes", async () => {
  const { simulator, personTokens, owner, held } = await scene();
  const before = await held();
  const path = "/open-apis/authen/v2/oauth/token";
  simulator.faults.add({ match: { path }, times: 1, action: { kind: "delay", delayMs: 300 } });
  void personTokens.keepAlive(owner);
  await vi.waitFor(() => expect(simulator.apiCalls.at(-1)?.path).toBe(path));
  await personTokens.settled();
  expect((await held())?.accessEndsAtMs).toBeGreaterThan(before?.accessEndsAtMs ?? 0);
});

test("what an app lacks is reported once to those whom the configuration names, with the page, and to its person", async () => {
  const world = newWorld(openTestStores());
  const configured = { agents: {}, feishu: { operators: ["ou_olga", "ou_omar"] } };
  const services = servicesOf(world, { configured });
  const ann = { app: "cli_app", openId: "ou_ann" };
  const lacking = ["task:task:write", "task:task:read"];
  await reportMissingScopes(services, ann, lacking);
  await reportMissingScopes(services, ann, lacking.toReversed());
  await reportMissingScopes(services, { ...ann, openId: "ou_ben" }, lacking);
  expect(world.sent.map(({ target, text }) => [target.chatId, text.split("\n").at(-1)])).toEqual([
    ...["ou_olga", "ou_omar"].map((to) => [
      to,
      expect.stringMatching(/\/app\/cli_app\/auth\?q=task:task:read,task:task:write&/),
    ]),
    ["ou_ann", expect.stringContaining("The people who run me have got the link.")],
    ["ou_ben", expect.stringContaining("my app lacks a permission")],
  ]);
  await reportMissingScopes(servicesOf(world), { ...ann, openId: "ou_cat" }, ["vc:note:read"]);
  expect(world.sent.slice(4).map(({ target, text }) => [target.chatId, text])).toEqual([
    ["ou_cat", expect.stringMatching(/请告诉维护我的人[^]*Please tell the people who run me/)],
  ]);
});

test("an operator ends a grant, once, with a record of who it was", async () => {
  const { simulator, services, owner, held, records } = await scene();
  const { app: ofApp, openId } = owner;
  const order = { v: 1, by: "console:Olga", act: { do: "end_grant", app: ofApp, openId } } as const;
  expect(await applyOrder(services, order)).toEqual({ result: "done" });
  expect(await applyOrder(services, order)).toEqual({ result: "nothing" });
  expect(simulator.grants.grantedTo(app.appId, openId)).toEqual([]);
  expect(await held()).toMatchObject({ state: "revoked", ended: { reason: "operator" } });
  expect(records.at(-1)).toMatchObject({ kind: "grant_ended", result: "console:Olga" });
  expect(await applyOrder({ ...services, personTokens: undefined }, order)).toEqual({
    result: "not_possible",
  });
});
