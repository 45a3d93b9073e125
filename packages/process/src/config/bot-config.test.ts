import { describe, expect, it } from "vitest";
import {
  agentOfMessage,
  botOfApp,
  botVariable,
  readBots,
  readFirstApp,
  readIngressBots,
  groupsAtBot,
} from "./bot-config.ts";
import type { ConfigInput } from "./config-schema.ts";
import { createEnvReader } from "./environment.ts";
import { resolveConfig } from "./larkline-config.ts";
import type { LarklineConfig } from "./resolved-config.ts";

function resolved(input: ConfigInput): LarklineConfig {
  const result = resolveConfig(input);
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

function problemsOf(input: ConfigInput): string {
  const result = resolveConfig(input);
  return result.ok ? "" : result.error;
}

const desk = "cli_bbbbbbbbbbbbbbbb";

const two: ConfigInput = {
  agents: { support: {}, ops: {} },
  feishu: { typing: true, monthlyCalls: 10_000 },
  bots: {
    "help-desk": {
      appId: desk,
      transport: "both",
      agent: "support",
      chats: { oc_ops: { agent: "ops" } },
      feishu: { typing: false },
    },
    default: { agent: "ops", tenants: ["t_1"] },
  },
};

describe("bots of a configuration", () => {
  it("there is always one, without an app of its own", () => {
    const { bots } = resolved({});
    expect(Object.keys(bots)).toEqual(["default"]);
    expect(bots.default).toMatchObject({ name: "default", agent: "default", tenants: null });
    expect(bots.default).not.toHaveProperty("app");
  });

  it("behave as the deployment says, and each as it says itself", () => {
    const { bots } = resolved(two);
    expect(bots["help-desk"]).toMatchObject({
      app: { id: desk, domain: "feishu", transport: "both" },
      feishu: { typing: false, monthlyCalls: 10_000, welcome: true },
    });
    expect(bots.default.feishu.typing).toBe(true);
    expect(botOfApp({ bots }, desk).name).toBe("help-desk");
    expect(botOfApp({ bots }, "cli_of_the_environment").name).toBe("default");
  });

  it("an app id that cannot be one is found, so that none poses as the HTTP API", () => {
    expect(problemsOf({ bots: { a: { appId: "api" } } })).toContain(
      "bots.a.appId must match pattern",
    );
    const reader = createEnvReader({ FEISHU_APP_ID: "api", FEISHU_APP_SECRET: "a" });
    const read = reader.finish(readFirstApp(reader));
    expect(read.ok ? "" : read.error).toContain("FEISHU_APP_ID must be an app id");
  });

  it("all that cannot work is listed at once", () => {
    const problems = problemsOf({
      bots: {
        a: { agent: "nobody" },
        b: { appId: desk, domain: "open.feishu.cn", chats: { oc_1: { agent: "constructor" } } },
        c: { appId: desk },
        default: { appId: "cli_cccccccccccccccc", transport: "webhook" },
      },
    });
    for (const problem of [
      "bots.a has no appId",
      "bots.a names the unknown agent 'nobody'",
      "bots.b.domain must be feishu, lark or a URL",
      "bots.b.chats.oc_1 names the unknown agent 'constructor'",
      "bots.b and bots.c have the same appId",
      "bots.default.appId has no meaning",
      "bots.default.transport has no meaning",
    ]) {
      expect(problems).toContain(problem);
    }
  });
});

describe("the agent of a message", () => {
  const feishu = (app: string, chatId: string) =>
    ({
      app,
      reply: { channel: "feishu", app, chatId, messageId: "om_1", inThread: false },
    }) as const;
  const settings = resolved(two);
  const nameOf = (message: Parameters<typeof agentOfMessage>[1]) =>
    agentOfMessage(settings, message).name;

  it("is the one that it was accepted for", () => {
    expect(nameOf({ ...feishu(desk, "oc_1"), agent: "ops" })).toBe("ops");
    expect(nameOf(feishu(desk, "oc_1"))).toBe("default");
    expect(nameOf({ app: "api", reply: { channel: "none" }, agent: "support" })).toBe("support");
  });

  it("once it is configured no more, is the one that would answer now", () => {
    expect(nameOf({ ...feishu(desk, "oc_1"), agent: "gone" })).toBe("support");
    expect(nameOf({ ...feishu(desk, "oc_ops"), agent: "toString" })).toBe("ops");
    expect(nameOf({ ...feishu("cli_a", "oc_1"), agent: "gone" })).toBe("ops");
    expect(nameOf({ app: "api", reply: { channel: "none" }, agent: "gone" })).toBe("default");
  });
});

describe("user groups", () => {
  it("can be named at one bot, which no group of another tenant can pose as", () => {
    expect(groupsAtBot({ name: "desk" }, ["g_1"])).toEqual(["g_1", "desk:g_1"]);
    expect(groupsAtBot({ name: "other" }, ["g_1", "desk:g_1"])).toEqual(["g_1", "other:g_1"]);
  });
});

describe("secrets of bots", () => {
  const { bots } = resolved(two);
  const first = { appId: "cli_00000000000000aa", appSecret: "a", domain: "lark" };

  it("have the bot's name behind the variable of the first one", () => {
    expect(botVariable("FEISHU_APP_SECRET", "help-desk")).toBe("FEISHU_APP_SECRET_HELP_DESK");
    expect(botVariable("FEISHU_APP_SECRET", "default")).toBe("FEISHU_APP_SECRET");
    const env = { FEISHU_APP_SECRET_HELP_DESK: "b", FEISHU_ENCRYPT_KEY_HELP_DESK: "key" };
    const named = { name: "help-desk", appId: desk, appSecret: "b", domain: "feishu" };
    expect(readBots(env, bots, first)).toEqual({
      ok: true,
      value: [{ name: "default", ...first }, named],
    });
    expect(readIngressBots(env, bots)).toEqual({
      ok: true,
      value: [
        {
          ...named,
          encryptKey: "key",
          verificationToken: undefined,
          websocket: true,
          webhook: true,
        },
      ],
    });
  });

  it("that are missing are all named, never shown", () => {
    const read = readIngressBots({}, bots, {
      ...first,
      appId: desk,
      encryptKey: undefined,
      verificationToken: undefined,
      websocket: true,
      webhook: false,
    });
    const error = read.ok ? "" : read.error;
    expect(error).toContain("FEISHU_APP_ID is also the appId of bots.help-desk");
    expect(error).toContain("FEISHU_APP_SECRET_HELP_DESK is not set.");
    expect(error).toContain(
      "needs FEISHU_ENCRYPT_KEY_HELP_DESK, FEISHU_VERIFICATION_TOKEN_HELP_DESK or both",
    );
  });
});
