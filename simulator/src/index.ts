export { startFeishuSimulator } from "./start.ts";
export type {
  AppConnection,
  CustomEvent,
  FeishuSimulator,
  SentMessage,
  SimulatorEvents,
  SimulatorOptions,
} from "./simulator.ts";
export type { ApiCall } from "./api-call.ts";
export type { AppOptions, GroupScope, Transport } from "./app.ts";
export type { ConsoleOptions } from "./app-console.ts";
export type { RegistrationDesk, RegistrationOptions } from "./app-registration.ts";
export type {
  CardClick,
  CardClickResult,
  CardFrameMode,
  CardOperationName,
  CardToast,
  DuplicateCardUuid,
  SimCard,
  SimCardFrame,
  SimCardOperation,
  SimCardView,
} from "./card-view.ts";
export type { ChatDesk, EventPush, NameScope, PersonReaction } from "./chat-desk.ts";
export type { DeliveryAttempt, DeliveryNoise, DeliveryOutcome, DeliveryRecord, DeliveryReport } from "./delivery.ts";
export type {
  ChatChange,
  ChatStatus,
  ChatType,
  EventLinks,
  NewChat,
  NewUser,
  NewUserGroup,
  SimChat,
  SimUser,
  SimUserGroup,
} from "./directory.ts";
export type { Fault, FaultAction, FaultTable } from "./fault-table.ts";
export type { ConnectionOptions } from "./long-connection.ts";
export type { RecallType } from "./event-desk.ts";
export type { SimFile } from "./media-store.ts";
export type { SimMention, SimMessage, SimReaction } from "./message-store.ts";
export type { PersonMessage, PersonPost, PersonPostElement } from "./person-message.ts";
export type { LimitRefusal } from "./rate-limiter.ts";
export type { DuplicateUuid } from "./uuid-table.ts";
export type { WebhookVerification } from "./webhook-sender.ts";
export { encryptEvent, signEvent, type SignedParts } from "./event-cipher.ts";
