import { Component, createRef, type ComponentChildren, type VNode } from "preact";
import type { SimCardView, SimMessage } from "../routes.ts";
import { cardView } from "./card.tsx";
import type { CardContext, CardUse } from "./card-controls.tsx";
import { type CardPart, eachTagged, inLocale, partOf, textOf } from "./card-part.ts";
import {
  imageView,
  linkedText,
  markdownView,
  offeredReactions,
  reactionView,
  withSigns,
} from "./markdown-view.tsx";
import type { Store } from "./store.ts";
import type { Words } from "./words.ts";

interface MessageProps {
  message: SimMessage;
  store: Store;
  words: Words;
  /** What can be done with a message. */
  actions: MessageActions;
  /** Settles when the component may be used again. */
  useCard: (message: SimMessage, use: CardUse) => Promise<void>;
}

export interface MessageActions {
  reply(message: SimMessage, inThread: boolean): void;
  redeliver(message: SimMessage): void;
  recall(message: SimMessage): void;
  edit(message: SimMessage): void;
  react(message: SimMessage, emojiType: string): void;
  say(text: string): void;
}

/** One message. It is drawn again when it or the language changes, and while its card types. */
export class Message extends Component<MessageProps> {
  /** The component of the card that waits for its answer. */
  #busy: string | undefined;
  readonly #root = createRef<HTMLLIElement>();
  readonly #still = matchMedia("(prefers-reduced-motion: reduce)");
  readonly #typing = createCardTyping({
    onType: () => this.forceUpdate(),
    instant: () =>
      this.#still.matches || document.hidden || this.#root.current?.checkVisibility() !== true,
  });

  override componentWillMount(): void {
    this.#type(this.props);
  }

  override componentWillReceiveProps(next: MessageProps): void {
    if (next.message !== this.props.message) this.#type(next);
  }

  override shouldComponentUpdate(next: MessageProps): boolean {
    return next.message !== this.props.message || next.words !== this.props.words;
  }

  override componentWillUnmount(): void {
    this.#typing.stop();
  }

  #type({ message: { card } }: MessageProps): void {
    if (card !== undefined) this.#typing.show(card);
  }

  #use(wanted: CardUse): void {
    if (this.#busy !== undefined) return;
    this.#busy = wanted.elementId ?? "";
    this.forceUpdate();
    void this.props.useCard(this.props.message, wanted).finally(() => {
      this.#busy = undefined;
      this.forceUpdate();
    });
  }

  /** Who, when, what it answers, its content, reactions, and what can be done with it. */
  override render(): VNode {
    const { message, store, words } = this.props;
    const context: CardContext = {
      words,
      nameOf: (id) => store.nameOf(id),
      typed: this.#typing.typed,
      growing: this.#typing.growing,
      streaming: message.card?.streaming === true,
      busy: this.#busy,
      use: (use) => this.#use(use),
    };
    const bot = store.isBot(message.senderId);
    return (
      <li
        class={bot ? "message from-bot" : "message"}
        data-message-id={message.messageId}
        ref={this.#root}
      >
        <Avatar name={store.nameOf(message.senderId)} bot={bot} />
        <div class="said">
          {headView(this.props)}
          <div class={message.card === undefined || message.recalled ? "bubble" : "bubble bare"}>
            {quoteView(this.props)}
            <div class="content">
              {message.recalled ? (
                <p class="faint">{words.recalled}</p>
              ) : (
                contentView(message, context)
              )}
            </div>
          </div>
          {message.reactions.length > 0 && (
            <div class="reactions">
              {message.reactions.map(({ reactionId, emojiType, operatorId }) => (
                <span class="chip" key={reactionId} title={store.nameOf(operatorId)}>
                  {reactionView(emojiType)}
                </span>
              ))}
            </div>
          )}
          {followUpsView(this.props)}
        </div>
      </li>
    );
  }
}

function headView({ message, store, words, actions }: MessageProps): VNode {
  const time = new Date(message.createdAt);
  const today = time.toDateString() === new Date().toDateString();
  const clock = time.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  return (
    <header>
      <strong>{store.nameOf(message.senderId)}</strong>
      {store.isBot(message.senderId) && <span class="tag">{words.bot}</span>}
      {message.threadId !== undefined && <span class="tag">{words.inThread}</span>}
      <time dateTime={time.toISOString()}>
        {today ? clock : `${time.toLocaleDateString()} ${clock}`}
      </time>
      {message.edits > 0 && <span class="faint">{words.edited}</span>}
      {!message.recalled && actionsView(message, { words, store, actions })}
    </header>
  );
}

