import { type Clock, systemRandom } from "@larkline/protocol/clock";
import type { CardFacts } from "./card-validator.ts";
import type { SimCardView, MessageStore, SimMessage } from "./message-store.ts";
import { type JsonObject, isJsonObject, newId, PlatformError } from "./open-api.ts";

/** Streaming ends by itself this long after it was last enabled (streaming update guide). */
const streamingLifetimeMs = 600_000;
const lifetimeMs = 14 * 86_400_000;
const maximumBytes = 30 * 1024;

/** A card with its state: one that the card API made, or the card of a message. */
export interface CardEntity {
  readonly cardId: string;
  /** The app that made it; only this app may work on it. */
  readonly appId: string;
  readonly createdAt: number;
  /** Whether the app knows the id: false for a message's card until it is converted. */
  named: boolean;
  json: JsonObject;
  /** The size of the card as JSON text. */
  bytes: number;
  version: number;
  sequence: number;
  messageId?: string;
  /** Milliseconds since the epoch when streaming was last enabled; undefined while it is off. */
  streamingSince: number | undefined;
  /** Hashes of the requests that were applied, by `uuid`. */
  readonly uuids: Map<string, string>;
  readonly frames: CardFrames;
  readonly operations: SimCardOperation[];
  /** Clicks that are not answered yet. */
  openClicks: number;
  /** How often it was refused as "cardid is invalid" on purpose. */
  refusedSends: number;
  /** Ends the wait for the end of streaming. */
  cancelExpiry?: () => void;
}

/** What is left of the card of a message in a later process. */
export type KeptCard = Pick<
  CardEntity,
  "cardId" | "appId" | "createdAt" | "named" | "json" | "version" | "sequence"
> & {
  messageId: string;
  streamingSince?: number;
};

/** The cards of the tenant. Changes of a card that a message shows are announced. */
export interface CardStore extends CardRules {
  create(card: { appId: string; json: JsonObject; named: boolean }): CardEntity;
  /** Takes a card of an earlier process as it was; what had been done to it is forgotten. */
  restore(card: KeptCard): CardEntity;
  get(cardId: string): CardEntity | undefined;
  ofMessage(messageId: string): CardEntity | undefined;
  /** The message shows the card from now on. */
  attach(entity: CardEntity, messageId: string): void;
  /** Shows another JSON; with `enable`, streaming starts anew when the card asks for it. */
  change(entity: CardEntity, json: JsonObject, options: { enable: boolean; bytes?: number }): void;
  view(entity: CardEntity): SimCardView;
  describe(cardId: string): SimCard | undefined;
  isStreaming(entity: CardEntity): boolean;
  isExpired(entity: CardEntity): boolean;
  /** Ends the waits for the end of streaming. */
  close(): void;
}

/** What cards may refer to, and the moods of the platform. */
export interface CardRules {
  readonly facts: CardFacts;
  /** The answer to a repeated `uuid` with the same request. */
  readonly duplicateUuid: DuplicateCardUuid;
  /** The first send of each entity is refused. */
  readonly invalidOnce: boolean;
}

interface CardStoreParts {
  rules: CardRules;
  clock: Clock;
  messages: MessageStore;
  announce: (message: SimMessage) => void;
}

export function cardBytes(json: JsonObject): number {
  return Buffer.byteLength(JSON.stringify(json), "utf8");
}

/** Whether a card of this size is refused: 30 KB of UTF-8 text (card create page). */
export function isTooLarge(bytes: number): boolean {
  return bytes > maximumBytes;
}

