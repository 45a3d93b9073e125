import type { PlaygroundEvent } from "../view.ts";
import { chatPanel, type ChatPanel } from "./chat-panel.ts";
import { button, element } from "./element.ts";
import { inspector, type Inspector } from "./inspector.ts";
import { post } from "./request.ts";
import { connectStore } from "./store.ts";
import { words as allWords, type Language, type Words } from "./words.ts";

const store = connectStore("/api/events");
let language = startLanguage();
let view: View | undefined;

interface View {
  panels: Map<string, ChatPanel>;
  chats: HTMLElement;
  inspector: Inspector;
  badge: HTMLElement;
}

function startLanguage(): Language {
  const stored = localStorage.getItem("language");
  if (stored === "zh" || stored === "en") return stored;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

const toast = element("div", { class: "toast", role: "alert" });

async function act(path: string, body: object = {}): Promise<boolean> {
  try {
    await post(path, body);
    toast.textContent = "";
    return true;
  } catch (error) {
    toast.textContent = error instanceof Error ? error.message : String(error);
    return false;
  }
}

/** Builds the page anew, in the current language and from the current state. */
function render(): void {
  const words = allWords[language];
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.title = `Larkline ${words.title}`;
  const panels = new Map<string, ChatPanel>();
  const chats = element("main", { class: "chats", "aria-label": words.chats });
  const badge = element("span", { class: "badge", role: "status" });
  view = { panels, chats, badge, inspector: inspector({ store, words, act }) };
  for (const chat of store.state.chats) addPanel(view, chat.chatId, words);
  document.body.replaceChildren(
    topBar(badge, words),
    element("div", { class: "columns" }, [chats, view.inspector.root]),
    toast,
  );
  for (const list of document.querySelectorAll(".messages")) list.scrollTop = list.scrollHeight;
  showConnection(view, words);
}

function addPanel({ panels, chats }: View, chatId: string, words: Words): void {
  const chat = store.state.chats.find((candidate) => candidate.chatId === chatId);
  if (chat === undefined || panels.has(chatId)) return;
  const panel = chatPanel({ chat, store, words, act });
  panels.set(chatId, panel);
  chats.append(panel.root);
}

function topBar(badge: HTMLElement, words: Words): HTMLElement {
  const dialogs = [personDialog(words), chatDialog(words)] as const;
  return element("header", { class: "top" }, [
    element("img", { src: "/page/icon.svg", alt: "", width: "32", height: "32" }),
    element("div", { class: "name" }, [
      element("h1", {}, [`Larkline ${words.title}`]),
      element("p", {}, [words.tagline]),
    ]),
    badge,
    element("span", { class: "grow" }),
    button(words.addPerson, {}, () => dialogs[0].showModal()),
    button(words.addChat, {}, () => fillMembers(dialogs[1])),
    button("◐", { "aria-label": words.theme, title: words.theme }, switchTheme),
    button(words.language, { lang: language === "zh" ? "en" : "zh-CN" }, switchLanguage),
    ...dialogs,
  ]);
}

function switchLanguage(): void {
  language = language === "zh" ? "en" : "zh";
  localStorage.setItem("language", language);
  render();
}

function switchTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const theme = current === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

interface DialogParts {
  title: string;
  words: Words;
  fields: readonly HTMLElement[];
  onCreate: () => Promise<boolean>;
}

function dialogOf({ title, words, fields, onCreate }: DialogParts): HTMLDialogElement {
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    void onCreate().then((created) => created && dialog.close());
  };
  const form = element("form", { onsubmit }, [
    element("h2", {}, [title]),
    ...fields,
    element("div", { class: "row" }, [
      element("span", { class: "grow" }),
      button(words.cancel, {}, () => dialog.close()),
      element("button", { type: "submit", class: "primary" }, [words.create]),
    ]),
  ]);
  const dialog = element("dialog", { "aria-label": title }, [form]);
  return dialog;
}

function personDialog(words: Words): HTMLDialogElement {
  const name = element("input", { required: true, maxlength: "60", autocomplete: "off" });
  const fields = [element("label", {}, [words.personName, name])];
  return dialogOf({ title: words.addPerson, words, fields, onCreate: () => act("people", { name: name.value }) });
}

function chatDialog(words: Words): HTMLDialogElement {
  const name = element("input", { maxlength: "60", autocomplete: "off" });
  const kind = element("select", {}, [
    element("option", { value: "p2p" }, [words.p2p]),
    element("option", { value: "group" }, [words.group]),
  ]);
  const members = element("fieldset", { class: "members" }, [element("legend", {}, [words.members])]);
  const fields = [element("label", {}, [words.chatKind, kind]), element("label", {}, [words.chatName, name]), members];
  const onCreate = (): Promise<boolean> => {
    const checked = [...members.querySelectorAll<HTMLInputElement>("input:checked")].map((input) => input.value);
    const chosen = kind.value === "p2p" ? checked.slice(0, 1) : checked;
    return act("chats", { type: kind.value, name: name.value, members: chosen });
  };
  return dialogOf({ title: words.addChat, words, fields, onCreate });
}

function fillMembers(dialog: HTMLDialogElement): void {
  const list = dialog.querySelector(".members");
  const legend = list?.querySelector("legend");
  const boxes = store.state.people.map(({ openId, name }) =>
    element("label", { class: "check" }, [element("input", { type: "checkbox", value: openId }), name]),
  );
  if (legend) list?.replaceChildren(legend, ...boxes);
  dialog.showModal();
}

function showConnection({ badge }: View, words: Words): void {
  const [app] = store.state.apps;
  const websocket = app !== undefined && app.transport !== "webhook" && app.connections > 0;
  const webhook = app !== undefined && app.transport !== "websocket" && app.webhookUrl !== undefined;
  const [state, text] = websocket
    ? ["good", `${words.byWebsocket}${app.connections > 1 ? ` ×${app.connections}` : ""}`]
    : webhook
      ? ["good", words.byWebhook]
      : ["bad", words.notConnected];
  badge.dataset.state = store.online ? state : "bad";
  badge.textContent = store.online ? text : words.pageOffline;
}

function update(current: View, event: PlaygroundEvent | undefined): void {
  const words = allWords[language];
  if (event?.type === "chat") addPanel(current, event.chat.chatId, words);
  if (event?.type === "message") current.panels.get(event.message.chatId)?.show(event.message);
  current.inspector.update(event);
  showConnection(current, words);
}

const theme = localStorage.getItem("theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
render();
store.onChange((event) => {
  if (view === undefined || event?.type === "state") render();
  else update(view, event);
});
