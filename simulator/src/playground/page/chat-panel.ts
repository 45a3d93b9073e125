import type { ChatView, SimMessage } from "../routes.ts";
import type { CardUse } from "./card-view.ts";
import { createComposer } from "./composer.ts";
import { button, type Child, element, type ToastKind } from "./element.ts";
import { withSigns } from "./markdown-view.ts";
import { avatarView, briefOf, type MessageActions, messageView, type MessageView } from "./message-view.ts";
import { byTime, chatTitle, type Store } from "./store.ts";
import { mount, node, type ViewElement } from "./view-node.ts";
import type { Words } from "./words.ts";

/** What a panel needs of the page. */
interface PanelControls {
  store: Store;
  words: Words;
  /** Posts to the playground's API and shows a refusal. */
  act: (path: string, body?: object) => Promise<boolean>;
  toast: (kind: ToastKind, text: string) => void;
  imageUrl: (key: string) => string | undefined;
  /** How many times faster than usual cards type. */
  speed: () => number;
  /** A person uses a component of a card. */
  click: (message: SimMessage, openId: string, use: CardUse) => Promise<void>;
}

export interface ChatPanelParts extends PanelControls {
  chat: ChatView;
  /** A recording is only looked at. */
  readOnly?: boolean;
  /** Offers what was recorded of this chat. */
  onDownload?: () => void;
}

/** One chat: its messages and a composer. */
export interface ChatPanel {
  readonly root: HTMLElement;
  /** Shows a new or changed message. */
  show(message: SimMessage): void;
  /** Goes to the end, as when a chat is opened. */
  toEnd(): void;
  stop(): void;
}

export function chatPanel(parts: ChatPanelParts): ChatPanel {
  const { chat, store, words } = parts;
  const titleId = `title-${chat.chatId}`;
  const list = element("ol", { class: "messages", tabindex: "0", role: "log", "aria-labelledby": titleId });
  const empty = element("p", { class: "empty" }, [words.empty]);
  const composer = parts.readOnly === true ? undefined : createComposer(parts, chatTitle(chat, store));
  const actions = composer === undefined ? undefined : actionsOf(parts, composer.replyTo);
  const views = new Map<string, MessageView>();
  const useCard = async (message: SimMessage, use: CardUse): Promise<void> =>
    await parts.click(message, composer?.person() ?? "", use);
  const toEnd = (): void => {
    list.scrollTop = list.scrollHeight;
  };
  // A reader at the end stays there while cards grow; the position of one who has scrolled up does not change.
  let following = true;
  list.addEventListener("scroll", () => {
    following = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  });
  const grown = new MutationObserver(() => following && toEnd());
  grown.observe(list, { childList: true, subtree: true, characterData: true });
  list.addEventListener("load", () => following && toEnd(), true);
  const show = (message: SimMessage): void => {
    empty.remove();
    const known = views.get(message.messageId);
    if (known !== undefined) return known.show(message);
    const view = messageView({ ...parts, actions, useCard }, message);
    views.set(message.messageId, view);
    list.append(view.root);
  };
  const root = element("section", { class: "chat", "aria-labelledby": titleId, "data-chat-id": chat.chatId }, [
    headOf(parts, titleId),
    element("div", { class: "scroll" }, [empty, list]),
    composer?.root,
  ]);
  for (const message of store.state.messages.filter((one) => one.chatId === chat.chatId).toSorted(byTime)) {
    show(message);
  }
  const stop = (): void => {
    grown.disconnect();
    for (const view of views.values()) view.stop();
  };
  return { root, show, toEnd, stop };
}

function headOf({ chat, store, words, onDownload }: ChatPanelParts, titleId: string): HTMLElement {
  const count = `${words.group} · ${chat.members.length}`;
  const kind = chat.type === "p2p" ? words.p2p : chat.topic ? `${words.topicGroup} · ${chat.members.length}` : count;
  const download: Child =
    onDownload === undefined
      ? undefined
      : button(words.download, { class: "quiet", title: words.downloadHint }, onDownload);
  return element("header", { class: "chat-head" }, [
    element("h2", { id: titleId }, [chatTitle(chat, store)]),
    element("span", { class: "tag" }, [kind]),
    element("span", { class: "grow" }),
    download,
  ]);
}

function actionsOf(
  { chat, act, store, words }: ChatPanelParts,
  reply: (message: SimMessage, inThread: boolean) => void,
): MessageActions {
  const [first = ""] = chat.members;
  return {
    reply,
    redeliver: ({ messageId }) => void act("redeliver", { messageId }),
    recall: ({ messageId }) => void act("recall", { messageId }),
    edit({ messageId, text }) {
      const changed = globalThis.prompt(words.edit, text)?.trim() ?? "";
      if (changed !== "" && changed !== text) void act("edit", { messageId, text: changed });
    },
    react: ({ messageId, reactions }, emojiType) => {
      const given = reactions.some((one) => one.emojiType === emojiType && !store.isBot(one.operatorId));
      if (!given) void act("react", { messageId, from: first, emojiType });
    },
    say: (text) => void act("messages", { chatId: chat.chatId, from: first, text, mention: chat.type === "group" }),
  };
}

export interface ChatList {
  readonly root: HTMLElement;
  update(): void;
}

interface ChatListParts {
  store: Store;
  words: Words;
  chosen: () => string | undefined;
  onChoose: (chatId: string) => void;
}

/** The chats, each with its last message; what came since a chat was last looked at is marked. */
export function chatList(parts: ChatListParts): ChatList {
  const seen = new Map<string, number>();
  const view = (): ViewElement => listView(parts, seen);
  const mounted = mount(view());
  let waiting = false;
  return {
    root: mounted.root,
    update() {
      if (waiting) return;
      waiting = true;
      // Frames of many cards come faster than people read.
      setTimeout(() => {
        waiting = false;
        mounted.show(view());
      }, 50);
    },
  };
}

function listView({ store, words, chosen, onChoose }: ChatListParts, seen: Map<string, number>): ViewElement {
  const entries = store.state.chats.map((chat) => {
    const { chatId } = chat;
    const messages = store.state.messages.filter((message) => message.chatId === chatId);
    const last = messages.toSorted(byTime).at(-1);
    const current = chosen() === chatId;
    if (current || !seen.has(chatId)) seen.set(chatId, messages.length);
    const unread = messages.length - (seen.get(chatId) ?? 0);
    const title = chatTitle(chat, store);
    const brief = last === undefined ? words.noMessages : briefOf(last, words).slice(0, 80);
    return node(
      "button",
      {
        type: "button",
        key: chatId,
        class: "chat-entry",
        "aria-current": current ? "true" : undefined,
        "aria-label": unread > 0 ? `${title}, ${words.unread.replace("{n}", String(unread))}` : title,
        onclick: () => onChoose(chatId),
      },
      [
        avatarView(title, false),
        node("span", { class: "chat-entry-text" }, [
          node("span", { class: "chat-entry-title" }, [title]),
          node("span", { class: "chat-entry-brief" }, withSigns(brief)),
        ]),
        unread > 0 ? node("span", { class: "unread", "aria-hidden": "true" }, [String(unread)]) : undefined,
      ],
    );
  });
  return node("nav", { class: "chat-list", "aria-label": words.chats }, entries);
}
