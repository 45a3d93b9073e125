import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "@larkline/protocol/clock";
import type { ApiCall } from "./http-api.ts";
import type { CardClick, CardClickResult, DuplicateCardUuid, SimCard } from "./card-store.ts";
import type {
  AppOptions,
  ConsoleOptions,
  GroupScope,
  RegistrationControls,
  RegistrationOptions,
  Transport,
} from "./apps.ts";
import type { ChatControls } from "./chats.ts";
import type {
  DeliveryNoise,
  DeliveryRecord,
  DeliveryReport,
  WebhookTimeouts,
  WebhookVerification,
} from "./delivery.ts";
import type {
  NewChat,
  NewUser,
  NewUserGroup,
  SimChat,
  SimUser,
  SimUserGroup,
} from "./directory.ts";
import type { PersonMessage, RecallType, CustomEvent, SentMessage } from "./person-message.ts";
import type { FaultTable } from "./faults.ts";
import type { GrantControls } from "./grants.ts";
import type { DuplicateUuid } from "./platform.ts";
import type { ConnectionOptions } from "./long-connection.ts";
import type { StoredMedia } from "./media.ts";
import type { SimMessage } from "./message-store.ts";
import type { LimitRefusal } from "./rate-limiter.ts";
import type { SimulatorSnapshot } from "./snapshot.ts";
import type { WorkControls } from "./work/index.ts";

export interface SimulatorOptions {
  /** Default 0: any free port. */
  port?: number;
  /** Default 127.0.0.1. */
  host?: string;
  apps: readonly AppOptions[];
  /** Waits before each retry of an event. Default 15 s, 5 min, 1 h, 6 h (event overview). */
  retryDelaysMs?: readonly number[];
  /** Whether rate limits refuse calls. Default `enforced`. */
  limits?: "enforced" | "off";
  connection?: ConnectionOptions;
  registration?: RegistrationOptions;
  /** Default: 2 s to connect, 3 s in total. */
  webhookTimeouts?: Partial<WebhookTimeouts>;
  /** How a repeated `uuid` is answered. Default `original`. */
  duplicateUuid?: DuplicateUuid;
  /** How the card API answers a repeated `uuid` with the same request. Default `success`. */
  duplicateCardUuid?: DuplicateCardUuid;
  /** The first send of each card entity is refused with "cardid is invalid", as right after its creation. */
  cardInvalidOnce?: boolean;
  /**
   * Calls a month before 99991403, for the whole tenant; auth, event and contact calls are exempt. The free edition
   * has 10,000 (notice on API call volume). Default: no end.
   */
  monthlyQuota?: number;
  /** HTTP status of refusals: the documents say 400; much of the platform answers 200 in practice. Default 400. */
  errorStatus?: 400 | 200;
  /** Entries kept of each log. Default 2,000. */
  logCapacity?: number;
  /** What an earlier process has left: its people, chats, messages and cards are there from the start. */
  restore?: SimulatorSnapshot;
  /** The bytes of the images and files that `restore` names; those without are not there. */
  restoredBytes?: (key: string) => Uint8Array | undefined;
  /** The clock of tokens, `uuid` windows and limits. Default the system's. */
  clock?: Clock;
  /** Answers requests outside the open platform's paths; without it they are 404. */
  serve?: (request: IncomingMessage, response: ServerResponse) => void;
}

export interface SimulatorEvents {
  /** A message became visible or changed. */
  message: SimMessage;
  apiCall: ApiCall;
  /** A rate limit refused a call. */
  refusal: LimitRefusal;
  delivery: DeliveryRecord;
  connection: { appId: string; connections: number };
  user: SimUser;
  chat: SimChat;
}

/** How an app's events reach it now. */
export interface AppConnection {
  appId: string;
  openId: string;
  name: string;
  transport: Transport;
  connections: number;
  webhookUrl: string | undefined;
}

/** A Feishu open platform with its people and chats, on one HTTP port. */
export interface FeishuSimulator extends ChatControls {
  /** Base URL without a trailing slash: the value for `FEISHU_DOMAIN`. */
  readonly url: string;
  /** Cuts connections, abandons retries and stops listening. Idempotent. */
  close(): Promise<void>;

