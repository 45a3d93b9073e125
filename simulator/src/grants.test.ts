import { systemClock } from "@larkline/protocol/clock";
import { afterEach, expect, test } from "vitest";
import { startFeishuSimulator, type FeishuSimulator } from "./index.ts";
import { callOpenApi } from "./open-api.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };
const other = { appId: "cli_fedcba9876543210", appSecret: "other" };
const v2 = "/open-apis/authen/v2/oauth/token";
const v3 = "/oauth/v3/token";
const open: FeishuSimulator[] = [];

afterEach(async () => {
  for (const simulator of open.splice(0)) await simulator.close();
});

type Fields = Record<string, string>;

interface Answer {
  status: number;
  body: Record<string, unknown>;
}

async function scene() {
  let now = 1_800_000_000_000;
  const clock = { ...systemClock, now: () => now };
  const simulator = await startFeishuSimulator({ apps: [app, other], retryDelaysMs: [], clock });
  open.push(simulator);
  const post = async (path: string, fields: Fields, headers: Fields = {}): Promise<Answer> => {
    const response = await fetch(simulator.url + path, {
      method: "POST",
      body: new URLSearchParams(fields),
      headers,
    });
    const text = await response.text();
    return {
      status: response.status,
      body: text.startsWith("{") ? { ...JSON.parse(text) } : { text },
    };
  };
  const client = { client_id: app.appId, client_secret: app.appSecret };
  const basic = `Basic ${Buffer.from(`${app.appId}:${app.appSecret}`).toString("base64")}`;
  const start = async (scope: string) =>
    await post(
      "/oauth/v1/device_authorization",
      { client_id: app.appId, scope },
      { authorization: basic },
    );
  const poll = async (code: unknown) => {
    const grant_type = "urn:ietf:params:oauth:grant-type:device_code";
    return await post(v2, { ...client, grant_type, device_code: String(code) });
  };
  const refresh = async (token: unknown, more: Fields = {}) =>
    await post(v2, {
      ...client,
      grant_type: "refresh_token",
      refresh_token: String(token),
      ...more,
    });
  const userInfo = async (token: unknown) =>
    await callOpenApi(simulator.url, {
      method: "GET",
      path: "/open-apis/authen/v1/user_info",
      token: String(token),
    });
  const advance = (seconds: number): void => void (now += seconds * 1_000);
  const ann = simulator.addUser({ name: "Ann" }).openId;
  const granted = async (scope: string, by = ann): Promise<Record<string, unknown>> => {
    const { body } = await start(scope);
    simulator.grants.consent(String(body.verification_uri_complete), by);
    return (await poll(body.device_code)).body;
  };
  return { simulator, post, start, poll, refresh, userInfo, advance, ann, granted, client };
}

test("a device code waits for the person, is polled every 5 s, and gives its tokens once", async () => {
  const { simulator, start, poll, advance, ann, userInfo } = await scene();
  const { body } = await start("task:task:read offline_access");
  expect(body).toMatchObject({ expires_in: 240, interval: 5 });
  expect(await poll(body.device_code)).toMatchObject({
    status: 400,
    body: { error: "authorization_pending" },
  });
  expect((await poll(body.device_code)).body).toMatchObject({ error: "slow_down" });
  advance(5);
  expect((await poll(body.device_code)).body).toMatchObject({ error: "authorization_pending" });
  expect(simulator.grants.waiting).toMatchObject([
    { appId: app.appId, scopes: ["task:task:read", "offline_access"] },
  ]);
  simulator.grants.consent(String(body.verification_uri_complete), ann);
  const tokens = (await poll(body.device_code)).body;
  expect(tokens).toMatchObject({
    code: 0,
    expires_in: 7_200,
    refresh_token_expires_in: 604_800,
    scope: "task:task:read offline_access",
  });
  expect((await userInfo(tokens.access_token)).data).toMatchObject({ open_id: ann, name: "Ann" });
  expect((await poll(body.device_code)).body).toMatchObject({ error: "invalid_grant" });
  expect(simulator.grants.waiting).toEqual([]);
});

