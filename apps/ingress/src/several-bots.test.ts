import { randomBytes } from "node:crypto";
import { readIngressBots, resolveConfig, type ConfigInput } from "@larkline/process/config";
import { FeishuApi } from "@larkline/feishu";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import type { InboundMessage } from "@larkline/protocol";
import type { PermissionRule } from "@larkline/protocol/approval";
import { openTestStores } from "@larkline/store/testing";
import { patientClock } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { approvalFor, suspendOn } from "./approval.fixture.ts";
import { loadConfig } from "./config.ts";
import { postChat, startTestIngress, type TestIngress } from "./ingress.fixture.ts";

const first = {
  appId: "cli_aaaaaaaaaaaaaaaa",
  appSecret: "secret of the first",
  encryptKey: "key of the first",
  verificationToken: "token of the first",
  tenantKey: "t_home",
};
const second = {
  appId: "cli_bbbbbbbbbbbbbbbb",
  appSecret: "secret of the second",
  encryptKey: "key of the second",
  verificationToken: "token of the second",
  tenantKey: "t_home",
};

let platform: FeishuSimulator;
let ingress: TestIngress;
const apis: FeishuApi[] = [];
let ann = "";
let eve = "";
/** Of Ann, Eve and both bots. */
let group = "";

function settingsOf(domain: string): ConfigInput {
  return {
    agents: {
      default: { commands: { greet: { description: "Greets.", prompt: "Greet" } } },
      support: {
        commands: { ticket: { description: "Opens one.", prompt: "Open a ticket:" } },
        language: "en",
      },
      ops: { sessions: "sender" },
    },
    bots: {
      support: {
        appId: second.appId,
        domain,
        transport: "both",
        agent: "support",
        tenants: ["t_home"],
        feishu: { menu: { report: "Sum up this week." } },
      },
      default: { chats: { oc_ops: { agent: "ops" } } },
    },
  };
}

beforeAll(async () => {
  platform = await startFeishuSimulator({
    apps: [first, second],
    limits: "off",
    clock: patientClock,
    retryDelaysMs: [100, 100],
    connection: { reconnectNonceSeconds: 0, reconnectIntervalSeconds: 1 },
  });
  const settings = settingsOf(platform.url);
  const env = {
    FEISHU_APP_ID: first.appId,
    FEISHU_APP_SECRET: first.appSecret,
    FEISHU_ENCRYPT_KEY: first.encryptKey,
    FEISHU_VERIFICATION_TOKEN: first.verificationToken,
    FEISHU_DOMAIN: platform.url,
    FEISHU_TRANSPORT: "both",
    FEISHU_APP_SECRET_SUPPORT: second.appSecret,
    FEISHU_ENCRYPT_KEY_SUPPORT: second.encryptKey,
    FEISHU_VERIFICATION_TOKEN_SUPPORT: second.verificationToken,
  };
  const config = resolveConfig(settings);
  const loaded = loadConfig(env);
  const edges =
    config.ok && loaded.ok
      ? readIngressBots(env, config.value.bots, loaded.value.feishu)
      : expect.fail();
  const bots = (edges.ok ? edges.value : expect.fail(edges.error)).map((access) => {
    const api = new FeishuApi({ ...access, tokenCache: openTestStores().tokens });
    apis.push(api);
    return { access, api };
  });
  ingress = await startTestIngress({ bots, settings });
  platform.setWebhookUrl(first.appId, `${ingress.url}/feishu/events`);
  platform.setWebhookUrl(second.appId, `${ingress.url}/feishu/support/events`);
  platform.setTransport(first.appId, "webhook");
  platform.setTransport(second.appId, "webhook");
  ann = platform.addUser({ name: "Ann" }).openId;
  eve = platform.addUser({ name: "Eve", tenantKey: "t_other" }).openId;
  group = platform.addChat({
    type: "group",
    members: [ann, eve, first.appId, second.appId],
  }).chatId;
});

afterAll(async () => {
  await ingress.close();
  for (const api of apis) api.close();
  await platform.close();
});

type App = typeof first;

async function say(app: App, text: string, where: { from?: string; chatId?: string } = {}) {
  const { from = ann, chatId = group } = where;
  const sent = await platform.sendMessage({
    appId: app.appId,
    chatId,
    from,
    text,
    mention: chatId === group,
  });
  return { ...sent, outcome: (await sent.delivery).outcome };
}

