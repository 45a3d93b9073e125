import { LRUCache } from "lru-cache";
import { unsubscribed, type DeliveryService, type DeliveryReport, type OutgoingEvent } from "./delivery.ts";
import { knownChat, tellBots } from "./chat-events.ts";
import { envelope, messageEvent } from "./event-envelope.ts";
import { newId } from "./id.ts";
import { renderContent } from "./message-content.ts";
import { writeMessage, type PersonMessage, type WrittenMessage } from "./person-message.ts";
import { mentionLookup, type Platform } from "./platform.ts";
import type { CustomEvent, SentMessage } from "./simulator.ts";

const keptEvents = 20_000;

/** Who recalled a message: its writer, or somebody who may recall others' (message recalled page). */
export type RecallType = "message_owner" | "group_owner" | "group_manager" | "enterprise_manager";

/** Turns what people do into events for the bots. */
export interface EventDesk {
  sendMessage(message: PersonMessage): Promise<SentMessage>;
  redeliver(messageId: string, options?: { freshEventId?: boolean }): Promise<DeliveryReport>;
  recall(messageId: string, options?: { by?: RecallType }): Promise<void>;
  editMessage(messageId: string, text: string): void;
  sendEvent(event: CustomEvent): Promise<DeliveryReport>;
}

export function createEventDesk(platform: Platform, deliveries: DeliveryService): EventDesk {
  const events = new LRUCache<string, OutgoingEvent>({ max: keptEvents });
  const sendNow = (message: PersonMessage): SentMessage => {
    const written = writeMessage(platform, message);
    const event = messageEvent({ ...written, users: platform.directory.users, ...eventFacts(message) });
    const { messageId } = written.message;
    events.set(messageId, event);
    platform.announce(written.message);
    const delivery = isSubscribed(written) ? platform.publish(event) : Promise.resolve(unsubscribed(event));
    return { messageId, eventId: event.eventId, delivery };
  };
  return {
    sendMessage: async (message) => sendNow(message),
    async redeliver(messageId, { freshEventId = false } = {}) {
      const event = events.get(messageId);
      if (event === undefined) throw new Error(`No event of message ${messageId}`);
      return deliveries.deliverOnce(freshEventId ? withFreshId(event) : event);
    },
    editMessage: (messageId, text) => editText(platform, messageId, text),
    recall: async (messageId, { by = "message_owner" } = {}) => recall(platform, messageId, by),
    async sendEvent({ appId, eventType, event, callback = false }) {
      const app = platform.apps.get(appId);
      if (app === undefined) throw new Error(`No app ${appId}`);
      const outgoing = envelope(app, { eventType, event, createdAt: platform.now() });
      return callback ? deliveries.deliverOnce(outgoing) : deliveries.deliver(outgoing);
    },
  };
}

function withFreshId(event: OutgoingEvent): OutgoingEvent {
  const eventId = newId("");
  return { ...event, eventId, payload: event.payload.replace(event.eventId, eventId) };
}

/** Group messages reach an app that asked for all of them, or that is mentioned. */
function isSubscribed({ app, chat, message }: WrittenMessage): boolean {
  if (!chat.bots.has(app.appId) || chat.status !== "normal") return false;
  if (chat.type === "p2p" || app.groupScope === "all") return true;
  return message.mentions.some((mention) => mention.openId === app.openId);
}

/** No event tells of it; reading the message shows the new text and time (message receive page). */
function editText(platform: Platform, messageId: string, text: string): void {
  const message = platform.messages.get(messageId);
  if (message?.senderType !== "user" || message.messageType !== "text") {
    throw new Error(`No text ${messageId} of a person`);
  }
  const lookup = mentionLookup(platform, knownChat(platform, message.chatId));
  const rendered = renderContent("text", JSON.stringify({ text }), lookup);
  const change = { ...rendered, edits: message.edits + 1, updatedAt: platform.now() };
  const changed = platform.messages.change(messageId, change);
  if (changed !== undefined) platform.announce(changed);
}

function recall(platform: Platform, messageId: string, recallType: RecallType): void {
  const recallTime = platform.now();
  const message = platform.messages.change(messageId, { recalled: true, updatedAt: recallTime });
  const chat = message === undefined ? undefined : platform.directory.chats.get(message.chatId);
  if (message === undefined || chat === undefined) throw new Error(`No message ${messageId}`);
  platform.announce(message);
  const event = {
    message_id: messageId,
    chat_id: chat.chatId,
    recall_time: String(recallTime),
    recall_type: recallType,
  };
  tellBots(platform, chat, { eventType: "im.message.recalled_v1", event, messageId });
}

function eventFacts({ eventLinks, userAgent }: PersonMessage): Pick<PersonMessage, "eventLinks" | "userAgent"> {
  return { ...(eventLinks === undefined ? {} : { eventLinks }), ...(userAgent === undefined ? {} : { userAgent }) };
}
