import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { StandingApproval } from "@larkline/protocol/schedule";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import { maskedArguments } from "./arguments.ts";
import { matchesSubject } from "./rules.ts";

// Standing approvals: a person allows the runs of one schedule certain calls once, instead of each time.

/** Stands for all that a person relies on when they allow a tool's calls. 22 characters. */
export function definitionOf(tool: ToolAnnouncement): string {
  const { spec, effect, risk, subject, addresses, secrets, identity, mcp } = tool;
  const facts = [spec, effect, risk, subject, addresses, secrets, identity, mcp];
  return hash("sha256", JSON.stringify(facts), "base64url").slice(0, 22);
}

/** A call as standing approvals are matched with it. */
interface StandingCall {
  readonly tool: ToolAnnouncement;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly nowMs: number;
}

/** Whether one of them allows the call: of the same tool, with the same arguments and no others. */
export function isAllowedBy(allowed: readonly StandingApproval[], call: StandingCall): boolean {
  const { tool, nowMs } = call;
  return (
    tool.risk !== "high" &&
    allowed.some(
      (one) =>
        one.tool === tool.spec.name &&
        one.definition === definitionOf(tool) &&
        nowMs < one.expiresAtMs &&
        fits(one.arguments, call.arguments),
    )
  );
}

function fits(
  wanted: Readonly<Record<string, unknown>>,
  given: Readonly<Record<string, unknown>>,
): boolean {
  return (
    Object.keys(given).every((name) => Object.hasOwn(wanted, name)) &&
    Object.entries(wanted).every(
      ([name, value]) =>
        value === anything || (Object.hasOwn(given, name) && fitsValue(value, given[name])),
    )
  );
}

/** A bound of an argument that allows any value, and its absence. */
export const anything = "*";

function fitsValue(wanted: unknown, given: unknown): boolean {
  const isPattern = typeof wanted === "string" && wanted.includes("*") && typeof given === "string";
  return isPattern ? matchesSubject(wanted, given) : isDeepStrictEqual(wanted, given);
}

/** Longest bounds of one tool, characters of JSON. */
const maxBounds = 1_000;

/** Why no one may allow such calls of a tool once and for all; undefined: a person may. */
export function standingProblem(
  { spec, risk, subject, addresses = [], secrets = [] }: ToolAnnouncement,
  bounds: Readonly<Record<string, unknown>>,
): string | undefined {
  if (risk === "high") return "its risk is high, so each call is asked about";
  if (JSON.stringify(bounds).length > maxBounds) return "these arguments are too long";
  const { properties } = spec.inputSchema;
  const known = typeof properties === "object" && properties !== null ? properties : {};
  const strange = Object.keys(bounds).find((name) => !Object.hasOwn(known, name));
  if (strange !== undefined) return `it has no argument '${strange}'`;
  if (!isDeepStrictEqual(maskedArguments(bounds, secrets), bounds)) {
    return "secret arguments cannot be named";
  }
  const exact = [...(subject === undefined ? [] : [subject]), ...addresses];
  const open = exact.find((name) => JSON.stringify(bounds[name] ?? "").includes(anything));
  return open === undefined ? undefined : `write out '${open}' in full, without *`;
}
