import type { MemoryOwner } from "@larkline/protocol";
import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const { appId: app } = testApp;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function world(): Promise<FeishuWorld> {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const here = await startWorld({ shared: memory });
  closing.push(here.close);
  return here;
}

/** What the bot answers to a command, in the group or alone. */
async function answerTo(
  here: FeishuWorld,
  from: string,
  text: string,
  where: "group" | "direct",
): Promise<string> {
  const place = where === "group" ? { chatId: here.group, mention: true } : { chatId: here.direct };
  const messageId = await here.say(text, { ...place, from });
  return (await here.platform.waitForReply(messageId, { timeoutMs: 60_000 })).text;
}

/** Owners as the messages of this world have them. */
async function ownersIn(here: FeishuWorld): Promise<{ ann: MemoryOwner; team: MemoryOwner }> {
  await here.say("hello");
  const { tenant } = (await here.head(`${app}.${here.direct}`)) ?? {};
  expect(tenant).toEqual(expect.any(String));
  return {
    ann: { kind: "person", app, tenant, id: here.ann },
    team: { kind: "chat", app, tenant, id: here.group },
  };
}

async function remember(
  here: FeishuWorld,
  owner: MemoryOwner,
  text: string,
  by = here.ann,
): Promise<string> {
  const written = await here.ingress.memories.remember(owner, { call: `call ${text}`, text, by });
  return "id" in written ? written.id : expect.fail(written.state);
}

const textsOf = async (here: FeishuWorld, owner: MemoryOwner) =>
  (await here.ingress.memories.list(owner)).memories.map(({ text }) => text);

describe("/memory", () => {
  it("AT-22: lists a person's notes where they are alone with the bot, in a group those of the chat", async () => {
    const here = await world();
    const { ann, team } = await ownersIn(here);
    await remember(here, ann, "likes tea");
    await remember(here, team, "meets on Mondays");
    expect(await answerTo(here, here.ann, "/memory", "direct")).toMatch(/1\. likes tea\n/);
    const inGroup = await answerTo(here, here.ann, "/memory", "group");
    expect(inGroup).toContain("1. meets on Mondays (this chat)");
    expect(inGroup).not.toContain("tea");
    expect(await answerTo(here, here.bob, "/记忆", "group")).toContain(
      "1. meets on Mondays（本聊天）",
    );
  });

  it("AT-25: forgets one by its number, and everything with off", async () => {
    const here = await world();
    const { ann, team } = await ownersIn(here);
    for (const text of ["likes tea", "has a cat", "flies on Friday"]) {
      await remember(here, ann, text);
    }
    await remember(here, team, "meets on Mondays");
    const listed = await answerTo(here, here.ann, "/memory", "direct");
    const [, number = ""] = /(\d)\. has a cat/.exec(listed) ?? [];
    expect(await answerTo(here, here.ann, `/memory forget ${number}`, "direct")).toBe("Forgotten.");
    expect((await textsOf(here, ann)).toSorted()).toEqual(["flies on Friday", "likes tea"]);
    expect(await answerTo(here, here.ann, "/memory forget 9", "direct")).toMatch(
      /nothing of this number/,
    );
    expect(await answerTo(here, here.ann, "/记忆 关闭", "direct")).toMatch(/已忘掉 2 条/);
    expect(await here.ingress.memories.list(ann)).toEqual({ off: true, memories: [] });
    expect(await textsOf(here, team)).toEqual(["meets on Mondays"]);
    expect(await answerTo(here, here.ann, "/记忆", "direct")).toMatch(/关于你的内容不会被记住/);
    await answerTo(here, here.ann, "/memory on", "direct");
    expect((await here.ingress.memories.list(ann)).off).toBe(false);
  });
});

/** A card of the bot in the group: what its buttons carry, the test says. */
async function buttonCard(here: FeishuWorld, messageId: string): Promise<{ messageId: string }> {
  const text = { tag: "plain_text", content: "Take back" };
  const button = {
    tag: "button",
    text,
    behaviors: [{ type: "callback", value: { larkline: "memory" } }],
  };
  const content = JSON.stringify({
    schema: "2.0",
    config: { update_multi: true },
    body: { elements: [button] },
  });
  return await here.api.messages.reply({
    messageId,
    messageType: "interactive",
    content,
    uuid: "memory-card",
    inThread: false,
  });
}

describe("the button that takes a note back", () => {
  it("AT-24: works once, and for its owner only", async () => {
    const here = await world();
    const { ann, team } = await ownersIn(here);
    const own = await remember(here, ann, "likes tea");
    const ours = await remember(here, team, "meets on Mondays");
    const asked = await here.say("/memory", { chatId: here.group, mention: true });
    const { messageId } = await buttonCard(here, asked);
    const click = async (openId: string, memory: string, about: "me" | "chat") => {
      const value = { larkline: "memory", session: `${app}.${here.group}`, memory, about };
      return JSON.stringify(await here.platform.click({ messageId, openId, value }));
    };
    expect(await click(here.bob, own, "me")).toContain("no such note of yours");
    expect(await textsOf(here, ann)).toEqual(["likes tea"]);
    expect(await click(here.ann, own, "me")).toContain("Taken back");
    expect(await click(here.ann, own, "me")).toContain("taken back already");
    expect(await click(here.bob, ours, "chat")).toContain("Taken back");
    expect([...(await textsOf(here, ann)), ...(await textsOf(here, team))]).toEqual([]);
  });
});

describe("memories over HTTP", () => {
  it("AT-23, AT-25: are those of the session, are listed and taken away, and no other's", async () => {
    const here = await world();
    const owner = (id: string, kind: "person" | "chat" = "person"): MemoryOwner => ({
      kind,
      app: "api",
      id,
    });
    const id = await remember(here, owner("api.s1"), "likes tea");
    await remember(here, owner("api.s1", "chat"), "a session about travel");
    const call = async (path: string, method = "GET") =>
      await fetch(`${here.ingress.url}${path}`, { method });
    const listed = async (session: string) =>
      (await (await call(`/v1/memories?session_id=${session}`)).json()) as object;
    expect(await listed("s1")).toEqual({
      off: false,
      memories: [
        {
          id,
          owner: "person",
          text: "likes tea",
          created_at: expect.any(Number),
          used_at: expect.any(Number),
        },
        expect.objectContaining({ owner: "chat", text: "a session about travel" }),
      ],
    });
    expect(await listed("s2")).toEqual({ off: false, memories: [] });
    expect((await call(`/v1/memories/${id}?session_id=s2`, "DELETE")).status).toBe(404);
    expect((await call(`/v1/memories/${id}?session_id=s1`, "DELETE")).status).toBe(204);
    expect((await call(`/v1/memories/${id}?session_id=s1`, "DELETE")).status).toBe(404);
    expect((await call("/v1/memories")).status).toBe(400);
  });
});
