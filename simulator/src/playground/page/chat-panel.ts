import type { ChatView, SimMessage } from "../routes.ts";
import type { CardUse } from "./card-view.ts";
import { createComposer } from "./composer.ts";
import { button, element, type Child } from "./element.ts";
import { messageView, type MessageActions, type MessageView } from "./message-view.ts";
import { byTime, chatTitle, type Store } from "./store.ts";
import type { ToastKind } from "./toast.ts";
import type { Words } from "./words.ts";

/** What a panel needs of the page. */
export interface PanelDesk {
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

export interface ChatPanelParts extends PanelDesk {
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
