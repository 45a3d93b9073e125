import type { PermissionRule } from "@larkline/protocol/approval";
import { describe, expect, it } from "vitest";
import { decideCall, unknownOutcomeOf } from "./decide-call.ts";
import {
  bossDecides,
  entry,
  policyCall,
  policy,
  requesterDecides,
  rule,
  shellCall,
  tool,
} from "./permission.fixture.ts";
import type { PolicyEntry } from "./policy.ts";

function withEntries(...entries: PolicyEntry[]) {
  return policy({ entries });
}

const gitRule = rule({ pattern: "git status *" });
const ruled = shellCall("git status -s", { rules: [gitRule] });

describe("without an entry that fits", () => {
  it("a tool that asks for nothing runs by policy", () => {
    expect(decideCall(policy(), policyCall())).toEqual({
      do: "run",
      authority: { by: "policy" },
      findings: [],
    });
  });

  it("a tool that asks for nothing is asked about where it goes to an address that no person has named", () => {
    const addressContext = { foreign: true, named: new Set<string>() };
    const strange = policyCall({ arguments: { url: "https://b.example/x" }, addressContext });
    expect(decideCall(policy(), strange).do).toBe("ask");
    expect(
      decideCall(policy(), { ...strange, addressContext: { ...addressContext, foreign: false } })
        .do,
    ).toBe("run");
  });

  it("AL-27: a tool that requires an approval is asked about, by the defaults", () => {
    expect(decideCall(policy(), shellCall("git status -s"))).toEqual({
      do: "ask",
      question: {
        deciders: requesterDecides,
        reason: "",
        risk: "medium",
        expiresAtMs: 1_100,
        remember: { tool: "shell", pattern: "git status *", person: "ou_me" },
      },
      findings: [],
    });
  });

  it("a remembered rule replaces the approval", () => {
    expect(decideCall(policy(), ruled)).toEqual({
      do: "run",
      authority: { by: "rule", id: gitRule.id },
      findings: [],
    });
    expect(decideCall(policy(), { ...ruled, arguments: { command: "git status -s; ls" } }).do).toBe(
      "ask",
    );
  });

  it("rules neither count nor are offered where the defaults have none", () => {
    const verdict = decideCall(policy({ remember: false }), ruled);
    expect(verdict.do === "ask" && verdict.question.remember).toBe(undefined);
    expect(verdict.do).toBe("ask");
  });

  it("an address that no person has named is asked about once text from outside was read, rule or not", () => {
    const visit = tool("visit", { subject: "url" });
    const addressContext = { foreign: true, named: new Set<string>() };
    const call = policyCall({
      tool: visit,
      arguments: { url: "https://a.example/x" },
      addressContext,
    });
    expect(decideCall(policy(), call)).toMatchObject({
      do: "ask",
      question: { addresses: ["https://a.example/x"] },
    });
    const allowed = rule({ tool: "visit", pattern: "*" });
    expect(decideCall(policy(), { ...call, rules: [allowed] }).do).toBe("ask");
    expect(decideCall(withEntries(entry({ tools: ["visit"], do: "allow" })), call).do).toBe("ask");
    const named = entry({ tools: ["visit"], do: "allow", subject: "https://a.example/*" });
    expect(decideCall(withEntries(named), call).do).toBe("run");
    expect(
      decideCall(policy(), { ...call, addressContext: { ...addressContext, foreign: false } }).do,
    ).toBe("run");
  });

  it("EE-38: a risk is only pointed out, unless policy wants to be asked", () => {
    const risky = policyCall({ arguments: { text: "DROP TABLE x" } });
    const findings = [{ pattern: "drop table", reason: expect.any(String) }];
    expect(decideCall(policy(), risky)).toEqual({
      do: "run",
      authority: { by: "policy" },
      findings,
    });
    const asked = decideCall(policy({ risky: "ask" }), risky);
    expect(asked).toMatchObject({ do: "ask", question: { risk: "high" }, findings });
    expect(asked.do === "ask" && asked.question.remember).toBe(undefined);
  });

  it("a rule covers no risky call where policy wants to be asked about risks", () => {
    const call = shellCall("git status rm -rf x", { rules: [gitRule] });
    expect(decideCall(policy({ risky: "ask" }), call).do).toBe("ask");
    expect(decideCall(policy(), call)).toMatchObject({ do: "run", authority: { by: "rule" } });
  });

  it("a rule is for everybody in the chat only where the requester cannot decide alone", () => {
    const boss = decideCall(policy({ approvers: bossDecides }), shellCall("git status -s"));
    expect(boss.do === "ask" && boss.question.remember).toEqual({
      tool: "shell",
      pattern: "git status *",
    });
    const fourEyes = { ...requesterDecides, people: ["ou_boss"], fourEyes: true };
    const second = decideCall(policy({ approvers: fourEyes }), shellCall("git status -s"));
    expect(second.do === "ask" && second.question.remember).toEqual({
      tool: "shell",
      pattern: "git status *",
      person: "ou_me",
    });
  });

  it("under four eyes no rule lets calls of its own author run, nor does a rule for all people", () => {
    const fourEyes = policy({
      approvers: { ...bossDecides, people: ["ou_boss", "ou_me"], fourEyes: true },
    });
    const given = (fields: Partial<PermissionRule>) => {
      return decideCall(fourEyes, shellCall("git status -s", { rules: [rule(fields)] })).do;
    };
    expect(given({ author: { id: "ou_me" } })).toBe("ask");
    expect(given({ author: { id: "ou_me" }, person: "ou_me" })).toBe("ask");
    expect(given({ author: { id: "ou_boss" } })).toBe("ask");
    expect(given({ author: { id: "ou_boss" }, person: "ou_me" })).toBe("run");
  });
});

