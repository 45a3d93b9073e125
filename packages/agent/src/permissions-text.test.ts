import type { PermissionRule } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { permissionsOrder, permissionsText, ruleNamed } from "./index.ts";

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
    expect(lines[1]).toBe("1. `shell(git status *)` (abcd1000) for everybody here, allowed by Li, until 2027-01-02");
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
    for (const which of ["0", "4", "99", "abc", "abcd", "eeee", ""]) expect(ruleNamed(rules, which)).toBeUndefined();
  });
});
