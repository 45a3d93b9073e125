import type { ModelFailure, QueuedMessage, SessionCommand } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import {
  abandonTurn,
  afterControl,
  afterStep,
  commandDone,
  commandTurn,
  resumeTurn,
  type Transition,
} from "./index.ts";
import { cancel, environment, queued, step } from "./turn.fixture.ts";

const facts = { nowMs: 5, model: "a/x", defaultModel: "a/x", models: ["b/y", "c/y", "b/z"] };

function ordered(name: SessionCommand["name"], argument = "", text = `/${name} ${argument}`): QueuedMessage {
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
    for (const transition of [taken("new"), taken("model"), taken("model", "b/z"), taken("model", "none")]) {
      expect(transition.events.map(({ type }) => type)).toEqual(["slash_command", "text_delta", "text", "done"]);
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
    expect(resumeTurn(asked.turn, environment())).toMatchObject({ next: { do: "compact" }, events: [] });
    expect(afterControl(asked.turn, [], environment()).next).toEqual({ do: "compact" });
    const report = { tokensBefore: 9_000, tokensAfter: 800, summarised: true };
    expect(replyOf(commandDone(asked.turn, report, {}))).toMatch(/from about 9000 to about 800 tokens.*summary/);
    expect(replyOf(commandDone(asked.turn, { ...report, summarised: false }, {}))).toMatch(/No summary could be made/);
    expect(replyOf(commandDone(asked.turn, undefined, { texts: "zh" }))).toBe("没有更早的内容可以压缩。");
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