describe("entries", () => {
  it("the first one that fits decides", () => {
    const allow = entry({ tools: ["shell"], subject: "git *", do: "allow" });
    const refuse = entry({ tools: ["shell"], do: "refuse", reason: "no" });
    expect(decideCall(withEntries(allow, refuse), shellCall("git push")).do).toBe("run");
    expect(decideCall(withEntries(refuse, allow), shellCall("git push"))).toMatchObject({
      do: "refuse",
      reason: "no",
    });
    expect(decideCall(withEntries(allow, refuse), shellCall("ls")).do).toBe("refuse");
    expect(decideCall(withEntries(allow, refuse), policyCall()).do).toBe("run");
  });

  it("a refusal wins over every rule", () => {
    expect(decideCall(withEntries(entry({ do: "refuse" })), ruled).do).toBe("refuse");
  });

  it("an entry that asks says who decides, why, and how long; rules count only where it remembers", () => {
    const ask = entry({ tools: ["sh*"], reason: "It runs commands.", expiresMs: 7 });
    expect(decideCall(withEntries(ask), ruled)).toEqual({
      do: "ask",
      question: {
        deciders: bossDecides,
        reason: "It runs commands.",
        risk: "medium",
        expiresAtMs: 107,
      },
      findings: [],
    });
    expect(decideCall(withEntries({ ...ask, remember: true }), ruled)).toMatchObject({
      do: "run",
      authority: { by: "rule" },
    });
  });

  it("a rule that comes from an entry about certain people is about its person alone", () => {
    const ask = entry({ people: ["ou_me"], remember: true });
    const verdict = decideCall(withEntries(ask), shellCall("git status -s"));
    expect(verdict.do === "ask" && verdict.question.remember?.person).toBe("ou_me");
  });

  it("an entry that asks covers tools that ask for nothing themselves", () => {
    expect(decideCall(withEntries(entry({ tools: ["mail"] })), policyCall()).do).toBe("ask");
  });

  it.each([
    ["tools by name", { tools: ["mail"] }, true],
    ["tools by pattern", { tools: ["m*l"] }, true],
    ["other tools", { tools: ["mai", "mail2", "m*x", "*mail*x"] }, false],
    ["people", { people: ["ou_me"] }, true],
    ["other people", { people: ["ou_you"] }, false],
    ["a role by person", { roles: ["leads"] }, false],
    ["a role by group", { roles: ["ops"] }, true],
    ["people or roles", { people: ["ou_me"], roles: ["leads"] }, true],
    ["the chat", { chats: ["oc_1"] }, true],
    ["another chat", { chats: ["oc_2"] }, false],
    ["the kind of chat", { chatTypes: ["group"] }, true],
    ["another kind of chat", { chatTypes: ["p2p", "api"] }, false],
    [
      "all at once",
      { tools: ["mail"], people: ["ou_me"], chats: ["oc_1"], chatTypes: ["group"] },
      true,
    ],
    [
      "all but one",
      { tools: ["mail"], people: ["ou_me"], chats: ["oc_2"], chatTypes: ["group"] },
      false,
    ],
    ["a subject that the tool does not have", { subject: "*" }, false],
  ] as const)("fit by %s", (_, match, fits) => {
    const call = policyCall({ person: { id: "ou_me", groups: ["g_ops"] } });
    expect(decideCall(withEntries(entry({ ...match, do: "refuse" })), call).do).toBe(
      fits ? "refuse" : "run",
    );
  });

  it("what lets run has to fit all of a command, what holds back any part of it", () => {
    const allow = withEntries(entry({ subject: "git *", do: "allow" }));
    const refuse = withEntries(entry({ subject: "git push *", do: "refuse" }));
    expect(decideCall(allow, shellCall("git log; curl x")).do).toBe("ask");
    expect(decideCall(refuse, shellCall("true && git push origin")).do).toBe("refuse");
  });

  it("one that asks about a part of a command does not decide about the rest of it", () => {
    const mine = entry({ subject: "git *", approvers: requesterDecides });
    const theirs = entry({ tools: ["shell"], approvers: bossDecides });
    const both = shellCall("git log; npm publish x");
    const decidersOf = (...entries: PolicyEntry[]) => {
      const verdict = decideCall(withEntries(...entries), both);
      return verdict.do === "ask" ? verdict.question.deciders : verdict.do;
    };
    expect(decidersOf(mine)).toEqual(requesterDecides);
    expect(decidersOf(mine, entry({ tools: ["shell"], do: "refuse" }))).toBe("refuse");
    expect(decidersOf(mine, entry({ subject: "npm publish *", do: "refuse" }))).toBe("refuse");
    expect(decidersOf(mine, entry({ subject: "npm *", approvers: bossDecides }))).toEqual(
      bossDecides,
    );
    expect(decidersOf(mine, theirs)).toEqual(bossDecides);
    expect(
      decidersOf(entry({ subject: "npm *" }), { ...theirs, approvers: requesterDecides }),
    ).toEqual(bossDecides);
    expect(decidersOf(mine, entry({ tools: ["shell"], do: "allow" }))).toEqual(requesterDecides);
    const byDefault = decideCall(policy({ entries: [mine], approvers: bossDecides }), both);
    expect(byDefault).toMatchObject({ do: "ask", question: { deciders: bossDecides } });
    expect(decideCall(withEntries(mine, theirs), shellCall("git log"))).toMatchObject({
      question: { deciders: requesterDecides },
    });
  });

  it("a subject that cannot be read fits what holds back, never what lets run", () => {
    for (const command of [["git", "log"], { a: 1 }, undefined]) {
      expect(
        decideCall(withEntries(entry({ subject: "git *", do: "allow" })), shellCall(command)).do,
      ).toBe("ask");
      expect(
        decideCall(withEntries(entry({ subject: "git *", do: "refuse" })), shellCall(command)).do,
      ).toBe("refuse");
    }
  });

  it("asks for user groups only when an entry depends on them", () => {
    const person = {
      id: "ou_op",
      get groups(): string[] {
        throw new Error("looked up");
      },
    };
    expect(
      decideCall(withEntries(entry({ roles: ["ops"], do: "allow" })), policyCall({ person })).do,
    ).toBe("run");
    expect(decideCall(withEntries(entry({ roles: ["leads"] })), policyCall({ person })).do).toBe(
      "run",
    );
    expect(() =>
      decideCall(withEntries(entry({ tools: ["other"], roles: ["ops"] })), policyCall({ person })),
    ).not.toThrow();
  });
});

