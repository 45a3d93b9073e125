import type { GroupPolicy } from "@larkline/config";

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
}

export interface AdmissionRules {
  /** The bot's own open_id; empty while it is unknown. */
  botOpenId: string;
  nowMs: number;
  maxAgeMs: number;
  /** Longest text that is taken. */
  maxChars: number;
  groups: GroupPolicy;
}

export type IgnoreReason = "own_message" | "bot_message" | "not_mentioned" | "groups_off";

/**
 * `unsure`: it may be for the bot, but the bot does not know its own id yet. `late`, `too_long` and
 * `empty` are answered with a line or a question of ours instead of a run.
 */
export type Admission =
  | { verdict: "accept" }
  | { verdict: "ignore"; reason: IgnoreReason }
  | { verdict: "unsure" }
  | { verdict: "late"; ageMs: number }
  | { verdict: "too_long" }
  | { verdict: "empty" };

function ignore(reason: IgnoreReason): Admission {
  return { verdict: "ignore", reason };
}

function admitGroup(message: ArrivedMessage, { botOpenId, groups }: AdmissionRules): Admission | undefined {
  if (groups === "none") return ignore("groups_off");
  if (groups === "all" || message.mentionsBot) return undefined;
  return botOpenId === "" && message.mentions.length > 0 ? { verdict: "unsure" } : ignore("not_mentioned");
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
 * repeats deliveries for up to seven hours ("Event subscription overview"), hence the age limit.
 */
export function admit(message: ArrivedMessage, rules: AdmissionRules): Admission {
  if (rules.botOpenId !== "" && message.senderOpenId === rules.botOpenId) return ignore("own_message");
  if (message.senderType === "bot") return ignore("bot_message");
  const refused = message.chatType === "group" ? admitGroup(message, rules) : undefined;
  return refused ?? admitContent(message, rules);
}
