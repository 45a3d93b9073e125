import type { PermissionPolicy, PolicyEntry, RoleMembers } from "@larkline/agent/permissions";
import type { Deciders, ParseResult } from "@larkline/protocol";
import type { ApprovalsInput, ApproversInput, PermissionInput, RoleInput } from "./permission-schema.ts";
import { didYouMean } from "./did-you-mean.ts";

/** What the configuration says of permissions. */
export interface PermissionsInput {
  roles?: Readonly<Record<string, RoleInput>>;
  permissions?: readonly PermissionInput[];
  approvals?: ApprovalsInput;
}

type Roles = Readonly<Record<string, RoleMembers>>;

const defaultApprovals: Required<Omit<ApprovalsInput, "approvers">> = {
  expiresMs: 86_400_000,
  rulesExpireMs: 90 * 86_400_000,
  remember: true,
  risky: "suggest",
  unknownOutcome: "ask_feishu",
  learnAfter: 3,
  maxDenials: 3,
};

function rolesOf(input: Readonly<Record<string, RoleInput>>): Roles {
  return Object.fromEntries(
    Object.entries(input).map(([name, { people = [], groups = [] }]) => [name, { people, groups }]),
  );
}

function decidersOf({ requester, people = [], roles = [], fourEyes = false, count = 1 }: ApproversInput): Deciders {
  return { requester: requester ?? (people.length === 0 && roles.length === 0), people, roles, fourEyes, count };
}

function unknownRoles(names: readonly string[], roles: Roles, where: string): string[] {
  return names
    .filter((name) => !Object.hasOwn(roles, name))
    .map((name) => `${where} names the unknown role '${name}'${didYouMean(name, Object.keys(roles))}`);
}

/** Most people who can approve one call; members of groups are not known, so they are enough. */
function mostApprovers({ requester, people, roles: names, fourEyes }: Deciders, roles: Roles): number {
  const members = names.flatMap((name) => roles[name] ?? []);
  if (members.some(({ groups }) => groups.length > 0)) return Number.POSITIVE_INFINITY;
  const named = new Set([...people, ...members.flatMap((role) => role.people)]);
  return named.size + (requester && !fourEyes ? 1 : 0);
}

function deciderProblems(deciders: Deciders, roles: Roles, where: string): string[] {
  const unknown = unknownRoles(deciders.roles, roles, `${where}.approvers`);
  if (unknown.length > 0) return unknown;
  const most = mostApprovers(deciders, roles);
  if (most >= deciders.count) return [];
  return most === 0
    ? [`${where} can never be approved: name approvers other than the requester, or let the requester approve`]
    : [`${where} can never be approved: ${deciders.count} people have to, but only ${most} may`];
}

/** An entry as problems name it. */
function placeOf({ tools }: PermissionInput, index: number): string {
  return `permissions.${index} (${tools.join(", ").slice(0, 80)})`;
}

function entryProblems(input: PermissionInput, entry: PolicyEntry, { roles, where }: { roles: Roles; where: string }) {
  const unknown = unknownRoles(input.roles ?? [], roles, where);
  if (input.do === "ask") return [...unknown, ...deciderProblems(entry.approvers, roles, where)];
  const idle = (["approvers", "remember", "expiresMs"] as const).filter((key) => input[key] !== undefined);
  return [...unknown, ...idle.map((key) => `${where} asks nobody, so '${key}' has no meaning there`)];
}

function entryOf(input: PermissionInput, defaults: Pick<PermissionPolicy, "approvers" | "expiresMs">): PolicyEntry {
  const { approvers, remember = false, reason = "", expiresMs = defaults.expiresMs, ...match } = input;
  const deciders = approvers === undefined ? defaults.approvers : decidersOf(approvers);
  return { ...match, approvers: deciders, remember, reason, expiresMs };
}

/** The policy of a deployment, complete; the error lists every entry that cannot work. */
export function resolvePermissions(input: PermissionsInput): ParseResult<PermissionPolicy> {
  const roles = rolesOf(input.roles ?? {});
  const { approvers: approversInput = {}, ...approvals } = input.approvals ?? {};
  const settings = { ...defaultApprovals, ...approvals, approvers: decidersOf(approversInput) };
  const written = input.permissions ?? [];
  const entries = written.map((entry) => entryOf(entry, settings));
  const problems = [
    ...Object.entries(roles)
      .filter(([, { people, groups }]) => people.length + groups.length === 0)
      .map(([name]) => `roles.${name} has neither people nor groups`),
    ...deciderProblems(settings.approvers, roles, "approvals"),
    ...entries.flatMap((entry, index) => {
      const source = written[index];
      return source === undefined ? [] : entryProblems(source, entry, { roles, where: placeOf(source, index) });
    }),
  ];
  return problems.length > 0
    ? { ok: false, error: problems.join("; ") }
    : { ok: true, value: { ...settings, roles, entries } };
}
