import type { SimMessage } from "../routes.ts";
import { type CardPart, inLocale, mount, node, partOf, textOf, type ViewElement, type ViewNode } from "./view-node.ts";
import { createCardTyping } from "./card-typing.ts";
import { type CardContext, type CardUse, cardView } from "./card-view.ts";
import { imageView, linkedText, markdownView, offeredReaction, reactionView, withSigns } from "./markdown-view.ts";
import type { Store } from "./store.ts";
import type { Words } from "./words.ts";

interface MessageParts {
  store: Store;
  words: Words;
  /** Where an image of the platform is found. */
  imageUrl: (key: string) => string | undefined;
  /** How many times faster than usual cards type. */
  speed: () => number;
  /** What can be done with a message; absent where nothing can, as in a recording. */
  actions: MessageActions | undefined;
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

/** One message in the page. */
export interface MessageView {
  readonly root: HTMLElement;
  /** Shows the message as it is now; a card types on from what it has shown. */
  show(message: SimMessage): void;
  stop(): void;
}

export function messageView(parts: MessageParts, first: SimMessage): MessageView {
  const { store, words } = parts;
  let message = first;
  let busy: string | undefined;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const typing = createCardTyping({
    onType: () => draw(),
    speed: parts.speed,
    instant: () => still.matches || document.hidden || !mounted.root.checkVisibility(),
  });
  const use = (wanted: CardUse): void => {
    if (busy !== undefined) return;
    busy = wanted.elementId ?? "";
    draw();
    void parts.useCard(message, wanted).finally(() => {
      busy = undefined;
      draw();
    });
  };
  const view = (): ViewElement => {
    const context: CardContext = {
      words,
      nameOf: store.nameOf,
      imageUrl: parts.imageUrl,
      typed: typing.typed,
      growing: typing.growing,
      streaming: message.card?.streaming === true,
      busy,
      use,
    };
    return messageElement(parts, message, context);
  };
  const mounted = mount(view());
  if (first.card !== undefined) typing.show(first.card);
  const draw = (): void => mounted.show(view());
  return {
    root: mounted.root,
    show(next) {
      message = next;
      if (next.card !== undefined) typing.show(next.card);
      draw();
    },
    stop: typing.stop,
  };
}

/** Who, when, what it answers, its content, reactions, and what can be done with it. */
function messageElement(parts: MessageParts, message: SimMessage, context: CardContext): ViewElement {
  const { store } = parts;
  const bot = store.isBot(message.senderId);
  const name = store.nameOf(message.senderId);
  const shape = message.card === undefined || message.recalled ? "bubble" : "bubble bare";
  const body = message.recalled
    ? [node("p", { class: "faint" }, [context.words.recalled])]
    : contentView(message, context);
  const said = node("div", { class: "said" }, [
    headView(parts, message),
    node("div", { class: shape }, [quoteView(parts, message), node("div", { class: "content" }, body)]),
    reactionsView(parts, message),
    followUpsView(parts, message),
  ]);
  return node("li", { class: bot ? "message from-bot" : "message", "data-message-id": message.messageId }, [
    avatarView(name, bot),
    said,
  ]);
}

function headView(parts: MessageParts, message: SimMessage): ViewElement {
  const { store, words } = parts;
  const time = new Date(message.createdAt);
  const today = time.toDateString() === new Date().toDateString();
  const clock = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return node("header", {}, [
    node("strong", {}, [store.nameOf(message.senderId)]),
    store.isBot(message.senderId) ? node("span", { class: "tag", key: "bot" }, [words.bot]) : undefined,
    message.threadId === undefined ? undefined : node("span", { class: "tag", key: "thread" }, [words.inThread]),
    node("time", { datetime: time.toISOString() }, [today ? clock : `${time.toLocaleDateString()} ${clock}`]),
    message.edits > 0 ? node("span", { class: "faint" }, [words.edited]) : undefined,
    message.recalled ? undefined : actionsView(parts, message),
  ]);
}

/** A round mark with the first letter, in a colour of its own. */
export function avatarView(name: string, bot: boolean): ViewElement {
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0) ?? 0;
  const colour = bot ? "avatar-bot" : `avatar-${sum % 5}`;
  return node("span", { class: `avatar ${colour}`, "aria-hidden": "true" }, [[...name][0] ?? "?"]);
}

