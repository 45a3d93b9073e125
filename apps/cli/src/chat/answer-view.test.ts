import type { RunEvent } from "@larkline/sdk";
import { describe, expect, it } from "vitest";
import {
  answerClosing,
  answerOpening,
  AnswerView,
  eventText,
  openingText,
  chatTexts,
} from "./answer-view.ts";

const { zh, en } = chatTexts;

/** An event with its place. */
const told = (event: object) => ({ seq: 1, runId: "r", agent: "a", atMs: 1, ...event }) as RunEvent; // as the server tells it
const text = (words: string) => told({ type: "text_delta", text: words });
const call = (id: string, toolName: string) => told({ type: "tool_use", id, toolName, input: {} });
const result = (fields: object) => {
  return told({
    type: "tool_result",
    id: "c1",
    toolName: "t",
    output: "",
    isError: false,
    ...fields,
  });
};
const done = (fields: object = {}) => told({ type: "done", reason: "", final: "", ...fields });

describe("rulers", () => {
  it("SA-38: the start line is followed by 40 dashes, answers stand between 60 equals signs", () => {
    expect(openingText(zh)).toBe(`流式助手已启动 (输入 'quit' 退出)\n${"-".repeat(40)}\n`);
    expect(answerOpening(zh)).toBe(`\n${"=".repeat(60)}\n助手: `);
    expect(answerClosing()).toBe(`\n${"=".repeat(60)}\n`);
  });
});

describe("eventText", () => {
  it("shows fragments as they are and nothing for events without words", () => {
    expect(eventText(text("你好\n"), zh)).toBe("你好\n");
    expect(eventText(told({ type: "slash_command", name: "new", args: "" }), zh)).toBe("");
  });

  it("names a tool when it starts and shows its result when it is done", () => {
    expect(eventText(call("c1", "bash"), zh)).toBe("\n\n[正在调用工具: bash]\n");
    expect(
      eventText(result({ toolName: "bash", output: "no JSON", result: { ok: "是" } }), zh),
    ).toBe('[工具 bash 执行完成]: {"ok":"是"}\n\n助手: ');
  });

  it("SA-36: a result of 100 characters is shown whole, one of 101 as 100 plus dots", () => {
    const shown = (value: unknown) =>
      eventText(result({ result: value }), en).slice(
        "[Tool t finished]: ".length,
        -"\n\nAssistant: ".length,
      );
    expect(shown("字".repeat(100))).toBe("字".repeat(100));
    expect(shown("字".repeat(101))).toBe(`${"字".repeat(100)}...`);
    expect(shown("🌤".repeat(100))).toBe("🌤".repeat(100));
    expect(shown("🌤".repeat(101))).toBe(`${"🌤".repeat(100)}...`);
    expect(shown(`a${"🌤".repeat(5_000)}`)).toBe(`a${"🌤".repeat(99)}...`);
  });

  it.each([
    [null, "null"],
    [12, "12"],
    ["plain", "plain"],
  ])("shows the result %j as %s", (value, expected) => {
    expect(eventText(result({ result: value }), en)).toContain(`: ${expected}\n`);
  });

  it("SA-37: a failed tool and a failed run are visible", () => {
    expect(eventText(result({ isError: true, output: "tool_execution_error: 坏了" }), zh)).toBe(
      "[工具 t 执行失败]: 坏了\n\n助手: ",
    );
    const failed = told({ type: "error", message: "坏了", suggestion: "请重试" });
    expect(eventText(failed, zh)).toBe(`\n[错误]: 坏了\n请重试${answerClosing()}`);
  });

  it("keeps control characters of a model away from the terminal", () => {
    expect(eventText(text("a\u001B[2Jb\u009B\u0007\tc\r\n"), zh)).toBe("a[2Jb\tc\n");
  });
});

describe("the end of an answer", () => {
  it.each([
    [{ final: "a" }, ""],
    [
      { final: "a", reply: "a\n\nCut off.", reason: "max_tokens", notice: "truncated" },
      "\nCut off.",
    ],
    [{ final: "a", notes: ["no file"] }, "\nno file"],
    [{ final: '{"n":1}', reply: "n: 1" }, "\nn: 1"],
    [
      { final: "a", reply: "a\n\nToo many steps.", reason: "max_turns_reached" },
      "\n[Error]: Too many steps.",
    ],
    [{ reason: "cancelled" }, "\n[Error]: The run was stopped (cancelled)."],
  ])("of %j adds %j", (fields, added) => {
    expect(eventText(done(fields), en)).toBe(`${added}${answerClosing()}`);
  });
});

describe("AnswerView", () => {
  const restarted = "\n[The answer was interrupted and begins anew]\nAssistant: ";

  it("EE-49: draws an answer anew that begins again, when some of it was shown", () => {
    const view = new AnswerView(en);
    const restart = told({ type: "step_restarted", turnNumber: 1, model: "m", reason: "crash" });
    expect(view.draw(restart)).toBe("");
    view.draw(text("half"));
    expect(view.draw(restart)).toBe(restarted);
    expect(view.draw(restart)).toBe("");
    expect(view.draw(text("whole"))).toBe("whole");
  });

  it("shows an outcome once that a worker tells again after a crash of another", () => {
    const view = new AnswerView(en);
    const events = [call("c1", "t"), result({}), call("c1", "t"), result({})];
    expect(events.map((event) => view.draw(event) === "")).toEqual([false, false, true, true]);
    expect(view.draw(call("c2", "t"))).not.toBe("");
  });
});