test("a code ends by refusal and by time, and a forwarded link gives the token of the person who opens it", async () => {
  const { simulator, start, poll, advance, userInfo, granted } = await scene();
  const refused = await start("task:task:read");
  simulator.grants.refuse(String(refused.body.verification_uri_complete));
  expect((await poll(refused.body.device_code)).body).toMatchObject({ error: "access_denied" });
  const late = await start("task:task:read");
  advance(241);
  expect((await poll(late.body.device_code)).body).toMatchObject({
    error: "expired_token",
    code: 20004,
  });
  expect(() =>
    simulator.grants.consent(String(late.body.verification_uri_complete), "ou_unknown"),
  ).toThrow("No user");
  const ben = simulator.addUser({ name: "Ben" }).openId;
  const tokens = await granted("task:task:read", ben);
  expect((await userInfo(tokens.access_token)).data).toMatchObject({ open_id: ben });
});

test("a request fails as a whole for one wrong scope, for 51, and for a forbidden pair; scopes that the app lacks vanish", async () => {
  const { simulator, start, granted } = await scene();
  expect((await start("task:task:read Wrong!")).body).toMatchObject({ error: "invalid_scope" });
  const many = Array.from({ length: 51 }, (_, at) => `task:t${at}`);
  expect((await start(many.join(" "))).status).toBe(400);
  simulator.grants.forbidPair("task:a", "task:b");
  expect(await start("task:a task:b")).toMatchObject({
    status: 403,
    body: { text: "<h1>403</h1>" },
  });
  expect((await start("task:b task:a")).status).toBe(200);
  simulator.grants.setUserScopes(app.appId, ["task:a"]);
  expect(await granted("task:b task:a")).toMatchObject({ scope: "task:a" });
});

test("a refresh token works once, and what was granted adds up or can be narrowed", async () => {
  const { refresh, granted, advance } = await scene();
  await granted("task:a offline_access");
  const tokens = await granted("task:b");
  expect(tokens.scope).toBe("task:a offline_access task:b");
  const next = (await refresh(tokens.refresh_token, { scope: "task:b offline_access" })).body;
  expect(next.scope).toBe("task:b offline_access");
  expect((await refresh(tokens.refresh_token)).body).toMatchObject({ code: 20073 });
  expect((await refresh(next.refresh_token, { scope: "task:c" })).body).toMatchObject({
    code: 20068,
  });
  expect((await refresh("ur-other")).body).toMatchObject({ code: 20026 });
  advance(604_800);
  expect((await refresh(next.refresh_token)).body).toMatchObject({ code: 20037 });
});

test("consent ends after 365 days, however often the token was refreshed", async () => {
  const { refresh, granted, advance } = await scene();
  let { refresh_token: token } = await granted("task:a offline_access");
  for (let week = 0; week < 60; week += 1) {
    advance(604_799);
    const { body } = await refresh(token);
    if (body.code !== 0) {
      expect([week, body.code]).toEqual([52, 20037]);
      return;
    }
    token = body.refresh_token;
  }
  expect.unreachable();
});

test("an access token lives two hours, also after a refresh; the switch for refreshes answers 20074", async () => {
  const { simulator, refresh, granted, advance, userInfo } = await scene();
  const tokens = await granted("task:a offline_access");
  advance(3_600);
  const next = (await refresh(tokens.refresh_token)).body;
  expect((await userInfo(tokens.access_token)).code).toBe(0);
  advance(3_600);
  expect((await userInfo(tokens.access_token)).code).toBe(20005);
  expect((await userInfo(next.access_token)).code).toBe(0);
  simulator.grants.setRefresh(app.appId, "off");
  expect((await refresh(next.refresh_token)).body).toMatchObject({ code: 20074 });
  expect(await granted("task:a offline_access")).not.toHaveProperty("refresh_token");
});

test("an answer that is lost has used the refresh token up", async () => {
  const { simulator, refresh, granted } = await scene();
  const tokens = await granted("task:a offline_access");
  simulator.faults.add({ match: { path: v2 }, times: 1, action: { kind: "lose_response" } });
  await expect(refresh(tokens.refresh_token)).rejects.toThrow();
  expect((await refresh(tokens.refresh_token)).body).toMatchObject({ code: 20073 });
});

