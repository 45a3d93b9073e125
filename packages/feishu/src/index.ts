export type { CallWatch, DeliveryResult, DeliveryWatch, WatchedCall } from "./watch.ts";
export type { ListedFacts } from "./chat-history.ts";
export { createFeishuApi, type FeishuApi, type FeishuApiOptions } from "./feishu-api.ts";
export type { MessageBody, ReplyRequest, SendRequest, SentMessage } from "./message-sender.ts";
export type {
  CardApi,
  CardBatchRequest,
  CardContentRequest,
  CardSettingsRequest,
  CardUpdateRequest,
} from "./cardkit-api.ts";
export type { DownloadedFile, DownloadRequest, MediaApi, UploadFileRequest, UploadFileType } from "./media-api.ts";
export type { FetchedMessage } from "./message-lookup.ts";
export type { ChatFacts } from "./chat-lookup.ts";
export type { MonthlyQuota } from "./quota.ts";
export type { FindReplyRequest } from "./reply-search.ts";
export type { CallOptions, RetryPolicy } from "./api-caller.ts";
export type { TextFormat } from "./outgoing-text.ts";
export type { FeishuDomain } from "./domain.ts";
export type { FeishuLogger } from "./logger.ts";
export { FeishuError } from "./error.ts";
export type { FeishuErrorKind } from "./error-kind.ts";
export {
  createWebhookVerifier,
  type WebhookVerdict,
  type WebhookVerifier,
  type WebhookVerifierOptions,
} from "./webhook-verifier.ts";
export { parseEnvelope, type Envelope } from "./envelope.ts";
export { inboundFromEvent, messageEventType, type FeishuMessage } from "./inbound-message.ts";
export {
  createLongConnection,
  type LongConnection,
  type LongConnectionOptions,
  type LongConnectionState,
} from "./long-connection.ts";
export { createApprovalCards, type ApprovalCards, type ApprovalCardsOptions } from "./approval-cards.ts";
export type { ApprovalApi } from "./approval-copy.ts";
export type { FindCardRequest } from "./approval-search.ts";
export { createGroupLookup, type GroupLookup, type GroupLookupOptions } from "./group-lookup.ts";
export { createOutboxSender, type OutboxSender, type OutboxSenderOptions } from "./outbox-sender.ts";
export {
  appManifest,
  missingScopes,
  type AppManifest,
  type AppScope,
  type AppSubscription,
  type ManifestText,
  type ScopeLevel,
} from "./app-manifest.ts";
export {
  createAppInspector,
  type AppInspector,
  type AppInspectorOptions,
  type InspectedBot,
  type InspectedSubscriptions,
} from "./app-inspector.ts";
export { registerApp, type RegisterAppOptions, type Registration, type RegistrationLink } from "./app-registration.ts";
export { createWebhookChallenge, type WebhookChallenge } from "./webhook-challenge.ts";
export { createCardHandover, type CardHandover } from "./card-handover.ts";
export { createLiveReplies, type LiveReplies, type LiveRepliesOptions } from "./live-replies.ts";
export type { LiveReply, ReplyStart } from "./live-reply.ts";
export type { ImageResolver } from "./reply-finisher.ts";
export { endOrphan } from "./orphan-cards.ts";
export { createReactionDesk, type ReactionDesk, type ReactionPurpose } from "./reaction-desk.ts";
export { readContent, type MessageBody as ReceivedBody } from "./message-text.ts";
