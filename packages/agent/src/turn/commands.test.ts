import type { SessionCommand, QueuedMessage } from "@larkline/protocol";
import type { PermissionRule } from "@larkline/protocol/approval";
import type { ModelFailure } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import {
  commandNames,
  helpText,
  parseCommand,
  commandDone,
  commandTurn,
  permissionsOrder,
  permissionsText,
  ruleNamed,
  statusText,
  modelText,
  whoamiText,
} from "./commands.ts";
import type { Transition } from "./facts.ts";
import { queued, cancel, environment, step } from "./turn.fixture.ts";
import { abandonTurn, afterControl, resumeTurn, afterStep } from "./turn.ts";

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
    expect(parseCommand("/model  openai/gpt-5 ")).toEqual({
      kind: "builtin",
      name: "model",
      argument: "openai/gpt-5",
    });
    expect(parseCommand("/模型　默认")).toEqual({
      kind: "builtin",
      name: "model",
      argument: "默认",
    });
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
    expect(parseCommand("／周报", custom)).toMatchObject({
      kind: "custom",
      name: "周报",
      prompt: "写一份周报。",
    });
  });

  it("of the configuration cannot take a name of the system", () => {
    const own = { stop: { description: "mine", prompt: "Go on!" } };
    expect(parseCommand("/stop", own)).toMatchObject({ kind: "builtin", name: "stop" });
    expect(helpText("en", own)).not.toContain("mine");
  });
});

