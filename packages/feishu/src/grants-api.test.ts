import { startFeishuSimulator } from "@larkline/simulator";
import { expect, onTestFinished, test } from "vitest";
import { GrantsApi } from "./grants-api.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app" };
const tokenPath = "/open-apis/authen/v2/oauth/token";

async function scene() {
  const simulator = await startFeishuSimulator({ apps: [app], retryDelaysMs: [] });
  onTestFinished(() => simulator.close());
  const ann = simulator.addUser({ name: "Ann" }).openId;
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const begin = async (scopes: string[] = ["task:task:read"]) => {
    const started = await api.startDevice(scopes);
    if (started.state !== "started") throw new Error(`not started: ${started.state}`);
    return started.device;
  };
  const granted = async (scopes?: string[], by = ann) => {
    const { deviceCode, link } = await begin(scopes);
    simulator.grants.consent(link, by);
    const answer = await api.poll(deviceCode);
    if (answer.state !== "granted") throw new Error(`not granted: ${answer.state}`);
    return answer.tokens;
  };
  return { simulator, api, ann, begin, granted };
}

/** The platform answers the next token request like this. */
function answerOnce(
  { simulator }: Awaited<ReturnType<typeof scene>>,
  status: number,
  body: unknown,
): void {
  simulator.faults.add({
    match: { path: tokenPath },
    times: 1,
    action: { kind: "respond", status, body },
  });
}

test("a person agrees: pending, then tokens with what was granted, and whose they are", async () => {
  const { simulator, api, ann, begin } = await scene();
  const { deviceCode, link, expiresInMs, intervalMs } = await begin();
  expect([expiresInMs, intervalMs]).toEqual([240_000, 5_000]);
  expect(await api.poll(deviceCode)).toEqual({ state: "pending" });
  expect(await api.poll(deviceCode)).toEqual({ state: "slow_down" });
  simulator.grants.consent(link, ann);
  const answer = await api.poll(deviceCode);
  expect(answer).toMatchObject({
    state: "granted",
    tokens: { scopes: ["task:task:read"], expiresInMs: 7_200_000, refreshExpiresInMs: 604_800_000 },
  });
  const token = answer.state === "granted" ? answer.tokens.accessToken : "";
  expect(await api.owner(token)).toMatchObject({
    state: "known",
    owner: { openId: ann, name: "Ann" },
  });
});

test("scopes that the app lacks are missing in what was granted, and 50 are too many", async () => {
  const { simulator, api, granted } = await scene();
  simulator.grants.setUserScopes(app.appId, ["task:a"]);
  expect((await granted(["task:a", "task:b"])).scopes).toEqual(["task:a"]);
  await expect(
    api.startDevice(Array.from({ length: 50 }, (_, at) => `task:t${at}`)),
  ).rejects.toThrow(RangeError);
});

test("a refusal of the person and a code that is gone end the poll", async () => {
  const { simulator, api, begin } = await scene();
  const { deviceCode, link } = await begin();
  simulator.grants.refuse(link);
  expect(await api.poll(deviceCode)).toMatchObject({ state: "denied" });
  expect(await api.poll("unknown")).toMatchObject({ state: "expired" });
});

test("a refresh gives new tokens; the used, the revoked and the unknown token need consent, each with its code", async () => {
  const { simulator, api, ann, granted } = await scene();
  const { refreshToken = "" } = await granted();
  expect(await api.refresh(refreshToken)).toMatchObject({
    state: "granted",
    tokens: { scopes: ["task:task:read"] },
  });
  expect(await api.refresh(refreshToken)).toEqual({ state: "consent", code: 20073, used: true });
  const { refreshToken: other = "" } = await granted();
  await simulator.grants.revoke(app.appId, ann, "user");
  expect(await api.refresh(other)).toEqual({ state: "consent", code: 20064, used: false });
  expect(await api.refresh("none")).toEqual({ state: "consent", code: 20026, used: false });
});