export function createCardStore({ rules, clock, messages, announce }: CardStoreParts): CardStore {
  const byId = new Map<string, CardEntity>();
  const byMessage = new Map<string, CardEntity>();

  const isStreaming = ({ streamingSince }: CardEntity): boolean =>
    streamingSince !== undefined && clock.now() - streamingSince < streamingLifetimeMs;

  const view = (entity: CardEntity): SimCardView => ({
    ...(entity.named ? { cardId: entity.cardId } : {}),
    json: entity.json,
    streaming: isStreaming(entity),
    version: entity.version,
  });

  const show = (entity: CardEntity): void => {
    entity.version += 1;
    if (entity.messageId === undefined) return;
    const change = { card: view(entity), text: cardText(entity.json), updatedAt: clock.now() };
    const message = messages.change(entity.messageId, change);
    if (message !== undefined) announce(message);
  };

  const enable = (entity: CardEntity): void => {
    entity.cancelExpiry?.();
    entity.streamingSince = asksForStreaming(entity.json) ? clock.now() : undefined;
    watchEnd(entity);
  };

  const watchEnd = (entity: CardEntity): void => {
    if (entity.streamingSince === undefined) return;
    const end = (): void => {
      if (entity.streamingSince !== undefined && !isStreaming(entity)) show(entity);
    };
    const leftMs = entity.streamingSince + streamingLifetimeMs - clock.now();
    entity.cancelExpiry = clock.after(Math.max(1, leftMs), end);
  };

  return {
    ...rules,
    create({ appId, json, named }) {
      const entity = newEntity({ appId, json, named, createdAt: clock.now() });
      enable(entity);
      byId.set(entity.cardId, entity);
      return entity;
    },
    restore({ streamingSince, ...kept }) {
      const entity: CardEntity = { ...newEntity(kept), ...kept, streamingSince };
      byId.set(entity.cardId, entity);
      byMessage.set(kept.messageId, entity);
      watchEnd(entity);
      return entity;
    },
    get: (cardId) => byId.get(cardId),
    ofMessage: (messageId) => byMessage.get(messageId),
    attach(entity, messageId) {
      entity.messageId = messageId;
      byMessage.set(messageId, entity);
    },
    change(entity, json, { enable: enabling, bytes }) {
      entity.json = json;
      entity.bytes = bytes ?? cardBytes(json);
      if (enabling || !asksForStreaming(json)) enable(entity);
      show(entity);
    },
    view,
    describe(cardId) {
      const entity = byId.get(cardId);
      return entity === undefined ? undefined : described(entity, isStreaming(entity));
    },
    close() {
      for (const entity of byId.values()) entity.cancelExpiry?.();
    },
    isStreaming,
    isExpired: (entity) => clock.now() - entity.createdAt > lifetimeMs,
  };
}

function newEntity(card: {
  appId: string;
  json: JsonObject;
  named: boolean;
  createdAt: number;
}): CardEntity {
  return {
    ...card,
    cardId: newCardId(),
    bytes: cardBytes(card.json),
    version: 1,
    sequence: 0,
    streamingSince: undefined,
    uuids: new Map(),
    frames: createCardFrames(),
    operations: [],
    openClicks: 0,
    refusedSends: 0,
  };
}

/** Card ids are 19 digits. */
function newCardId(): string {
  return `7${nineDigits()}${nineDigits()}`;
}

function nineDigits(): string {
  return String(Math.floor(systemRandom.fraction() * 1_000_000_000)).padStart(9, "0");
}

function asksForStreaming({ config }: JsonObject): boolean {
  return isJsonObject(config) && config.streaming_mode === true;
}

function described(entity: CardEntity, streaming: boolean): SimCard {
  const { cardId, appId, messageId, json, sequence } = entity;
  return {
    cardId,
    appId,
    ...(messageId === undefined ? {} : { messageId }),
    json,
    streaming,
    sequence,
    frames: entity.frames.list(),
    operations: [...entity.operations],
  };
}

/** A 2.0 card never becomes a 1.0 card again. */
export function isDowngrade(from: JsonObject, to: JsonObject): boolean {
  return from.schema === "2.0" && to.schema !== "2.0";
}

/** Whether everybody sees the same card, which PATCH asks for: JSON 2.0, or 1.0 with `update_multi`. */
export function isShared(card: JsonObject): boolean {
  return card.schema === "2.0" || (isJsonObject(card.config) && card.config.update_multi === true);
}

/** The texts that streamed elements have shown, in order. */
interface CardFrames {
  /** Notes the next text of an element; it types on when the text on the card is a prefix of it. */
  add(frame: { elementId: string; text: string; shown: string; at: number }): void;
  list(): SimCardFrame[];
}

/** Texts that continue each other: all are prefixes of the last, so only that one is kept. */
interface Run {
  text: string;
}

interface Frame {
  elementId: string;
  mode: CardFrameMode;
  run: Run;
  length: number;
  at: number;
}