describe("what commands answer", () => {
  it("help lists every command that is understood, and those of the configuration", () => {
    for (const language of ["zh", "en"] as const) {
      const text = helpText(language, custom);
      for (const name of [...commandNames, ...Object.keys(custom)]) {
        expect(text).toContain(`\`/${name}\``);
      }
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
    expect(statusText("en", { ...facts, running })).toContain(
      "answering for 5 s, step 2, waiting for `weather`\n",
    );
    expect(statusText("zh", { ...facts, running })).toContain(
      "正在回答，已进行 5 秒，第 2 步，正在等待 `weather`\n",
    );
  });

  it("status tells whose decisions are waited for, and since when", () => {
    const facts = { nowMs: 700_000, model: "m", waiting: 0, messages: 9 };
    const call = {
      tool: "deploy",
      requester: "Ann\n- x",
      deciders: "Bo, members of “ops”",
      sinceMs: 100_000,
    };
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
    expect(whoamiText("zh", message)).toBe(
      "- 用户 ID：`ou_1`\n- 应用：`cli_app`\n- 对话：`cli_app.oc_1`",
    );
  });

  it("model lists what may be chosen, each once", () => {
    const facts = { model: "a/x", defaultModel: "b/y", models: ["a/x", "b/y"] };
    expect(modelText("en", facts)).toMatch(
      /^Current model: `a\/x`\n[^]*\n- `b\/y` \(default\)\n- `a\/x`$/,
    );
    expect(modelText("zh", { ...facts, model: "b/y", models: [] })).toBe("当前模型：`b/y`");
  });
});

const facts = { nowMs: 5, model: "a/x", defaultModel: "a/x", models: ["b/y", "c/y", "b/z"] };

function ordered(
  name: SessionCommand["name"],
  argument = "",
  text = `/${name} ${argument}`,
): QueuedMessage {
  const { seq, message } = queued(text);
  return { seq, message: { ...message, command: { name, argument } } };
}

function taken(...args: Parameters<typeof ordered>): Transition {
  const transition = commandTurn(ordered(...args), facts);
  if (transition === undefined) throw new Error("The message is no command.");
  return transition;
}

function replyOf({ next }: Transition): string {
  return next.do === "finish" ? (next.reply ?? "") : "";
}

describe("an order to the session", () => {
  it("is only a message that carries one", () => {
    expect(commandTurn(queued("/new"), facts)).toBeUndefined();
  });

  it("EE-2: ends in one done event and leaves nothing in history", () => {
    for (const transition of [
      taken("new"),
      taken("model"),
      taken("model", "b/z"),
      taken("model", "none"),
    ]) {
      expect(transition.events.map(({ type }) => type)).toEqual([
        "slash_command",
        "text_delta",
        "text",
        "done",
      ]);
      expect(transition.history).toEqual([]);
      expect(transition.next).toMatchObject({ do: "finish", reason: "" });
    }
  });

  it("new empties the context, in the language of the command", () => {
    expect(taken("new").context).toEqual({ keep: 0 });
    expect(replyOf(taken("new"))).toMatch(/^A new conversation/);
    expect(replyOf(taken("new", "", "/新对话"))).toMatch(/^已开始新的对话/);
  });

  it("model without a name lists the models and changes nothing", () => {
    expect(replyOf(taken("model"))).toContain("`b/z`");
    expect(taken("model").settings).toBeUndefined();
  });

  it("model takes a full name, or an id that only one provider has, in any case", () => {
    expect(taken("model", "B/Y").settings).toEqual({ model: "b/y" });
    expect(taken("model", "z").settings).toEqual({ model: "b/z" });
    expect(taken("model", "y").settings).toBeUndefined();
  });

  it.each(["default", "默认", "a/x"])("model %s goes back to the model of the agent", (word) => {
    expect(taken("model", word).settings).toEqual({});
    expect(replyOf(taken("model", word))).toContain("a/x");
  });

  it("model refuses a name that is not offered, in one line of its own", () => {
    const refused = taken("model", "evil\n# title");
    expect(refused.settings).toBeUndefined();
    expect(replyOf(refused)).toMatch(/^There is no model “evil # title” to choose here\.\n/);
  });

  it("compact asks for the compaction, also after a crash, and tells what came of it", () => {
    const asked = taken("compact");
    expect(asked.next).toEqual({ do: "compact" });
    expect(resumeTurn(asked.turn, environment())).toMatchObject({
      next: { do: "compact" },
      events: [],
    });
    expect(afterControl(asked.turn, [], environment()).next).toEqual({ do: "compact" });
    const report = { tokensBefore: 9_000, tokensAfter: 800, summarised: true };
    expect(replyOf(commandDone(asked.turn, report, {}))).toMatch(
      /from about 9000 to about 800 tokens.*summary/,
    );
    expect(replyOf(commandDone(asked.turn, { ...report, summarised: false }, {}))).toMatch(
      /No summary could be made/,
    );
    expect(replyOf(commandDone(asked.turn, undefined, { texts: "zh" }))).toBe(
      "没有更早的内容可以压缩。",
    );
  });

  it("leaves nothing in history when it is cancelled, fails or is given up", () => {
    const { turn } = taken("compact");
    const cancelled = afterControl(turn, [cancel], environment());
    expect(cancelled).toMatchObject({ history: [], next: { do: "finish", reason: "cancelled" } });
    const failure: ModelFailure = {
      type: "error",
      code: "api_overloaded",
      message: "m",
      suggestion: "s",
      retryable: true,
      partial: true,
    };
    const failed = afterStep(turn, step("They tal", { failure }), environment());
    expect(failed).toMatchObject({ history: [], next: { do: "finish", reason: "api_overloaded" } });
    expect(JSON.stringify(failed.turn.shown ?? "")).not.toContain("They tal");
    expect(abandonTurn(ordered("compact"), environment(), "crashed")).toMatchObject({
      history: [],
      next: { do: "finish", reason: "internal_error" },
    });
  });
});

function rule(id: string, fields: Partial<PermissionRule> = {}): PermissionRule {
  return {
    v: 1,
    id: id.padEnd(32, "0"),
    app: "cli_app",
    chatId: "oc_1",
    tool: "shell",
    pattern: "git status *",
    author: { id: "ou_1", name: "Li" },
    createdAtMs: 0,
    expiresAtMs: Date.UTC(2027, 0, 2),
    ...fields,
  };
}

const rules = [rule("abcd1"), rule("abcd2", { person: "ou_1" }), rule("ffff")];

describe("permissionsText", () => {
  it("lists the rules of a chat with number, pattern, whom they are for, author and end", () => {
    const lines = permissionsText(rules, "en").split("\n");
    expect(lines[1]).toBe(
      "1. `shell(git status *)` (abcd1000) for everybody here, allowed by Li, until 2027-01-02",
    );
    expect(lines[2]).toContain("for Li only");
    expect(permissionsText(rules, "zh").split("\n")[1]).toBe(
      "1. `shell(git status *)` (abcd1000) 对群内所有人，由 Li 允许，有效至 2027-01-02",
    );
  });

  it("says so when there are none, and cuts a long list with a count", () => {
    expect(permissionsText([], "en")).toBe("Nothing is allowed for good here.");
    expect(permissionsText(Array<PermissionRule>(60).fill(rule("a")), "en")).toContain("\n… 10\n");
  });

  it("a pattern cannot leave its place in the text", () => {
    const text = permissionsText([rule("a", { pattern: "x`\n# **big**" })], "en");
    expect(text.split("\n")[1]).toContain("`shell(x' # **big**)`");
  });
});

describe("permissionsOrder", () => {
  it.each([
    ["", { do: "list" }],
    ["  ", { do: "list" }],
    ["what", { do: "list" }],
    ["revoke", { do: "list" }],
    ["revoke 2", { do: "revoke", which: "2" }],
    ["REVOKE  abcd1 ", { do: "revoke", which: "abcd1" }],
    ["撤销 2", { do: "revoke", which: "2" }],
    ["撤销2", { do: "revoke", which: "2" }],
  ])("reads %j", (argument, order) => {
    expect(permissionsOrder(argument)).toEqual(order);
  });
});

describe("ruleNamed", () => {
  it("finds a rule by its number, its id or the beginning of that", () => {
    expect(ruleNamed(rules, "2")).toBe(rules[1]);
    expect(ruleNamed(rules, "FFFF")).toBe(rules[2]);
    expect(ruleNamed(rules, rules[0]?.id ?? "")).toBe(rules[0]);
  });

  it("finds none by a number or id that is not there, is too short or is not the only one", () => {
    for (const which of ["0", "4", "99", "abc", "abcd", "eeee", ""]) {
      expect(ruleNamed(rules, which)).toBeUndefined();
    }
  });
});
