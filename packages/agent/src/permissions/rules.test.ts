import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { rule, shell, shellCall, tool, approval, bossDecides, said } from "./permission.fixture.ts";
import {
  proposalFor,
  ruleFor,
  type ProposalFacts,
  approvalIdOf,
  approvalKindOf,
  rememberedRule,
  ruleApprovalOf,
  ruleText,
  matchesSubject,
  touchesSubject,
} from "./rules.ts";

const facts: ProposalFacts = { risk: "medium", risky: false, person: "ou_me", personal: false };

function patternFor(command: unknown): string | undefined {
  return proposalFor(shell, { command }, facts)?.pattern;
}

function covers(command: unknown, pattern: string): boolean {
  return ruleFor([rule({ pattern })], { ...shellCall(command), person: "ou_me" }) !== undefined;
}

describe("proposalFor", () => {
  it.each([
    ["git status -s", "git status *"],
    ["git commit -m 'a b'", "git commit *"],
    ["npm run build --prod", "npm run *"],
    ["git status", "git status"],
    ["ls -la /tmp", "ls -la /tmp"],
    ["python run.py --fast", "python run.py --fast"],
    ["git log | head", "git log | head"],
    ["git log; ls", "git log; ls"],
    ["git log\nls x", "git log\nls x"],
    ["sudo git status", "sudo git status"],
    ["xargs rm file", "xargs rm file"],
    ["docker exec app rm -r x", "docker exec app rm -r x"],
    ["busybox sh x", "busybox sh x"],
    ["setsid bash x", "setsid bash x"],
    ["https://example.com/a b", "https://example.com/a b"],
  ])("proposes for %j the pattern %j", (command, pattern) => {
    expect(patternFor(command)).toBe(pattern);
    expect(covers(command, pattern)).toBe(true);
  });

  it("proposes nothing whose exact text would mean more than itself, or is no text", () => {
    for (const command of ["ls *.ts", "rm *", "", "  ", "x".repeat(1_001), 5, ["ls"], undefined]) {
      expect(patternFor(command)).toBeUndefined();
    }
  });

  it("proposes nothing that would show what the card of the call hides", () => {
    expect(
      patternFor('curl -H "Authorization: Bearer abcdef123456" https://example.com'),
    ).toBeUndefined();
    expect(patternFor("psql postgres://me:hunter2@db/x")).toBeUndefined();
    const secret = { ...shell, secrets: ["Command"] };
    expect(proposalFor(secret, { command: "open sesame" }, facts)).toBeUndefined();
    expect(patternFor("git push https://me:hunter2@example.com/x")).toBe("git push *");
  });

  it("proposes nothing for high risk or after a finding", () => {
    expect(proposalFor(shell, { command: "ls" }, { ...facts, risk: "high" })).toBeUndefined();
    expect(proposalFor(shell, { command: "ls" }, { ...facts, risky: true })).toBeUndefined();
  });

  it("covers all calls of a tool that names no subject, and one person's only where it is personal", () => {
    expect(proposalFor(tool("mail"), { to: "x" }, facts)).toEqual({ tool: "mail", pattern: "*" });
    expect(proposalFor(tool("mail"), { to: "x" }, { ...facts, personal: true })).toEqual({
      tool: "mail",
      pattern: "*",
      person: "ou_me",
    });
  });
});

