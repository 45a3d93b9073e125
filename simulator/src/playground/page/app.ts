import type { CardClickResult, PlaygroundEvent, SimMessage } from "../routes.ts";
import type { CardUse } from "./card-view.ts";
import { chatList, type ChatList, chatPanel, type ChatPanel } from "./chat-panel.ts";
import { button, chatDialog, createToasts, dialogOf, element, personDialog } from "./element.ts";
import { inspector, type Inspector } from "./inspector.ts";
import { createPlayer, createRecorder, downloadRecording, type Player } from "./recorder.ts";
import { parseRecording } from "./recording.ts";
import { chatTitle, connectStore, post } from "./store.ts";
import { createUsage } from "./limits-panel.ts";
import { type Language, type Words, words as allWords } from "./words.ts";

const store = connectStore("/api/events");
const recorder = createRecorder(store);
const usage = createUsage();
const toasts = createToasts();
let language = startLanguage();
let chosenChat: string | undefined;
let player: Player | undefined;
let view: View | undefined;

interface View {
  panels: Map<string, ChatPanel>;
  chats: HTMLElement;
  list: ChatList;
  inspector: Inspector;
  badge: HTMLElement;
}

function startLanguage(): Language {
  const stored = localStorage.getItem("language");
  if (stored === "zh" || stored === "en") return stored;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

async function act(path: string, body: object = {}): Promise<boolean> {
  try {
    await post(path, body);
    return true;
  } catch (error) {
    toasts.show("error", error instanceof Error ? error.message : String(error));
    return false;
  }
}

/** A person uses a component; what they would see of the answer is shown. */
async function click(message: SimMessage, openId: string, use: CardUse): Promise<void> {
  try {
    const answer = await post("click", { messageId: message.messageId, openId, ...use });
    const { code, toast } = answer as CardClickResult; // Our own server writes it.
    if (code !== 0) toasts.show("error", clientError(code, language));
    if (toast !== undefined) toasts.show(toast.type, toast.i18n?.[allWords[language].locale] ?? toast.content);
  } catch (error) {
    toasts.show("error", error instanceof Error ? error.message : String(error));
  }
}

/** Builds the page anew, in the current language and from the current state. */
function render(): void {
  const words = allWords[language];
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.title = `Larkline ${words.title}`;
  view?.inspector.stop();
  for (const panel of view?.panels.values() ?? []) panel.stop();
  const chats = element("main", { class: "chats", "aria-label": words.chats });
  const badge = element("span", { class: "badge", role: "status" });
  const list = chatList({ store, words, chosen: () => chosenChat, onChoose: choose });
  view = { panels: new Map(), chats, list, badge, inspector: inspector({ store, words, usage, act }) };
  for (const { chatId } of store.state.chats) addPanel(view, chatId, words);
  const content = player?.root ?? element("div", { class: "columns" }, [list.root, chats, view.inspector.root]);
  document.body.replaceChildren(topBar(badge, words), content, toasts.root);
  choose(chosenChat ?? store.state.chats[0]?.chatId);
  showConnection(view, words);
}

/** Opens a chat: the others are there, but not to be seen. */
function choose(chatId: string | undefined): void {
  chosenChat = chatId;
  for (const [id, panel] of view?.panels ?? []) panel.root.hidden = id !== chatId;
  if (chatId !== undefined) view?.panels.get(chatId)?.toEnd();
  view?.list.update();
}

function addPanel({ panels, chats }: View, chatId: string, words: Words): void {
  const chat = store.state.chats.find((candidate) => candidate.chatId === chatId);
  if (chat === undefined || panels.has(chatId)) return;
  const panel = chatPanel({
    chat,
    store,
    words,
    act,
    click,
    toast: toasts.show,
    imageUrl: (key) => (/^[\w-]+$/.test(key) ? `/api/images/${key}` : undefined),
    speed: () => 1,
    onDownload: () => void download(chatId, chatTitle(chat, store), words),
  });
  panel.root.hidden = chatId !== chosenChat;
  panels.set(chatId, panel);
  chats.append(panel.root);
}

async function download(chatId: string, title: string, words: Words): Promise<void> {
  const recording = await recorder.recordingOf(chatId).catch(() => undefined);
  if (recording === undefined) toasts.show("info", words.nothingRecorded);
  else downloadRecording(recording, title);
}

function topBar(badge: HTMLElement, words: Words): HTMLElement {
  const person = personDialog({ words, act, store });
  const chat = chatDialog({ words, act, store });
  const replay = replayDialog(words);
  return element("header", { class: "top" }, [
    element("img", { src: "/page/icon.svg", alt: "", width: "32", height: "32" }),
    element("div", { class: "name" }, [
      element("h1", {}, [`Larkline ${words.title}`]),
      element("p", {}, [words.tagline]),
    ]),
    badge,
    element("span", { class: "grow" }),
    button(words.replay, {}, () => replay.showModal()),
    button(words.addPerson, {}, () => person.showModal()),
    button(words.addChat, {}, chat.open),
    button("", { class: "icon icon-theme", "aria-label": words.theme, title: words.theme }, switchTheme),
    button(words.language, { lang: language === "zh" ? "en" : "zh-CN" }, switchLanguage),
    person,
    chat.dialog,
    replay,
  ]);
}

/** Asks for a recording: the example, or a file. */
function replayDialog(words: Words): HTMLDialogElement {
  const file = element("input", { type: "file", accept: ".json,application/json", "aria-label": words.recordingFile });
  const play = async (read: Promise<string>): Promise<boolean> => {
    const recording = parseRecording(await read.catch(() => ""));
    if (recording === undefined) toasts.show("error", words.noRecording);
    else openPlayer(recording);
    return recording !== undefined;
  };
  const example = button(words.replayExample, { class: "primary" }, () => {
    const fetched = fetch("/page/example.recording", { signal: AbortSignal.timeout(10_000) });
    void play(fetched.then(async (response) => await response.text())).then((opened) => opened && dialog.close());
  });
  const fields = [
    element("p", { class: "faint" }, [words.replayHint]),
    example,
    element("label", {}, [words.recordingFile, file]),
  ];
  const onDone = async (): Promise<boolean> => {
    const [chosen] = file.files ?? [];
    return chosen !== undefined && (await play(chosen.text()));
  };
  const dialog = dialogOf({ title: words.replay, done: words.playFile, words, fields, onDone });
  return dialog;
}

function openPlayer(recording: Parameters<typeof createPlayer>[0]["recording"]): void {
  const close = (): void => {
    player?.stop();
    player = undefined;
    render();
  };
  player?.stop();
  player = createPlayer({ recording, words: allWords[language], toast: toasts.show, onClose: close });
  render();
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
  if (event?.type === "chat") {
    addPanel(current, event.chat.chatId, words);
    choose(event.chat.chatId);
  }
  if (event?.type === "message") {
    current.panels.get(event.message.chatId)?.show(event.message);
    current.list.update();
  }
  if (event?.type === "refusal") {
    toasts.show("warning", `${words.limitHit}: ${event.refusal.api} (${event.refusal.code})`);
  }
  current.inspector.update(event);
  showConnection(current, words);
}

const theme = localStorage.getItem("theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
// The page is built once it is known what stands on it, or that the playground cannot be reached.
store.onChange((event) => {
  if (view === undefined && store.online && event === undefined) return;
  if (event?.type === "message") recorder.note(event.message);
  if (event?.type === "call") usage.count(event.call);
  if (event?.type === "state") for (const call of event.state.calls) usage.count(call);
  if (view === undefined || event?.type === "state") render();
  else update(view, event);
});

/** What Feishu's client shows when a card callback fails, by code ("Card callback communication"). */
const meanings: Readonly<Record<number, Readonly<Record<Language, string>>>> = {
  200340: { zh: "应用没有配置卡片回调", en: "The app has no card callback" },
  200341: { zh: "机器人没有在 3 秒内回应", en: "The bot did not answer within 3 seconds" },
  200342: { zh: "连接不上机器人", en: "The bot cannot be reached" },
  200343: { zh: "回调地址的域名无法解析", en: "The callback's host name cannot be resolved" },
  200671: { zh: "回调没有返回 200", en: "The callback did not answer with 200" },
  200672: { zh: "回调的返回内容格式不对", en: "The callback's answer has the wrong form" },
  200673: { zh: "回调返回的卡片有误", en: "The callback's card is wrong" },
  200830: { zh: "2.0 卡片不能换成 1.0 卡片", en: "A 2.0 card cannot become a 1.0 card" },
};

/** A failed callback in words, with its code. */
export function clientError(code: number, spoken: Language): string {
  const unknown = { zh: "操作没有成功", en: "It did not work" };
  return `${(meanings[code] ?? unknown)[spoken]} (${code})`;
}
