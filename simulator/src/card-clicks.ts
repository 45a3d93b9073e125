import { LRUCache } from "lru-cache";
import type { SimApp } from "./apps.ts";
import {
  type CardClick,
  type CardClickResult,
  type CardEntity,
  type CardToken,
  isDowngrade,
  type CardToast,
  isTooLarge,
  cardBytes,
  isShared,
} from "./card-store.ts";
import { tagRules } from "./card-tags.ts";
import { type CardNode, cardNodes, checkCard, CardProblem } from "./card-validator.ts";
import {
  type OutgoingEvent,
  type DeliveryService,
  envelope,
  type DeliveryAttempt,
} from "./delivery.ts";
import type { SimUser } from "./directory.ts";
import type { Platform } from "./platform.ts";
import type { ApiRoute, ApiCallContext } from "./api-route.ts";
import { type JsonObject, isJsonObject, PlatformError, success } from "./open-api.ts";

const callbackType = "card.action.trigger";
/** How long cards can be used, in milliseconds: 14 days, 30 for JSON 1.0 (card callback guide). */
const usableCardMs = 14 * 86_400_000;
const usableOldMs = 30 * 86_400_000;

/** Cards whose last callback is kept. */
const keptCallbacks = 1_000;

/** Lets people use cards. */
interface CardControls {
  click(click: CardClick): Promise<CardClickResult>;
  replayClick(messageId: string): Promise<CardClickResult>;
}

interface Callback {
  entity: CardEntity;
  token: CardToken;
  outgoing: OutgoingEvent;
}

export function createCardControls(platform: Platform, deliveries: DeliveryService): CardControls {
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
      if (!platform.console.entry(place.app.appId).callbacks.includes(callbackType)) {
        return failure(200340);
      }
      const sent = callbackOf(platform, place, { click, action });
      last.set(click.messageId, sent);
      return await deliver(sent);
    },
    async replayClick(messageId) {
      const sent = last.get(messageId);
      if (sent === undefined) throw new Error(`No person has used the card ${messageId}`);
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
    eventType: callbackType,
    messageId: click.messageId,
    // Microseconds, other than the milliseconds of message events (card callback page).
    createdAt: platform.clock.now() * 1000,
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
  if (platform.clock.now() - message.createdAt > lifetimeMs) {
    throw new Error(`The card ${messageId} is too old to be used`);
  }
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

/** Fields that make a callback worth sending. */
const carriers = new Set(["value", "form_value", "input_value", "option"]);
const timePickers = new Set(["date_picker", "picker_time", "picker_datetime"]);

/** The `action` of a card callback (card callback page). A person who cannot do it is the caller's mistake: it throws. */
function cardAction(card: JsonObject, click: CardClick): JsonObject {
  const used = click.elementId === undefined ? undefined : component(card, click.elementId);
  const submits = used?.node.form_action_type === "submit";
  const action: JsonObject = {
    tag: used?.tag ?? "button",
    value: click.value ?? callbackValue(used?.node),
    name: click.name ?? used?.node.name,
    form_value: submits ? submitted(card, used, click) : click.formValue,
    input_value: click.inputValue,
    option: click.option,
    timezone: timePickers.has(used?.tag ?? "") ? "Asia/Shanghai" : undefined,
  };
  const given = Object.entries(action).filter(([, value]) => value !== undefined);
  if (!given.some(([field]) => carriers.has(field))) {
    throw new Error("This component sends no callback: give a value");
  }
  return Object.fromEntries(given);
}

function component(card: JsonObject, id: string): CardNode {
  const usable = cardNodes(card).filter(
    ({ tag }) => tagRules[tag]?.interactive === true || tag === "interactive_container",
  );
  const found =
    usable.find(({ node }) => node.element_id === id) ??
    usable.find(({ node }) => node.name === id) ??
    usable.find(({ node }) => isJsonObject(node.text) && node.text.content === id);
  if (found === undefined) throw new Error(`The card has no component ${id}`);
  if (found.node.disabled === true) throw new Error(`The component ${id} is disabled`);
  return found;
}

/** What the component sends: the value of its callback behaviour, or of a 1.0 component. */
function callbackValue(node: JsonObject | undefined): JsonObject | string | undefined {
  const behaviors: unknown[] = Array.isArray(node?.behaviors) ? node.behaviors : [];
  const callback = behaviors.filter(isJsonObject).find((behavior) => behavior.type === "callback");
  const value = callback === undefined ? node?.value : callback.value;
  return isJsonObject(value) || typeof value === "string" ? value : undefined;
}

/** What a form sends: what stood in it, and what the person wrote, as far as the client lets them. */
function submitted(
  card: JsonObject,
  button: CardNode | undefined,
  { formValue = {} }: CardClick,
): JsonObject {
  const form = cardNodes(card).find(
    ({ tag, path }) => tag === "form" && path.every((key, index) => button?.path[index] === key),
  );
  const fields = cardNodes(form?.node)
    .filter(({ tag }) => tagRules[tag]?.interactive === true && tag !== "button")
    .map(({ node }) => node);
  const names = fields.map(({ name }) => String(name));
  const unknown = Object.keys(formValue).find((name) => !names.includes(name));
  if (unknown !== undefined) throw new Error(`The form has no field ${unknown}`);
  const values = fields.flatMap((field) => {
    const value =
      formValue[String(field.name)] ??
      field.default_value ??
      field.initial_option ??
      field.selected_values;
    checkFilled(field, value);
    return value === undefined ? [] : [[String(field.name), value]];
  });
  return Object.fromEntries(values);
}

/** The client holds a form back that lacks something, and takes no more characters than allowed. */
function checkFilled({ name, required, max_length: maximum }: JsonObject, value: unknown): void {
  if (required === true && (value === undefined || value === "")) {
    throw new Error(`The field ${String(name)} has to be filled in`);
  }
  if (typeof maximum === "number" && typeof value === "string" && value.length > maximum) {
    throw new Error(`The field ${String(name)} takes ${maximum} characters`);
  }
}

/** What people see of the answer to a callback: codes of the card callback page. */
const notConfigured = 200340;
const timeout = 200341;
const notReached = 200342;
const nameNotResolved = 200343;
const badStatus = 200671;
const badBody = 200672;
const badCard = 200673;
const downgrade = 200830;

/** Why the answer did not come, as the client shows it; 0 when it came. */
function failureCode({ transport, acknowledged, status, error = "" }: DeliveryAttempt): number {
  if (acknowledged) return 0;
  if (transport === "none") return notConfigured;
  if (error === "timeout") return timeout;
  if (/ENOTFOUND|EAI_AGAIN/.test(error)) return nameNotResolved;
  return status === undefined ? notReached : badStatus;
}

function failure(code: number): CardClickResult {
  return { code, cardChanged: false };
}

/** Applies the answer of a callback: a toast, and a card that takes the place of the old one. */
function applyAnswer(platform: Platform, entity: CardEntity, answer: unknown): CardClickResult {
  if (answer === undefined || answer === "") return failure(0);
  if (!isJsonObject(answer)) return failure(badBody);
  const { toast, card } = answer;
  const shown = toast === undefined ? undefined : toastOf(toast);
  if (toast !== undefined && shown === undefined) return failure(badBody);
  const visible = shown === undefined ? {} : { toast: shown };
  if (card === undefined) return { code: 0, ...visible, cardChanged: false };
  const json = cardOf(platform, card);
  if (json === undefined) return failure(badCard);
  if (isDowngrade(entity.json, json)) return failure(downgrade);
  // While a card streams, answers do not change it (streaming update guide).
  if (platform.cards.isStreaming(entity)) return { code: 0, ...visible, cardChanged: false };
  platform.cards.change(entity, json, { enable: true });
  return { code: 0, ...visible, cardChanged: true };
}

function toastOf(toast: unknown): CardToast | undefined {
  if (!isJsonObject(toast) || typeof toast.content !== "string") return undefined;
  const { type = "info", content } = toast;
  const known = (["info", "success", "error", "warning"] as const).find((name) => name === type);
  if (known === undefined) return undefined;
  if (toast.i18n === undefined) return { type: known, content };
  const i18n = localesOf(toast.i18n);
  return i18n === undefined ? undefined : { type: known, content, i18n };
}

function localesOf(i18n: unknown): Record<string, string> | undefined {
  if (!isJsonObject(i18n)) return undefined;
  const texts: Record<string, string> = {};
  for (const [locale, text] of Object.entries(i18n)) {
    if (!/^[a-z]{2}_[a-z]{2}$/.test(locale) || typeof text !== "string") return undefined;
    texts[locale] = text;
  }
  return texts;
}

/** The card of `{type: "raw", data}`; there are no templates here. */
function cardOf(platform: Platform, card: unknown): JsonObject | undefined {
  if (!isJsonObject(card) || card.type !== "raw" || !isJsonObject(card.data)) return undefined;
  try {
    checkCard(card.data, platform.cards.facts);
  } catch (error) {
    if (error instanceof CardProblem) return undefined;
    throw error;
  }
  return isTooLarge(cardBytes(card.data)) ? undefined : card.data;
}

/** The delayed update of a card that a person has used (delayed update page). */
export function cardUpdateRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/interactive/v1/card/update",
      handle: (call) => update(platform, call),
    },
  ];
}

