export { startFeishuSimulator } from "./start.ts";
export type {
  AppConnection,
  FeishuSimulator,
  SimulatorEvents,
  SimulatorOptions,
} from "./simulator.ts";
export type { ApiCall } from "./http-api.ts";
export type { AppOptions, GroupScope, Transport } from "./apps.ts";
export type { ConsoleOptions } from "./apps.ts";
export type { RegistrationControls, RegistrationOptions } from "./apps.ts";
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
} from "./card-store.ts";
export type { SimCardView } from "./message-store.ts";
export type { ChatControls, PersonReaction } from "./chats.ts";
export type { EventPush } from "./delivery.ts";
export type { NameScope } from "./directory.ts";
export type {
  DeliveryAttempt,
  DeliveryNoise,
  DeliveryOutcome,
  DeliveryRecord,
  DeliveryReport,
} from "./delivery.ts";
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
export type { Fault, FaultAction, FaultTable } from "./faults.ts";
export type { ConnectionOptions } from "./long-connection.ts";
export type { RecallType } from "./person-message.ts";
export type { SimFile } from "./media.ts";
export type { SimMention, SimMessage, SimReaction } from "./message-store.ts";
export type {
  CustomEvent,
  PersonMessage,
  PersonPost,
  PersonPostElement,
  SentMessage,
} from "./person-message.ts";
export type { LimitRefusal } from "./rate-limiter.ts";
export { parseSnapshot, type SimulatorSnapshot } from "./snapshot.ts";
export type { DuplicateUuid } from "./platform.ts";
export type { WebhookVerification } from "./delivery.ts";
export { encryptEvent, signEvent, type SignedParts } from "./delivery.ts";