function directChat(app: App, person = ann): string {
  return platform.addChat({ type: "p2p", members: [person, app.appId] }).chatId;
}

async function claimed(app: App, chatId: string) {
  const session = `${app.appId}.${chatId}`;
  const claim = await ingress.store.claim(
    session,
    (await ingress.store.summary(session)).gen,
    "test",
  );
  return claim ?? expect.fail(`nothing to do in ${session}`);
}

async function head(app: App, chatId: string): Promise<InboundMessage | undefined> {
  return (await claimed(app, chatId)).head?.message;
}

/** A click as the platform reports it to an app, whichever card it is said to be on. */
async function click(
  app: App,
  value: object,
  operator: object = { open_id: ann, tenant_key: "t_home" },
) {
  const event = { operator, action: { value, tag: "button" }, context: {} };
  const push = await platform.sendEvent({
    appId: app.appId,
    eventType: "card.action.trigger",
    event,
    callback: true,
  });
  return JSON.stringify(push);
}

describe("several bots of one process", () => {
  it("each takes the events of its app at its own address, for the agent that it names", async () => {
    const [one, other] = [directChat(first), directChat(second)];
    expect(await say(first, "hello", { chatId: one })).toMatchObject({ outcome: "acknowledged" });
    expect(await say(second, "/ticket the printer", { chatId: other })).toMatchObject({
      outcome: "acknowledged",
    });
    const mine = await head(first, one);
    expect(mine).toMatchObject({ app: first.appId });
    expect(mine?.agent).toBeUndefined();
    expect(await head(second, other)).toMatchObject({
      app: second.appId,
      agent: "support",
      parts: [{ text: expect.stringContaining("Open a ticket:") }],
    });
  });

  it("each knows the commands of its own agent alone", async () => {
    const [one, other] = [directChat(first), directChat(second)];
    const asked = await say(second, "/help", { chatId: other });
    const help = (await platform.waitForReply(asked.messageId, { timeoutMs: 60_000 })).text;
    expect(help).toContain("/ticket");
    expect(help).not.toContain("/greet");
    await say(first, "/ticket the printer", { chatId: one });
    expect((await head(first, one))?.parts).toMatchObject([{ text: "/ticket the printer" }]);
  });

  it("a chat can have another agent, with conversations as that one has them", async () => {
    const { chatId } = platform.addChat({
      chatId: "oc_ops",
      type: "group",
      members: [ann, first.appId],
    });
    const { messageId } = await platform.sendMessage({
      appId: first.appId,
      chatId,
      from: ann,
      text: "hi",
      mention: true,
    });
    const session = `${first.appId}.${chatId}.${ann}`;
    await vi.waitFor(async () => expect((await ingress.store.summary(session)).waiting).toBe(1), {
      timeout: 60_000,
    });
    const claim = await ingress.store.claim(
      session,
      (await ingress.store.summary(session)).gen,
      "test",
    );
    expect(claim?.head?.message).toMatchObject({ id: messageId, agent: "ops" });
  });

  it("an event at the address of another bot is refused", async () => {
    const chatId = directChat(second);
    platform.setWebhookUrl(second.appId, `${ingress.url}/feishu/events`);
    expect((await say(second, "astray", { chatId })).outcome).not.toBe("acknowledged");
    platform.setWebhookUrl(second.appId, `${ingress.url}/feishu/support/events`);
    for (const app of [first, second]) {
      expect((await ingress.store.summary(`${app.appId}.${chatId}`)).waiting).toBe(0);
    }
    expect((await fetch(`${ingress.url}/feishu/nobody/events`, { method: "POST" })).status).toBe(
      404,
    );
  });

  it("readiness names the long connection of each, over which events come side by side", async () => {
    const ready = async () =>
      (await (await fetch(`${ingress.url}/ready`)).json()) as { checks: object };
    await vi.waitFor(
      async () =>
        expect((await ready()).checks).toEqual({
          redis: true,
          clock: true,
          writes: true,
          accepting: true,
          longConnection: true,
          "longConnection.support": true,
        }),
      { timeout: 60_000 },
    );
    for (const app of [first, second]) {
      platform.setTransport(app.appId, "websocket");
      const chatId = directChat(app);
      expect(await say(app, "over a long connection", { chatId })).toMatchObject({
        outcome: "acknowledged",
      });
      expect(await head(app, chatId)).toMatchObject({ app: app.appId, reply: { app: app.appId } });
      platform.setTransport(app.appId, "webhook");
    }
  });
});

