import { describe, expect, it } from "vitest";
import { rule, shell, shellCall, tool } from "./permission.fixture.ts";
import { proposalFor, ruleFor, type ProposalFacts } from "./rule-proposal.ts";

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
    expect(patternFor('curl -H "Authorization: Bearer abcdef123456" https://example.com')).toBeUndefined();
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
