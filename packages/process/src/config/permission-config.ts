import { LocalText, type ParseResult } from "@larkline/protocol";
import type { Deciders } from "@larkline/protocol/approval";
import { Type, type Static } from "@larkline/protocol/type";
import type { PermissionPolicy, PolicyEntry, RoleMembers } from "@larkline/agent/permissions";
import { didYouMean } from "./did-you-mean.ts";

const id = Type.String({ minLength: 1, maxLength: 128 });

/** A role: people by open_id, and user groups of the platform. */
export const RoleInput = Type.Object(
  {
    /** How people read its name: a text, or one in each language. */
    title: Type.Optional(LocalText),
    people: Type.Optional(Type.Array(id, { maxItems: 1_000 })),
    groups: Type.Optional(Type.Array(id, { maxItems: 100 })),
  },
  { additionalProperties: false },
);
export type RoleInput = Static<typeof RoleInput>;

const nameInput = Type.String({ minLength: 1, maxLength: 100 });

/** Who may approve: the person whose message led to the call, unless others are named. */
const ApproversInput = Type.Object(
  {
    /** Default: true where neither people nor roles nor operators are named. */
    requester: Type.Optional(Type.Boolean()),
    people: Type.Optional(Type.Array(id, { maxItems: 100 })),
    roles: Type.Optional(Type.Array(nameInput, { maxItems: 20 })),
    /** Operators of the console, too; all of them count as one person. Default false. */
    operators: Type.Optional(Type.Boolean()),
    /** The requester's own approval does not count. Default false. */
    fourEyes: Type.Optional(Type.Boolean()),
    /** How many people have to approve. Default 1. */
    count: Type.Optional(Type.Integer({ minimum: 1, maximum: 10 })),
  },
  { additionalProperties: false },
);
type ApproversInput = Static<typeof ApproversInput>;

const duration = Type.Integer({ minimum: 10_000, maximum: 366 * 86_400_000 });

/** One entry of the policy; the first that fits a call decides. */
export const PermissionInput = Type.Object(
  {
    /** Names of tools; `*` stands for any characters. */
    tools: Type.Array(nameInput, { minItems: 1, maxItems: 100 }),
    /** Pattern of what the tool does, such as `git *`. */
    subject: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
    people: Type.Optional(Type.Array(id, { minItems: 1, maxItems: 1_000 })),
    roles: Type.Optional(Type.Array(nameInput, { minItems: 1, maxItems: 20 })),
    chats: Type.Optional(Type.Array(id, { minItems: 1, maxItems: 1_000 })),
    chatTypes: Type.Optional(
      Type.Array(Type.Enum(["p2p", "group", "api"]), { minItems: 1, maxItems: 3 }),
    ),
    do: Type.Enum(["allow", "ask", "refuse"]),
    /** Default: those of `approvals`. */
    approvers: Type.Optional(ApproversInput),
    /** Offer "always allow in this chat", and let such rules count. Default false. */
    remember: Type.Optional(Type.Boolean()),
    /** What people, or for `refuse` the model, read: a text, or one in each language. */
    reason: Type.Optional(
      Type.Union([
        Type.String({ maxLength: 1_000 }),
        Type.Object(
          { zh: Type.String({ maxLength: 1_000 }), en: Type.String({ maxLength: 1_000 }) },
          { additionalProperties: false },
        ),
      ]),
    ),
    /** Default: that of `approvals`. */
    expiresMs: Type.Optional(duration),
  },
  { additionalProperties: false },
);
export type PermissionInput = Static<typeof PermissionInput>;

/** How people are asked where no entry says it. */
export const ApprovalsInput = Type.Object(
  {
    approvers: Type.Optional(ApproversInput),
    /** How long a question stands. Default 24 hours. */
    expiresMs: Type.Optional(duration),
    /** How long a remembered decision holds. Default 90 days. */
    rulesExpireMs: Type.Optional(duration),
    /** Offer "always allow in this chat". Default true. */
    remember: Type.Optional(Type.Boolean()),
    /** What becomes of calls whose input fits a risk pattern. Default `suggest`. */
    risky: Type.Optional(Type.Enum(["suggest", "ask"])),
    /** What becomes of a `once` call that may have taken effect. Default `ask_feishu`. */
    unknownOutcome: Type.Optional(Type.Enum(["ask", "ask_feishu", "tell"])),
    /** Approvals of one kind after which a rule is proposed; 0: never. Default 3. */
    learnAfter: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000 })),
    /** Rejections in one turn after which further calls are refused without asking. Default 3. */
    maxDenials: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
  },
  { additionalProperties: false },
);
export type ApprovalsInput = Static<typeof ApprovalsInput>;

/** What the configuration says of permissions. */
export interface PermissionsInput {
  roles?: Readonly<Record<string, RoleInput>>;
  permissions?: readonly PermissionInput[];
  approvals?: ApprovalsInput;
}