describe("what belongs to one bot", () => {
  it("an approval is decided at that bot alone", async () => {
    const chatId = directChat(first);
    await say(first, "deploy", { chatId });
    const claim = await claimed(first, chatId);
    const approval = approvalFor(claim, chatId);
    await suspendOn(ingress, claim, [approval]);
    const value = { __approval__: approval.id, decision: "approve" };
    expect(await click(second, value)).toContain("no pending approval");
    const overHttp = await fetch(`${ingress.url}/v1/approvals/${approval.id}`, {
      method: "POST",
      body: JSON.stringify({ decision: "approve" }),
    });
    expect(overHttp.status).toBe(404);
    expect(await ingress.approvals.pending(claim.session)).toHaveLength(1);
    expect(await click(first, value)).toContain("Approved");
  });

  it("a turn is stopped, and a late message run, by clicks at that bot alone", async () => {
    const chatId = directChat(first);
    await say(first, "work", { chatId });
    const { session, head: at } = await claimed(first, chatId);
    const stop = { larkline: "stop", session, turn: `${session}-${at?.seq ?? 0}` };
    const late = { larkline: "late", action: "run", session, message: at?.message.id };
    const before = ingress.cancels.length;
    for (const value of [stop, late]) {
      expect(await click(second, value)).toContain("no pending approval");
    }
    expect(ingress.cancels).toHaveLength(before);
    await click(first, stop);
    // The answer to a click leaves before its cancel.
    await expect
      .poll(() => ingress.cancels, { timeout: 60_000, interval: 10 })
      .toHaveLength(before + 1);
  });

  it("its rules are listed and revoked at that bot alone, also in a chat of both", async () => {
    const nowMs = Date.now();
    const rule: PermissionRule = {
      v: 1,
      id: randomBytes(16).toString("hex"),
      app: first.appId,
      chatId: group,
      tool: "shell",
      pattern: "git status *",
      author: { id: ann },
      createdAtMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
    };
    await ingress.rules.add(rule);
    const told = async (app: App, text: string) => {
      const { messageId } = await say(app, text);
      return (await platform.waitForReply(messageId, { timeoutMs: 60_000 })).text;
    };
    expect(await told(second, "/permissions")).not.toContain("git status");
    await told(second, "/permissions revoke 1");
    await told(second, `/permissions revoke ${rule.id}`);
    expect(await told(first, "/permissions")).toContain("git status");
  });

  it("no id of a session of the HTTP API reaches it", async () => {
    const chatId = directChat(first);
    await say(first, "secret", { chatId });
    const session = `${first.appId}.${chatId}`;
    for (const id of [session, `../${session}`, `x.${session}`]) {
      const path = encodeURIComponent(id);
      const asked = await postChat(ingress, { message: "hi", session_id: id });
      expect(asked.status).toBe(400);
      for (const url of [
        `/chat/${path}/events`,
        `/v1/approvals?session_id=${path}`,
        `/v1/permissions?session_id=${path}`,
      ]) {
        expect((await fetch(`${ingress.url}${url}`)).status).toBe(400);
      }
    }
    const run = await fetch(`${ingress.url}/chat/mine/events?run=${session}-1`);
    expect(run.status).toBe(400);
  });
});

