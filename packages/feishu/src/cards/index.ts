/** The card that asks for an approval, and what has become of it. */
export { approvalCard, type ApprovalCardOptions, type ShownApproval } from "./approval-card.ts";
/** The card of a reply on which a call waits for its requester, with the form for a reason. */
export { withReasonForm } from "./ask-in-reply.ts";
/** What a person grants, in words. */
export { wordsOfScope } from "./scope-words.ts";
/** Cards that ask about a late message, greet, and tell something. */
export {
  endedGrantCard,
  grantCard,
  grantText,
  lateCard,
  lateDecidedCard,
  listCard,
  noticeCard,
  welcomeCard,
  type LateDecision,
  type LateMessage,
  type ShownGrant,
  type ShownCommand,
  type Welcome,
} from "./notice-cards.ts";
/** An element of a card, or a whole card. */
export type { CardElement } from "./card.ts";
