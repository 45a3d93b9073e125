import { Type, type Static } from "typebox";

const id = Type.String({ minLength: 1, maxLength: 128 });
const name = Type.String({ minLength: 1, maxLength: 100 });
const duration = Type.Integer({ minimum: 10_000, maximum: 366 * 86_400_000 });

/** A role: people by open_id, and user groups of the platform. */
export const RoleInput = Type.Object(
  {
    people: Type.Optional(Type.Array(id, { maxItems: 1_000 })),
    groups: Type.Optional(Type.Array(id, { maxItems: 100 })),
  },
  { additionalProperties: false },
);
export type RoleInput = Static<typeof RoleInput>;

/** Who may approve. Where nobody else is named, the person whose message led to the call. */
export const ApproversInput = Type.Object(
  {
    /** Default: true where neither people nor roles are named. */
    requester: Type.Optional(Type.Boolean()),
    people: Type.Optional(Type.Array(id, { maxItems: 100 })),
    roles: Type.Optional(Type.Array(name, { maxItems: 20 })),
    /** The requester's own approval does not count. Default false. */
    fourEyes: Type.Optional(Type.Boolean()),
    /** How many people have to approve. Default 1. */
    count: Type.Optional(Type.Integer({ minimum: 1, maximum: 10 })),
  },
  { additionalProperties: false },
);
export type ApproversInput = Static<typeof ApproversInput>;

/** One entry of the policy; the first that fits a call decides. */
export const PermissionInput = Type.Object(
  {
    /** Names of tools; `*` stands for any characters. */
    tools: Type.Array(name, { minItems: 1, maxItems: 100 }),
    /** Pattern of what the tool does, such as `git *`. */
    subject: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
    people: Type.Optional(Type.Array(id, { minItems: 1, maxItems: 1_000 })),
    roles: Type.Optional(Type.Array(name, { minItems: 1, maxItems: 20 })),
    chats: Type.Optional(Type.Array(id, { minItems: 1, maxItems: 1_000 })),
    chatTypes: Type.Optional(Type.Array(Type.Enum(["p2p", "group", "api"]), { minItems: 1 })),
    do: Type.Enum(["allow", "ask", "refuse"]),
    /** Default: those of `approvals`. */
    approvers: Type.Optional(ApproversInput),
    /** Offer "always allow in this chat", and let such rules count. Default false. */
    remember: Type.Optional(Type.Boolean()),
    /** What people, or for `refuse` the model, read. */
    reason: Type.Optional(Type.String({ maxLength: 1_000 })),
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
    /** Rejections in one turn after which nobody is asked any more. Default 3. */
    maxDenials: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
  },
  { additionalProperties: false },
);
export type ApprovalsInput = Static<typeof ApprovalsInput>;
