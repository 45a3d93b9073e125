import { withSigns } from "./emoji.ts";
import { briefOf, avatarView } from "./message-view.ts";
import { byTime, chatTitle, type Store } from "./store.ts";
import { mount, node, type ViewElement } from "./view-node.ts";
import type { Words } from "./words.ts";

export interface ChatList {
  readonly root: HTMLElement;
  update(): void;
}

export interface ChatListParts {
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
