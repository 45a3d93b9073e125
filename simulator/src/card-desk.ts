import { LRUCache } from "lru-cache";
import { cardAction } from "./card-action.ts";
import { applyAnswer, failure, failureCode } from "./card-answer.ts";
import type { CardEntity } from "./card-store.ts";
import type { CardToken } from "./card-token.ts";
import type { CardClick, CardClickResult } from "./card-view.ts";
import type { SimApp } from "./app.ts";
import type { DeliveryService, OutgoingEvent } from "./delivery.ts";
import type { SimUser } from "./directory.ts";
import { envelope } from "./event-envelope.ts";
import type { JsonObject } from "./json-fields.ts";
import type { Platform } from "./platform.ts";

const callback = "card.action.trigger";
/** How long cards can be used, in milliseconds: 14 days, 30 for JSON 1.0 (card callback guide). */
const usableCardMs = 14 * 86_400_000;
const usableOldMs = 30 * 86_400_000;

/** Cards whose last callback is kept. */
const keptCallbacks = 1_000;

/** Lets people use cards. */
export interface CardDesk {
  click(click: CardClick): Promise<CardClickResult>;
  replayClick(messageId: string): Promise<CardClickResult>;
}

interface Callback {
  entity: CardEntity;
  token: CardToken;
  outgoing: OutgoingEvent;
}

export function createCardDesk(platform: Platform, deliveries: DeliveryService): CardDesk {
  const last = new LRUCache<string, Callback>({ max: keptCallbacks });

  const deliver = async ({ entity, token, outgoing }: Callback): Promise<CardClickResult> => {
    entity.openClicks += 1;
    try {
      const [attempt] = (await deliveries.deliverOnce(outgoing)).attempts;
      if (attempt === undefined) return failure(200342);
      const code = failureCode(attempt);
      if (code !== 0) return failure(code);
      token.answered = true;
      return applyAnswer(platform, entity, attempt.response);
    } finally {
      entity.openClicks -= 1;
    }
  };

  return {
    async click(click) {
      const place = placeOf(platform, click);
      const action = cardAction(place.entity.json, click);
      if (!platform.console.entry(place.app.appId).callbacks.includes(callback)) return failure(200340);
      const sent = callbackOf(platform, place, { click, action });
      last.set(click.messageId, sent);
      return await deliver(sent);
    },
    async replayClick(messageId) {
      const sent = last.get(messageId);
      if (sent === undefined) throw new Error(`Nobody has used the card ${messageId}`);
      return await deliver(sent);
    },
  };
}

function callbackOf(
  platform: Platform,
  { entity, app, user, chatId }: Place,
  { click, action }: { click: CardClick; action: JsonObject },
): Callback {
  const { value, token } = platform.cardTokens.issue(click.messageId);
  const outgoing = envelope(app, {
    eventType: callback,
    messageId: click.messageId,
    // Microseconds, other than the milliseconds of message events (card callback page).
    createdAt: platform.now() * 1000,
    event: {
      operator: operatorOf(app, user, click),
      token: value,
      action,
      host: "im_message",
      context: { open_message_id: click.messageId, open_chat_id: chatId },
    },
  });
  return { entity, token, outgoing };
}

interface Place {
  entity: CardEntity;
  app: SimApp;
  user: SimUser;
  chatId: string;
}

function placeOf(platform: Platform, { messageId, openId }: CardClick): Place {
  const message = platform.messages.get(messageId);
  const entity = platform.cards.ofMessage(messageId);
  if (message === undefined || entity === undefined) throw new Error(`No card ${messageId}`);
  if (message.recalled) throw new Error(`The card ${messageId} was recalled`);
  const lifetimeMs = entity.json.schema === "2.0" ? usableCardMs : usableOldMs;
  if (platform.now() - message.createdAt > lifetimeMs) throw new Error(`The card ${messageId} is too old to be used`);
  const user = platform.directory.users.get(openId);
  const chat = platform.directory.chats.get(message.chatId);
  if (user === undefined || chat?.members.has(openId) !== true) {
    throw new Error(`${openId} is not a member of ${message.chatId}`);
  }
  const app = platform.apps.get(entity.appId);
  if (app === undefined) throw new Error(`No app ${entity.appId}`);
  return { entity, app, user, chatId: chat.chatId };
}

function operatorOf(app: SimApp, user: SimUser, { withoutOpenId = false }: CardClick): JsonObject {
  return {
    tenant_key: user.tenantKey ?? app.tenantKey,
    user_id: user.userId,
    union_id: user.unionId,
    ...(withoutOpenId ? {} : { open_id: user.openId }),
  };
}
