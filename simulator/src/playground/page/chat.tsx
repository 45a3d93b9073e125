import type { Ref, TargetedEvent, VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ChatView, SimMessage } from "../routes.ts";
import type { CardUse } from "./card-controls.tsx";
import { Choices, Dialog, type ToastKind } from "./dialog.tsx";
import { withSigns } from "./markdown-view.tsx";
import { Avatar, briefOf, Message, type MessageActions } from "./message.tsx";
import { base64Of, byTime, type Store } from "./store.ts";
import type { Words } from "./words.ts";

interface ChatProps {
  chat: ChatView;
  store: Store;
  words: Words;
  /** Posts to the playground's API and shows a refusal. */
  act: (path: string, body?: object) => Promise<boolean>;
  toast: (kind: ToastKind, text: string) => void;
  /** A person uses a component of a card. */
  click: (message: SimMessage, openId: string, use: CardUse) => Promise<void>;
  /** The others are there, but not to be seen. */
  hidden: boolean;
}

/** How far from its end a reader still counts as being there. */
const nearPixels = 60;

/** One chat: its messages and a composer. */
export function Chat(props: ChatProps): VNode {
  const { chat, store, words, hidden } = props;
  const [person, setPerson] = useState(chat.members[0] ?? "");
  const [draft, setDraft] = useState<Draft>(emptyDraft);
  const list = useRef<HTMLDivElement>(null);
  const titleId = `title-${chat.chatId}`;
  const messages = store.state.messages.filter(({ chatId }) => chatId === chat.chatId);
  const actions = actionsOf(props, person, (parent, inThread) =>
    setDraft({ ...draft, parent, inThread }),
  );
  useLayoutEffect(() => {
    if (list.current !== null) return followEnd(list.current);
  }, []);
  useLayoutEffect(() => {
    if (!hidden) list.current?.scrollTo(0, list.current.scrollHeight);
  }, [hidden]);
  return (
    <section class="chat" aria-labelledby={titleId} data-chat-id={chat.chatId} hidden={hidden}>
      {headOf(props, titleId)}
      <div class="scroll">
        {messages.length === 0 && (
          <div class="empty">
            <p>{words.empty}</p>
            {promptsOf(words, actions.say)}
          </div>
        )}
        <div class="messages" tabIndex={0} role="log" aria-labelledby={titleId} ref={list}>
          <ol>
            {messages.map((message) => (
              <Message
                key={message.messageId}
                {...{ message, store, words, actions }}
                useCard={async (used, use) => await props.click(used, person, use)}
              />
            ))}
          </ol>
        </div>
      </div>
      <Composer {...props} {...{ person, setPerson, draft, setDraft }} />
    </section>
  );
}

/** What an empty chat offers to say: four messages that show the product, and below what else the scripted model can do. */
function promptsOf({ prompts, moreToTry, morePrompts }: Words, say: (text: string) => void): VNode {
  return (
    <>
      <div class="prompts of-product">
        {prompts.map(({ shows, text }) => (
          <button type="button" key={text} onClick={() => say(text)}>
            <span class="faint">{shows}</span> {text}
          </button>
        ))}
      </div>
      <details class="more-prompts">
        <summary>{moreToTry}</summary>
        <div class="prompts">
          {morePrompts.map((text) => (
            <button type="button" key={text} onClick={() => say(text)}>
              {text}
            </button>
          ))}
        </div>
      </details>
    </>
  );
}

/** A reader at the end stays there while cards grow; the position of one who has scrolled up does not change. */
function followEnd(list: HTMLElement): () => void {
  let following = true;
  const toEnd = (): void => {
    if (following) list.scrollTop = list.scrollHeight;
  };
  list.addEventListener("scroll", () => {
    following = list.scrollHeight - list.scrollTop - list.clientHeight < nearPixels;
  });
  list.addEventListener("load", toEnd, true);
  const grown = new MutationObserver(toEnd);
  grown.observe(list, { childList: true, subtree: true, characterData: true });
  return () => grown.disconnect();
}

function headOf(props: ChatProps, titleId: string): VNode {
  const { chat, store, words } = props;
  const kind = chat.type === "p2p" ? words.p2p : chat.topic ? words.topicGroup : words.group;
  return (
    <header class="chat-head">
      <h2 id={titleId}>{store.titleOf(chat)}</h2>
      <span class="tag">{chat.type === "p2p" ? kind : `${kind} · ${chat.members.length}`}</span>
      <span class="grow" />
      {idsOf(props)}
    </header>
  );
}

