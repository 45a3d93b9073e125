import { SubscriptionStore } from "@larkline/store";
import { noteBeat } from "@larkline/store/testing";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { join } from "node:path";
import { panelCommands } from "@larkline/agent/commands";
import { AppInspector, appManifest, WebhookVerifier } from "@larkline/feishu";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import { AddedProviders, AgentVersions } from "@larkline/store/operations";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import {
  freePort,
  patientClock,
  startModelServer,
  startRedis,
  type ModelServer,
} from "@larkline/testkit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { openWorkplace, type Workplace } from "./admin.fixture.ts";
import { readDeployment, readEnvFile } from "./config.ts";
import { examine } from "./doctor.ts";
import { reportOf } from "./finding.ts";

const app = {
  appId: "cli_0123456789abcdef",
  appSecret: "app-secret",
  encryptKey: "key",
  verificationToken: "token",
};
const modelKey = "model-key-that-is-right";
const signingKey = "s1gning-key-".repeat(3);

let platform: FeishuSimulator;
let model: ModelServer;
let redis: RedisConnection;
let ingress: Server;
let workplace: Workplace;
let namespace: string;

beforeAll(async () => {
  model = await startModelServer({ apiKey: modelKey });
  redis = connectRedis(inject("redisUrl"));
  ingress = createServer((_request, response) => void response.end("{}"));
  await once(ingress.listen(0, "127.0.0.1"), "listening");
});

afterAll(async () => {
  await closeRedis(redis);
  await model.close();
  ingress.close();
});

beforeEach(async () => {
  platform = await startFeishuSimulator({ apps: [app] });
  workplace = await openWorkplace();
  namespace = `test-${randomUUID()}`;
});

afterEach(async () => {
  await workplace.close();
  await platform.close();
});

/** What a deployment in order has; tests break one part of it. */
function healthy(): Record<string, string> {
  return {
    REDIS_URL: inject("redisUrl"),
    REDIS_NAMESPACE: namespace,
    FEISHU_APP_ID: app.appId,
    FEISHU_APP_SECRET: app.appSecret,
    FEISHU_DOMAIN: platform.url,
    ANTHROPIC_API_KEY: modelKey,
    ANTHROPIC_BASE_URL: model.url,
    CALL_SIGNING_KEY: signingKey,
    GRANT_KEY: "a1".repeat(32),
    INGRESS_PORT: String((ingress.address() as AddressInfo).port), // it listens on TCP
  };
}

async function announceEverything(): Promise<void> {
  const inspector = new AppInspector({ ...app, domain: platform.url });
  await inspector.setPanel(panelCommands());
  inspector.close();
  await noteBeat({ redis, namespace }, "worker-1", 60_000);
  const spec = { name: "roll_dice", description: "", inputSchema: { type: "object" } };
  const tool = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
  const announced = await new RunnerDirectory({ redis, namespace }).announce(
    { runner: "default", instance: "one", tools: [tool] },
    60_000,
  );
  expect(announced).toMatchObject({ ok: true });
}

