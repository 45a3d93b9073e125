import { GrantsApi } from "@larkline/feishu";
import { startFeishuSimulator } from "@larkline/simulator";
import { tokenDigestOf } from "@larkline/protocol";
import { GrantStore, type GrantOwner } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { expect, onTestFinished, test } from "vitest";
import { actsAs, TokenBroker } from "./call-identities.ts";
import { PersonTokens } from "./person-tokens.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app", tenantKey: "t1" };
const scopes = ["task:task:read"];

async function scene({ keyed = true } = {}) {
  const simulator = await startFeishuSimulator({ apps: [app], retryDelaysMs: [] });
  onTestFinished(() => simulator.close());
  const ann = { app: app.appId, tenant: "t1", openId: simulator.addUser({ name: "Ann" }).openId } satisfies GrantOwner;
  const here = openTestStores();
  const grants = new GrantStore({ ...here, grantKeys: ["a".repeat(64)] });
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const tokens = new PersonTokens({ grants, apiOf: () => api });
  let bot = "t-1";
  const botToken = async (refused?: string) => {
    if (refused === tokenDigestOf(bot)) bot = "t-2";
    return await Promise.resolve(bot);
  };
  const bots = new Map([[app.appId, { api: { baseUrl: simulator.url, botToken } }]]);
  const broker = new TokenBroker({ bots, tokens: keyed ? tokens : undefined });
  const consent = async () => {
    const started = await api.startDevice(scopes);
    if (started.state !== "started") throw new Error(started.state);
    simulator.grants.consent(started.device.link, ann.openId);
    const answer = await api.poll(started.device.deviceCode);
    if (answer.state !== "granted") throw new Error(answer.state);
    await tokens.accept(ann, answer.tokens, { asked: scopes, issuer: api.endpoints.token });
  };
  const facts = { app: app.appId, tenant: "t1", userId: ann.openId, scopes };
  return { ann, api, broker, consent, facts, origin: simulator.url };
}

test("a call acts as the person of its turn, once they have agreed, and `either` as the bot until then", async () => {
  const { ann, api, broker, consent, facts, origin } = await scene();
  expect(await broker.of({ ...facts, as: "person" })).toEqual({
    state: "refused",
    outcome: { ok: false, error: expect.stringContaining("grant_needed: "), grant: { kind: "scopes", scopes } },
  });
  const asBot = { state: "identity", identity: { as: "bot", token: "t-1", apiOrigin: origin } };
  expect(await broker.of({ ...facts, as: "either" })).toEqual(asBot);
  await consent();
  for (const as of ["person", "either"]) {
    const given = await broker.of({ ...facts, as });
    const token = given.state === "identity" ? given.identity.token : "";
    expect(given).toEqual({
      state: "identity",
      identity: { as: "person", token, openId: ann.openId, apiOrigin: origin },
    });
    expect(await api.owner(token)).toMatchObject({ owner: { openId: ann.openId } });
  }
  expect(await broker.of({ ...facts, as: "bot" })).toEqual(asBot);
});

test("a token that was refused is replaced once, however many calls say so", async () => {
  const { broker, consent, facts } = await scene();
  await consent();
  const tokenNow = async (as: string) => {
    const given = await broker.of({ ...facts, as });
    return given.state === "identity" ? given.identity.token : given.state;
  };
  const [first, ofBot] = [await tokenNow("person"), await tokenNow("bot")];
  await Promise.all(
    Array.from({ length: 5 }, async () => await broker.tokenRefused({ ...facts, as: "person" }, tokenDigestOf(first))),
  );
  const second = await tokenNow("person");
  expect(second).not.toBe(first);
  await broker.tokenRefused({ ...facts, as: "person" }, tokenDigestOf(first));
  expect(await tokenNow("person")).toBe(second);
  await broker.tokenRefused({ ...facts, as: "bot" }, tokenDigestOf(ofBot));
  expect(await tokenNow("bot")).toBe("t-2");
});

test("without GRANT_KEY, a person or a bot, a call is refused in words, and takes no other identity", async () => {
  const { broker, facts } = await scene({ keyed: false });
  const errorOf = async (about: object) => {
    const given = await broker.of({ ...facts, ...about });
    return given.state === "refused" && !given.outcome.ok ? given.outcome.error : given.state;
  };
  expect(await errorOf({ as: "person" })).toContain("GRANT_KEY");
  expect(await errorOf({ as: "either" })).toBe("identity");
  expect(await errorOf({ as: "none" })).toContain("not known for sure");
  expect(await errorOf({ as: "bot", app: "cli_other" })).toContain("no bot");
  const keyed = await scene();
  const { tenant: _tenant, ...unknown } = keyed.facts;
  const given = await keyed.broker.of({ ...unknown, as: "person" });
  expect(given).toMatchObject({ state: "refused", outcome: { error: expect.stringContaining("not known for sure") } });
});

test("callers of the HTTP API act as no person, whatever they say who they are", () => {
  const of = (chatType: "p2p" | "group" | "api") => {
    return (["person", "bot", "either"] as const).map((as) => actsAs({ message: { chatType } }, { as }));
  };
  expect([of("p2p"), of("group"), of("api")]).toEqual([
    ["person", "bot", "either"],
    ["person", "bot", "either"],
    ["none", "bot", "bot"],
  ]);
});
