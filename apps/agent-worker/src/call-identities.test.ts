import { GrantsApi } from "@larkline/feishu";
import { startFeishuSimulator } from "@larkline/simulator";
import { programSender, type Sender } from "@larkline/protocol";
import { tokenDigestOf } from "@larkline/protocol/tool";
import {
  forgetGrant,
  GrantEnds,
  GrantStore,
  type GrantOwner,
  type AuditRecord,
} from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { expect, onTestFinished, test } from "vitest";
import { actsAs, TokenBroker } from "./call-identities.ts";
import { sweepGrantEnds } from "./grants.ts";
import { PersonTokens } from "./person-tokens.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app", tenantKey: "t1" };
const scopes = ["task:task:read"];

async function scene({ keyed = true } = {}) {
  const simulator = await startFeishuSimulator({ apps: [app], retryDelaysMs: [] });
  onTestFinished(() => simulator.close());
  const ann = {
    app: app.appId,
    tenant: "t1",
    openId: simulator.addUser({ name: "Ann" }).openId,
  } satisfies GrantOwner;
  const here = openTestStores();
  const grants = new GrantStore({ ...here, grantKeys: ["a".repeat(64)] });
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const records: Omit<AuditRecord, "atMs">[] = [];
  const audit = async (record: Omit<AuditRecord, "atMs">) =>
    await Promise.resolve(void records.push(record));
  const tokens = new PersonTokens({ grants, apiOf: () => api, audit });
  const grantEnds = new GrantEnds(here);
  let bot = "t-1";
  const botToken = async (refused?: string) => {
    if (refused === tokenDigestOf(bot)) bot = "t-2";
    return await Promise.resolve(bot);
  };
  const bots = new Map([[app.appId, { api: { baseUrl: simulator.url, botToken } }]]);
  const uses: string[][] = [];
  const used = async ({ openId }: GrantOwner, tool: string) =>
    await Promise.resolve(void uses.push([openId, tool]));
  const broker = new TokenBroker({ bots, tokens: keyed ? tokens : undefined, used });
  const consent = async () => {
    const started = await api.startDevice(scopes);
    if (started.state !== "started") throw new Error(started.state);
    simulator.grants.consent(started.device.link, ann.openId);
    const answer = await api.poll(started.device.deviceCode);
    if (answer.state !== "granted") throw new Error(answer.state);
    await tokens.accept(ann, answer.tokens, { asked: scopes, issuer: api.endpoints.token });
  };
  const facts = { app: app.appId, tenant: "t1", userId: ann.openId, scopes };
  const services = { grantEnds, personTokens: tokens };
  const stored = async () =>
    (await here.redis.keys(`*${here.namespace}*:grant*`))
      .map((key) => key.split(":")[1])
      .toSorted();
  return {
    ann,
    api,
    broker,
    consent,
    facts,
    origin: simulator.url,
    services,
    records,
    stored,
    here,
    uses,
  };
}

test("a call acts as the person of its turn, once they have agreed, and `either` as the bot until then", async () => {
  const { ann, api, broker, consent, facts, origin, uses } = await scene();
  expect(await broker.of({ ...facts, as: "person" })).toEqual({
    state: "refused",
    outcome: {
      ok: false,
      error: expect.stringContaining("grant_needed: "),
      grant: { kind: "scopes", scopes },
    },
  });
  const asBot = { state: "identity", identity: { as: "bot", token: "t-1", apiOrigin: origin } };
  expect(await broker.of({ ...facts, as: "either" })).toEqual(asBot);
  await consent();
  for (const as of ["person", "either"]) {
    const given = await broker.of({ ...facts, as, tool: `find ${as}` });
    const token = given.state === "identity" ? given.identity.token : "";
    expect(given).toEqual({
      state: "identity",
      identity: { as: "person", token, openId: ann.openId, apiOrigin: origin },
    });
    expect(await api.owner(token)).toMatchObject({ owner: { openId: ann.openId } });
  }
  expect(await broker.of({ ...facts, as: "bot" })).toEqual(asBot);
  expect(uses).toEqual([
    [ann.openId, "find person"],
    [ann.openId, "find either"],
  ]);
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
    Array.from(
      { length: 5 },
      async () => await broker.tokenRefused({ ...facts, as: "person" }, tokenDigestOf(first)),
    ),
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
  expect(given).toMatchObject({
    state: "refused",
    outcome: { error: expect.stringContaining("not known for sure") },
  });
});

test("callers of the HTTP API and programs act as no person, whatever they say who they are", () => {
  const of = (chatType: "p2p" | "group" | "api", sender: Sender = { id: "ou_1" }) => {
    return (["person", "bot", "either"] as const).map((as) =>
      actsAs({ message: { chatType, sender } }, { as }),
    );
  };
  expect(of("group", programSender("trigger:build"))).toEqual(["none", "bot", "bot"]);
  expect([of("p2p"), of("group"), of("api")]).toEqual([
    ["person", "bot", "either"],
    ["person", "bot", "either"],
    ["none", "bot", "bot"],
  ]);
});

test("what the platform has ended is erased, unless it was granted anew since, and the audit log has it", async () => {
  const { ann, broker, consent, facts, services, records, stored, here } = await scene();
  await consent();
  const end = { ...ann, reason: "user" };
  await services.grantEnds.add({ ...end, atMs: Date.now() - 60_000 });
  await sweepGrantEnds(services);
  expect(await stored()).toEqual(["grant", "grant-tokens", "grants"]);
  expect(await broker.of({ ...facts, as: "person" })).toMatchObject({ state: "identity" });
  await services.grantEnds.add({ ...end, atMs: Date.now() + 1 });
  await sweepGrantEnds(services);
  await sweepGrantEnds(services);
  expect(await broker.of({ ...facts, as: "person" })).toMatchObject({ state: "refused" });
  expect(await stored()).toEqual(["grant", "grants"]);
  const about = { app: ann.app, tenant: ann.tenant, userId: ann.openId };
  expect(records).toEqual([
    { kind: "grant_given", ...about, scopes },
    { kind: "grant_ended", ...about, result: "user" },
  ]);
  await forgetGrant(here, ann);
  expect(await stored()).toEqual([]);
});
