import type { Approval } from "@larkline/protocol/approval";
import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { describe, expect, it } from "vitest";
import { approvalOf } from "./approval.fixture.ts";
import { approvalCard } from "./approval-card.ts";
import { maxCardBytes, renderCard } from "./card.ts";
import { lateCard, welcomeCard } from "./notice-cards.ts";
import { saidOutcome } from "./outcome-texts.ts";
import { viewOf } from "./streams.fixture.ts";

type Json = Record<string, unknown>;

/** Every text of a card as a client shows it: in the language of the reader, else as it is without one. */
function shownIn(locale: string, value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => shownIn(locale, each));
  if (typeof value !== "object" || value === null) return [];
  const { i18n_content: both, ...rest } = value as Json; // an object, as was just seen
  const own = (both as Json | undefined)?.[locale] ?? rest["content"];
  return [
    ...(typeof own === "string" ? [own] : []),
    ...Object.values(rest).flatMap((each) => shownIn(locale, each)),
  ];
}

const tools: ShownTool[] = [
  { id: "a", name: "sum", state: "done", startedAtMs: 0, elapsedMs: 1_240, output: "42" },
  {
    id: "b",
    name: "deploy",
    state: "failed",
    startedAtMs: 0,
    output: "User rejected this action.\nReason: not today",
  },
  { id: "c", name: "mail", state: "waiting", startedAtMs: 0 },
];

const view: Partial<ReplyView> = {
  language: "zh",
  state: "stopped",
  thinking: "Hm.",
  tools,
  earlierTools: 3,
  footer: { model: "m", inputTokens: 1, outputTokens: 2, seconds: 3 },
  stop: { session: "app.chat", turnId: "app.chat-1" },
};

function rendered(more: Partial<ReplyView>, answer = "答案") {
  return renderCard(
    viewOf(answer, { ...view, ...more }),
    { cuts: [], number: 0 },
    { streaming: false },
  );
}

