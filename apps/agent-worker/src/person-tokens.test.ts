import { GrantsApi } from "@larkline/feishu";
import { startFeishuSimulator } from "@larkline/simulator";
import { systemClock } from "@larkline/protocol/clock";
import { tokenDigestOf } from "@larkline/protocol/tool";
import { GrantStore, type GrantOwner } from "@larkline/store";
import { openElsewhere, openTestStores } from "@larkline/store/testing";
import { expect, onTestFinished, test } from "vitest";
import { PersonTokens } from "./person-tokens.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app", tenantKey: "t1" };
const tokenPath = "/open-apis/authen/v2/oauth/token";
const scopes = ["task:task:read"];

async function scene() {
  let aheadMs = 0;
  const clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
  const simulator = await startFeishuSimulator({ apps: [app], retryDelaysMs: [], clock });
  onTestFinished(() => simulator.close());
  const ann: GrantOwner = {
    app: app.appId,
    tenant: "t1",
    openId: simulator.addUser({ name: "Ann" }).openId,
  };
  const here = openTestStores();
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const worker = (leaseMs?: number, grantKey = "a".repeat(64)): PersonTokens => {
    const { redis, namespace } = openElsewhere(here);
    const grants = new GrantStore({ redis, namespace, grantKeys: [grantKey] });
    return new PersonTokens({
      grants,
      apiOf: () => api,
      clock,
      ...(leaseMs === undefined ? {} : { leaseMs }),
    });
  };
  const grants = new GrantStore({ ...here, grantKeys: ["a".repeat(64)] });
  const consent = async (by = ann.openId, asked = scopes) => {
    const started = await api.startDevice(asked);
    if (started.state !== "started") throw new Error(started.state);
    simulator.grants.consent(started.device.link, by);
    const answer = await api.poll(started.device.deviceCode);
    if (answer.state !== "granted") throw new Error(answer.state);
    return await worker().accept(ann, answer.tokens, { asked, issuer: api.endpoints.token });
  };
  /** Answers to refreshes so far, by code. */
  const refreshes = (): number[] =>
    simulator.apiCalls.filter(({ path }) => path === tokenPath).map(({ code }) => code);
  const forward = (ms: number): void => void (aheadMs += ms);
  return { simulator, ann, api, worker, grants, consent, refreshes, forward };
}

const tokenOf = (given: Awaited<ReturnType<PersonTokens["tokenFor"]>>): string =>
  given.state === "token" ? given.token : given.state;

test("a call gets the token of its person, for the scopes that were granted", async () => {
  const { ann, api, worker, consent } = await scene();
  const tokens = worker();
  expect(await tokens.tokenFor(ann, scopes)).toEqual({ state: "consent", scopes });
  expect(await consent()).toEqual({ state: "granted", granted: scopes });
  expect(await api.owner(tokenOf(await tokens.tokenFor(ann, scopes)))).toMatchObject({
    owner: { openId: ann.openId },
  });
  const more = await tokens.tokenFor(ann, [...scopes, "task:task:write"]);
  expect(more).toEqual({ state: "consent", scopes: ["task:task:write"] });
  expect(await tokens.tokenFor({ ...ann, openId: "ou_ben" }, scopes)).toEqual({
    state: "consent",
    scopes,
  });
});

test("the consent of another person is thrown away, at the platform too", async () => {
  const { simulator, ann, worker, consent } = await scene();
  const ben = simulator.addUser({ name: "Ben" }).openId;
  expect(await consent(ben)).toEqual({ state: "other_person" });
  expect(await worker().tokenFor(ann, scopes)).toEqual({ state: "consent", scopes });
  expect(simulator.grants.grantedTo(app.appId, ben)).toEqual([]);
});

test("a worker without the key of a grant leaves its end at the platform to those that have it", async () => {
  const { simulator, ann, worker, grants, consent, forward } = await scene();
  await consent();
  await grants.revoke(ann, "user", { atPlatform: true });
  await worker(undefined, "b".repeat(64)).endAtPlatform();
  expect(simulator.grants.grantedTo(app.appId, ann.openId)).toContain(scopes[0]);
  forward(600_000);
  await worker().endAtPlatform();
  expect(simulator.grants.grantedTo(app.appId, ann.openId)).toEqual([]);
});

test("1,000 calls over 8 workers at expiry make one refresh", async () => {
  const { ann, worker, consent, refreshes, forward } = await scene();
  await consent();
  forward(7_200_000);
  const before = refreshes().length;
  const workers = Array.from({ length: 8 }, () => worker());
  const calls = Array.from(
    { length: 1_000 },
    async (_, at) => await workers[at % 8]?.tokenFor(ann, scopes),
  );
  const given = await Promise.all(calls);
  expect(new Set(given.map((one) => one?.state))).toEqual(new Set(["token"]));
  expect(new Set(given.map((one) => one && tokenOf(one))).size).toBe(1);
  expect(refreshes().slice(before)).toEqual([0]);
});

