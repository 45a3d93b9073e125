import { isDowngrade } from "./card-message.ts";
import { CardProblem } from "./card-problem.ts";
import { cardBytes, isTooLarge, type CardEntity } from "./card-store.ts";
import { checkCard } from "./card-validator.ts";
import type { CardClickResult, CardToast } from "./card-view.ts";
import type { DeliveryAttempt } from "./delivery.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";
import type { Platform } from "./platform.ts";

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
export function failureCode({ transport, acknowledged, status, error = "" }: DeliveryAttempt): number {
  if (acknowledged) return 0;
  if (transport === "none") return notConfigured;
  if (error === "timeout") return timeout;
  if (/ENOTFOUND|EAI_AGAIN/.test(error)) return nameNotResolved;
  return status === undefined ? notReached : badStatus;
}

export function failure(code: number): CardClickResult {
  return { code, cardChanged: false };
}

/** Applies the answer of a callback: a toast, and a card that takes the place of the old one. */
export function applyAnswer(platform: Platform, entity: CardEntity, answer: unknown): CardClickResult {
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
