import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { approval, bossDecides, said } from "./permission.fixture.ts";
import { approvalIdOf, approvalKindOf, rememberedRule, ruleApprovalOf, ruleText } from "./remembered-rule.ts";

describe("approvalIdOf", () => {
  const subject = { kind: "call", turnId: "s-1", attemptId: "c1", argumentsHash: "h" } as const;

  it("is the beginning of a hash of what the approval is about", () => {
    const hash = createHash("sha256").update("call s-1 c1 h").digest("hex");
    expect(approvalIdOf(subject)).toBe(hash.slice(0, 32));
    expect(approvalIdOf({ ...subject, kind: "outcome" })).not.toBe(approvalIdOf(subject));
  });

  it("is another one for other arguments: a card that shows the old ones answers nothing", () => {
    expect(approvalIdOf({ ...subject, argumentsHash: "other" })).not.toBe(approvalIdOf(subject));
  });
});

describe("approvalKindOf", () => {
  it("is the same for calls that one rule would cover, in one chat", () => {
    const kind = approvalKindOf(approval());
    expect(approvalKindOf(approval({ callId: "c2", turnId: "other", arguments: {} }))).toBe(kind);
    const others = [
      approval({ chatId: "oc_2" }),
      approval({ remember: { tool: "shell", pattern: "git log *" } }),
      approval({ remember: { tool: "bash", pattern: "git status *" } }),
      approval({ remember: { tool: "shell", pattern: "git status *", person: "ou_me" } }),
    ];
    expect(new Set([kind, ...others.map(approvalKindOf)]).size).toBe(5);
  });

  it("is nothing where no rule is offered", () => {
    const { remember: _remember, ...plain } = approval();
    expect(approvalKindOf(plain)).toBeUndefined();
  });
});

describe("rememberedRule", () => {
  it("is what was proposed, by whom and when it was decided", () => {
    expect(rememberedRule(approval(), [said({ remember: true })], 1_000)).toEqual({
      v: 1,
      id: "b".repeat(32),
      app: "cli_app",
      chatId: "oc_1",
      tool: "shell",
      pattern: "git status *",
      author: { id: "ou_boss" },
      createdAtMs: 50,
      expiresAtMs: 1_050,
    });
  });

  it("of a rule that was proposed by itself needs nothing but its approval", () => {
    expect(rememberedRule(approval({ kind: "rule" }), [said()], 1_000)).toMatchObject({ pattern: "git status *" });
  });

  it("does not come from a single approval, a rejection, an unknown outcome or a call that offers none", () => {
    const { remember: _remember, ...plain } = approval();
    expect(rememberedRule(approval(), [said()], 1)).toBeUndefined();
    expect(rememberedRule(approval(), [], 1)).toBeUndefined();
    expect(rememberedRule(approval(), [said({ decision: "reject", remember: true })], 1)).toBeUndefined();
    expect(rememberedRule(approval({ kind: "outcome" }), [said({ remember: true })], 1)).toBeUndefined();
    expect(rememberedRule(plain, [said({ remember: true })], 1)).toBeUndefined();
  });

  it("takes as many people who want it as have to approve", () => {
    const two = approval({ deciders: { ...bossDecides, count: 2 } });
    const first = said({ remember: true });
    const second = said({ by: { id: "ou_lead" }, atMs: 60 });
    expect(rememberedRule(two, [first, second], 1)).toBeUndefined();
    expect(rememberedRule(two, [first, first], 1)).toBeUndefined();
    expect(rememberedRule(two, [first, { ...second, remember: true }], 1)).toMatchObject({ createdAtMs: 60 });
  });
});

describe("ruleApprovalOf", () => {
  it("asks the same people about the rule that the call offered, once", () => {
    const proposal = ruleApprovalOf(approval(), { nowMs: 5, expiresMs: 10 });
    expect(proposal).toEqual({
      ...approval(),
      kind: "rule",
      id: approvalIdOf({ kind: "rule", turnId: "cli_app.oc_1-1", attemptId: "c1", argumentsHash: "h" }),
      reason: "",
      createdAtMs: 5,
      expiresAtMs: 15,
    });
    expect(ruleApprovalOf(approval({ kind: "rule" }), { nowMs: 5, expiresMs: 10 })).toBeUndefined();
  });
});

describe("ruleText", () => {
  it("shows tool and pattern", () => {
    expect(ruleText({ tool: "shell", pattern: "git status *" })).toBe("shell(git status *)");
  });
});
