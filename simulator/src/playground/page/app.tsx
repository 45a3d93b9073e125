import { render, type VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { CardClickResult, PlaygroundEvent, SimMessage } from "../routes.ts";
import type { CardUse } from "./card-controls.tsx";
import { Chat, ChatList } from "./chat.tsx";
import { ChatDialog, PersonDialog, type Toast, type ToastKind, Toasts } from "./dialog.tsx";
import { Inspector } from "./inspector.tsx";
import { post, Store, Usage } from "./store.ts";
import { type Language, type Words, words as allWords } from "./words.ts";

const store = new Store();
const usage = new Usage();

/** Frames of many cards come faster than people read: changes within this are drawn together. */
const drawEveryMs = 20;
const toastMs = 5000;
const mostToasts = 3;

function App(): VNode | null {
  const [language, setLanguage] = useState(startLanguage);
  const [chosen, choose] = useState<string>();
  const [dialog, setDialog] = useState<"person" | "chat">();
  const { toasts, toast, notice } = useToasts();
  const words = allWords[language];
  /** What the playground answers; undefined after a refusal, which is shown. */
  const ask = async (path: string, body: object = {}): Promise<unknown> => {
    try {
      return await post(path, body);
    } catch (error) {
      toast("error", messageOf(error));
      return undefined;
    }
  };
  const act = async (path: string, body?: object): Promise<boolean> =>
    (await ask(path, body)) !== undefined;
  /** Makes a chat and shows it. One that the bot opens, to ask a person, leaves the reader where they are. */
  const makeChat = async (path: string, body?: object): Promise<boolean> => {
    const made = await ask(path, body);
    if (made !== undefined) choose((made as { chatId: string }).chatId); // Our own server writes it.
    return made !== undefined;
  };
  /** A person uses a component; what they would see of the answer is shown. */
  const click = async (message: SimMessage, openId: string, use: CardUse): Promise<void> => {
    const answer = await ask("click", { messageId: message.messageId, openId, ...use });
    if (answer === undefined) return;
    const { code, toast: said } = answer as CardClickResult; // Our own server writes it.
    if (code !== 0) toast("error", clientError(code, language));
    if (said !== undefined) toast(said.type, said.i18n?.[words.locale] ?? said.content);
  };
  useStore((event) => {
    if (event?.type === "refusal") {
      toast("warning", `${words.limitHit}: ${event.refusal.api} (${event.refusal.code})`);
    }
    const file = event?.type === "state" ? event.state.setAside : undefined;
    if (file !== undefined) notice("warning", words.setAside.replace("{file}", file));
  });
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
    document.title = `Larkline ${words.title}`;
  }, [language]);
  // It is drawn once it is known what stands on it, or that the playground cannot be reached.
  if (store.state.apps.length === 0 && store.online !== false) return null;
  const { chats } = store.state;
  const current = chosen ?? chats[0]?.chatId;
  const onClose = (): void => setDialog(undefined);
  const common = { store, words, act };
  const switchLanguage = (): void => {
    const next = language === "zh" ? "en" : "zh";
    localStorage.setItem("language", next);
    setLanguage(next);
  };
  return (
    <>
      <TopBar words={words} language={language} onDialog={setDialog} onLanguage={switchLanguage} />
      <div class="columns">
        <ChatList {...{ store, words }} chosen={current} onChoose={choose} />
        <main class="chats" aria-label={words.chats}>
          {chats.map((chat) => (
            <Chat
              key={chat.chatId}
              {...{ chat, ...common, toast, click }}
              hidden={chat.chatId !== current}
            />
          ))}
        </main>
        <Inspector {...common} usage={usage} />
      </div>
      {dialog === "person" && <PersonDialog {...common} onClose={onClose} />}
      {dialog === "chat" && <ChatDialog {...common} act={makeChat} onClose={onClose} />}
      <Toasts toasts={toasts} words={words} />
    </>
  );
}

