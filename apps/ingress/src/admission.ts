import type { GroupPolicy } from "@larkline/process/config";

/** What admission looks at. */
export interface ArrivedMessage {
  senderOpenId: string;
  senderType: "user" | "bot";
  chatType: "p2p" | "group";
  text: string;
  /** Files, and messages that it bundles: something to work on, even without words. */
  attachments: readonly unknown[];
  forwarded: boolean;
  mentions: readonly unknown[];
  mentionsBot: boolean;
  /** Epoch ms; 0 when unknown. */
  createdAtMs: number;
  /** Whose the sender is; absent when the platform does not say it. */
  tenant: string | undefined;
}

export interface AdmissionRules {
  /** The bot's own open_id; empty while it is unknown. */
  botOpenId: string;
  nowMs: number;
  maxAgeMs: number;
  /** Longest text that is taken. */
  maxChars: number;
  groups: GroupPolicy;
  /** Keys of the tenants whose people are answered; `null`: everybody. */
  tenants: readonly string[] | null;
}

export type IgnoreReason = "own_message" | "bot_message" | "not_mentioned" | "groups_off";

/**
 * `unsure`: it may be for the bot, but the bot does not know its own id yet. `late`, `too_long`, `empty`
 * and `foreign_tenant` are answered with a line or a question of ours instead of a run.
 */
export type Admission =
  | { verdict: "accept" }
  | { verdict: "ignore"; reason: IgnoreReason }
  | { verdict: "unsure" }
  | { verdict: "late"; ageMs: number }
  | { verdict: "too_long" }
  | { verdict: "empty" }
  | { verdict: "foreign_tenant" };

function ignore(reason: IgnoreReason): Admission {
  return { verdict: "ignore", reason };
}

function admitGroup(message: ArrivedMessage, { botOpenId, groups, tenants }: AdmissionRules): Admission | undefined {
  if (groups === "none") return ignore("groups_off");
  // Whoever is not served is told so when they turn to the bot, not whenever they say something.
  if (message.mentionsBot || (groups === "all" && servesTenant(tenants, message.tenant))) return undefined;
  return botOpenId === "" && message.mentions.length > 0 ? { verdict: "unsure" } : ignore("not_mentioned");
}

/** Whether a bot answers people of a tenant; whose tenant is not known is answered only by a bot that answers everybody. */
export function servesTenant(tenants: readonly string[] | null, tenant: string | undefined): boolean {
  return tenants === null || (tenant !== undefined && tenants.includes(tenant));
}

function admitContent(message: ArrivedMessage, { nowMs, maxAgeMs, maxChars }: AdmissionRules): Admission {
  if (message.text.length > maxChars) return { verdict: "too_long" };
  if (message.text.trim() === "" && message.attachments.length === 0 && !message.forwarded) return { verdict: "empty" };
  const ageMs = message.createdAtMs === 0 ? 0 : nowMs - message.createdAtMs;
  return ageMs > maxAgeMs ? { verdict: "late", ageMs } : { verdict: "accept" };
}

/**
 * Whether a message starts a run. Machines are never answered (two bots would talk for ever), groups
 * by default only when the bot itself is mentioned: `@_all` is not a mention of it. The platform
 * repeats deliveries for up to seven hours ("Event subscription overview"), hence the age limit. People of
 * other tenants can be in a group or write from outside: a bot may be for certain tenants only.
 */
export function admit(message: ArrivedMessage, rules: AdmissionRules): Admission {
  if (rules.botOpenId !== "" && message.senderOpenId === rules.botOpenId) return ignore("own_message");
  if (message.senderType === "bot") return ignore("bot_message");
  const refused = message.chatType === "group" ? admitGroup(message, rules) : undefined;
  if (refused !== undefined) return refused;
  return servesTenant(rules.tenants, message.tenant) ? admitContent(message, rules) : { verdict: "foreign_tenant" };
}
