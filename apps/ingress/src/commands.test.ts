import { afterEach, describe, expect, it } from "vitest";
import { approvalFor, suspendOn } from "./approval.fixture.ts";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";
import { postChat } from "./ingress.fixture.ts";

const { appId } = testApp;
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function world(options: WorldOptions = {}): Promise<FeishuWorld> {
  const started = await startWorld(options);
  worlds.push(started);
  return started;
}

/** What the bot answers to a command in Ann's chat. */
async function answerTo(here: FeishuWorld, text: string): Promise<string> {
  const messageId = await here.say(text);
  return (await here.platform.waitForReply(messageId, { timeoutMs: 60_000 })).text;
}

const commands = {
  standup: { description: "sums up the day", prompt: "Write a stand-up report." },
};

describe("commands that only look are answered at once, without a run", () => {
  it.each([
    ["/help", "show what you can type", "sums up the day"],
    ["/帮助", "显示可用的命令", "sums up the day"],
    ["／help", "show what you can type", "/new"],
    ["/status", "State: idle", "anthropic/claude-x"],
    ["/状态", "状态：空闲", "anthropic/claude-x"],
    ["/whoami", "User id", "ou_"],
    ["/我是谁", "用户 ID", "ou_"],
    ["/stop", "Nothing is running right now.", ""],
    ["/停止", "现在没有正在进行的任务。", ""],
    ["/permissions", "Nothing is allowed for good here.", ""],
    ["/权限", "这里没有已记住的许可。", ""],
    ["/usage", "There is no budget here.", ""],
    ["/用量", "这里没有设置额度。", ""],
  ])("%s", async (text, one, other) => {
    const here = await world({
      env: { MODEL: "anthropic/claude-x" },
      settings: { agents: { default: { commands } } },
    });
    const answer = await answerTo(here, text);
    expect(answer).toContain(one);
    expect(answer).toContain(other);
    expect(here.ingress.wakes).toEqual([]);
  });

  it("/usage tells how far the person's own budgets are spent", async () => {
    const limits = [
      { per: "person" as const, period: "month" as const, tokens: 1_000 },
      { per: "agent" as const, period: "month" as const, of: ["other"], tokens: 1 },
    ];
    const here = await world({ settings: { budgets: { timeZone: "UTC", contact: "Bo", limits } } });
    const account = {
      per: "person",
      id: here.ann,
      bucket: new Date().toISOString().slice(0, 7),
      endsAtMs: Date.now() + 60_000,
    };
    await here.ingress.budgets.charge([account], { id: "1", tokens: 250, usd: 0.5 });
    const [line, ...rest] = (await answerTo(here, "/usage")).split("\n");
    expect(line).toMatch(
      /^- Your budget for this month: 250 tokens of 1,000, \$0\.50 \(25%\), renews on \d{4}-/,
    );
    expect(rest.join("")).toBe("Times are those of UTC. Ask Bo if you need more.");
  });

  it("/usage tells of a budget that operators have given an agent", async () => {
    const here = await world({
      settings: { console: { changes: true }, budgets: { timeZone: "UTC" } },
    });
    expect(await answerTo(here, "/usage")).toContain("There is no budget here.");
    const about = { agent: "default", by: "console", atMs: 1, file: "" };
    const change = { budgets: { day: { tokens: 1_000 } } };
    expect(await here.ingress.agentVersions.add({ ...about, base: 0, change })).toBe("done");
    expect(await answerTo(here, "/usage")).toContain("The budget of this agent for today: 0%");
  });

  it("delivered again, they are answered once", async () => {
    const here = await world();
    const messageId = await here.say("/help");
    await here.untilSaid(here.direct);
    await here.platform.redeliver(messageId);
    await here.ingress.close();
    expect(here.said(here.direct)).toHaveLength(1);
  });

  it("/status tells of the turn under way and the model chosen for the conversation", async () => {
    const here = await world({
      settings: { agents: { default: { model: "openai/agent-model" } } },
    });
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    await here.say("two");
    const answer = await answerTo(here, "/status");
    expect(answer).toMatch(/State: answering for \d+ s, step 1/);
    expect(answer).toContain("Waiting messages: 1");
    expect(answer).toContain("openai/agent-model");
  });

  it("/status counts the messages since the conversation began anew", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    const { store } = here.ingress;
    await here.say("one");
    const { epoch } = await here.begin(session);
    const write = { session, epoch, events: [], seq: 1, more: false };
    const history = ["one", "two"].map((text) => ({
      role: "user" as const,
      content: [{ type: "text" as const, text }],
    }));
    await store.commit({ ...write, history, context: { keep: 0 } });
    expect(await answerTo(here, "/status")).toContain("Messages in this conversation: 0");
  });

  it("/status tells whose decision turns wait for that were set aside, beside the one under way", async () => {
    const here = await world();
    const session = `${appId}.${here.group}`;
    await here.say("please deploy", { chatId: here.group, mention: true });
    const claim = await here.begin(session);
    const people = {
      requester: true,
      people: [here.bob],
      roles: ["ops"],
      fourEyes: false,
      count: 1,
    };
    const words = { title: { zh: "发布", en: "Deploy it" } };
    const asking = { deciders: people, createdAtMs: Date.now() - 600_000, words };
    const approval = approvalFor(claim, here.group, asking);
    await suspendOn(here.ingress, { ...claim, waits: here.ann }, [approval]);
    await here.say("something else", { chatId: here.group, from: here.bob, mention: true });
    expect((await here.begin(session)).head).toMatchObject({ seq: 2 });
    const asked = await here.say("/status", { chatId: here.group, from: here.bob, mention: true });
    const { text } = await here.platform.waitForReply(asked, { timeoutMs: 60_000 });
    expect(text).toMatch(/State: answering for \d+ s/);
    expect(text).toContain("Waiting messages: 0");
    expect(text).toMatch(
      /Waiting for a decision: `Deploy it` \(asked for by Ann, Ann, Bob, members of “ops” may decide, for 10 min\)/,
    );
  });

  it("in a group they need a mention like everything else, and answer the person who asks", async () => {
    const here = await world();
    await here.say("/help", { chatId: here.group, from: here.bob });
    const asked = await here.say("/whoami", { chatId: here.group, from: here.bob, mention: true });
    const { text } = await here.platform.waitForReply(asked, { timeoutMs: 60_000 });
    expect(text).toContain(here.bob);
    expect(here.said(here.group)).toHaveLength(1);
  });

  it("speak the language that the agent is set to", async () => {
    const here = await world({ settings: { agents: { default: { language: "zh" } } } });
    expect(await answerTo(here, "/help")).toContain("显示可用的命令");
  });
});