function startLanguage(): Language {
  const stored = localStorage.getItem("language");
  if (stored === "zh" || stored === "en") return stored;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface ToastUse {
  toasts: readonly Toast[];
  /** Shows a note for some seconds. */
  toast: (kind: ToastKind, text: string) => void;
  /** Shows a note until it is closed; the same text is not shown after that. */
  notice: (kind: ToastKind, text: string) => void;
}

/** Notes to the person: the same once more takes the place of the one before. */
function useToasts(): ToastUse {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const [closed] = useState(new Set<string>());
  const add = (added: Toast): void =>
    setToasts((shown) => {
      const all = [...shown.filter((one) => one.text !== added.text), added];
      const surplus = all.filter((one) => one.close === undefined).slice(0, -mostToasts);
      return all.filter((one) => !surplus.includes(one));
    });
  const remove = (removed: Toast): void =>
    setToasts((shown) => shown.filter((one) => one !== removed));
  const toast = (kind: ToastKind, text: string): void => {
    const added: Toast = { kind, text, close: undefined };
    add(added);
    setTimeout(() => remove(added), toastMs);
  };
  const notice = (kind: ToastKind, text: string): void => {
    const close = (): void => {
      closed.add(text);
      remove(added);
    };
    const added: Toast = { kind, text, close };
    if (!closed.has(text)) add(added);
  };
  return { toasts, toast, notice };
}

/** Draws a component again after changes of the store. */
function useStore(onEvent: (event: PlaygroundEvent | undefined) => void): void {
  const [, draw] = useState(0);
  const [latest] = useState({ onEvent });
  latest.onEvent = onEvent;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      timer = undefined;
      draw((count) => count + 1);
    };
    const stop = store.onChange((event) => {
      latest.onEvent(event);
      timer ??= setTimeout(show, drawEveryMs);
    });
    show();
    return stop;
  }, []);
}

interface TopBarProps {
  words: Words;
  language: Language;
  onDialog: (dialog: "person" | "chat") => void;
  onLanguage: () => void;
}

function TopBar({ words, language, onDialog, onLanguage }: TopBarProps): VNode {
  const [state, text] = connectionIn(words);
  return (
    <header class="top">
      <img src="/page/icon.svg" alt="" width={32} height={32} />
      <div class="name">
        <h1>{`Larkline ${words.title}`}</h1>
        <p>{words.tagline}</p>
      </div>
      <span class="badge" role="status" data-state={state}>
        {text}
      </span>
      <span class="grow" />
      <button type="button" onClick={() => onDialog("person")}>
        {words.addPerson}
      </button>
      <button type="button" onClick={() => onDialog("chat")}>
        {words.addChat}
      </button>
      <button
        type="button"
        class="icon icon-theme"
        aria-label={words.theme}
        title={words.theme}
        onClick={switchTheme}
      />
      <button type="button" lang={language === "zh" ? "en" : "zh-CN"} onClick={onLanguage}>
        {words.language}
      </button>
    </header>
  );
}

/** How the bot is connected. */
function connectionIn(words: Words): [state: "good" | "bad", text: string] {
  if (store.online !== true) return ["bad", words.pageOffline];
  const [app] = store.state.apps;
  if (app !== undefined && app.transport !== "webhook" && app.connections > 0) {
    return ["good", `${words.byWebsocket}${app.connections > 1 ? ` ×${app.connections}` : ""}`];
  }
  const hasWebhook =
    app !== undefined && app.transport !== "websocket" && app.webhookUrl !== undefined;
  if (hasWebhook) return ["good", words.byWebhook];
  return ["bad", store.hasConnected ? words.reconnects : words.notConnected];
}

function switchTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = current === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

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
function clientError(code: number, spoken: Language): string {
  const unknown = { zh: "操作没有成功", en: "It did not work" };
  return `${(meanings[code] ?? unknown)[spoken]} (${code})`;
}

const theme = localStorage.getItem("theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
store.onChange((event) => {
  if (event?.type === "call") usage.count(event.call);
  if (event?.type === "state") for (const call of event.state.calls) usage.count(call);
});
store.connect("/api/events");
render(<App />, document.body);
