import { PlatformError } from "./platform-error.ts";

/**
 * What can be wrong with a card, with the code of the card API (CardKit error matrix) and the sub-code that sending
 * puts into `ext=ErrCode: …` of 230099 (card patch page). The limit on tables has been met as 230099 in both.
 */
const codes = {
  malformed: { cardKit: 10002, send: 200621 },
  invalid: { cardKit: 200220, send: 200621 },
  schema: { cardKit: 300303, send: 200621 },
  empty: { cardKit: 300307, send: 200621 },
  not_shared: { cardKit: 300302, send: 200621 },
  unknown_tag: { cardKit: 200220, send: 200861 },
  duplicate_id: { cardKit: 300301, send: 300301 },
  too_many_elements: { cardKit: 300305, send: 11310 },
  too_deep: { cardKit: 200220, send: 11310 },
  too_many_tables: { cardKit: 230099, send: 11310 },
  form_name: { cardKit: 200220, send: 200530 },
  unknown_person: { cardKit: 200220, send: 100290 },
  unknown_image: { cardKit: 200220, send: 200570 },
} as const;

export type CardProblemKind = keyof typeof codes;

/** Why a card is refused, before it is known who asked. */
export class CardProblem extends Error {
  readonly kind: CardProblemKind;

  constructor(kind: CardProblemKind, message: string) {
    super(message);
    this.name = "CardProblem";
    this.kind = kind;
  }
}

/** The refusal of a message with this card. */
export function refusedOnSend({ kind, message }: CardProblem): PlatformError {
  return contentRefusal(codes[kind].send, message);
}

/** 230099 with a sub-code. */
export function contentRefusal(subCode: number, message: string): PlatformError {
  return new PlatformError(230099, `Failed to create card content, ext=ErrCode: ${subCode}; ErrMsg: ${message}; `);
}

/** The refusal of a card API call; the sub-code is in the text here too. */
export function refusedByCardKit({ kind, message }: CardProblem): PlatformError {
  return new PlatformError(codes[kind].cardKit, `ErrCode: ${codes[kind].send}; ErrMsg: ${message};`);
}

/** Runs a check and turns its problem into the refusal of the caller's API. */
export function refusing<Result>(refusal: (problem: CardProblem) => PlatformError, check: () => Result): Result {
  try {
    return check();
  } catch (error) {
    throw error instanceof CardProblem ? refusal(error) : error;
  }
}
