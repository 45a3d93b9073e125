import { messageStop } from "@larkline/model";
import type { ModelChunk, Usage } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import { stepUse } from "../../turn/context.ts";
import type { StepResult } from "../../turn/facts.ts";
import { createAccumulator } from "../../turn/stream.ts";
import {
  call,
  environment,
  eventsOf,
  outcome,
  queued,
  startRun,
  step,
} from "../../turn/turn.fixture.ts";
import { afterControl, afterStep } from "../../turn/turn.ts";
import { finalView } from "../../turn/view.ts";
import { endOverBudget, usageText, warnNearBudget } from "./budget-turn.ts";
import { budgetUse, type BudgetAccount, type BudgetUse } from "./budgets.ts";

const renews = Date.parse("2026-11-22T16:00:00Z");
const facts = { timeZone: "Asia/Shanghai", contact: "the IT desk" };

function use(fields: Partial<BudgetAccount>, tokens: number, usd = 0): BudgetUse {
  const account: BudgetAccount = {
    per: "person",
    id: "ou_1",
    period: "day",
    bucket: "2026-11-22",
    endsAtMs: renews,
    ...fields,
  };
  return budgetUse(account, { tokens, usd });
}

const spent = use({ tokens: 200_000 }, 200_100);

describe("a spent budget", () => {
  it("ends a turn before its first step: the person reads which one, until when, and whom to ask", () => {
    const run = startRun().apply((turn) => endOverBudget(turn, spent, facts));
    const text =
      "Your budget for today is used up (200,000 tokens). It renews on 2026-11-23 00:00 (Asia/Shanghai). " +
      "Ask the IT desk if you need more.";
    expect(run.next).toEqual({ do: "finish", reply: text, reason: "budget_exceeded" });
    expect(run.history.at(-1)).toEqual({ role: "assistant", content: [{ type: "text", text }] });
    expect(run.events.at(-1)).toMatchObject({
      type: "error",
      code: "budget_exceeded",
      message: text,
      suggestion: "Wait until the budget renews, or ask the IT desk to raise it.",
      retryable: false,
    });
  });

  it("ends a turn between two steps: calls are answered, and what was said stays", () => {
    const env = environment();
    const run = startRun(queued("天气怎么样"))
      .apply((turn) => afterStep(turn, step("我查一下。", { calls: [call("c1")] }), env))
      .apply((turn) => afterControl(turn, [outcome("c1", "sunny")], env))
      .apply((turn) => endOverBudget(turn, spent, { timeZone: "Asia/Shanghai" }));
    expect(run.history.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(run.turn.calls).toEqual([]);
    expect(eventsOf(run, "error")).toHaveLength(1);
    const reply = run.next.do === "finish" ? (run.next.reply ?? "") : "";
    expect(reply).toBe(
      "你今天的额度已用完（200,000 token），2026-11-23 00:00（Asia/Shanghai）恢复。需要更多额度请联系管理员。",
    );
    const options = {
      show: {
        thinking: false,
        tools: true,
        model: false,
        tokens: false,
        cost: false,
        seconds: false,
        trace: false,
      },
      language: "zh",
      nowMs: 1_000_000,
      model: "m",
      abilities: [],
      stoppable: true,
    } as const;
    const view = finalView(run.turn, { reply, reason: "budget_exceeded" }, options);
    expect(view).toMatchObject({ state: "answered", answer: `我查一下。\n\n${reply}` });
  });

  it.each([
    ["IT", "请联系 IT。"],
    ["王芳", "请联系王芳。"],
  ])("a blank parts Chinese from the letters of a contact: %s", (contact, end) => {
    const named = { timeZone: "Asia/Shanghai", contact };
    const { next } = startRun(queued("你好")).apply((turn) => endOverBudget(turn, spent, named));
    expect(next).toMatchObject({ reply: expect.stringContaining(end) });
  });

  it("leaves nothing of an order to the session in its history", () => {
    const head = queued("/compact");
    const command = { name: "compact", argument: "" } as const;
    const run = startRun({ ...head, message: { ...head.message, command } });
    const ended = endOverBudget(run.turn, spent, facts);
    expect([ended.history, ended.next.do]).toEqual([[], "finish"]);
  });

  it.each([
    ["person", "tokens", "Your budget for this month is used up (5 tokens)."],
    ["chat", "usd", "The budget of this chat for this month is used up ($2.50)."],
    ["agent", "usd", "The budget of this agent for this month is used up."],
    ["tenant", "tokens", "The budget of your company for this month is used up."],
    ["deployment", "usd", "The budget of this whole service for this month is used up."],
  ] as const)(
    "per %s in %s names the figures only to those whose own they are",
    (per, by, text) => {
      const limit = by === "tokens" ? { tokens: 5 } : { usd: 2.5, tokens: 100 };
      const run = startRun().apply((turn) =>
        endOverBudget(turn, use({ per, period: "month", ...limit }, 7, 2.6), facts),
      );
      expect(run.next).toMatchObject({ reply: expect.stringContaining(text) });
    },
  );
});

describe("a budget near its end", () => {
  const nearest = use({ tokens: 1_000 }, 829);

  it("is an event, and a line beside the answer where the person is to read it", () => {
    const run = startRun().apply((turn) =>
      warnNearBudget(turn, { nearest, noted: nearest }, facts),
    );
    expect(run.next).toEqual({ do: "model" });
    expect(eventsOf(run, "warning")).toEqual([
      {
        type: "warning",
        code: "budget_near_limit",
        message: "82% of the budget per person and day is used.",
        detail: "person/day",
      },
    ]);
    const note = "Your budget for today is 82% used";
    expect(run.turn).toMatchObject({ shown: { notes: [note] }, abilities: { budget: { note } } });
    const quiet = startRun(queued("你好")).apply((turn) =>
      warnNearBudget(turn, { nearest, noted: undefined }, facts),
    );
    const show = {
      thinking: false,
      tools: false,
      model: false,
      tokens: false,
      cost: false,
      seconds: false,
      trace: false,
    };
    const options = {
      show,
      language: "en",
      nowMs: 1,
      model: "m",
      abilities: [],
      stoppable: true,
    } as const;
    expect(finalView(run.turn, { reply: "hi", reason: "" }, options).footer).toEqual({ note });
    expect([quiet.turn.abilities, quiet.turn.shown.notes]).toEqual([{ budget: {} }, []]);
  });

  it("99.9 % is not called 100 %, and the line goes when the budget is spent after all", () => {
    const almost = use({ tokens: 1_000 }, 999);
    const run = startRun(queued("你好")).apply((turn) =>
      warnNearBudget(turn, { nearest: almost, noted: almost }, facts),
    );
    expect(run.turn.shown.notes).toEqual(["你今天的额度已用 99%"]);
    expect(run.apply((turn) => endOverBudget(turn, spent, facts)).turn.shown.notes).toEqual([]);
  });
});

describe("/usage", () => {
  it("shows own budgets in figures, shared ones in percent, in the language of the person", () => {
    const uses = [
      use({ tokens: 1_000_000, usd: 5 }, 12_345, 1.25),
      use({ per: "chat", period: "month" }, 10, 0.01),
      use({ per: "deployment", usd: 100 }, 5, 99.99),
    ];
    expect(usageText(uses, "en", facts).split("\n")).toEqual([
      "- Your budget for today: 12,345 tokens of 1,000,000, $1.25 of $5.00 (25%), renews on 2026-11-23 00:00",
      "- The budget of this chat for this month: 10 tokens, $0.0100 (no limit), renews on 2026-11-23 00:00",
      "- The budget of this whole service for today: 99%, renews on 2026-11-23 00:00",
      "",
      "Times are those of Asia/Shanghai. Ask the IT desk if you need more.",
    ]);
    expect(usageText(uses, "zh", { timeZone: "Asia/Shanghai" }).split("\n")).toEqual([
      "- 你今天：12,345 token / 1,000,000，$1.25 / $5.00（25%），2026-11-23 00:00 重新计算",
      "- 这个会话本月：10 token，$0.0100（不限），2026-11-23 00:00 重新计算",
      "- 整个服务今天：99%，2026-11-23 00:00 重新计算",
      "",
      "时间按 Asia/Shanghai 计算。",
    ]);
    expect(usageText([], "en", facts)).toBe("There is no budget here.");
  });
});

describe("what a step has used", () => {
  const request = { system: "x".repeat(400), history: [], tools: [] };
  const noUsage = { usage: null };
  const prices = {
    costUsd: ({ inputTokens }: Usage, model?: string) => inputTokens * (model === "dear" ? 10 : 1),
  };
  const used = (result: StepResult) => stepUse(result, request, prices);

  it("is what the vendor reported", () => {
    expect(used(step("hi"))).toMatchObject({
      inputTokens: 100,
      outputTokens: 10,
      attempts: 1,
      estimated: false,
    });
  });

  it("is estimated when nothing was reported and the model had begun to answer", () => {
    const guessed = { inputTokens: 100, outputTokens: 10, estimated: true };
    expect(used(step("y".repeat(40), noUsage))).toMatchObject(guessed);
    const asked = used(step("", { ...noUsage, calls: [call("c1", "weather", '{"a":"中文"}')] }));
    expect(asked.outputTokens).toBeGreaterThan(3);
  });

  it("is nothing when nothing came back", () => {
    expect(used(step("", noUsage))).toMatchObject({
      inputTokens: 0,
      outputTokens: 0,
      costUsd: 0,
      estimated: false,
    });
  });

  it("EE-48: counts every call of a vendor at the price of its model, also those whose answer is void", () => {
    const counted: Usage = {
      inputTokens: 7,
      outputTokens: 1,
      cacheReadTokens: 2,
      cacheCreationTokens: 0,
    };
    const accumulator = createAccumulator();
    const chunks: ModelChunk[] = [
      { type: "attempt", model: "dear", maxTokens: 9 },
      { type: "usage_so_far", usage: counted },
      { type: "text_delta", text: "y".repeat(40) },
      { type: "restart", model: "cheap", reason: "stream_truncated" },
      { type: "attempt", model: "refusing", maxTokens: 9 },
      { type: "attempt", model: "cheap", maxTokens: 5 },
      { type: "text_delta", text: "hello" },
      { ...messageStop("end_turn", { ...counted, outputTokens: 3 }), model: "cheap" },
    ];
    for (const chunk of chunks) accumulator.push(chunk);
    const result = accumulator.result();
    expect(result).toMatchObject({ text: "hello", model: "cheap", maxTokens: 5 });
    expect(used(result)).toEqual({
      inputTokens: 14,
      outputTokens: 13,
      cacheReadTokens: 4,
      cacheCreationTokens: 0,
      costUsd: 77,
      attempts: 3,
      estimated: true,
    });
  });
});