function update(platform: Platform, call: ApiCallContext): JsonObject {
  const { token: value, card } = call.body;
  if (typeof value !== "string" || !isJsonObject(card)) {
    throw new PlatformError(10002, "token and card are required");
  }
  const token = platform.cardTokens.usable(value);
  const entity = platform.cards.ofMessage(token.messageId);
  if (entity === undefined || entity.appId !== call.app.appId) {
    throw new PlatformError(200310, "the card belongs to another app");
  }
  if (platform.messages.get(token.messageId)?.recalled === true) {
    throw new PlatformError(200000, "the message of the card was recalled");
  }
  const { open_ids: openIds, ...json } = card;
  checkUpdate(platform, entity, { json, openIds });
  token.uses += 1;
  platform.cards.change(entity, json, { enable: true });
  return success({});
}

function checkUpdate(
  platform: Platform,
  entity: CardEntity,
  { json, openIds }: { json: JsonObject; openIds: unknown },
): void {
  if (json.type === "template") throw new PlatformError(10002, "template is not existed");
  if (isDowngrade(entity.json, json)) {
    throw new PlatformError(200830, "card schema V2 can not change to V1");
  }
  if (!isShared(json) && (!Array.isArray(openIds) || openIds.length === 0)) {
    throw new PlatformError(300090, "open_ids is required for a card that is not shared");
  }
  if (isTooLarge(cardBytes(json))) throw new PlatformError(100000, "the card is too large");
  try {
    checkCard(json, platform.cards.facts);
  } catch (error) {
    throw error instanceof CardProblem ? new PlatformError(11311, error.message) : error;
  }
}
