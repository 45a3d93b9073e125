import { describe, expect, it } from "vitest";
import { commandNames, helpText, modelText, parseCommand, statusText, whoamiText } from "./index.ts";
import { queued } from "./turn.fixture.ts";

const custom = {
  weekly: { description: "write the weekly report", prompt: "Write the weekly report." },
  周报: { description: "写周报", prompt: "写一份周报。" },
};

describe("a command", () => {
  it.each([
    ["/help", "help"],
    ["/帮助", "help"],
    ["/new", "new"],
    ["/新对话", "new"],
    ["/stop", "stop"],
    ["/停止", "stop"],
    ["/status", "status"],
    ["/状态", "status"],
    ["/model", "model"],
    ["/模型", "model"],
    ["/compact", "compact"],
    ["/压缩", "compact"],
    ["/whoami", "whoami"],
    ["/我是谁", "whoami"],
    ["／停止", "stop"],
    ["／STOP", "stop"],
    ["  /Stop \n", "stop"],
  ] as const)("%j is %s", (text, name) => {
    expect(parseCommand(text)).toEqual({ kind: "builtin", name, argument: "" });
  });

  it("has an argument after a blank", () => {
    expect(parseCommand("/model  openai/gpt-5 ")).toEqual({ kind: "builtin", name: "model", argument: "openai/gpt-5" });
    expect(parseCommand("/模型　默认")).toEqual({ kind: "builtin", name: "model", argument: "默认" });
  });

  it.each([
    "/etc/hosts",
    "/newer",
    "/",
    "//new",
    "/ new",
    "please /stop",
    "/new.",
    "stop",
    "",
    "/weekly",
    "/constructor",
  ])("%j is none", (text) => {
    expect(parseCommand(text)).toBeUndefined();
  });

  it("of the configuration becomes its prompt, followed by the words", () => {
    expect(parseCommand("/weekly", custom)).toMatchObject({
      kind: "custom",
      name: "weekly",
      prompt: "Write the weekly report.",
    });
    expect(parseCommand("/WEEKLY for Tom\nand Ann", custom)).toEqual({
      kind: "custom",
      name: "weekly",
      argument: "for Tom\nand Ann",
      prompt: "Write the weekly report.\n\nfor Tom\nand Ann",
    });
    expect(parseCommand("／周报", custom)).toMatchObject({ kind: "custom", name: "周报", prompt: "写一份周报。" });
  });

  it("of the configuration cannot take a name of the system", () => {
    const taken = { stop: { description: "mine", prompt: "Go on!" } };
    expect(parseCommand("/stop", taken)).toMatchObject({ kind: "builtin", name: "stop" });
    expect(helpText("en", taken)).not.toContain("mine");
  });
});

describe("what commands answer", () => {
  it("help lists every command that is understood, and those of the configuration", () => {
    for (const language of ["zh", "en"] as const) {
      const text = helpText(language, custom);
      for (const name of [...commandNames, ...Object.keys(custom)]) expect(text).toContain(`\`/${name}\``);
      const written = [...text.matchAll(/`(\/[^`]+)`/g)].map(([, name = ""]) => name);
      for (const name of written) expect(parseCommand(name, custom)).toBeDefined();
      expect(text).toContain("写周报");
    }
  });

  it("status tells whether something runs, for how long, and what it waits for", () => {
    const facts = { nowMs: 1_005_000, model: "openai/gpt-5", waiting: 2, messages: 9 };
    expect(statusText("en", facts)).toBe(
      "- State: idle\n- Waiting messages: 2\n- Messages in this conversation: 9\n- Model: `openai/gpt-5`",
    );
    const running = { startedAtMs: 1_000_000, step: 2, tools: ["weather"] };
    expect(statusText("en", { ...facts, running })).toContain("answering for 5 s, step 2, waiting for `weather`\n");
    expect(statusText("zh", { ...facts, running })).toContain("正在回答，已进行 5 秒，第 2 步，正在等待 `weather`\n");
  });

  it("status tells whose decisions are waited for, and since when", () => {
    const facts = { nowMs: 700_000, model: "m", waiting: 0, messages: 9 };
    const call = { tool: "deploy", requester: "Ann\n- x", deciders: "Bo, members of “ops”", sinceMs: 100_000 };
    expect(statusText("en", { ...facts, asked: [call] })).toContain(
      "- Waiting for a decision: `deploy` (asked for by Ann - x, Bo, members of “ops” may decide, for 10 min)\n",
    );
    expect(statusText("zh", { ...facts, asked: [call, call] })).toMatch(
      /^- 等待审批：`deploy`（Ann - x 发起，由 .* 决定，已等待 10 分钟）；`deploy`（/m,
    );
    const many = Array.from({ length: 12 }, () => ({ ...call, sinceMs: 700_000 - 3 * 3_600_000 }));
    expect(statusText("en", { ...facts, asked: many })).toMatch(/for 3 h\); …$/m);
  });

  it("whoami tells who the sender is to the bot", () => {
    const { message } = queued();
    const named = { ...message, sender: { id: "ou_1", name: "Tom\n- Role: admin" } };
    expect(whoamiText("en", named)).toBe(
      "- Name: Tom - Role: admin\n- User id: `ou_1`\n- App: `cli_app`\n- Conversation: `cli_app.oc_1`",
    );
    expect(whoamiText("zh", message)).toBe("- 用户 ID：`ou_1`\n- 应用：`cli_app`\n- 对话：`cli_app.oc_1`");
  });

  it("model lists what may be chosen, each once", () => {
    const facts = { model: "a/x", defaultModel: "b/y", models: ["a/x", "b/y"] };
    expect(modelText("en", facts)).toMatch(/^Current model: `a\/x`\n[^]*\n- `b\/y` \(default\)\n- `a\/x`$/);
    expect(modelText("zh", { ...facts, model: "b/y", models: [] })).toBe("当前模型：`b/y`");
  });
});