/** A round mark with the first letter, in a colour of its own. */
export function Avatar({ name, bot }: { name: string; bot: boolean }): VNode {
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0) ?? 0;
  return (
    <span class={`avatar ${bot ? "avatar-bot" : `avatar-${sum % 5}`}`} aria-hidden="true">
      {[...name][0] ?? "?"}
    </span>
  );
}

function quoteView({ message, store, words }: MessageProps): VNode | undefined {
  const parent = store.message(message.parentId);
  if (parent === undefined) return undefined;
  const text = parent.recalled ? words.recalled : briefOf(parent, words).slice(0, 120);
  return (
    <blockquote class="quote">{withSigns(`${store.nameOf(parent.senderId)}: ${text}`)}</blockquote>
  );
}

/** A message in one line, as the list of chats shows it: cards by their summary. */
export function briefOf(message: SimMessage, words: Words): string {
  if (message.recalled) return words.recalled;
  if (message.card === undefined) return message.text;
  const { config } = inLocale(message.card.json, words.locale);
  const summary = textOf(partOf(partOf(config).summary).content);
  if (summary !== "") return summary;
  return message.card.streaming ? `[${words.generating}]` : message.text;
}

function followUpsView({ message: { followUps = [] }, actions }: MessageProps): VNode | undefined {
  if (followUps.length === 0) return undefined;
  return (
    <div class="reactions">
      {followUps.map((text) => (
        <button type="button" class="chip" onClick={() => actions.say(text)}>
          {text}
        </button>
      ))}
    </div>
  );
}

function actionsView(
  message: SimMessage,
  { words, store, actions }: { words: Words; store: Store; actions: MessageActions },
): VNode {
  const mine = !store.isBot(message.senderId);
  return (
    <div class="actions">
      {offeredReactions.map((emojiType, at) =>
        action(
          at === 0 ? words.react : "👎",
          () => actions.react(message, emojiType),
          `${words.react} ${emojiType}`,
        ),
      )}
      {action(words.replyTo, () => actions.reply(message, false))}
      {action(words.replyInThread, () => actions.reply(message, true))}
      {mine && action(words.redeliver, () => actions.redeliver(message))}
      {mine && message.messageType === "text" && action(words.edit, () => actions.edit(message))}
      {mine && action(words.recall, () => actions.recall(message))}
    </div>
  );
}

function action(label: string, onClick: () => void, title = label): VNode {
  return (
    <button type="button" aria-label={title} title={title} onClick={onClick}>
      {withSigns(label)}
    </button>
  );
}

type Show = (content: CardPart, context: CardContext, message: SimMessage) => ComponentChildren;

/** What a message says, by its kind; kinds without a form of their own are named. */
function contentView(message: SimMessage, context: CardContext): ComponentChildren {
  if (message.card !== undefined) {
    return cardView(inLocale(message.card.json, context.words.locale), context);
  }
  const show = Object.hasOwn(shows, message.messageType) ? shows[message.messageType] : undefined;
  if (show === undefined) return box("file", message.text, message.messageType);
  return show(contentOf(message), context, message);
}

function contentOf(message: SimMessage): CardPart {
  try {
    return partOf(JSON.parse(message.content));
  } catch {
    return {};
  }
}

function box(icon: string, title: string, detail: string): VNode {
  return (
    <div class="attachment">
      <span class={`attachment-icon icon icon-${icon}`} aria-hidden="true" />
      <div>
        <strong>{title}</strong>
        {detail !== "" && <div class="faint">{detail}</div>}
      </div>
    </div>
  );
}

const shows: Readonly<Record<string, Show>> = {
  text: (_content, _context, { text }) => <p class="plain">{linkedText(text)}</p>,
  post: (_content, context, { text }) => markdownView(text, context),
  image: ({ image_key }, context) =>
    imageView({ key: textOf(image_key), alt: context.words.image }),
  file: ({ file_name }, { words }) => box("file", textOf(file_name), words.file),
  folder: ({ file_name }, { words }) => box("folder", textOf(file_name), words.folder),
  audio: ({ duration }, { words }) => box("audio", words.audio, seconds(duration)),
  media: ({ file_name, duration }) => box("video", textOf(file_name), seconds(duration)),
  sticker: (_content, { words }) => box("sticker", words.sticker, ""),
  location: ({ name }, { words }) => box("location", textOf(name), words.location),
  share_user: ({ user_id }, context) =>
    box("contact", context.nameOf(textOf(user_id)), context.words.contact),
  share_chat: (_content, { words }) => box("chat", words.sharedChat, ""),
  merge_forward: (_content, { words }) => box("forward", words.forwarded, ""),
  todo: ({ summary }, { words }) => box("todo", words.todo, textOf(partOf(summary).title)),
  vote: ({ topic }, { words }) => box("todo", textOf(topic), words.vote),
};

