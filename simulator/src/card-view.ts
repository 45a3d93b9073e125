import type { JsonObject } from "./json-fields.ts";

/** A card as people see it now. */
export interface SimCardView {
  /** Id of the card entity; absent for a card that was sent as plain JSON. */
  cardId?: string;
  /** The current card, streamed text included. */
  json: JsonObject;
  /** Whether the card still types. */
  streaming: boolean;
  /** Grows by one with every visible change. */
  version: number;
}

/** How people see a streamed text arrive: the old one is continued, or the whole is swapped. */
export type CardFrameMode = "typewriter" | "replace";

/** One accepted text of a streamed element. */
export interface SimCardFrame {
  elementId: string;
  /** The full text from this frame on. */
  text: string;
  mode: CardFrameMode;
  /** Milliseconds since the epoch. */
  at: number;
}

export type CardOperationName =
  | "create"
  | "send"
  | "settings"
  | "update"
  | "batch_update"
  | "add_elements"
  | "update_element"
  | "patch_element"
  | "delete_element"
  | "content";

/** One operation that a card entity was asked for; `code` is the platform's answer, 0 for success. */
export interface SimCardOperation {
  op: CardOperationName;
  /** Absent for create and send. */
  sequence?: number;
  code: number;
  at: number;
}

/** A card entity with its history. */
export interface SimCard {
  cardId: string;
  appId: string;
  /** The message that shows it, once it was sent. */
  messageId?: string;
  json: JsonObject;
  streaming: boolean;
  /** The last sequence that was accepted; 0 before the first. */
  sequence: number;
  frames: readonly SimCardFrame[];
  operations: readonly SimCardOperation[];
}

/**
 * What a person does with a component of a card. Give `elementId` (or the button's text in its place) to take the
 * value and the name from the card as it is now, or `value` to send what an older card carried.
 */
export interface CardClick {
  messageId: string;
  /** The person who clicks. */
  openId: string;
  /** `element_id`, `name` or text of the component. */
  elementId?: string;
  value?: JsonObject | string;
  name?: string;
  /** What stands in the form, by component name; with it the click submits the form. */
  formValue?: JsonObject;
  inputValue?: string;
  option?: string;
  /** The callback comes without the operator's `open_id`, as has been met in the field. */
  withoutOpenId?: boolean;
}

export interface CardToast {
  type: "info" | "success" | "error" | "warning";
  content: string;
  /** The content by locale: `zh_cn`, `en_us` and so on. */
  i18n?: Readonly<Record<string, string>>;
}

/** What the person saw after the click. */
export interface CardClickResult {
  /** 0, or the code that the client shows: 200340 to 200343, 200671 to 200673, 200830 (card callback page). */
  code: number;
  toast?: CardToast;
  /** Whether the answer changed the card. */
  cardChanged: boolean;
}

/** The answer to a repeated `uuid`: success, 200770, or 300317. */
export type DuplicateCardUuid = "success" | "conflict" | "behind";