describe("ruleFor", () => {
  const call = { ...shellCall("git status -s"), person: "ou_me" };

  it("finds a rule of the chat, the tool, the person and the subject that holds now", () => {
    expect(ruleFor([rule()], call)).toEqual(rule());
    expect(ruleFor([rule({ person: "ou_me" })], call)).toBeDefined();
  });

  it.each([
    ["another chat", rule({ chatId: "oc_2" })],
    ["another tool", rule({ tool: "bash" })],
    ["another person", rule({ person: "ou_other" })],
    ["another subject", rule({ pattern: "git log *" })],
    ["a time that is over", rule({ expiresAtMs: 100 })],
    ["before it was revoked", rule({ revoked: { by: { id: "ou_x" }, atMs: 2 } })],
  ])("finds none of %s", (_, other) => {
    expect(ruleFor([other], call)).toBeUndefined();
  });

  it("a rule for everything covers no second command, and nothing without a readable subject", () => {
    expect(covers("git status", "*")).toBe(true);
    expect(covers("git status; rm -r x", "*")).toBe(false);
    expect(covers(["git"], "*")).toBe(false);
    expect(covers(undefined, "*")).toBe(false);
  });

  it("a tool without a subject is covered by a rule for everything alone", () => {
    const mail = { ...call, tool: tool("mail"), arguments: {} };
    expect(ruleFor([rule({ tool: "mail", pattern: "*" })], mail)).toBeDefined();
    expect(ruleFor([rule({ tool: "mail", pattern: "git *" })], mail)).toBeUndefined();
  });
});

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
    expect(rememberedRule(approval({ kind: "rule" }), [said()], 1_000)).toMatchObject({
      pattern: "git status *",
    });
  });

  it("does not come from a single approval, a rejection, an unknown outcome or a call that offers none", () => {
    const { remember: _remember, ...plain } = approval();
    expect(rememberedRule(approval(), [said()], 1)).toBeUndefined();
    expect(rememberedRule(approval(), [], 1)).toBeUndefined();
    expect(
      rememberedRule(approval(), [said({ decision: "reject", remember: true })], 1),
    ).toBeUndefined();
    expect(
      rememberedRule(approval({ kind: "outcome" }), [said({ remember: true })], 1),
    ).toBeUndefined();
    expect(rememberedRule(plain, [said({ remember: true })], 1)).toBeUndefined();
  });

  it("takes as many people who want it as have to approve", () => {
    const two = approval({ deciders: { ...bossDecides, count: 2 } });
    const first = said({ remember: true });
    const second = said({ by: { id: "ou_lead" }, atMs: 60 });
    expect(rememberedRule(two, [first, second], 1)).toBeUndefined();
    expect(rememberedRule(two, [first, first], 1)).toBeUndefined();
    expect(rememberedRule(two, [first, { ...second, remember: true }], 1)).toMatchObject({
      createdAtMs: 60,
    });
  });
});

describe("ruleApprovalOf", () => {
  it("asks the same people about the rule that the call offered, once", () => {
    const proposal = ruleApprovalOf(approval(), { nowMs: 5, expiresMs: 10 });
    expect(proposal).toEqual({
      ...approval(),
      kind: "rule",
      id: approvalIdOf({
        kind: "rule",
        turnId: "cli_app.oc_1-1",
        attemptId: "c1",
        argumentsHash: "h",
      }),
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

describe("matchesSubject", () => {
  it.each([
    ["git status", "git status"],
    ["git *", "git status"],
    ["git *", "git "],
    ["git * --short", "git status --short"],
    ["*", "ls -la /tmp"],
    ["*", ""],
    ["a*b*c", "a-b-b-c"],
    ["a*b*c", "abc"],
    ["*.example.com", "api.example.com"],
    ["ls; pwd", "ls; pwd"],
    ["ls; git *", "ls; git status"],
    ["a*;b*c", "a1;b2c"],
  ])("%j covers %j", (pattern, subject) => {
    expect(matchesSubject(pattern, subject)).toBe(true);
  });

  it.each([
    ["git status", "git status -s"],
    ["git *", "git"],
    ["git *", "xgit status"],
    ["git *", "Git status"],
    ["a*b", "a"],
    ["ab*b", "ab"],
    ["a*b*c", "acb"],
    ["git.status", "git status"],
    ["", "x"],
  ])("%j does not cover %j", (pattern, subject) => {
    expect(matchesSubject(pattern, subject)).toBe(false);
  });

  it.each([
    ";",
    "|",
    "&",
    "<",
    ">",
    "$",
    "(",
    ")",
    "`",
    "\n",
    "\r\n",
    "\\\n",
    "&&",
    "$(x)",
    "<(x)",
  ])("a star never crosses %j: what comes after it is another command", (separator) => {
    expect(matchesSubject("git *", `git status${separator}rm -rf /`)).toBe(false);
    expect(matchesSubject("git * --end", `git status${separator}rm -rf / --end`)).toBe(false);
    expect(matchesSubject("*", `git${separator}rm`)).toBe(false);
    expect(matchesSubject("git *x*", `git x${separator}`)).toBe(false);
  });

  it("takes time in proportion to the subject, whatever the pattern", () => {
    const pattern = "a*".repeat(400);
    const misleading = `${"ab".repeat(400)}`;
    const subject = "a".repeat(2_000_000);
    const started = process.threadCpuUsage();
    expect(matchesSubject(`${pattern}b`, subject)).toBe(false);
    expect(matchesSubject(`*${misleading}*c`, "ab".repeat(1_000_000))).toBe(false);
    // Quadratic time would be minutes.
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(5_000);
  });
});

describe("touchesSubject", () => {
  it("finds the command wherever it stands among others", () => {
    for (const subject of [
      "rm x",
      "true; rm x",
      "ls && rm x",
      "echo $(rm x)",
      "ls\n  rm x",
      "a | rm x & b",
    ]) {
      expect(touchesSubject("rm *", subject)).toBe(true);
    }
    for (const subject of ["ls rm", "farm x", ""]) {
      expect(touchesSubject("rm *", subject)).toBe(false);
    }
  });
});
