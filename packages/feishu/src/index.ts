/** One app's calls to the platform. */
export { FeishuApi } from "./feishu-api.ts";
/** Consent of people, and their tokens. */
export { GrantsApi, type GrantedTokens } from "./grants-api.ts";
/** What every failed call rejects with. */
export { FeishuError } from "./transport/error.ts";
/** A message as the platform keeps it. */
export type { FetchedMessage } from "./feishu-api.ts";
export type { Comment } from "./objects/comments.ts";
export type { FeishuTask, TaskComment } from "./objects/tasks.ts";
/** Subscribes the app to events about a person, with a token of theirs. */
export {
  subscribePerson,
  unsubscribePerson,
  type OwnSubscription,
} from "./objects/subscriptions.ts";
export type { SaidMessage } from "./messages/chat-history.ts";

/** Decides on the requests of the platform's webhook. */
export { WebhookVerifier } from "./events/webhook.ts";
/** Requests as the developer console and the platform send them to a webhook address. */
export { createWebhookChallenge, createWebhookEvent } from "./events/webhook.ts";
/** Events over the platform's WebSocket. */
export { LongConnection, type LongConnectionState } from "./events/long-connection.ts";
/** An event of the platform, from either of them. */
export {
  type Envelope,
  inboundFromEvent,
  messageEventType,
  type FeishuMessage,
  readContent,
} from "./events/inbound-message.ts";

/** The replies that this process is typing on cards. */
export { LiveReplies, type LiveReply } from "./reply/live-reply.ts";
/** What live replies leave to the sender of the same process. */
export { CardHandover } from "./reply/reply-record.ts";
/** Ends the cards of a reply whose turn is gone. */
export { endOrphan } from "./reply/orphan.ts";
/** Sends the replies that were committed. */
export { OutboxSender, type DeliveryWatch } from "./reply/outbox-sender.ts";
/** Finds the images that answers name. */
export {
  createImageResolver,
  type ImageResolver,
  type RemoteImages,
} from "./reply/image-resolver.ts";
/** Sends an uploaded file to a chat. */
export { sendFileMessage } from "./reply/reply-cards.ts";
/** Lets people say why they rate an answer down. */
export { addReasonField } from "./reply/reason-field.ts";
/** Reactions that show the state of a person's message. */
export { StatusReactions, type ReactionPurpose } from "./reply/status-reactions.ts";

/** Keeps the cards of approvals up to date. */
export { ApprovalCards, type ConsentRound } from "./approvals/approval-cards.ts";
/** The user groups of people. */
export { GroupLookup } from "./approvals/group-lookup.ts";

/** What an app needs in the developer console. */
export {
  appManifest,
  missingScopes,
  type AppSubscription,
  type ManifestText,
  type ScopeLevel,
} from "./setup/app-manifest.ts";
/** Looks at an app from outside. */
export {
  AppInspector,
  type InspectedBot,
  type PanelDrift,
  type PanelEntry,
} from "./setup/app-inspector.ts";
/** Creates an app by a link that a person confirms. */
export { registerApp } from "./setup/app-registration.ts";