/** The policy of a deployment, complete; the error lists every entry that cannot work. */
export function resolvePermissions(input: PermissionsInput): ParseResult<PermissionPolicy> {
  const roles = rolesOf(input.roles ?? {});
  const { approvers: approversInput = {}, ...approvals } = input.approvals ?? {};
  const titles = roleTitles(input.roles ?? {});
  const approvers = withTitles(decidersOf(approversInput), titles);
  const settings = { ...defaultApprovals, ...approvals, approvers };
  const written = input.permissions ?? [];
  const entries = written.map((given): PolicyEntry => {
    const entry = entryOf(given, settings);
    return { ...entry, approvers: withTitles(entry.approvers, titles) };
  });
  const problems = [
    ...Object.entries(roles)
      .filter(([, { people, groups }]) => people.length + groups.length === 0)
      .map(([name]) => `roles.${name} has neither people nor groups`),
    ...deciderProblems(settings.approvers, roles, "approvals"),
    ...entries.flatMap((entry, index) => {
      const source = written[index];
      return source === undefined
        ? []
        : entryProblems(source, entry, { roles, where: placeOf(source, index) });
    }),
  ];
  return problems.length > 0
    ? { ok: false, error: problems.join("; ") }
    : { ok: true, value: { ...settings, roles, entries } };
}

type Roles = Readonly<Record<string, RoleMembers>>;

function rolesOf(input: Readonly<Record<string, RoleInput>>): Roles {
  return Object.fromEntries(
    Object.entries(input).map(([name, { people = [], groups = [] }]) => [name, { people, groups }]),
  );
}

type RoleTitles = NonNullable<Deciders["roleTitles"]>;

function roleTitles(input: Readonly<Record<string, RoleInput>>): RoleTitles {
  return Object.fromEntries(
    Object.entries(input).flatMap(([name, { title }]) =>
      title === undefined ? [] : [[name, title]],
    ),
  );
}

/** Those of its own roles. */
function withTitles(deciders: Deciders, titles: RoleTitles): Deciders {
  const own = Object.entries(titles).filter(([name]) => deciders.roles.includes(name));
  return own.length === 0 ? deciders : { ...deciders, roleTitles: Object.fromEntries(own) };
}

function decidersOf({
  requester,
  people = [],
  roles = [],
  operators,
  ...input
}: ApproversInput): Deciders {
  const { fourEyes = false, count = 1 } = input;
  const isAlone = people.length === 0 && roles.length === 0 && operators !== true;
  const named = {
    requester: requester ?? isAlone,
    people,
    roles,
    ...(operators === true ? { operators } : {}),
  };
  return { ...named, fourEyes, count };
}

function entryOf(
  input: PermissionInput,
  defaults: Pick<PermissionPolicy, "approvers" | "expiresMs">,
): PolicyEntry {
  const {
    approvers,
    remember = false,
    reason = "",
    expiresMs = defaults.expiresMs,
    ...match
  } = input;
  const deciders = approvers === undefined ? defaults.approvers : decidersOf(approvers);
  return { ...match, approvers: deciders, remember, reason, expiresMs };
}

function entryProblems(
  input: PermissionInput,
  entry: PolicyEntry,
  { roles, where }: { roles: Roles; where: string },
) {
  const unknown = unknownRoles(input.roles ?? [], roles, where);
  if (input.do === "ask") return [...unknown, ...deciderProblems(entry.approvers, roles, where)];
  const idle = (["approvers", "remember", "expiresMs"] as const).filter(
    (key) => input[key] !== undefined,
  );
  return [
    ...unknown,
    ...idle.map((key) => `${where} asks no person, so '${key}' has no meaning there`),
  ];
}

function unknownRoles(names: readonly string[], roles: Roles, where: string): string[] {
  return names
    .filter((name) => !Object.hasOwn(roles, name))
    .map(
      (name) => `${where} names the unknown role '${name}'${didYouMean(name, Object.keys(roles))}`,
    );
}

/** An entry as problems name it. */
function placeOf({ tools }: PermissionInput, index: number): string {
  return `permissions.${index} (${tools.join(", ").slice(0, 80)})`;
}

const defaultApprovals: Required<Omit<ApprovalsInput, "approvers">> = {
  expiresMs: 86_400_000,
  rulesExpireMs: 90 * 86_400_000,
  remember: true,
  risky: "suggest",
  unknownOutcome: "ask_feishu",
  learnAfter: 3,
  maxDenials: 3,
};

/** Most people who can approve one call; members of groups are not known, so they are enough. */
function mostApprovers(
  { requester, people, roles: names, operators, fourEyes }: Deciders,
  roles: Roles,
): number {
  const members = names.flatMap((name) => roles[name] ?? []);
  if (members.some(({ groups }) => groups.length > 0)) return Number.POSITIVE_INFINITY;
  const named = new Set([...people, ...members.flatMap((role) => role.people)]);
  return named.size + (requester && !fourEyes ? 1 : 0) + (operators === true ? 1 : 0);
}

function deciderProblems(deciders: Deciders, roles: Roles, where: string): string[] {
  const unknown = unknownRoles(deciders.roles, roles, `${where}.approvers`);
  if (unknown.length > 0) return unknown;
  if (deciders.operators === true && deciders.fourEyes) {
    return [
      `${where}: 'operators' and 'fourEyes' exclude each other, because the names of operators are not checked`,
    ];
  }
  const most = mostApprovers(deciders, roles);
  if (most >= deciders.count) return [];
  return most === 0
    ? [
        `${where} can never be approved: name approvers other than the requester, or let the requester approve`,
      ]
    : [`${where} can never be approved: ${deciders.count} people have to, but only ${most} may`];
}
