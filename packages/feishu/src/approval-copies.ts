import type { Roles } from "@larkline/agent/permissions";
import type { Approval } from "@larkline/protocol";
import type { ApprovalCard } from "@larkline/store";
import { derivedUuid } from "./platform-id.ts";

/** People named as deciders, or as members of their roles, who get a copy of their own. */
const maxCopies = 10;

/** How long sending is tried before nobody can be asked. */
export const sendPatienceMs = 10 * 60_000;

/** "Update a card": 14 days after it was sent nothing can be changed any more. */
export const cardLifetimeMs = 14 * 24 * 3_600_000;

/**
 * The cards of an approval: one in the chat, and a copy for each person who is named as a decider, by
 * themselves or in a role, because nobody else would tell them: a direct chat has no deciders in it.
 * Whoever asked for the call is in the chat and gets none.
 */
export function copiesOf({ target, deciders, requester }: Approval, roles: Roles): ApprovalCard[] {
  if (target.channel === "none") return [];
  const members = deciders.roles.flatMap((name) => (Object.hasOwn(roles, name) ? (roles[name]?.people ?? []) : []));
  const named = [...deciders.people, ...members];
  const people = new Set(named.filter((id) => /^ou_[A-Za-z0-9_-]{1,120}$/.test(id)));
  people.delete(requester.id);
  people.delete(target.chatId);
  return ["", ...[...people].slice(0, maxCopies)].map((to) => ({ to }));
}

/** The idempotency key of one copy: whoever sends it uses the same. */
export function copyUuid(approvalId: string, to: string): string {
  return to === "" ? `ap-${approvalId}` : derivedUuid(`ap-${approvalId}`, to);
}

/** Nobody has begun to send it. */
export function isUntouched({ failed, messageId, uncertainSinceMs = 0 }: ApprovalCard): boolean {
  return failed === undefined && messageId === undefined && uncertainSinceMs === 0;
}