describe("people of another tenant than those that a bot is for", () => {
  it("get a notice in their chat, start no run, and press no button", async () => {
    const chatId = directChat(second, eve);
    const { messageId } = await say(second, "hello", { from: eve, chatId });
    const answer = await platform.waitForReply(messageId, { timeoutMs: 60_000 });
    expect(answer.text).toContain("I do not serve people of your organisation");
    expect((await ingress.store.summary(`${second.appId}.${chatId}`)).waiting).toBe(0);
    const operator = { open_id: eve, tenant_key: "t_other" };
    const value = { __approval__: "0".repeat(32), decision: "approve" };
    expect(await click(second, value, operator)).toContain(
      "do not serve people of your organisation",
    );
    expect(await ingress.metrics.text()).toContain('outcome="foreign_tenant"');
  });

  it("start nothing from its menu: a press does not say whose tenant's it is, only who has written counts", async () => {
    const zoe = platform.addUser({ name: "Zoe", tenantKey: "t_other" }).openId;
    const bob = platform.addUser({ name: "Bob", tenantKey: "t_home" }).openId;
    const waitingFor = async (openId: string, chatId: string) => {
      const asked = [openId, chatId].map(
        async (id) => await ingress.store.summary(`${second.appId}.${id}`),
      );
      return (await Promise.all(asked)).reduce((sum, { waiting }) => sum + waiting, 0);
    };
    const press = async (openId: string) =>
      await platform.pressMenu(openId, second.appId, "report").reports;
    const chats = new Map<string, string>();
    for (const openId of [zoe, bob]) {
      const { chatId, reports } = platform.enterChat(openId, second.appId);
      await reports;
      await press(openId);
      expect(await waitingFor(openId, chatId)).toBe(0);
      chats.set(openId, chatId);
      await say(second, "hello", { from: openId, chatId });
    }
    await press(zoe);
    expect(await waitingFor(zoe, chats.get(zoe) ?? "")).toBe(0);
    await vi.waitFor(
      async () => {
        await press(bob);
        expect(await waitingFor(bob, chats.get(bob) ?? "")).toBeGreaterThan(1);
      },
      { timeout: 60_000 },
    );
  });

  it("include those whose tenant the platform does not tell: that of the event is the app's", async () => {
    const chatId = directChat(second, eve);
    const content = JSON.stringify({ text: "hello" });
    const written = {
      message_id: "om_untold",
      chat_id: chatId,
      chat_type: "p2p",
      message_type: "text",
      content,
    };
    const event = {
      sender: { sender_id: { open_id: eve }, sender_type: "user" },
      message: { ...written, create_time: String(Date.now()) },
    };
    await platform.sendEvent({ appId: second.appId, eventType: "im.message.receive_v1", event });
    expect((await ingress.store.summary(`${second.appId}.${chatId}`)).waiting).toBe(0);
    const value = { __approval__: "0".repeat(32), decision: "approve" };
    expect(await click(second, value, { open_id: eve })).toContain(
      "do not serve people of your organisation",
    );
  });

  it("are not greeted in a group to which they add it", async () => {
    const [theirs, ours] = [eve, ann].map((operator) => {
      const { chatId } = platform.addChat({ type: "group", members: [operator] });
      return { chatId, reports: platform.addBot(chatId, second.appId, { operator }).reports };
    });
    await Promise.all([theirs?.reports, ours?.reports]);
    const said = (chatId = "") =>
      platform.messages(chatId).filter(({ senderType }) => senderType === "app");
    await vi.waitUntil(() => said(ours?.chatId).length === 1, { timeout: 60_000 });
    expect(said(theirs?.chatId)).toEqual([]);
  });

  it("are answered by a bot that is for everybody", async () => {
    const chatId = directChat(first, eve);
    await say(first, "hello", { from: eve, chatId });
    expect(await head(first, chatId)).toMatchObject({ tenant: "t_other", sender: { id: eve } });
  });
});

describe("the agent of a request over HTTP", () => {
  it("is the one it names, with the commands of that one", async () => {
    const stream = await postChat(ingress, {
      message: "/ticket a lamp",
      session_id: "named",
      agent: "support",
    });
    const { waiting } = await vi.waitUntil(
      async () => {
        const summary = await ingress.store.summary("api.named");
        return summary.waiting > 0 ? summary : undefined;
      },
      { timeout: 60_000 },
    );
    stream.leave();
    expect(waiting).toBe(1);
    const claim = await ingress.store.claim(
      "api.named",
      (await ingress.store.summary("api.named")).gen,
      "test",
    );
    expect(claim?.head?.message).toMatchObject({
      agent: "support",
      parts: [{ text: expect.stringContaining("Open a ticket:") }],
    });
  });

  it.each(["nobody", "constructor"])("called %s is refused clearly", async (agent) => {
    const answer = await postChat(ingress, { message: "hi", agent });
    await answer.end();
    expect([answer.status, answer.text()]).toEqual([
      400,
      `{"error":"there is no agent '${agent}'"}`,
    ]);
  });
});