describe("unknownOutcomeOf", () => {
  const call = { ...policyCall(), toolName: "pay" };

  it("asks requester and approvers, unless the model is to read the reason", () => {
    const asked = unknownOutcomeOf(
      policy({ approvers: { ...bossDecides, fourEyes: true, count: 2 } }),
      call,
    );
    expect(asked).toEqual({
      deciders: { ...bossDecides, requester: true, fourEyes: false, count: 1 },
      reason: "",
      risk: "high",
      expiresAtMs: 1_100,
    });
    expect(unknownOutcomeOf(policy({ unknownOutcome: "tell" }), call)).toBeUndefined();
  });

  it("over HTTP people are asked only where policy says so", () => {
    const api = { ...call, chatType: "api" } as const;
    expect(unknownOutcomeOf(policy(), api)).toBeUndefined();
    expect(unknownOutcomeOf(policy({ unknownOutcome: "ask" }), api)).toBeDefined();
  });

  it("the approvers are those of the entry that asks about the tool", () => {
    const approvers = { ...bossDecides, people: ["ou_cfo"] };
    const asked = unknownOutcomeOf(withEntries(entry({ tools: ["pay"], approvers })), call);
    expect(asked).toMatchObject({ deciders: { people: ["ou_cfo"] }, expiresAtMs: 600 });
  });
});

it("the risk of a question is that of the tool", () => {
  const low = tool("mail", { requiresApproval: true, risk: "low" });
  expect(decideCall(policy(), policyCall({ tool: low }))).toMatchObject({
    question: { risk: "low" },
  });
});
