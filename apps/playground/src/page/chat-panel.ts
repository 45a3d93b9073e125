import type { ChatView, SimMessage } from "../view.ts";
import { button, element } from "./element.ts";
import { messageBubble } from "./message-bubble.ts";
import { byTime, chatTitle, type Store } from "./store.ts";
import type { Words } from "./words.ts";

export interface ChatPanelParts {
  chat: ChatView;
  store: Store;
  words: Words;
  /** Posts to the playground's API and shows a refusal. */
  act: (path: string, body?: object) => Promise<boolean>;
}

/** One chat: its messages and a composer. */
export interface ChatPanel {
  readonly root: HTMLElement;
  /** Shows a new or changed message. */
  show(message: SimMessage): void;
}

export function chatPanel(parts: ChatPanelParts): ChatPanel {
  const { chat, store, words } = parts;
  const title = chatTitle(chat, store);
  const titleId = `title-${chat.chatId}`;
  const list = element("ol", { class: "messages", tabindex: "0", role: "log", "aria-labelledby": titleId });
  const empty = element("p", { class: "empty" }, [words.empty]);
  const composer = composerOf(parts, title);
  const bubbleOf = (message: SimMessage): HTMLElement =>
    messageBubble({
      message,
      store,
      words,
      onReply: composer.replyTo,
      onRedeliver: ({ messageId }) => void parts.act("redeliver", { messageId }),
      onRecall: ({ messageId }) => void parts.act("recall", { messageId }),
    });
  const show = (message: SimMessage): void => {
    empty.remove();
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    const existing = list.querySelector(`[data-message-id="${message.messageId}"]`);
    if (existing === null) list.append(bubbleOf(message));
    else existing.replaceWith(bubbleOf(message));
    if (atEnd) list.scrollTop = list.scrollHeight;
  };
  const root = element("section", { class: "chat", "aria-labelledby": titleId, "data-chat-id": chat.chatId }, [
    element("header", { class: "chat-head" }, [
      element("h2", { id: titleId }, [title]),
      element("span", { class: "tag" }, [chat.type === "p2p" ? words.p2p : `${words.group} · ${chat.members.length}`]),
    ]),
    element("div", { class: "scroll" }, [empty, list]),
    composer.root,
  ]);
  for (const message of store.state.messages.filter((one) => one.chatId === chat.chatId).toSorted(byTime))
    show(message);
  return { root, show };
}

interface Composer {
  root: HTMLElement;
  replyTo: (message: SimMessage) => void;
}

function composerOf({ chat, store, words, act }: ChatPanelParts, title: string): Composer {
  let root: SimMessage | undefined;
  const inputId = `input-${chat.chatId}`;
  const label = `${words.message} · ${title}`;
  const input = element("textarea", {
    id: inputId,
    rows: "2",
    maxlength: "20000",
    placeholder: words.composeHint,
    "aria-label": label,
  });
  const people = chat.members.map((openId) => element("option", { value: openId }, [store.nameOf(openId)]));
  const from = element("select", { "aria-label": `${words.writeAs} · ${title}` }, people);
  const mention = element("input", { type: "checkbox", checked: true });
  const replying = element("div", { class: "replying", hidden: true });
  const setReply = (message: SimMessage | undefined): void => {
    root = message;
    replying.hidden = message === undefined;
    if (message === undefined) return;
    const stop = button("×", { "aria-label": words.stopReply }, () => setReply(undefined));
    replying.replaceChildren(`${words.replyTo} ${store.nameOf(message.senderId)}: ${message.text.slice(0, 60)}`, stop);
    input.focus();
  };
  const send = async (): Promise<void> => {
    const text = input.value.trim();
    if (text === "") return;
    const reply = root === undefined ? {} : { rootId: root.messageId };
    const asked = chat.type === "group" && mention.checked;
    const sent = await act("messages", { chatId: chat.chatId, from: from.value, text, mention: asked, ...reply });
    if (!sent) return;
    input.value = "";
    setReply(undefined);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  });
  const group = chat.type === "group";
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    void send();
  };
  const form = element("form", { class: "composer", onsubmit }, [
    replying,
    input,
    element("div", { class: "row" }, [
      group ? from : undefined,
      group ? element("label", { class: "check" }, [mention, words.mention]) : undefined,
      element("span", { class: "grow" }),
      element("button", { type: "submit", class: "primary" }, [words.send]),
    ]),
  ]);
  return { root: form, replyTo: setReply };
}