/** The ids of a chat and its people, to be copied into a configuration. */
function idsOf({ chat, store, words, toast }: ChatProps): VNode {
  const copy = async (id: string): Promise<void> => {
    try {
      await navigator.clipboard.writeText(id);
      toast("success", words.copied);
    } catch {
      toast("warning", words.notCopied);
    }
  };
  const row = (name: string, id: string): VNode => (
    <li key={id}>
      <span>{name}</span>
      <code>{id}</code>
      <button
        type="button"
        class="quiet"
        aria-label={`${words.copy} ${name}`}
        onClick={() => void copy(id)}
      >
        {words.copy}
      </button>
    </li>
  );
  return (
    <details class="ids">
      <summary class="quiet">{words.ids}</summary>
      <ul>
        {row(store.titleOf(chat), chat.chatId)}
        {chat.members.map((openId) => row(store.nameOf(openId), openId))}
      </ul>
    </details>
  );
}

function actionsOf(
  { chat, act, store, words }: ChatProps,
  person: string,
  reply: MessageActions["reply"],
): MessageActions {
  return {
    reply,
    redeliver: ({ messageId }) => void act("redeliver", { messageId }),
    recall: ({ messageId }) => void act("recall", { messageId }),
    edit({ messageId, text }) {
      const changed = globalThis.prompt(words.edit, text)?.trim() ?? "";
      if (changed !== "" && changed !== text) void act("edit", { messageId, text: changed });
    },
    react: ({ messageId, reactions }, emojiType) => {
      const given = reactions.some(
        (one) => one.emojiType === emojiType && !store.isBot(one.operatorId),
      );
      if (!given) void act("react", { messageId, from: person, emojiType });
    },
    say: (text) =>
      void act("messages", {
        chatId: chat.chatId,
        from: person,
        text,
        mention: chat.type === "group",
      }),
  };
}

interface ChatListProps {
  store: Store;
  words: Words;
  chosen: string | undefined;
  onChoose: (chatId: string) => void;
}

/** The chats, each with its last message; what came since a chat was last looked at is marked. */
export function ChatList({ store, words, chosen, onChoose }: ChatListProps): VNode {
  const { current: seen } = useRef(new Map<string, number>());
  return (
    <nav class="chat-list" aria-label={words.chats}>
      {store.state.chats.map((chat) => {
        const { chatId } = chat;
        const messages = store.state.messages.filter((message) => message.chatId === chatId);
        if (chosen === chatId || !seen.has(chatId)) seen.set(chatId, messages.length);
        const unread = messages.length - (seen.get(chatId) ?? 0);
        const last = messages.toSorted(byTime).at(-1);
        const title = store.titleOf(chat);
        return (
          <button
            type="button"
            key={chatId}
            class="chat-entry"
            aria-current={chosen === chatId ? "true" : undefined}
            onClick={() => onChoose(chatId)}
          >
            <Avatar name={title} bot={false} />
            <span class="chat-entry-text">
              <span class="chat-entry-title">{title}</span>
              <span class="chat-entry-brief">
                {withSigns(
                  last === undefined ? words.noMessages : briefOf(last, words).slice(0, 80),
                )}
              </span>
            </span>
            {unread > 0 && (
              <span class="unread">
                <span aria-hidden="true">{unread}</span>
                <span class="unseen">{words.unread.replace("{n}", String(unread))}</span>
              </span>
            )}
          </button>
        );
      })}
    </nav>
  );
}

/* ---- Writing ---- */

/** What the next message brings besides its content. */
interface Draft {
  parent: SimMessage | undefined;
  inThread: boolean;
  late: boolean;
}

const emptyDraft: Draft = { parent: undefined, inThread: false, late: false };

interface ComposerProps extends ChatProps {
  /** Open id of the person who writes. */
  person: string;
  setPerson: (openId: string) => void;
  draft: Draft;
  setDraft: (draft: Draft) => void;
}

/** How late a message can be made to arrive. */
const lateMinutes = 180;
const largestFileBytes = 20 * 1024 * 1024;