function quoteView({ store, words }: MessageParts, message: SimMessage): ViewElement | undefined {
  const parent = message.parentId === undefined ? undefined : store.message(message.parentId);
  if (parent === undefined) return undefined;
  const text = parent.recalled ? words.recalled : briefOf(parent, words).slice(0, 120);
  return node("blockquote", { class: "quote" }, withSigns(`${store.nameOf(parent.senderId)}: ${text}`));
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

function reactionsView({ store }: MessageParts, message: SimMessage): ViewElement | undefined {
  if (message.reactions.length === 0) return undefined;
  const chips = message.reactions.map(({ reactionId, emojiType, operatorId }) => {
    const by = store.nameOf(operatorId);
    return node("span", { class: "chip", key: reactionId, title: by }, reactionView(emojiType));
  });
  return node("div", { class: "reactions", key: "reactions" }, chips);
}

function followUpsView({ actions }: MessageParts, message: SimMessage): ViewElement | undefined {
  if (message.followUps === undefined || message.followUps.length === 0 || actions === undefined) return undefined;
  const chips = message.followUps.map((text) =>
    node("button", { type: "button", class: "chip", onclick: () => actions.say(text) }, [text]),
  );
  return node("div", { class: "reactions", key: "follow-ups" }, chips);
}

function actionView(label: string, onclick: () => void, title = label): ViewElement {
  return node("button", { type: "button", "aria-label": title, title, onclick }, [label]);
}

function actionsView({ store, words, actions }: MessageParts, message: SimMessage): ViewElement | undefined {
  if (actions === undefined) return undefined;
  const mine = !store.isBot(message.senderId);
  return node("div", { class: "actions" }, [
    actionView(words.react, () => actions.react(message, offeredReaction), `${words.react} ${offeredReaction}`),
    actionView(words.replyTo, () => actions.reply(message, false)),
    actionView(words.replyInThread, () => actions.reply(message, true)),
    mine ? actionView(words.redeliver, () => actions.redeliver(message)) : undefined,
    mine && message.messageType === "text" ? actionView(words.edit, () => actions.edit(message)) : undefined,
    mine ? actionView(words.recall, () => actions.recall(message)) : undefined,
  ]);
}

type Show = (content: CardPart, context: CardContext, message: SimMessage) => ViewNode[];

/** What a message says, by its kind; kinds without a form of their own are named. */
function contentView(message: SimMessage, context: CardContext): ViewNode[] {
  if (message.card !== undefined) return [cardView(inLocale(message.card.json, context.words.locale), context)];
  const show = Object.hasOwn(shows, message.messageType) ? shows[message.messageType] : undefined;
  return (show ?? otherKind)(contentOf(message), context, message);
}

function contentOf(message: SimMessage): CardPart {
  try {
    return partOf(JSON.parse(message.content));
  } catch {
    return {};
  }
}

function box(icon: string, title: string, detail: string): ViewElement {
  return node("div", { class: "attachment" }, [
    node("span", { class: `attachment-icon icon icon-${icon}`, "aria-hidden": "true" }),
    node("div", {}, [
      node("strong", {}, [title]),
      detail === "" ? undefined : node("div", { class: "faint" }, [detail]),
    ]),
  ]);
}

const shows: Readonly<Record<string, Show>> = {
  text: (_content, _context, { text }) => [node("p", { class: "plain" }, linkedText(text))],
  post: (_content, context, { text }) => markdownView(text, context),
  image: ({ image_key }, context) => [imageView({ key: textOf(image_key), alt: context.words.image }, context)],
  file: ({ file_name }, { words }) => [box("file", textOf(file_name), words.file)],
  folder: ({ file_name }, { words }) => [box("folder", textOf(file_name), words.folder)],
  audio: ({ duration }, { words }) => [box("audio", words.audio, seconds(duration))],
  media: ({ file_name, duration }) => [box("video", textOf(file_name), seconds(duration))],
  sticker: (_content, { words }) => [box("sticker", words.sticker, "")],
  location: ({ name }, { words }) => [box("location", textOf(name), words.location)],
  share_user: ({ user_id }, context) => [box("contact", context.nameOf(textOf(user_id)), context.words.contact)],
  share_chat: (_content, { words }) => [box("chat", words.sharedChat, "")],
  merge_forward: (_content, { words }) => [box("forward", words.forwarded, "")],
  todo: ({ summary }, { words }) => [box("todo", words.todo, textOf(partOf(summary).title))],
  vote: ({ topic }, { words }) => [box("todo", textOf(topic), words.vote)],
};

function otherKind(_content: CardPart, _context: CardContext, { messageType, text }: SimMessage): ViewNode[] {
  return [box("file", text, messageType)];
}

function seconds(durationMs: unknown): string {
  return typeof durationMs === "number" ? `${Math.round(durationMs / 1000)} s` : "";
}