function createCardFrames(): CardFrames {
  const frames: Frame[] = [];
  const runs = new Map<string, Run>();
  return {
    add({ elementId, text, shown, at }) {
      const mode = text.startsWith(shown) ? "typewriter" : "replace";
      const running = runs.get(elementId);
      const run = running !== undefined && text.startsWith(running.text) ? running : { text };
      run.text = text;
      runs.set(elementId, run);
      frames.push({ elementId, mode, run, length: text.length, at });
    },
    list: () =>
      frames.map(({ elementId, mode, run, length, at }) => ({
        elementId,
        text: run.text.slice(0, length),
        mode,
        at,
      })),
  };
}

/** What a person reads on a card: titles and texts, one a line. Buttons and folded content are left out. */
export function cardText(card: JsonObject): string {
  const header = isJsonObject(card.header) ? card.header : {};
  const body = isJsonObject(card.body) ? card.body.elements : card.elements;
  const lines = [contentOf(header.title), contentOf(header.subtitle), ...linesOf(body)];
  const text = lines.filter((line) => line !== "").join("\n");
  return text === "" ? "[card]" : text;
}

function linesOf(elements: unknown): string[] {
  return Array.isArray(elements)
    ? elements.flatMap((element: unknown) => elementLines(element))
    : [];
}

const readers: Readonly<Record<string, (element: JsonObject) => string[]>> = {
  markdown: (element) => [contentOf(element)],
  plain_text: (element) => [contentOf(element)],
  lark_md: (element) => [contentOf(element)],
  div: (element) => [contentOf(element.text), ...fieldLines(element.fields)],
  img: (element) => [contentOf(element.title)],
  checker: (element) => [contentOf(element.text)],
  input: (element) => [contentOf(element.label)],
  collapsible_panel: panelLines,
  column_set: (element) => linesOf(element.columns),
  table: tableLines,
};

function elementLines(element: unknown): string[] {
  if (!isJsonObject(element) || element.tag === "action") return [];
  const read = readers[String(element.tag)];
  return read === undefined ? linesOf(element.elements) : read(element);
}

function panelLines(panel: JsonObject): string[] {
  const header = isJsonObject(panel.header) ? panel.header : {};
  return [contentOf(header.title), ...(panel.expanded === true ? linesOf(panel.elements) : [])];
}

function tableLines({ columns, rows }: JsonObject): string[] {
  const names = objects(columns).map((column) => String(column.name));
  const titles = objects(columns).map((column) => String(column.display_name ?? column.name));
  const cells = objects(rows).map((row) => names.map((name) => cellText(row[name])).join(" | "));
  return [titles.join(" | "), ...cells];
}

function cellText(value: unknown): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
}

function fieldLines(fields: unknown): string[] {
  return objects(fields).map((field) => contentOf(field.text));
}

function objects(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isJsonObject) : [];
}

function contentOf(text: unknown): string {
  return isJsonObject(text) && typeof text.content === "string" ? text.content : "";
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
  /** The values of the form, by component name; with it the click submits the form. */
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

const tokenLifetimeMs = 30 * 60_000;
const maximumUses = 2;

/** The right to update a card that a person has used (delayed update page). */
export interface CardToken {
  readonly messageId: string;
  readonly createdAt: number;
  /** Whether the callback has had its answer; updates before that fail. */
  answered: boolean;
  uses: number;
}

export interface CardTokens {
  issue(messageId: string): { value: string; token: CardToken };
  /** The token when it can be used: 300020 unknown or not answered yet, 300030 older than 30 min, 300040 used up. */
  usable(value: string): CardToken;
}

export function createCardTokens(clock: Clock): CardTokens {
  const tokens = new Map<string, CardToken>();
  return {
    issue(messageId) {
      const value = newId("c-");
      const token = { messageId, createdAt: clock.now(), answered: false, uses: 0 };
      tokens.set(value, token);
      return { value, token };
    },
    usable(value) {
      const token = tokens.get(value);
      if (token === undefined) throw new PlatformError(300020, "the token is invalid");
      if (!token.answered) {
        throw new PlatformError(300020, "the callback of the token is not answered yet");
      }
      if (clock.now() - token.createdAt > tokenLifetimeMs) {
        throw new PlatformError(300030, "the token is expired");
      }
      if (token.uses >= maximumUses) throw new PlatformError(300040, "the token is used up");
      return token;
    },
  };
}