function seconds(durationMs: unknown): string {
  return typeof durationMs === "number" ? `${Math.round(durationMs / 1000)} s` : "";
}

/* ---- Typing ---- */

const defaultFrequencyMs = 70;
const shortestTickMs = 16;

/** How much of the texts of a streaming card has been typed ("Streaming updates"). */
interface CardTyping {
  /** Takes the next state of the card. */
  show(card: SimCardView): void;
  /** What has been typed of an element's text. */
  typed(elementId: string, text: string): string;
  /** The element that grew last, while the card streams. */
  readonly growing: string | undefined;
  stop(): void;
}

interface CardTypingParts {
  /** More was typed. */
  onType: () => void;
  /** Whether texts appear at once: the page is hidden, or motion is not wanted. */
  instant: () => boolean;
}

interface TypedText {
  text: string;
  shown: number;
}

function createCardTyping({ onType, instant }: CardTypingParts): CardTyping {
  const texts = new Map<string, TypedText>();
  let pace = paceOf({});
  let growing: string | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let lastAt = 0;
  const pending = (): TypedText[] =>
    [...texts.values()].filter(({ text, shown }) => shown < text.length);
  const schedule = (): void => {
    if (timer !== undefined || pending().length === 0) return;
    lastAt = performance.now();
    timer = setTimeout(tick, Math.max(shortestTickMs, pace.frequencyMs));
  };
  const tick = (): void => {
    timer = undefined;
    const steps = (performance.now() - lastAt) / pace.frequencyMs;
    const more = Math.max(1, Math.round(steps * pace.step));
    for (const typed of pending()) typed.shown = characterEnd(typed.text, typed.shown + more);
    onType();
    schedule();
  };
  return {
    show({ json, streaming }) {
      pace = paceOf(partOf(partOf(json.config).streaming_config));
      const current = streamedTexts(json);
      for (const id of texts.keys()) if (!current.has(id)) texts.delete(id);
      for (const [id, text] of current) {
        const before = texts.get(id);
        if (before?.text === text && streaming) continue;
        if (before !== undefined && before.text !== text) growing = id;
        texts.set(id, {
          text,
          shown: streaming && !instant() ? startOf(before, text, pace.delays) : text.length,
        });
      }
      if (!streaming) growing = undefined;
      schedule();
    },
    typed(elementId, text) {
      const typed = texts.get(elementId);
      return typed === undefined || typed.text !== text ? text : text.slice(0, typed.shown);
    },
    get growing() {
      return growing;
    },
    stop() {
      clearTimeout(timer);
      texts.clear();
    },
  };
}

/** Where typing continues: behind the old text, at once (`fast`) or where it was; another text is there at once. */
function startOf(before: TypedText | undefined, text: string, delays: boolean): number {
  if (before === undefined || !text.startsWith(before.text)) return text.length;
  return delays ? before.shown : before.text.length;
}

function characterEnd(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return Math.min(text.length, last >= 0xd800 && last <= 0xdbff ? at + 1 : at);
}

interface Pace {
  frequencyMs: number;
  step: number;
  delays: boolean;
}

function paceOf(config: CardPart): Pace {
  return {
    frequencyMs: positive(config.print_frequency_ms, defaultFrequencyMs),
    step: positive(config.print_step, 1),
    delays: config.print_strategy === "delay",
  };
}

/** A number for this kind of device. */
function positive(value: unknown, fallback: number): number {
  const { pc, default: usual } = partOf(value);
  const chosen = pc ?? usual;
  return typeof chosen === "number" && chosen > 0 ? chosen : fallback;
}

/** The texts that can be streamed, by element. */
function streamedTexts(card: CardPart): Map<string, string> {
  const found = new Map<string, string>();
  eachTagged(card, (part) => {
    if (part.tag !== "markdown" && part.tag !== "plain_text") return;
    if (typeof part.element_id === "string") found.set(part.element_id, textOf(part.content));
  });
  return found;
}