  addUser(user: NewUser): SimUser;
  addChat(chat: NewChat): SimChat;
  /** A user group of the tenant; adding one under the same id replaces it. */
  addUserGroup(group: NewUserGroup): SimUserGroup;
  readonly users: ReadonlyMap<string, SimUser>;
  readonly chats: ReadonlyMap<string, SimChat>;
  readonly apps: readonly AppConnection[];

  /** A person writes. Wrong ids reject; a failed delivery does not: it is in the report. */
  sendMessage(message: PersonMessage): Promise<SentMessage>;
  /** Sends the event of a message once more, in a single attempt: with the same ids, or with a new `event_id`. */
  redeliver(messageId: string, options?: { freshEventId?: boolean }): Promise<DeliveryReport>;
  /** A person changes a text of theirs; no event reports it. */
  editMessage(messageId: string, text: string): void;
  /** A person recalls a message (default: their own); the bots of the chat get `im.message.recalled_v1`. */
  recall(messageId: string, options?: { by?: RecallType }): Promise<void>;
  sendEvent(event: CustomEvent): Promise<DeliveryReport>;

  /** Everything visible in the chat, oldest first. */
  messages(chatId: string): readonly SimMessage[];
  /** The first bot message that answers this one; rejects when none comes in time. */
  waitForReply(messageId: string, wait: { timeoutMs: number }): Promise<SimMessage>;
  /** The last card that answers this message, once none of its cards types any more; rejects in time otherwise. */
  waitForCard(messageId: string, wait: { timeoutMs: number }): Promise<SimMessage>;
  /** The first of this message (when a bot wrote it) and the bots' answers to it that the predicate accepts. */
  waitUntil(
    messageId: string,
    predicate: (message: SimMessage) => boolean,
    wait: { timeoutMs: number },
  ): Promise<SimMessage>;
  /** What a later process can be started with: everything, with the latest messages of each chat. */
  snapshot(messagesOfChat: number): SimulatorSnapshot;
  /** A card entity with everything that was done to it. */
  card(cardId: string): SimCard | undefined;
  /** An image or file of a message or an upload. */
  media(key: string): StoredMedia | undefined;
  /** A person uses a component of a card; the app gets `card.action.trigger` in a single attempt. */
  click(click: CardClick): Promise<CardClickResult>;
  /**
   * The last callback of this card once more, with the same ids and the same content: the platform never does
   * that, a proxy between it and the app may.
   */
  replayClick(messageId: string): Promise<CardClickResult>;
  /** Returns a function that stops listening. */
  on<Name extends keyof SimulatorEvents>(
    name: Name,
    listener: (event: SimulatorEvents[Name]) => void,
  ): () => void;

  /** Where a person confirms an app that a setup registers. */
  readonly registrations: RegistrationControls;
  /** Where people consent that an app acts as them. */
  readonly grants: GrantControls;
  /** Documents, wiki, and what else people work with. */
  readonly work: WorkControls;
  /** Replaces what the developer console holds about an app: scopes, events, callbacks. */
  setConsole(appId: string, options: ConsoleOptions): void;
  readonly faults: FaultTable;
  /** Makes every access token (of one app) invalid. */
  expireTokens(appId?: string): void;
  /** Cuts the long connections (of one app). */
  dropConnections(appId?: string): void;
  /** While frozen, long connections stay open but nothing is answered or sent: half-open sockets. */
  freezeConnections(frozen: boolean): void;
  setTransport(appId: string, transport: Transport): void;
  setWebhookUrl(appId: string, url: string | undefined): void;
  setGroupScope(appId: string, scope: GroupScope): void;
  /** What happens to events on their way, from now on: lost acknowledgements, duplicates, another order. */
  setDeliveryNoise(noise: DeliveryNoise): void;
  /** Sends `url_verification` to the app's request address. */
  verifyWebhook(appId: string): Promise<WebhookVerification>;

  readonly apiCalls: readonly ApiCall[];
  readonly deliveries: readonly DeliveryRecord[];
  /** Every call that a rate limit refused. */
  readonly refusals: readonly LimitRefusal[];
}