/** Where a person writes. */
function Composer(props: ComposerProps): VNode {
  const { chat, store, words, act, toast, person, draft, setDraft } = props;
  const input = useRef<HTMLTextAreaElement>(null);
  const mention = useRef<HTMLInputElement>(null);
  const [dialog, openDialog] = useState<"forward" | "key">();
  const group = chat.type === "group";
  useLayoutEffect(() => {
    if (draft.parent !== undefined) input.current?.focus();
  }, [draft]);
  const send = async (content: object): Promise<boolean> => {
    const sent = await act("messages", {
      chatId: chat.chatId,
      from: person,
      ...content,
      ...(draft.parent === undefined ? {} : { parentId: draft.parent.messageId }),
      ...(draft.inThread ? { inThread: true } : {}),
      ...(draft.late ? { lateMinutes } : {}),
    });
    if (sent) setDraft(emptyDraft);
    return sent;
  };
  const sendText = async (): Promise<void> => {
    const text = input.current?.value.trim() ?? "";
    if (
      text === "" ||
      !(await send({ text, mention: group && mention.current?.checked === true }))
    ) {
      return;
    }
    if (input.current !== null) input.current.value = "";
  };
  const sendFile = async (file: File): Promise<void> => {
    if (file.size > largestFileBytes) return toast("warning", words.fileTooLarge);
    const kind = file.type.startsWith("image/") && file.type !== "image/svg+xml" ? "image" : "file";
    await send({ [kind]: { name: file.name, base64: await base64Of(file) } });
  };
  const take = (event: Event, files: FileList | undefined): void => {
    if (files === undefined || files.length === 0) return;
    event.preventDefault();
    for (const file of files) void sendFile(file);
  };
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    void sendText();
  };
  return (
    <div class="composer">
      <form onSubmit={onSubmit}>
        <DraftChips {...props} />
        {group && <Speaker {...props} mention={mention} />}
        <div class="write">
          <SendMenu {...props} {...{ send, sendFile, openDialog }} />
          <textarea
            id={`input-${chat.chatId}`}
            rows={1}
            maxLength={20_000}
            placeholder={words.composeHint}
            aria-label={`${words.message} · ${store.titleOf(chat)}`}
            ref={input}
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.shiftKey && !event.isComposing) onSubmit(event);
            }}
            onPaste={(event) => take(event, event.clipboardData?.files)}
            onDrop={(event) => take(event, event.dataTransfer?.files)}
          />
          <button type="submit" class="primary">
            {words.send}
          </button>
        </div>
      </form>
      {dialog === "forward" && (
        <ForwardDialog {...props} send={send} onClose={() => openDialog(undefined)} />
      )}
      {dialog === "key" && (
        <KeyDialog {...props} send={send} onClose={() => openDialog(undefined)} />
      )}
    </div>
  );
}

/** Who writes in a group, and whether the bot is mentioned. */
function Speaker({
  chat,
  store,
  words,
  person,
  setPerson,
  mention,
}: ComposerProps & { mention: Ref<HTMLInputElement> }): VNode {
  return (
    <div class="row speaker">
      <span role="group" class="people" aria-label={`${words.writeAs} · ${store.titleOf(chat)}`}>
        {chat.members.map((openId) => (
          <button
            type="button"
            key={openId}
            class="person"
            aria-pressed={openId === person}
            onClick={() => setPerson(openId)}
          >
            {store.nameOf(openId)}
          </button>
        ))}
      </span>
      <label class="check">
        <input type="checkbox" defaultChecked ref={mention} />
        {words.mention}
      </label>
    </div>
  );
}

/** What the next message brings, each to be taken away again. */
function DraftChips({ store, words, draft, setDraft }: ComposerProps): VNode {
  const { parent, inThread, late } = draft;
  const chip = (text: string, label: string, without: Partial<Draft>): VNode => (
    <span class="draft-chip">
      <span>{text}</span>
      <button
        type="button"
        aria-label={label}
        class="quiet"
        onClick={() => setDraft({ ...draft, ...without })}
      >
        ×
      </button>
    </span>
  );
  const how = inThread ? words.replyInThread : words.replyTo;
  return (
    <div class="chips" hidden={parent === undefined && !late}>
      {parent !== undefined &&
        chip(
          `${how} ${store.nameOf(parent.senderId)}: ${briefOf(parent, words).slice(0, 60)}`,
          words.stopReply,
          {
            parent: undefined,
            inThread: false,
          },
        )}
      {late && chip(words.late, words.notLate, { late: false })}
    </div>
  );
}

interface SendMenuProps extends ComposerProps {
  send: (content: object) => Promise<boolean>;
  sendFile: (file: File) => Promise<void>;
  openDialog: (dialog: "forward" | "key") => void;
}

