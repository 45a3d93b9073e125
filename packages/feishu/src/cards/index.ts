export { approvalCard, approvalMark, type ApprovalCardOptions, type ShownApproval } from "./approval-card.ts";
export { extendCuts, type CardLimits } from "./cuts.ts";
export { imageRefsIn } from "./inline.ts";
export { maxCardBytes } from "./element.ts";
export {
  lateCard,
  lateDecidedCard,
  noticeCard,
  replacedCard,
  textFollowsCard,
  welcomeCard,
  type LateDecision,
  type LateMessage,
  type ShownCommand,
} from "./notice-cards.ts";
export { hashOf, operationsBetween, shownOf, type CardOperation, type ShownCard } from "./operations.ts";
export {
  renderCard,
  sliceOf,
  type CardPage,
  type CardStyle,
  type RenderedCard,
  type RenderOptions,
} from "./reply-card.ts";
export { restFileName } from "./panels.ts";
export { plainTextOf, summaryOf } from "./reply-text.ts";
