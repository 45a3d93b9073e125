import { describe, expect, it } from "vitest";
import { resolveConfig } from "./larkline-config.ts";

function resolved(budgets: unknown, roles: unknown = {}) {
  return resolveConfig({ budgets, roles });
}

function problemsOf(budgets: unknown, roles: unknown = {}): string[] {
  const result = resolved(budgets, roles);
  return result.ok ? [] : result.error.split("; ");
}

const perPerson = { per: "person", period: "day", tokens: 100 };

describe("budgets", () => {
  it("there are none by default, and days are those of Shanghai", () => {
    expect(resolveConfig({})).toMatchObject({
      ok: true,
      value: { budgets: { timeZone: "Asia/Shanghai", budgets: [] } },
    });
  });

  it("are kept as they are given, with the people of their roles", () => {
    const limits = [
      perPerson,
      { per: "person", period: "day", of: ["ou_c"], roles: ["leads"], tokens: 900, usd: 1.5 },
      { per: "person", period: "month", of: ["ou_d"], unlimited: true },
      { per: "deployment", period: "month", usd: 0 },
    ];
    const roles = { leads: { people: ["ou_a", "ou_b", "ou_c"] } };
    expect(resolved({ timeZone: "Europe/Berlin", contact: "Ann", limits }, roles)).toMatchObject({
      ok: true,
      value: {
        budgets: {
          timeZone: "Europe/Berlin",
          contact: "Ann",
          budgets: [
            perPerson,
            { per: "person", period: "day", of: ["ou_c", "ou_a", "ou_b"], tokens: 900, usd: 1.5 },
            { per: "person", period: "month", of: ["ou_d"] },
            { per: "deployment", period: "month", usd: 0 },
          ],
        },
      },
    });
  });

  it.each([
    [
      "an unknown zone",
      { timeZone: "Mars/Olympus" },
      "budgets.timeZone is no time zone: 'Mars/Olympus' (write a name such as Asia/Shanghai)",
    ],
    [
      "nothing to spend",
      { limits: [{ per: "person", period: "day" }] },
      "budgets.limits.0 (per person and day) limits nothing: give tokens, usd, or both",
    ],
    [
      "both limited and not",
      { limits: [{ ...perPerson, of: ["ou_a"], unlimited: true }] },
      "budgets.limits.0 (per person and day) is unlimited, so tokens and usd have no meaning there",
    ],
    [
      "everybody unlimited",
      { limits: [{ per: "chat", period: "day", unlimited: true }] },
      "budgets.limits.0 (per chat and day) lifts the limit of no person: name ids or roles",
    ],
    [
      "a deployment with ids",
      { limits: [{ per: "deployment", period: "day", of: ["x"], usd: 1 }] },
      "budgets.limits.0 (per deployment and day) is for the whole deployment, which has no ids or roles to name",
    ],
    [
      "roles of chats",
      { limits: [{ per: "chat", period: "day", roles: ["leads"], usd: 1 }] },
      "budgets.limits.0 (per chat and day) names roles, which only budgets per person can have",
    ],
    [
      "an unknown role",
      { limits: [{ ...perPerson, roles: ["toString"] }] },
      "budgets.limits.0 (per person and day) names the unknown role 'toString'",
    ],
    [
      "a role of user groups",
      { limits: [{ ...perPerson, roles: ["ops"] }] },
      "budgets.limits.0 (per person and day) names the role 'ops', which has user groups: a budget needs people by open_id",
    ],
    [
      "two general ones",
      { limits: [perPerson, { ...perPerson, tokens: 5 }] },
      "budgets.limits.1 (per person and day) is for everybody who is not named, and so is budgets.limits.0",
    ],
    [
      "one person twice",
      {
        limits: [
          { ...perPerson, of: ["ou_a"] },
          { ...perPerson, roles: ["leads"] },
        ],
      },
      "budgets.limits.1 (per person and day) is for 'ou_a', and so is budgets.limits.0",
    ],
  ])("refuse %s", (_, budgets, problem) => {
    const roles = { leads: { people: ["ou_a"] }, ops: { groups: ["g_1"] } };
    expect(problemsOf(budgets, roles)).toEqual([problem]);
  });

  it("refuse what is no budget at all, every problem at once and beside those of other parts", () => {
    const error = problemsOf({
      limits: [{ per: "team", period: "week", tokens: 1.5, usd: -1 }],
      zone: "UTC",
    }).join("\n");
    for (const part of [
      "budgets.limits.0.per",
      "budgets.limits.0.period",
      "tokens must be integer",
      "usd must be >= 0",
    ]) {
      expect(error).toContain(part);
    }
    expect(error).toContain("'zone'");
    const both = resolveConfig({
      budgets: { timeZone: "x" },
      permissions: [{ tools: ["*"], roles: ["nobody"], do: "refuse" }],
    });
    expect(both.ok ? "" : both.error).toMatch(/unknown role 'nobody'[^]*budgets\.timeZone/);
  });
});