describe("commands that change the conversation wait for their turn in it", () => {
  it.each([
    ["/new", { name: "new", argument: "" }],
    ["/新对话", { name: "new", argument: "" }],
    ["/compact", { name: "compact", argument: "" }],
    ["/压缩", { name: "compact", argument: "" }],
    ["/model openai/x", { name: "model", argument: "openai/x" }],
    ["/模型 默认", { name: "model", argument: "默认" }],
  ])("%s", async (text, command) => {
    const here = await world();
    await here.say(text);
    expect(await here.head(`${appId}.${here.direct}`)).toMatchObject({
      command,
      parts: [{ type: "text", text }],
    });
  });

  it("a command of the agent's own becomes its prompt", async () => {
    const here = await world({ settings: { agents: { default: { commands } } } });
    await here.say("/Standup for today");
    const head = await here.head(`${appId}.${here.direct}`);
    expect(head?.parts).toEqual([{ type: "text", text: "Write a stand-up report.\n\nfor today" }]);
    expect(head).not.toHaveProperty("command");
  });

  it.each(["/etc/hosts", "/tmp is full"])("%s is for the model", async (text) => {
    const here = await world();
    await here.say(text);
    expect(await here.head(`${appId}.${here.direct}`)).toMatchObject({ parts: [{ text }] });
  });

  it.each([
    ["/statsu", "There is no command /statsu. Did you mean /status?"],
    ["/mem", "There is no command /mem. Did you mean /memory?"],
    ["/stand", "There is no command /stand. Did you mean /standup?"],
    ["/modle fast", "There is no command /modle. Did you mean /model?"],
    ["/weather", "There is no command /weather. /help lists them."],
  ])(
    "%s, which is no command, is answered with those it may have meant, and no model is asked",
    async (text, said) => {
      const settings = { agents: { default: { commands, language: "en" } } } as const;
      const here = await world({ settings });
      const asked = await here.say(text);
      expect((await here.platform.waitForReply(asked, { timeoutMs: 60_000 })).text).toBe(said);
      expect(await here.waiting(`${appId}.${here.direct}`)).toBe(0);
    },
  );

  it("also over HTTP", async () => {
    const here = await world({ settings: { agents: { default: { commands } } } });
    for (const [sessionId, message, expected] of [
      ["a", "/new", { command: { name: "new", argument: "" } }],
      ["b", "/standup", { parts: [{ type: "text", text: "Write a stand-up report." }] }],
    ] as const) {
      const stream = await postChat(here.ingress, { message, session_id: sessionId });
      await stream.until(/user_message/);
      stream.leave();
      expect(await here.head(`api.${sessionId}`)).toMatchObject(expected);
    }
  });
});