/** What can be sent besides text, and what else a person can do in a chat. */
function SendMenu(props: SendMenuProps): VNode {
  const { words, chat, send, sendFile, act, person, draft, setDraft, openDialog } = props;
  const [folded, picture, file] = [
    useRef<HTMLDetailsElement>(null),
    useRef<HTMLInputElement>(null),
    useRef<HTMLInputElement>(null),
  ];
  const item = (icon: string, label: string, run: () => void): VNode => (
    <button
      type="button"
      role="menuitem"
      class={`icon icon-${icon}`}
      onClick={() => {
        folded.current?.removeAttribute("open");
        run();
      }}
    >
      {label}
    </button>
  );
  const sample = (icon: string, label: string, kind: string): VNode =>
    item(icon, label, () => void send({ sample: kind }));
  const onPick = ({ currentTarget }: TargetedEvent<HTMLInputElement>): void => {
    for (const chosen of currentTarget.files ?? []) void sendFile(chosen);
    currentTarget.value = "";
  };
  return (
    <>
      <details class="send-menu" ref={folded} onKeyDown={moveInMenu} onFocusOut={closeMenu}>
        <summary aria-label={words.plus} title={words.plus}>
          +
        </summary>
        <div class="menu" role="menu" aria-label={words.plus}>
          {item("image", words.image, () => picture.current?.click())}
          {item("file", words.file, () => file.current?.click())}
          {sample("sticker", words.sticker, "sticker")}
          {sample("location", words.location, "location")}
          {sample("contact", words.contact, "share_user")}
          {sample("todo", words.todo, "todo")}
          {item("forward", words.forward, () => openDialog("forward"))}
          <hr />
          {item("clock", words.late, () => setDraft({ ...draft, late: true }))}
          {chat.type === "p2p" &&
            item("enter", words.enter, () => void act("enter", { openId: person }))}
          {chat.type === "p2p" && item("menu", words.pressMenu, () => openDialog("key"))}
        </div>
      </details>
      <input type="file" hidden multiple accept="image/*" ref={picture} onChange={onPick} />
      <input type="file" hidden multiple ref={file} onChange={onPick} />
    </>
  );
}

/** The keys of menus: arrows move, Escape closes. */
function moveInMenu(event: TargetedEvent<HTMLDetailsElement, KeyboardEvent>): void {
  const folded = event.currentTarget;
  if (event.key === "Escape") {
    folded.removeAttribute("open");
    folded.querySelector("summary")?.focus();
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined || !folded.open) return;
  event.preventDefault();
  const items = [...folded.querySelectorAll<HTMLElement>('[role="menuitem"]')];
  const at = items.findIndex((item) => item === document.activeElement);
  items.at((Math.max(at, step > 0 ? -1 : 0) + step) % items.length)?.focus();
}

/** It closes when the focus goes elsewhere. */
function closeMenu({
  currentTarget,
  relatedTarget,
}: TargetedEvent<HTMLDetailsElement, FocusEvent>): void {
  if (relatedTarget instanceof Node && !currentTarget.contains(relatedTarget)) {
    currentTarget.removeAttribute("open");
  }
}

interface MenuDialogProps extends ComposerProps {
  send: (content: object) => Promise<boolean>;
  onClose: () => void;
}

/** Asks for the entry of the bot's menu that is pressed. */
function KeyDialog({ words, act, person, onClose }: MenuDialogProps): VNode {
  const onDone = async (fields: FormData): Promise<boolean> =>
    await act("menu", { openId: person, eventKey: fields.get("key") });
  return (
    <Dialog title={words.pressMenu} done={words.press} {...{ words, onDone, onClose }}>
      <label>
        {words.menuKey}
        <input
          name="key"
          required
          maxLength={100}
          defaultValue="help"
          autocomplete="off"
          pattern={String.raw`[\w.:\/\-]+`}
        />
      </label>
    </Dialog>
  );
}

const forwardedMessages = 12;

/** Asks which messages are forwarded. */
function ForwardDialog({ words, store, send, onClose }: MenuDialogProps): VNode {
  const onDone = async (fields: FormData): Promise<boolean> => {
    const forward = fields.getAll("chosen");
    return forward.length > 0 && (await send({ forward }));
  };
  const latest = store.state.messages
    .filter(({ recalled }) => !recalled)
    .toSorted(byTime)
    .slice(-forwardedMessages);
  return (
    <Dialog title={words.forward} done={words.send} {...{ words, onDone, onClose }}>
      <Choices legend={words.message}>
        {latest.map((message) => [
          message.messageId,
          `${store.nameOf(message.senderId)}: ${briefOf(message, words).slice(0, 50)}`,
        ])}
      </Choices>
    </Dialog>
  );
}