test("a token is refreshed before its last half hour, and no sooner", async () => {
  const { ann, worker, consent, refreshes, forward } = await scene();
  await consent();
  const tokens = worker();
  const first = tokenOf(await tokens.tokenFor(ann, scopes));
  forward(5_300_000);
  expect(tokenOf(await tokens.tokenFor(ann, scopes))).toBe(first);
  forward(200_000);
  expect(tokenOf(await tokens.tokenFor(ann, scopes))).not.toBe(first);
  expect(refreshes()).toEqual([0, 0]);
});

test("a token that the platform refuses is replaced once", async () => {
  const { ann, worker, consent, refreshes } = await scene();
  await consent();
  const [one, other] = [worker(), worker()];
  const first = tokenOf(await one.tokenFor(ann, scopes));
  const second = tokenOf(await one.tokenFor(ann, scopes, tokenDigestOf(first)));
  expect(second).not.toBe(first);
  expect(tokenOf(await other.tokenFor(ann, scopes, tokenDigestOf(first)))).toBe(second);
  expect(refreshes()).toEqual([0, 0]);
});

test("a token that the platform refuses is not given again where none takes its place", async () => {
  const { simulator, ann, worker, consent, grants } = await scene();
  await consent();
  const [one, other] = [worker(), worker()];
  const refused = tokenDigestOf(tokenOf(await one.tokenFor(ann, scopes)));
  await simulator.grants.revoke(app.appId, ann.openId, "user");
  expect(await one.tokenFor(ann, [], refused)).toEqual({ state: "consent", scopes: [] });
  expect(await other.tokenFor(ann, scopes)).toEqual({ state: "consent", scopes });
  expect((await grants.read(ann))?.tokens).toBeUndefined();
  expect(await consent()).toMatchObject({ state: "granted" });
  // The refusal of an earlier token changes nothing.
  expect((await one.tokenFor(ann, [], refused)).state).toBe("token");
  expect((await other.tokenFor(ann, scopes)).state).toBe("token");
});

test("an outage keeps the grant: the old token serves while it is good, and the refresh is tried again", async () => {
  const { simulator, ann, worker, consent, forward, grants } = await scene();
  await consent();
  const tokens = worker(200);
  const first = tokenOf(await tokens.tokenFor(ann, scopes));
  const action = {
    kind: "respond",
    status: 503,
    body: { code: 20072, error: "temporarily_unavailable" },
  } as const;
  simulator.faults.add({ match: { path: tokenPath }, action });
  forward(5_500_000);
  expect(tokenOf(await tokens.tokenFor(ann, scopes))).toBe(first);
  forward(1_700_000);
  expect(await tokens.tokenFor(ann, scopes)).toEqual({ state: "unavailable" });
  expect(await grants.read(ann)).toMatchObject({ state: "active", generation: 1 });
  simulator.faults.clear();
  expect((await tokens.tokenFor(ann, scopes)).state).toBe("token");
});

test("where the answer to a refresh is lost, the old token serves to its end, then the person is asked", async () => {
  const { simulator, ann, worker, consent, forward, grants } = await scene();
  await consent();
  const tokens = worker(200);
  const first = tokenOf(await tokens.tokenFor(ann, scopes));
  simulator.faults.add({ match: { path: tokenPath }, times: 1, action: { kind: "lose_response" } });
  forward(5_500_000);
  expect(tokenOf(await tokens.tokenFor(ann, scopes))).toBe(first);
  forward(1_640_000);
  expect(await tokens.tokenFor(ann, scopes)).toEqual({ state: "consent", scopes });
  expect(await grants.read(ann)).toMatchObject({ state: "needs_consent" });
  expect(await consent()).toMatchObject({ state: "granted" });
  expect((await tokens.tokenFor(ann, scopes)).state).toBe("token");
});

test("a grant that was revoked, or whose person has left, gives no token any more", async () => {
  const { simulator, ann, worker, consent, forward, grants } = await scene();
  await consent();
  const tokens = worker();
  await simulator.grants.revoke(app.appId, ann.openId, "user");
  forward(7_200_000);
  expect(await tokens.tokenFor(ann, scopes)).toEqual({ state: "consent", scopes });
  await consent();
  const gone = {
    kind: "respond",
    status: 400,
    body: { code: 20008, error: "invalid_grant" },
  } as const;
  simulator.faults.add({ match: { path: tokenPath }, action: gone });
  forward(7_200_000);
  expect(await tokens.tokenFor(ann, scopes)).toEqual({ state: "consent", scopes });
  expect(await grants.read(ann)).toMatchObject({ state: "revoked" });
});