describe("/stop", () => {
  it.each(["/stop", "/停止"])(
    "%s cancels the turn under way; its own reply tells",
    async (text) => {
      const here = await world();
      const session = `${appId}.${here.direct}`;
      await here.say("one");
      await here.begin(session);
      await here.say(text);
      expect(await here.told(session)).toEqual([
        { type: "cancel", turnId: `${session}-1`, reason: "stopped" },
      ]);
      expect(here.ingress.cancels).toEqual([{ session, turnId: `${session}-1` }]);
      expect(await here.waiting(session)).toBe(1);
      await here.ingress.close();
      expect(here.said(here.direct)).toEqual([]);
    },
  );

  it("delivered again later, it does not stop the turn that came after", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    const claim = await here.begin(session);
    const stop = await here.say("/stop");
    await here.say("two");
    await here.finish(claim);
    await here.platform.redeliver(stop);
    expect(await here.told(session)).toEqual([]);
    await here.ingress.close();
    expect(here.said(here.direct)).toEqual([]);
  });

  it("that found nothing to stop does not stop what came after either", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    const stop = await here.say("/stop");
    await here.untilSaid(here.direct);
    await here.say("one");
    await here.begin(session);
    await here.platform.redeliver(stop);
    expect(await here.told(session)).toEqual([]);
  });

  it("delivered again after its cancel failed, it cancels that turn", async () => {
    const here = await world({ retryDelaysMs: [] });
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    here.ingress.trouble.cancel = true;
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "/stop",
    });
    expect(await sent.delivery).toMatchObject({ outcome: "exhausted" });
    here.ingress.trouble.cancel = false;
    await here.platform.redeliver(sent.messageId);
    expect(await here.told(session)).toMatchObject([{ type: "cancel", turnId: `${session}-1` }]);
  });

  it("in a group stops the writer's own turn, and says so when it is another person's", async () => {
    const here = await world();
    const session = `${appId}.${here.group}`;
    await here.say("one", { chatId: here.group, mention: true });
    await here.begin(session);
    const foreign = await here.say("/stop", { chatId: here.group, from: here.bob, mention: true });
    const { text } = await here.platform.waitForReply(foreign, { timeoutMs: 60_000 });
    expect(text).toContain("Only the person who asked can stop this one.");
    expect(await here.told(session)).toEqual([]);
    await here.say("/stop", { chatId: here.group, mention: true });
    expect(await here.told(session)).toMatchObject([{ type: "cancel", reason: "stopped" }]);
  });
});