describe("a card that several people see", () => {
  it("has all its furniture in both languages, and what was answered once", () => {
    const { card } = rendered({ bilingual: true });
    const [chinese, english] = [shownIn("zh_cn", card), shownIn("en_us", card)];
    expect(chinese).toEqual(shownIn("none", card));
    expect(english.join("\n")).toMatch(
      /Stopped · 答案[^]*Thoughts[^]*deploy 🚫 · [^]* · ✋ waiting for a person/,
    );
    expect(english).toEqual(
      expect.arrayContaining(["… 3 earlier calls", "✅ sum · 1.2 s", "Stop", "答案", "Hm."]),
    );
    expect(chinese).toEqual(
      expect.arrayContaining(["…更早的 3 次调用", "✅ sum · 1.2 秒", "停止", "答案", "Hm."]),
    );
    expect(chinese.join("\n")).toContain("这个操作被拒绝了。\n理由：not today");
    expect(english.join("\n")).toContain("User rejected this action.\nReason: not today");
    expect(JSON.stringify(card).match(/"42|```\\n42/g)).toHaveLength(1);
  });

  it("speaks one language where both do not fit, and where one person sees it", () => {
    expect(JSON.stringify(rendered({}).card)).not.toContain("i18n_content");
    const many = Array.from(
      { length: 20 },
      (_, at) => ({ ...tools[1], id: String(at) }) as ShownTool,
    );
    const full = rendered(
      { bilingual: true, tools: many, thinking: "思考".repeat(900) },
      "中".repeat(6_600),
    );
    expect(full.bytes).toBeLessThanOrEqual(maxCardBytes);
  });

  it.each(["pending", "approved", "expired"] as const)(
    "asks, and tells what was decided, in both: %s",
    (state) => {
      const reasons = { zh: "操作内容有风险：rm。", en: "What it is going to do is risky: rm." };
      const approval: Approval = approvalOf({ bilingual: true, reason: reasons.en, reasons });
      const card = approvalCard({ approval, state, decisions: [] });
      const chinese = shownIn("zh_cn", card).join("\n");
      const english = shownIn("en_us", card).join("\n");
      const words = chinese
        .replaceAll(/<[^>]*>|```[^]*?```/g, "")
        .replaceAll(/deploy|prod|Ann|Bob/g, "");
      expect(words).not.toMatch(/[a-z]{3,} [a-z]{3,}/);
      expect(english).not.toMatch(/\p{Script=Han}/u);
      expect(card["header"]).toMatchObject({
        title: { i18n_content: { zh_cn: expect.any(String) } },
      });
      if (state === "pending") {
        expect([chinese, english]).toEqual([
          expect.stringContaining(reasons.zh),
          expect.stringContaining(reasons.en),
        ]);
      }
    },
  );

  it("greets, and asks about late messages, in both", () => {
    const late = { session: "s", message: "m", ageMs: 60_000, text: "hi" };
    expect(shownIn("zh_cn", lateCard({ ...late, language: "en", bilingual: true }))).toContain(
      "处理",
    );
    const commands = (language: string) => [
      { name: "/x", description: language === "zh" ? "帮助" : "help" },
    ];
    const welcome = welcomeCard({ language: "zh", bilingual: true, commands });
    expect(shownIn("en_us", welcome).join()).toMatch(/Hello[^]*Write to me[^]*help/);
    expect(shownIn("zh_cn", welcome).join()).toMatch(/你好[^]*帮助/);
  });
});

describe("what became of a call, for people", () => {
  const failed = (output: string) => saidOutcome({ state: "failed", output }, "zh");

  it.each([
    [
      'tool_not_found: there is no tool named "x". Use only the tools you were given.',
      '没有名为 "x" 的工具。',
    ],
    [
      "permission_denied: the policy here does not allow it. The call was not run.",
      "不允许：这里的策略不允许。没有执行。",
    ],
    [
      "permission_denied: Not on Fridays. The call was not run.",
      "不允许：Not on Fridays。没有执行。",
    ],
    [
      "permission_denied: people have rejected 3 calls of this turn, so nobody is asked any more. The call was not run. Do not try other ways to the same end: say what you could not do.",
      "不允许：本次任务已有 3 个调用被拒绝，不再询问。没有执行。",
    ],
    [
      "permission_denied: nobody approved this call in time. It was not run.",
      "没有人在期限内批准，没有执行。",
    ],
    [
      "cancelled: the user stopped this turn. The call was not run.",
      "已取消：任务被停止。没有执行。",
    ],
    [
      "cancelled: the user stopped this turn. If the call had started, it may have taken effect.",
      "已取消：任务被停止。如果已经开始执行，可能已经生效。",
    ],
    [
      "timeout: no answer before the deadline. The call was not run.",
      "超时：没有按时得到结果。没有执行。",
    ],
    [
      "timeout: no answer before the deadline. It had been started and may have taken effect.\nIt is not known whether this call took effect. Do not repeat it; tell the user that its effect must be checked.",
      "超时：没有按时得到结果。已经开始执行，可能已经生效。\n不确定是否已经生效，请检查。",
    ],
    [
      "tool mail did not answer within 1500 ms and was stopped; whether it took effect is unknown: check before repeating",
      "超时：mail 在 1.5 秒内没有结果，已停止。不确定是否已经生效，请检查。",
    ],
    [
      "The program was stopped after 30000 ms. Do less in one run.\nstdout:\nabc",
      "超时：程序运行 30 秒后被停止。\nstdout:\nabc",
    ],
  ])("%s", (output, chinese) => {
    expect(failed(output)).toBe(chinese);
    expect(saidOutcome({ state: "failed", output }, "en")).toBe(output);
  });

  it("is left as it is where a tool said it", () => {
    expect(failed("no route to host")).toBe("no route to host");
    expect(saidOutcome({ state: "done", output: "cancelled" }, "zh")).toBe("cancelled");
    const done =
      "A person has checked this call: it took effect. Its own result is lost.\nNote: sent";
    expect(saidOutcome({ state: "done", output: done }, "zh")).toBe(
      "已有人确认生效，原来的结果已丢失。\n备注：sent",
    );
  });
});
