import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, it } from "vitest";
import type { ConfigInput } from "@larkline/process/config";
import type { PermissionRule } from "@larkline/protocol/approval";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const { appId } = testApp;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function world(settings: ConfigInput = {}): Promise<FeishuWorld> {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const here = await startWorld({ shared: memory, settings });
  closing.push(here.close);
  return here;
}

let order = 0;

/** A rule of the group that Ann left. */
async function remembered(
  here: FeishuWorld,
  fields: Partial<PermissionRule> = {},
): Promise<PermissionRule> {
  const nowMs = Date.now();
  order += 1;
  const rule: PermissionRule = {
    v: 1,
    id: randomBytes(16).toString("hex"),
    app: appId,
    chatId: here.group,
    tool: "shell",
    pattern: "git status *",
    author: { id: here.ann },
    createdAtMs: nowMs - 10_000 + order,
    expiresAtMs: nowMs + 3_600_000,
    ...fields,
  };
  await here.ingress.rules.add(rule);
  return rule;
}

/** What the bot answers to a command in the group. */
async function answerTo(here: FeishuWorld, from: string, text: string): Promise<string> {
  const messageId = await here.say(text, { chatId: here.group, from, mention: true });
  return (await here.platform.waitForReply(messageId, { timeoutMs: 60_000 })).text;
}

async function patterns(here: FeishuWorld): Promise<string[]> {
  return (await here.ingress.rules.inForce(appId, here.group)).map(({ pattern }) => pattern);
}

describe("/permissions", () => {
  it("lists the rules of this chat alone, with whom they come from, in both languages", async () => {
    const here = await world();
    await remembered(here, { pattern: "ls *" });
    await remembered(here, { pattern: "cat *", person: here.bob });
    await remembered(here, { chatId: here.direct, pattern: "elsewhere" });
    await remembered(here, { pattern: "expired", expiresAtMs: Date.now() - 1 });
    const english = await answerTo(here, here.bob, "/permissions");
    expect(english).toMatch(/1\. `shell\(ls \*\)` .*allowed by Ann[^]*2\. `shell\(cat \*\)`/);
    expect(english).not.toMatch(/elsewhere|expired/);
    expect(await answerTo(here, here.bob, "/权限")).toMatch(/1\. `shell\(ls \*\)` .*由 Ann 允许/);
  });

  it("revokes at once what its author takes back, and says so", async () => {
    const here = await world();
    await remembered(here, { pattern: "ls *" });
    const { id } = await remembered(here, { pattern: "cat *" });
    expect(await answerTo(here, here.ann, "/permissions revoke 1")).toBe(
      "The rule shell(ls *) is revoked: people are asked again.",
    );
    expect(await patterns(here)).toEqual(["cat *"]);
    expect(await answerTo(here, here.ann, `/权限 撤销 ${id.slice(0, 8)}`)).toBe(
      "已撤销规则 shell(cat *)，以后会重新询问。",
    );
    expect(await patterns(here)).toEqual([]);
    expect(here.ingress.wakes).toEqual([]);
  });

  it("is obeyed while the session is at work", async () => {
    const here = await world();
    await remembered(here);
    await here.say("one", { chatId: here.group, mention: true });
    await here.begin(`${appId}.${here.group}`);
    await answerTo(here, here.ann, "/permissions revoke 1");
    expect(await patterns(here)).toEqual([]);
  });

  it.each([["9"], ["0"], ["ffffffff"], ["everything"]])("knows no rule %s", async (which) => {
    const here = await world();
    await remembered(here);
    expect(await answerTo(here, here.ann, `/permissions revoke ${which}`)).toContain(
      `There is no rule “${which}” here.`,
    );
    expect(await patterns(here)).toHaveLength(1);
  });

  it("does not revoke a rule of another chat", async () => {
    const here = await world();
    const { id } = await remembered(here, { chatId: here.direct });
    expect(await answerTo(here, here.ann, `/permissions revoke ${id}`)).toContain(
      "There is no rule",
    );
    expect(await here.ingress.rules.inForce(appId, here.direct)).toHaveLength(1);
  });
});

describe("a rule", () => {
  it("AL-42: stays when a person revokes it who is neither its author, nor meant by it, nor decides about such calls", async () => {
    const here = await world();
    await remembered(here);
    expect(await answerTo(here, here.bob, "/permissions revoke 1")).toBe(
      "Only Ann can revoke this rule.",
    );
    expect(await patterns(here)).toHaveLength(1);
  });

  it("may be revoked by the person it is for", async () => {
    const here = await world();
    await remembered(here, { person: here.bob });
    expect(await answerTo(here, here.bob, "/permissions revoke 1")).toContain("is revoked");
  });

  it.each([
    ["people", (bob: string): ConfigInput => ({ roles: { ops: { people: [bob] } } })],
    ["user groups", (): ConfigInput => ({ roles: { ops: { groups: ["g_ops"] } } })],
  ])(
    "may be revoked by those who decide about such calls through %s of a role",
    async (_, roles) => {
      const bob = `ou_${"b".repeat(32)}`;
      const approvers = { roles: ["ops"] };
      const here = await world({
        ...roles(bob),
        permissions: [{ tools: ["sh*"], do: "ask", approvers }],
      });
      here.platform.addUser({ openId: bob, name: "Bo" });
      here.platform.addUserGroup({ groupId: "g_ops", members: [bob] });
      here.platform.addMembers(here.group, [bob]);
      await remembered(here);
      expect(await answerTo(here, here.bob, "/permissions revoke 1")).toContain(
        "Only Ann, members of “ops” can",
      );
      expect(await answerTo(here, bob, "/permissions revoke 1")).toContain("is revoked");
    },
  );
});

describe("an order to revoke that is delivered again", () => {
  it("aims at the rule that it was given for, on any replica, and is answered once", async () => {
    const here = await world();
    await remembered(here, { pattern: "first" });
    await remembered(here, { pattern: "second" });
    const messageId = await here.say("/permissions revoke 1", {
      chatId: here.group,
      mention: true,
    });
    await here.untilSaid(here.group);
    const other = await here.replica();
    await here.platform.redeliver(messageId);
    expect(await patterns(here)).toEqual(["second"]);
    await other.close();
    expect(here.said(here.group)).toHaveLength(1);
  });

  it("that aimed at nothing still does when there is a rule of that number", async () => {
    const here = await world();
    const messageId = await here.say("/permissions revoke 1", {
      chatId: here.group,
      mention: true,
    });
    await remembered(here);
    await here.platform.redeliver(messageId);
    expect(await patterns(here)).toHaveLength(1);
  });
});

describe("the list of commands", () => {
  it("names /permissions in /help and in the welcome", async () => {
    const here = await world();
    expect(await answerTo(here, here.ann, "/help")).toContain("/permissions");
    const { chatId, reports } = here.platform.enterChat(here.bob, appId);
    await reports;
    expect((await here.untilSaid(chatId)).text).toContain("/权限");
  });
});