/** A runner of its own announces a tool that acts as someone. */
async function announceAs(name: string, as: "person" | "bot" | "either", scopes: string[]) {
  const spec = { name, description: "", inputSchema: { type: "object" } };
  const facts = { effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
  const announced = await new RunnerDirectory({ redis, namespace }).announce(
    { runner: name, instance: "one", tools: [{ spec, ...facts, identity: { as, scopes } }] },
    60_000,
  );
  expect(announced).toMatchObject({ ok: true });
}

interface Check {
  check: string;
  status: string;
  text: string;
  advice?: string;
}

interface Report {
  ok: boolean;
  checks: Check[];
}

function summaryOf(report: Report) {
  const problems = report.checks.filter(({ status }) => status === "problem");
  expect(report.ok).toBe(problems.length === 0);
  const output = JSON.stringify(report);
  for (const secret of [app.appSecret, modelKey, signingKey]) expect(output).not.toContain(secret);
  return {
    ...report,
    problems,
    output,
    of: (name: string) => report.checks.filter(({ check }) => check === name),
  };
}

/**
 * As the program does, but in this process: starting one takes longer than the checks. What they ask is played by the
 * same process: when it stands still, no answer is late.
 */
async function examined(env: Record<string, string>, webhookUrl?: string) {
  const file = await readEnvFile(join(workplace.folder, ".env"));
  const config = join(workplace.folder, "larkline.config.ts");
  const configured = existsSync(config) ? { LARKLINE_CONFIG: config } : {};
  const all = { ...workplace.ports, ...configured, ...file.values, ...env };
  const deployment = readDeployment(all);
  const given = webhookUrl === undefined ? {} : { webhookUrl };
  const findings = await examine({
    clock: patientClock,
    file,
    deployment,
    env: all,
    dataDirectory: workplace.folder,
    nodeVersion: process.versions.node,
    ...given,
  });
  return summaryOf(reportOf(findings, "en") as Report); // what reportOf promises
}

describe("npm run doctor", () => {
  it("finds nothing to complain about in a deployment in order", async () => {
    await announceEverything();
    const run = workplace.run(["doctor", "--json"], healthy());
    expect(await run.exitCode()).toBe(0);
    const { checks } = summaryOf(JSON.parse(run.output()) as Report); // its own output
    // How fast Redis and the ingress answer depends on what else this machine does.
    const ofSpeed = ["redis.latency", "running.ingress"];
    expect(
      checks.filter(({ status, check }) => status !== "ok" && !ofSpeed.includes(check)),
    ).toEqual([]);
    expect((await examined(healthy())).of("running.ingress")).toMatchObject([{ status: "ok" }]);
    const names = new Set(checks.map(({ check }) => check));
    for (const name of [
      "node env config redis.version redis.eviction redis.persistence redis.latency clock feishu.bot feishu.scopes",
      "feishu.events feishu.callbacks feishu.connection model.key running.ingress running.workers running.runners keys",
    ].flatMap((list) => list.split(" "))) {
      expect(names, name).toContain(name);
    }
    // It looked for a long connection without taking events away from the ingress.
    expect(platform.apps[0]?.connections).toBe(0);
  });

  it("prints a line for each check and what to do, in the language that is asked for", async () => {
    const zh = workplace.run(["doctor", "--lang", "zh"], {
      ...healthy(),
      FEISHU_APP_SECRET: "wrong",
    });
    expect(await zh.exitCode()).toBe(1);
    expect(zh.output()).toContain(
      "[问题] 飞书拒绝了 FEISHU_APP_ID 和 FEISHU_APP_SECRET（10015）\n    -> 从应用的",
    );
    const en = workplace.run(["doctor", "--lang", "en"], {
      ...healthy(),
      FEISHU_APP_SECRET: "wrong",
    });
    expect(await en.exitCode()).toBe(1);
    expect(en.output()).toContain(
      "[problem] Feishu refuses FEISHU_APP_ID and FEISHU_APP_SECRET (10015)\n    -> Copy",
    );
    expect(en.output()).toContain("[ok] maxmemory-policy is noeviction\n");
  });

  it("looks at every bot of the configuration, and names its own variables", async () => {
    const desk = {
      appId: "cli_fedcba9876543210",
      appSecret: "s3cret-of-desk",
      verificationToken: "token of desk",
    };
    const other = await startFeishuSimulator({ apps: [desk] });
    const bots = { desk: { appId: desk.appId, domain: other.url, transport: "both" } };
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      `export default ${JSON.stringify({ bots })};`,
    );
    try {
      const secrets = {
        FEISHU_APP_SECRET_DESK: desk.appSecret,
        FEISHU_VERIFICATION_TOKEN_DESK: "t",
      };
      const good = await examined({ ...healthy(), ...secrets });
      expect(good.of("feishu.bot").map(({ text }) => text.startsWith("Bot desk: "))).toEqual([
        false,
        true,
      ]);
      expect(good.of("feishu.webhook")).toMatchObject([
        {
          text: expect.stringMatching(/^Bot desk: .*\/feishu\/desk\/events/),
          advice: expect.stringContaining("_DESK"),
        },
        { text: expect.stringContaining("/feishu/desk/cards") },
      ]);
      const wrong = await examined({
        ...healthy(),
        ...secrets,
        FEISHU_APP_SECRET_DESK: "s3cret-of-another",
      });
      expect(wrong.of("feishu.credentials")).toMatchObject([
        { text: "Bot desk: Feishu refuses bots.desk.appId and FEISHU_APP_SECRET_DESK (10015)" },
      ]);
      expect(wrong.output).not.toContain("s3cret");
      const missing = await examined(healthy());
      expect(missing.of("bots").map(({ text }) => text)).toEqual([
        expect.stringContaining(
          "needs FEISHU_ENCRYPT_KEY_DESK, FEISHU_VERIFICATION_TOKEN_DESK or both",
        ),
        "FEISHU_APP_SECRET_DESK is not set.",
      ]);
    } finally {
      await other.close();
    }
  });

  it("names the variables that are wrong, all of them, and still checks the rest", async () => {
    const { of, problems } = await examined({
      ...healthy(),
      REDIS_URL: "nonsense",
      FEISHU_TRANSPORT: "pigeon",
      MODEL: "nobody/x",
    });
    expect(of("env.value").map(({ text }) => text.split(" ")[0])).toEqual([
      "REDIS_URL",
      "FEISHU_TRANSPORT",
    ]);
    expect(problems.map(({ check }) => check)).toEqual(["env.value", "env.value", "model.name"]);
    expect(of("feishu.bot")).toMatchObject([{ status: "ok" }]);
  });

  it("reads .env, tells its unreadable lines by number, and that others may read it", async () => {
    const file = join(workplace.folder, ".env");
    await writeFile(file, `FEISHU_APP_ID=${app.appId}\nwhat is this\nFEISHU_APP_SECRET=hunter2\n`);
    await chmod(file, 0o644);
    const { FEISHU_APP_ID: _id, FEISHU_APP_SECRET: _secret, ...env } = healthy();
    const { of, output } = await examined(env);
    expect(of("env.lines")).toMatchObject([
      { status: "problem", text: expect.stringContaining(": 2") },
    ]);
    expect(of("env.mode")).toMatchObject([
      { status: "warning", advice: expect.stringContaining("chmod 600") },
    ]);
    expect(of("feishu.credentials")).toHaveLength(1);
    expect(output).not.toContain("hunter2");
  });

  it("lists what is wrong in larkline.config.ts", async () => {
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      "export default { agents: { default: { tool: [] } } };",
    );
    const { of } = await examined(healthy());
    expect(of("config")).toMatchObject([
      { status: "problem", text: expect.stringContaining("'tool'") },
    ]);
  });

  it("says where Redis was looked for when it does not answer, without the password", async () => {
    const port = await freePort();
    const { of, output } = await examined({
      ...healthy(),
      REDIS_URL: `redis://:hunter2@127.0.0.1:${port}`,
    });
    expect(of("redis.reach")).toMatchObject([
      {
        status: "problem",
        text: expect.stringContaining(`127.0.0.1:${port}`),
        advice: expect.stringContaining("REDIS_URL"),
      },
    ]);
    expect(output).not.toContain("hunter2");
  });

  it("finds a Redis that evicts, one that forgets, and says how to set it", async () => {
    const other = await startRedis();
    const connection = connectRedis(other.url);
    try {
      await connection.config("SET", "maxmemory-policy", "allkeys-lru");
      await connection.config("SET", "appendonly", "no");
      const { of } = await examined({ ...healthy(), REDIS_URL: other.url });
      expect(of("redis.eviction")).toMatchObject([
        {
          status: "problem",
          text: "maxmemory-policy is allkeys-lru",
          advice: expect.stringContaining("noeviction"),
        },
      ]);
      expect(of("redis.persistence")).toMatchObject([
        { status: "warning", advice: expect.stringContaining("appendonly yes") },
      ]);
    } finally {
      await closeRedis(connection);
      await other.stop();
    }
  });

  it("ends within its deadlines when nothing answers at all", async () => {
    const silent = createServer(() => undefined);
    await once(silent.listen(0, "127.0.0.1"), "listening");
    const { port } = silent.address() as AddressInfo; // it listens on TCP
    const address = `http://127.0.0.1:${port}`;
    const { problems } = await examined({
      ...healthy(),
      REDIS_URL: `redis://127.0.0.1:${port}`,
      FEISHU_DOMAIN: address,
      ANTHROPIC_BASE_URL: address,
    });
    expect(problems.map(({ check }) => check)).toEqual([
      "redis.reach",
      "feishu.reach",
      "model.reach",
    ]);
    silent.closeAllConnections();
    silent.close();
  });

  it("names scopes that are missing, what they are for, and the page that grants them", async () => {
    platform.setConsole(app.appId, {
      scopes: ["im:message", "im:chat", "im:message.p2p_msg:readonly", "im:resource"],
    });
    const { of } = await examined(healthy());
    const [required, recommended] = of("feishu.scopes");
    expect(required).toMatchObject({
      status: "problem",
      text: "Scopes are missing: im:message.group_at_msg:readonly, cardkit:card:write",
    });
    expect(required?.advice).toContain(
      `/app/${app.appId}/auth?q=im:message.group_at_msg:readonly,cardkit:card:write&`,
    );
    expect(required?.advice).toContain("cardkit:card:write (Show answers on cards that type)");
    expect(recommended).toMatchObject({
      status: "warning",
      text: expect.stringContaining("contact:"),
    });
    // Without the right to look, it says how to look.
    expect(of("feishu.events")).toMatchObject([
      { status: "warning", advice: expect.stringContaining("application:application:self_manage") },
    ]);
  });

  it("names the scopes of people that announced tools need and the app lacks, and the page for them", async () => {
    const people = async () => (await examined(healthy())).of("feishu.people");
    expect(await people()).toEqual([]);
    await announceAs("find_documents", "person", ["search:docs:read"]);
    await announceAs("add_task", "either", ["task:task:write", "search:docs:read"]);
    await announceAs("post", "bot", ["im:message"]);
    platform.grants.setUserScopes(app.appId, ["task:task:write", "offline_access"]);
    const [missing] = await people();
    expect(missing).toMatchObject({
      status: "warning",
      text: "Tools cannot act as people, because the app lacks scopes of people: search:docs:read",
    });
    expect(missing?.advice).toContain("q=search:docs:read&op_from=openapi&token_type=user");
    expect(missing?.advice).toContain("search:docs:read (add_task, find_documents)");
    platform.grants.setUserScopes(app.appId, [
      "task:task:write",
      "search:docs:read",
      "offline_access",
    ]);
    expect(await people()).toMatchObject([
      { status: "ok", text: "The app has all 3 scopes of people that its tools need" },
    ]);
  });

  it("says where to compare when the platform does not tell the scopes", async () => {
    platform.faults.add({
      match: { path: "/open-apis/application/v6/scopes" },
      action: { kind: "respond", status: 404, body: { code: 99991201, msg: "404 page not found" } },
    });
    expect((await examined(healthy())).of("feishu.scopes")).toMatchObject([
      { status: "warning", advice: expect.stringContaining("cardkit:card:write") },
    ]);
  });

  it("asks for the sensitive scope only when an agent answers or reads everything in groups", async () => {
    platform.setConsole(app.appId, {
      scopes: ["im:message.group_msg"].concat(allScopesBut("im:message.group_msg")),
    });
    expect((await examined(healthy())).of("feishu.scopes")).toMatchObject([{ status: "ok" }]);
    platform.setConsole(app.appId, { scopes: allScopesBut("im:message.group_msg") });
    expect((await examined(healthy())).of("feishu.scopes")).toMatchObject([{ status: "ok" }]);
    for (const wish of ['groups: "all"', "groupContext: 5"]) {
      const config = `export default { agents: { default: { ${wish} } } };`;
      await writeFile(join(workplace.folder, "larkline.config.ts"), config);
      expect((await examined(healthy())).of("feishu.scopes")).toMatchObject([
        { status: "problem", text: "Scopes are missing: im:message.group_msg" },
      ]);
    }
  });

  it("asks for the scope of user groups only when a role names one", async () => {
    platform.setConsole(app.appId, { scopes: allScopesBut("contact:group:readonly") });
    expect((await examined(healthy())).of("feishu.scopes")).toMatchObject([{ status: "ok" }]);
    const config = 'export default { roles: { ops: { groups: ["g_ops"] } } };';
    await writeFile(join(workplace.folder, "larkline.config.ts"), config);
    expect((await examined(healthy())).of("feishu.scopes")).toMatchObject([
      { status: "problem", text: "Scopes are missing: contact:group:readonly" },
    ]);
  });

  it("finds a command panel that is not what the bot has, or may not be read", async () => {
    const inspector = new AppInspector({ ...app, domain: platform.url });
    const [help, ...others] = panelCommands();
    const old = { zh: "旧", en: "old" };
    await inspector.setPanel([
      { name: help?.name ?? "", description: old },
      { name: "retired", description: old },
      ...others.filter(({ name }) => name !== "usage"),
    ]);
    inspector.close();
    expect((await examined(healthy())).of("feishu.commands")).toMatchObject([
      {
        status: "warning",
        text: "The command panel differs from the bot's commands: missing: /usage; other description: /help; not a command of the bot: /retired",
        advice: expect.stringContaining("npm run setup -- --manual --yes"),
      },
    ]);
    platform.setConsole(app.appId, { scopes: allScopesBut("application:app_slash_command:read") });
    const { of } = await examined(healthy());
    expect(of("feishu.commands")).toMatchObject([
      { status: "warning", advice: expect.stringContaining("application:app_slash_command:read") },
    ]);
    expect(of("feishu.scopes")).toMatchObject([
      {
        status: "warning",
        text: "Recommended scopes are missing: application:app_slash_command:read",
      },
    ]);
  });

  it("names events and callbacks that are not subscribed", async () => {
    platform.setConsole(app.appId, { events: ["im.message.recalled_v1"], callbacks: [] });
    const { of } = await examined(healthy());
    expect(of("feishu.events")).toMatchObject([
      {
        status: "problem",
        text: expect.stringContaining("im.message.receive_v1"),
        advice: expect.stringContaining("/event"),
      },
    ]);
    expect(of("feishu.callbacks")).toMatchObject([
      { status: "problem", text: expect.stringContaining("card.action.trigger") },
    ]);
  });

  it("says which doors are open, and asks for their secrets and events", async () => {
    const doors = `{ triggers: { build: { chat: "oc_1" } }, reactions: { Pin: "Note this." } }`;
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      `export default { doors: ${doors} };`,
    );
    const event = "im.message.reaction.created_v1";
    platform.setConsole(app.appId, { events: allEventsBut(event) });
    const shut = await examined(healthy());
    expect(shut.of("doors")).toMatchObject([
      { status: "problem", text: expect.stringContaining("TRIGGER_SECRET_BUILD") },
    ]);
    expect(shut.of("feishu.events")).toMatchObject([
      { status: "warning", text: `Not subscribed events: ${event}` },
    ]);
    platform.setConsole(app.appId, { events: [...allEventsBut(event), event] });
    const open = await examined({ ...healthy(), TRIGGER_SECRET_BUILD: "s".repeat(32) });
    expect(open.of("doors")).toMatchObject([
      { status: "ok", text: "Open doors: triggers (POST /v1/triggers/build); reactions (Pin)" },
    ]);
    expect(open.of("feishu.events")).toMatchObject([{ status: "ok" }]);
  });

  it("asks for the permissions and events of the doors that are open", async () => {
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      `export default { doors: { comments: true } };`,
    );
    const event = "drive.notice.comment_add_v1";
    platform.setConsole(app.appId, { events: allEventsBut(event) });
    const { of } = await examined(healthy());
    expect(of("doors")).toMatchObject([{ text: "Open doors: comments (documents)" }]);
    expect(of("feishu.events")).toMatchObject([{ text: `Not subscribed events: ${event}` }]);
    expect(JSON.stringify(of("feishu.scopes"))).toContain("docs:document.comment:create");
  });

  it("subscribes the app itself where a door needs it, and says what the platform refuses", async () => {
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      `export default { doors: { tasks: true } };`,
    );
    const good = await examined(healthy());
    expect(good.of("feishu.subscriptions")).toMatchObject([
      { status: "ok", text: "The app has subscribed itself to: tasks" },
    ]);
    expect(platform.work.tasks.subscribed.has(app.appId)).toBe(true);
    const body = { code: 99991672, msg: "Access denied." };
    const action = { kind: "respond", status: 400, body } as const;
    platform.faults.add({ match: { path: /task_subscription$/ }, action });
    const bad = await examined(healthy());
    platform.faults.clear();
    expect(bad.of("feishu.subscriptions")).toMatchObject([
      { status: "warning", text: expect.stringMatching(/itself to: tasks \(.*99991672/) },
    ]);
  });

  it("says that the app was never published, and does not judge what the platform leaves out", async () => {
    const answer = (data: object) => ({
      kind: "respond" as const,
      status: 200,
      body: { code: 0, msg: "ok", data },
    });
    const path = /^\/open-apis\/application\/v6\/applications\/[^/]+$/;
    platform.faults.add({
      match: { path },
      times: 1,
      action: answer({ app: { online_version_id: "" } }),
    });
    expect((await examined(healthy())).of("feishu.published")).toMatchObject([
      { status: "problem", advice: expect.stringContaining("/version") },
    ]);
    platform.faults.add({
      match: { path },
      times: 1,
      action: answer({ app: { online_version_id: "oav_1" } }),
    });
    platform.faults.add({
      match: { path: /app_versions/ },
      times: 1,
      action: answer({ app_version: {} }),
    });
    const { of } = await examined(healthy());
    expect([...of("feishu.events"), ...of("feishu.callbacks")]).toMatchObject([
      { status: "skipped" },
      { status: "skipped" },
    ]);
  });

  it("says who has to enable a bot that is not", async () => {
    const bot = { activate_status: 1, app_name: "Larkline", open_id: "ou_1" };
    platform.faults.add({
      match: { path: "/open-apis/bot/v3/info" },
      action: { kind: "respond", status: 200, body: { code: 0, msg: "ok", bot } },
    });
    expect((await examined(healthy())).of("feishu.bot")).toMatchObject([
      { status: "problem", advice: expect.stringContaining("administrator") },
    ]);
  });

  it("says that all long connections are in use", async () => {
    platform.faults.add({
      match: { path: "/callback/ws/endpoint" },
      action: { kind: "respond", status: 200, body: { code: 1000040350, msg: "limit", data: {} } },
    });
    expect((await examined(healthy())).of("feishu.connection")).toMatchObject([
      {
        status: "problem",
        text: expect.stringContaining("50"),
        advice: expect.stringContaining("its own app"),
      },
    ]);
  });

  it("finds a clock that differs by more than 5 s", async () => {
    const date = new Date(Date.now() + 60_000).toUTCString();
    platform.faults.add({
      match: { path: "/open-apis/bot/v3/info" },
      times: 1,
      action: { kind: "respond", status: 400, body: { code: 99991661 }, headers: { date } },
    });
    const { of } = await examined(healthy());
    expect(of("clock").map(({ text }) => text.replace(/\d+ s/, "N s"))).toEqual([
      "The clocks of this machine and Feishu differ by N s",
      "The clocks of Redis and Feishu differ by N s",
    ]);
    expect(of("clock")[0]?.advice).toContain("NTP");
  });

  it("finds a model key that the vendor refuses, without a model call", async () => {
    const { of } = await examined({ ...healthy(), ANTHROPIC_API_KEY: "wrong-key-of-mine" });
    expect(of("model.key")).toMatchObject([
      { status: "problem", text: expect.stringContaining("refuses ANTHROPIC_API_KEY (401)") },
    ]);
    expect(model.requests.map(({ body }) => body)).toEqual(model.requests.map(() => ({})));
  });

  it("asks for the key of a model that is configured", async () => {
    const { of } = await examined({
      ...healthy(),
      MODEL: "openai/gpt-6.1-sol,anthropic/claude-sonnet-5-5",
    });
    expect(of("model.key")).toMatchObject([
      { status: "problem", text: expect.stringContaining("needs OPENAI_API_KEY") },
      { status: "ok" },
    ]);
  });

  it("says that nothing runs, that no worker does, and that no runner does", async () => {
    const { INGRESS_PORT: _port, ...stopped } = healthy();
    expect((await examined(stopped)).of("running")).toMatchObject([
      { status: "warning", advice: "Run npm start." },
    ]);
    const { of, problems } = await examined(healthy());
    expect(problems.map(({ check }) => check)).toEqual(["running.workers"]);
    expect(of("running.runners")).toMatchObject([
      {
        status: "warning",
        text: expect.stringContaining("No tool-runner"),
        advice: expect.stringContaining("REDIS_NAMESPACE"),
      },
    ]);
  });

  it("prefers a kernel of its own for programs of models, where a cluster has none for them yet", async () => {
    const announceIn = async (runtimeClass: string): Promise<void> => {
      const spec = { name: "run_program", description: "", inputSchema: { type: "object" } };
      const tool = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
      const sandbox = { tier: "sbx", runtimeClass };
      await new RunnerDirectory({ redis, namespace }).announce(
        { runner: "code", instance: "one", tools: [tool], sandbox },
        60_000,
      );
    };
    await announceIn("none");
    expect((await examined(healthy())).of("running.runners")).toMatchObject([
      { status: "ok" },
      { status: "warning", advice: expect.stringContaining("--runtime-class") },
    ]);
    await announceIn("kata");
    expect((await examined(healthy())).of("running.runners")).toMatchObject([
      { status: "ok" },
      { status: "ok", text: expect.stringContaining("(sbx) (kata)") },
    ]);
  });

  it("warns of configured tools that no runner offers, with the name that was meant", async () => {
    await announceEverything();
    const config =
      'export default { agents: { default: { tools: ["roll_dice", "rol_dice", "fly"] } } };';
    await writeFile(join(workplace.folder, "larkline.config.ts"), config);
    expect((await examined(healthy())).of("running.tools")).toMatchObject([
      {
        status: "warning",
        text: expect.stringMatching(/: rol_dice \(did you mean roll_dice\?\), fly$/),
      },
    ]);
  });

  it("loads the modules that answer as models, and names what is added to requests, without values", async () => {
    const write = async (name: string, text: string) =>
      await writeFile(join(workplace.folder, name), text);
    await write("good.ts", "export default { async *stream() {} };");
    const config = {
      providers: {
        good: { module: "./good.ts" },
        router: {
          type: "openai",
          baseUrl: model.url,
          extra: { body: { tier: "hidden" }, headers: { "x-team": "hidden" } },
        },
      },
      agents: {
        default: {
          model: "good/any",
          hostedTools: { anthropic: [{ type: "web_search_20250305" }] },
        },
      },
    };
    await write("larkline.config.ts", `export default ${JSON.stringify(config)};`);
    const good = await examined(healthy());
    expect(good.of("model.module")).toMatchObject([
      { status: "ok", text: expect.stringContaining("good") },
    ]);
    expect(good.of("model.extra")).toMatchObject([
      { text: "Requests of providers.router also carry tier, x-team" },
    ]);
    expect(good.of("model.hosted")).toMatchObject([
      { text: "default may use web_search_20250305 of anthropic" },
    ]);
    expect(good.output).not.toContain("hidden");
  });

  it("names the module that is no model backend", async () => {
    await writeFile(join(workplace.folder, "bad.ts"), "export default 1;");
    const config = 'export default { providers: { bad: { module: "./bad.ts" } } };';
    await writeFile(join(workplace.folder, "larkline.config.ts"), config);
    expect((await examined(healthy())).of("model.module")).toMatchObject([
      {
        status: "problem",
        text: expect.stringMatching(
          /providers\.bad\.module: cannot use .*bad\.ts: its default export/,
        ),
      },
    ]);
  });

  it("warns of a tool whose arguments are no object: no model is offered it", async () => {
    const spec = { name: "odd", description: "", inputSchema: { oneOf: [{ type: "string" }] } };
    const tool = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
    await new RunnerDirectory({ redis, namespace }).announce(
      { runner: "odd", instance: "1", tools: [tool] },
      60_000,
    );
    expect((await examined(healthy())).of("running.schemas")).toMatchObject([
      { status: "warning", text: "No model is offered the tool odd: its arguments are no object" },
    ]);
  });

  it("sends both webhook addresses the challenge, and says what does not fit", async () => {
    const verifier = new WebhookVerifier(app);
    const receiver = createServer(async (request, response) => {
      const verdict = verifier.verify(await buffer(request), request.headers);
      if (verdict.kind !== "challenge") return void response.writeHead(403).end("{}");
      response.end(JSON.stringify({ challenge: verdict.challenge }));
    });
    await once(receiver.listen(0, "127.0.0.1"), "listening");
    const { port } = receiver.address() as AddressInfo; // it listens on TCP
    const url = `http://127.0.0.1:${port}`;
    const env: Record<string, string> = {
      ...healthy(),
      FEISHU_TRANSPORT: "webhook",
      FEISHU_ENCRYPT_KEY: app.encryptKey,
      FEISHU_VERIFICATION_TOKEN: app.verificationToken,
    };
    const good = (await examined(env, url)).of("feishu.webhook");
    expect(good.map(({ text }) => new URL(text.split(" ")[0] ?? "").pathname)).toEqual([
      "/feishu/events",
      "/feishu/cards",
    ]);
    // Feishu waits for a second, which a busy machine may need.
    const tookMs = good.map(({ text }) => Number(/\((\d+) ms\)$/.exec(text)?.[1]));
    expect(good.map(({ status }) => status)).toEqual(
      tookMs.map((ms) => (ms <= 1_000 ? "ok" : "warning")),
    );
    const wrong = (await examined({ ...env, FEISHU_VERIFICATION_TOKEN: "other" }, url)).of(
      "feishu.webhook",
    );
    expect(wrong).toMatchObject([
      {
        status: "problem",
        text: expect.stringContaining("(403)"),
        advice: expect.stringContaining("FEISHU_ENCRYPT_KEY"),
      },
      { status: "problem" },
    ]);
    receiver.close();
    await once(receiver, "close");
    expect((await examined(env, url)).of("feishu.webhook")).toMatchObject([
      { status: "problem" },
      { status: "problem" },
    ]);
    const { INGRESS_PORT: _port, ...stopped } = env;
    const skipped = (await examined(stopped)).of("feishu.webhook");
    expect(skipped).toMatchObject([
      { status: "skipped", text: expect.stringContaining("--webhook-url") },
      {},
    ]);
  });

  it("names what the door of personal events needs, and how many subscriptions are missing", async () => {
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      `export default { doors: { personal: { events: ["meeting-ended"] } } };`,
    );
    const event = "vc.meeting.participant_meeting_ended_v1";
    platform.setConsole(app.appId, { events: allEventsBut(event) });
    platform.grants.setUserScopes(app.appId, ["offline_access"]);
    const subscriptions = new SubscriptionStore({ redis, namespace });
    const before = await examined(healthy());
    expect(before.of("doors")).toMatchObject([{ text: "Open doors: personal (meeting-ended)" }]);
    expect(before.of("feishu.events")).toMatchObject([{ text: `Not subscribed events: ${event}` }]);
    expect(before.of("feishu.people")).toMatchObject([
      { status: "warning", advice: expect.stringContaining("(doors.personal)") },
    ]);
    expect(before.of("doors.personal")).toEqual([]);
    for (const [number, state] of (["needs_consent", "failed", "subscribed"] as const).entries()) {
      const owner = {
        app: app.appId,
        tenant: "t",
        openId: `ou_${number}`,
        on: "meeting-ended",
      } as const;
      const subscription = { state, atMs: 1, tries: 0 };
      await subscriptions.settle({ owner, untilMs: 1 }, { subscription, againAtMs: 1 });
    }
    expect((await examined(healthy())).of("doors.personal")).toMatchObject([
      {
        status: "warning",
        text: "2 subscriptions of people are missing (meeting-ended): their schedules get no such events",
      },
    ]);
  });

  it("names what operators have changed at the console where an edit of the file has no effect, or where the file wins", async () => {
    await writeFile(
      join(workplace.folder, "larkline.config.ts"),
      `export default {
        console: { changes: true, models: true },
        agents: { default: { instructions: "of the file" } },
        providers: { mine: { type: "openai" } },
      };`,
    );
    const stores = { redis, namespace, stateKey: "0".repeat(64) };
    const about = { agent: "default", by: "console:Ann", atMs: 1, file: "edited since" };
    const versions = new AgentVersions(stores);
    await versions.add({ ...about, base: 0, change: { instructions: "of the console" } });
    const providers = new AddedProviders(stores);
    for (const name of ["mine", "deepseek"]) {
      const provider = { name, type: "openai" as const, models: ["m"] };
      await providers.set({ provider, by: "console:Ann", atMs: 1 });
    }
    const { of } = await examined(healthy());
    expect(of("console.versions")).toMatchObject([
      {
        status: "warning",
        text: "agent default: version 1 of the console (Ann) covers instructions of the file",
      },
    ]);
    expect(of("console.models").map(({ status, text }) => [status, text])).toEqual([
      ["ok", "the server of models deepseek was added at the console"],
      ["warning", "the server of models mine was added at the console"],
    ]);
  });

  it("explains its options when one is wrong", async () => {
    const run = workplace.run(["doctor", "--jason"], { LANG: "zh_CN.UTF-8" });
    expect(await run.exitCode()).toBe(2);
    expect(run.output()).toContain("npm run doctor -- [--json] [--webhook-url <地址>]");
  });
});

function allScopesBut(name: string): string[] {
  const all = [
    "im:message.p2p_msg:readonly im:message.group_at_msg:readonly im:message:send_as_bot im:message:readonly",
    "cardkit:card:write im:resource im:chat:readonly im:message.reactions:write_only",
    "contact:user.basic_profile:readonly application:application:self_manage im:message.group_msg",
    "application:app_slash_command:read application:app_slash_command:write",
  ];
  return all.flatMap((list) => list.split(" ")).filter((one) => one !== name);
}

function allEventsBut(name: string): string[] {
  return appManifest.events.map((event) => event.name).filter((one) => one !== name);
}
