import type { StandingApproval } from "@larkline/protocol/schedule";
import { expect, it } from "vitest";
import { decideCall } from "./decide-call.ts";
import {
  bossDecides,
  entry,
  policy,
  policyCall,
  requesterDecides,
  tool,
} from "./permission.fixture.ts";
import type { PolicyCall } from "./policy.ts";
import { definitionOf, standingProblem } from "./standing.ts";

const inputSchema = { type: "object", properties: { to: {}, text: {}, url: {} } };
const send = tool("send", {
  requiresApproval: true,
  spec: { name: "send", description: "Sends.", inputSchema },
});

function standing(bounds: Record<string, unknown>, fields: Partial<StandingApproval> = {}) {
  const one = {
    tool: "send",
    arguments: bounds,
    definition: definitionOf(send),
    expiresAtMs: 1_000,
  };
  return { id: "schedule-a", allowed: [{ ...one, ...fields }] };
}

const allowed = standing({ to: "oc_1", text: "Report of *" });

function verdict(
  given: Record<string, unknown>,
  fields: Partial<PolicyCall> = {},
  rules = policy(),
) {
  const call = policyCall({ tool: send, arguments: given, standing: allowed, ...fields });
  const made = decideCall(rules, call);
  return made.do === "run" ? made.authority : made.do;
}

const wanted = { to: "oc_1", text: "Report of Monday" };

it("lets a call run whose every argument was allowed, as a rule of the schedule", () => {
  expect(verdict(wanted)).toEqual({ by: "rule", id: "schedule-a" });
  const open = standing({ to: "oc_1", text: "*" });
  expect(verdict({ to: "oc_1" }, { standing: open })).toEqual({ by: "rule", id: "schedule-a" });
  expect(verdict({ to: "oc_1", text: ["a\nb"] }, { standing: open })).not.toBe("ask");
});

it("asks about other values, further arguments and missing ones", () => {
  for (const given of [
    { ...wanted, to: "oc_2" },
    { ...wanted, text: "Report of Monday; and more" },
    { ...wanted, url: "https://example.com" },
    { to: "oc_1" },
    {},
  ]) {
    expect(verdict(given)).toBe("ask");
  }
});

it("asks once it has expired, where the tool has changed, and about another tool", () => {
  expect(verdict(wanted, { nowMs: 1_000 })).toBe("ask");
  const changed = { ...send, spec: { ...send.spec, description: "Sends to all." } };
  expect(verdict(wanted, { tool: changed })).toBe("ask");
  expect(verdict(wanted, { tool: { ...send, effect: "idempotent" } })).toBe("ask");
  expect(verdict(wanted, { standing: standing(wanted, { tool: "mail" }) })).toBe("ask");
});

it("never counts for high risk, risky input, or what others decide", () => {
  const high = { ...send, risk: "high" } as const;
  const agreed = standing({ to: "oc_1", text: "*" }, { definition: definitionOf(high) });
  expect(verdict(wanted, { tool: high, standing: agreed })).toBe("ask");
  const risky = standing({ to: "oc_1", text: "*" });
  expect(verdict({ ...wanted, text: "rm -rf /" }, { standing: risky })).toBe("ask");
  expect(verdict(wanted, {}, policy({ approvers: bossDecides }))).toBe("ask");
  expect(verdict(wanted, {}, policy({ approvers: { ...requesterDecides, count: 2 } }))).toBe("ask");
  expect(verdict(wanted, {}, policy({ entries: [entry({ approvers: requesterDecides })] }))).toBe(
    "ask",
  );
  expect(verdict(wanted, {}, policy({ entries: [entry({ do: "refuse" })] }))).toBe("refuse");
});

it("says why calls of a tool cannot be allowed ahead", () => {
  expect(standingProblem(send, { to: "oc_1", text: "*" })).toBeUndefined();
  expect(standingProblem({ ...send, risk: "high" }, {})).toContain("high");
  expect(standingProblem(send, { where: "x" })).toContain("no argument 'where'");
  expect(standingProblem({ ...send, secrets: ["text"] }, wanted)).toContain("secret");
  expect(standingProblem({ ...send, subject: "text" }, { text: "git *" })).toContain("'text'");
  expect(standingProblem({ ...send, addresses: ["url"] }, { url: "*" })).toContain("'url'");
  expect(standingProblem(send, { text: "x".repeat(1_000) })).toContain("too long");
});
