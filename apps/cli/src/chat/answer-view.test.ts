import { describe, expect, it } from "vitest";
import { answerClosing, answerOpening, AnswerView, frameText, openingText, chatTexts } from "./answer-view.ts";

const { zh, en } = chatTexts;

describe("rulers", () => {
  it("SA-38: the start line is followed by 40 dashes, answers stand between 60 equals signs", () => {
    expect(openingText(zh)).toBe(`流式助手已启动 (输入 'quit' 退出)\n${"-".repeat(40)}\n`);
    expect(answerOpening(zh)).toBe(`\n${"=".repeat(60)}\n助手: `);
    expect(answerClosing()).toBe(`\n${"=".repeat(60)}\n`);
  });
});

describe("frameText", () => {
  it("shows fragments as they are and nothing for the echo of the input", () => {
    expect(frameText({ type: "assistant", content: "你好\n" }, zh)).toBe("你好\n");
    expect(frameText({ type: "user_message", content: "hi" }, zh)).toBe("");
  });

  it("names a tool when it starts and shows its result when it is done", () => {
    expect(frameText({ type: "tool_call", name: "bash", args: {} }, zh)).toBe("\n\n[正在调用工具: bash]\n");
    expect(frameText({ type: "tool_result", name: "bash", result: { ok: "是" } }, zh)).toBe(
      '[工具 bash 执行完成]: {"ok":"是"}\n\n助手: ',
    );
  });

  it("SA-36: a result of 100 characters is shown whole, one of 101 as 100 plus dots", () => {
    const shown = (result: unknown) =>
      frameText({ type: "tool_result", name: "t", result }, en).slice(
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
  ])("shows the result %j as %s", (result, expected) => {
    expect(frameText({ type: "tool_result", name: "t", result }, en)).toContain(`: ${expected}\n`);
  });

  it("SA-37: a failed tool and a failed run are visible", () => {
    expect(frameText({ type: "tool_error", name: "t", error: "坏了" }, zh)).toBe("[工具 t 执行失败]: 坏了\n\n助手: ");
    expect(frameText({ type: "error", message: "坏了" }, zh)).toBe(`\n[错误]: 坏了${answerClosing()}`);
  });

  it("keeps control characters of a model away from the terminal", () => {
    expect(frameText({ type: "assistant", content: "a\u001B[2Jb\u009B\u0007\tc\r\n" }, zh)).toBe("a[2Jb\tc\n");
  });
});

describe("AnswerView", () => {
  const restarted = "\n[The answer was interrupted and begins anew]\nAssistant: ";

  it("EE-49: draws an answer anew that begins again, when some of it was shown", () => {
    const view = new AnswerView(en);
    expect(view.draw({ type: "restart" })).toBe("");
    view.draw({ type: "assistant", content: "half" });
    expect(view.draw({ type: "restart" })).toBe(restarted);
    expect(view.draw({ type: "restart" })).toBe("");
    expect(view.draw({ type: "assistant", content: "whole" })).toBe("whole");
  });

  it("shows an outcome once that a worker tells again after a crash of another", () => {
    const view = new AnswerView(en);
    const call = { type: "tool_call", name: "t", args: {}, id: "c1" } as const;
    const result = { type: "tool_result", name: "t", result: 1, id: "c1" } as const;
    expect([call, result, call, result].map((frame) => view.draw(frame) === "")).toEqual([false, false, true, true]);
    expect(view.draw({ ...call, id: "c2" })).not.toBe("");
  });
});