test("no answer, a broken one and an outage are unknown: the refresh may have taken effect", async () => {
  const world = await scene();
  const { simulator, api, granted } = world;
  const { refreshToken = "" } = await granted();
  for (const [status, body] of [
    [500, { code: 20050, error: "server_error" }],
    [503, { code: 20072, error: "temporarily_unavailable" }],
    [502, "<html>"],
    [200, {}],
  ] as const) {
    answerOnce(world, status, body);
    expect(await api.refresh(refreshToken)).toMatchObject({ state: "unknown" });
  }
  simulator.faults.add({ match: { path: tokenPath }, times: 1, action: { kind: "lose_response" } });
  expect(await api.refresh(refreshToken)).toEqual({ state: "unknown", code: 0 });
  expect(await api.refresh(refreshToken)).toMatchObject({ state: "consent", used: true });
});

test.each([
  [20001, "bug"],
  [20063, "bug"],
  [20036, "bug"],
  [20024, "bug"],
  [20070, "bug"],
  [20067, "bug"],
  [20002, "app"],
  [20048, "app"],
  [20009, "app"],
  [20069, "app"],
  [20074, "app"],
  [20027, "app"],
  [20003, "expired"],
  [20004, "expired"],
  [20065, "expired"],
  [20071, "expired"],
  [20049, "expired"],
  [20008, "person_gone"],
  [20066, "person_gone"],
  [20010, "not_available"],
  [21001, "not_available"],
  [20037, "consent"],
  [20068, "consent"],
  [29999, "unknown"],
])("code %i means %s", async (code, state) => {
  const world = await scene();
  answerOnce(world, 400, { code, error: "error", error_description: "as said" });
  expect(await world.api.refresh("any")).toMatchObject({ state, code });
});

test("a check that the company's policy wants comes with its link", async () => {
  const world = await scene();
  answerOnce(world, 400, { code: 21000, data: { challenge_url: "https://check.example" } });
  expect(await world.api.refresh("any")).toEqual({
    state: "challenge",
    code: 21000,
    link: "https://check.example",
  });
});

test("of people who have left, are frozen, or whose token is no good, the platform says so", async () => {
  const { simulator, api, ann, granted } = await scene();
  const { accessToken } = await granted();
  simulator.grants.setPersonState(ann, "frozen");
  expect(await api.owner(accessToken)).toEqual({ state: "person_gone", code: 20022 });
  simulator.grants.setPersonState(ann, "resigned");
  expect(await api.owner(accessToken)).toEqual({ state: "person_gone", code: 20021 });
  expect(await api.owner("u-none")).toEqual({ state: "consent", code: 20005, used: false });
});

test("what a person ends is ended at the platform", async () => {
  const { simulator, api, ann, granted } = await scene();
  const { refreshToken = "" } = await granted();
  expect(await api.revoke(refreshToken, "refresh_token")).toBe("ended");
  expect(simulator.grants.grantedTo(app.appId, ann)).toEqual([]);
  const answers = [
    ["unknown", { kind: "drop" }],
    ["unknown", { kind: "respond", status: 503, body: { code: 20072 } }],
    ["unknown", { kind: "respond", status: 502, body: "<h1>502</h1>" }],
    ["refused", { kind: "respond", status: 404, body: "404 page not found" }],
    ["refused", { kind: "respond", status: 400, body: { code: 20048 } }],
    ["ended", { kind: "respond", status: 200, body: "" }],
  ] as const;
  for (const [expected, action] of answers) {
    simulator.faults.add({ match: { path: "/oauth/v1/revoke" }, times: 1, action });
    expect(await api.revoke(refreshToken, "refresh_token")).toBe(expected);
  }
});

test("the addresses are those of the brand, and the token endpoint is a setting", () => {
  const token = "https://accounts.feishu.cn/oauth/v3/token";
  expect(new GrantsApi({ ...app, domain: "lark" }).endpoints).toEqual({
    authorize: "https://accounts.larksuite.com/open-apis/authen/v1/authorize",
    device: "https://accounts.larksuite.com/oauth/v1/device_authorization",
    token: "https://open.larksuite.com/open-apis/authen/v2/oauth/token",
    revoke: "https://accounts.larksuite.com/oauth/v1/revoke",
    userInfo: "https://open.larksuite.com/open-apis/authen/v1/user_info",
  });
  expect(new GrantsApi({ ...app, domain: "feishu", endpoints: { token } }).endpoints.token).toBe(
    token,
  );
});
