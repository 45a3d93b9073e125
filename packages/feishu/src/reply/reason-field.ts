import { type Clock, pause } from "@larkline/protocol/clock";
import { type CardElement, inLanguages, plainText } from "../cards/card.ts";
import { cardTexts } from "../cards/texts.ts";
import type { FeishuApi } from "../feishu-api.ts";
import { isKind } from "../transport/error.ts";

/** Most characters of a reason. */
const maxReasonCharacters = 500;

/** Above the numbers of the reply's writers. A second operation under it is refused, so a card gets one field. */
const sequence = 2_147_483_000;
/** A card is locked until the click on it is answered. */
const lockedRetryMs = 300;
const lockedRetries = 8;

/**
 * Adds the field for the reason of a rating below the answer that the message shows, once. Rejects with a FeishuError
 * when the card takes none, or is still locked when `signal` aborts.
 */
export async function addReasonField(
  { api, clock }: { api: FeishuApi; clock: Clock },
  { messageId, turn, signal }: { messageId: string; turn: string; signal: AbortSignal },
): Promise<void> {
  const params = {
    type: "insert_after",
    target_element_id: "footer",
    elements: [reasonField(turn)],
  };
  const actions = [{ action: "add_elements", params }];
  const cardId = await api.cards.idOf(messageId);
  for (let tries = 0; ; tries += 1) {
    try {
      return await api.cards.batch({ cardId, sequence, uuid: `${cardId}-why`, actions });
    } catch (error) {
      if (isKind(error, "sequence_behind", "applied_before")) return;
      if (!isKind(error, "card_locked") || tries >= lockedRetries || signal.aborted) throw error;
      await pause(clock, lockedRetryMs, signal);
    }
  }
}

/** It needs no form, so one can use it without a button. */
function reasonField(turn: string): CardElement {
  return inLanguages({ language: "en", bilingual: true }, (language) => ({
    tag: "input",
    element_id: "rate_reason",
    name: "rate_reason",
    placeholder: plainText(cardTexts[language].whyHint),
    max_length: maxReasonCharacters,
    width: "fill",
    behaviors: [{ type: "callback", value: { larkline: "rate", turn } }],
  }));
}