test("revoked tokens are 20064 and 99991668, and the app gets the reason", async () => {
  const { simulator, post, client, refresh, granted, ann, userInfo } = await scene();
  const first = await granted("task:a offline_access");
  await simulator.grants.revoke(app.appId, ann, "administrator");
  expect((await refresh(first.refresh_token)).body).toMatchObject({ code: 20064 });
  expect((await userInfo(first.access_token)).code).toBe(20005);
  const second = await granted("task:a offline_access");
  expect(
    (await post("/oauth/v1/revoke", { ...client, token: String(second.refresh_token) })).body.code,
  ).toBe(0);
  expect((await refresh(second.refresh_token)).body).toMatchObject({ code: 20064 });
  expect(simulator.grants.grantedTo(app.appId, ann)).toEqual([]);
});

test("of a person who has left or is frozen the platform says so", async () => {
  const { simulator, granted, userInfo, ann } = await scene();
  const tokens = await granted("task:a");
  simulator.grants.setPersonState(ann, "frozen");
  expect((await userInfo(tokens.access_token)).code).toBe(20022);
  simulator.grants.setPersonState(ann, "resigned");
  expect((await userInfo(tokens.access_token)).code).toBe(20021);
  await simulator.grants.leave(ann);
  expect((await userInfo(tokens.access_token)).code).toBe(20005);
});

test("a code of a page is good once, for 5 minutes, with its address and its verifier", async () => {
  const { simulator, post, client, advance, ann } = await scene();
  const redirect_uri = "https://bot.example/back";
  const page = (more: Fields) => {
    const fields = { client_id: app.appId, scope: "task:a", state: "s1", redirect_uri, ...more };
    return `${simulator.url}/open-apis/authen/v1/authorize?${new URLSearchParams(fields).toString()}`;
  };
  const codeOf = (more: Fields = {}): string => {
    const back = new URL(simulator.grants.consent(page(more), ann).redirect ?? "");
    expect(back.searchParams.get("state")).toBe("s1");
    return back.searchParams.get("code") ?? "";
  };
  const exchange = async (path: string, code: string, more: Fields = {}) =>
    (await post(path, { ...client, grant_type: "authorization_code", code, redirect_uri, ...more }))
      .body.code;
  const code = codeOf();
  expect(await exchange(v2, code, { redirect_uri: "https://other.example" })).toBe(20071);
  expect(await exchange(v2, code)).toBe(0);
  expect(await exchange(v2, code)).toBe(20065);
  const late = codeOf();
  advance(300);
  expect(await exchange(v2, late)).toBe(20004);
  const challenge = { code_challenge: "plain-verifier", code_challenge_method: "plain" };
  expect(await exchange(v2, codeOf(challenge))).toBe(20049);
  expect(await exchange(v3, codeOf(challenge), { code_verifier: "plain-verifier" })).toBe(0);
  expect(await exchange(v2, codeOf(), { code_verifier: "unasked" })).toBe(0);
  expect(await exchange(v3, codeOf(), { code_verifier: "unasked" })).toBe(20049);
  expect(new URL(simulator.grants.refuse(page({})).redirect ?? "").searchParams.get("error")).toBe(
    "access_denied",
  );
});

test("wrong secrets and other apps get no token", async () => {
  const { post, granted, refresh } = await scene();
  const tokens = await granted("task:a offline_access");
  const foreign = { client_id: other.appId, client_secret: other.appSecret };
  expect((await refresh(tokens.refresh_token, foreign)).body).toMatchObject({ code: 20024 });
  expect((await refresh(tokens.refresh_token, { client_secret: "wrong" })).body).toMatchObject({
    code: 20002,
  });
  expect((await post(v2, { grant_type: "password" })).body).toMatchObject({ code: 20048 });
});

test("an operation that takes no token of a person refuses it, and the log says whose it was", async () => {
  const { simulator, granted, ann } = await scene();
  const { access_token: token } = await granted("task:a");
  const call = { method: "GET", path: "/open-apis/bot/v3/info", token: String(token) };
  expect(await callOpenApi(simulator.url, call)).toMatchObject({ status: 400, code: 99991663 });
  expect(simulator.apiCalls.at(-1)).toMatchObject({ appId: app.appId, person: ann });
  simulator.grants.demandChallenge(ann, "https://check.example");
  expect(await callOpenApi(simulator.url, call)).toMatchObject({
    code: 21000,
    data: { challenge_url: "https://check.example" },
  });
  expect((await callOpenApi(simulator.url, { ...call, token: "u-none" })).code).toBe(99991668);
});
