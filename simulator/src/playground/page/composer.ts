import type { SimMessage } from "../routes.ts";
import type { ChatPanelParts } from "./chat-panel.ts";
import { button, dialogOf, element } from "./element.ts";
import { briefOf } from "./message-view.ts";
import { base64Of, byTime } from "./store.ts";
import type { Words } from "./words.ts";

/** Where a person writes. */
interface Composer {
  readonly root: HTMLElement;
  replyTo(message: SimMessage, inThread: boolean): void;
  /** Open id of the person who writes. */
  person(): string;
}

/** How late a message can be made to arrive. */
const lateMinutes = 180;
const largestFileBytes = 20 * 1024 * 1024;

/** What the next message brings besides its content. */
interface Draft {
  parent: SimMessage | undefined;
  inThread: boolean;
  late: boolean;
}

export function createComposer(parts: ChatPanelParts, title: string): Composer {
  const { chat, store, words, act, toast } = parts;
  const group = chat.type === "group";
  const draft: Draft = { parent: undefined, inThread: false, late: false };
  const input = element("textarea", {
    id: `input-${chat.chatId}`,
    rows: "1",
    maxlength: "20000",
    placeholder: words.composeHint,
    "aria-label": `${words.message} · ${title}`,
  });
  const people = chat.members.map((openId) => element("option", { value: openId }, [store.nameOf(openId)]));
  const from = element("select", { "aria-label": `${words.writeAs} · ${title}` }, people);
  const mention = element("input", { type: "checkbox", checked: true });
  const chips = element("div", { class: "chips", hidden: true });
  const change = (next: Partial<Draft>): void => {
    Object.assign(draft, next);
    chips.replaceChildren(...draftChips(parts, draft, change));
    chips.hidden = chips.childElementCount === 0;
  };
  const send = async (content: object): Promise<boolean> => {
    const sent = await act("messages", {
      chatId: chat.chatId,
      from: from.value,
      ...content,
      ...(draft.parent === undefined ? {} : { parentId: draft.parent.messageId }),
      ...(draft.inThread ? { inThread: true } : {}),
      ...(draft.late ? { lateMinutes } : {}),
    });
    if (sent) change({ parent: undefined, inThread: false, late: false });
    return sent;
  };
  const sendText = async (): Promise<void> => {
    const text = input.value.trim();
    if (text === "") return;
    if (await send({ text, mention: group && mention.checked })) input.value = "";
  };
  const sendFile = async (file: File): Promise<void> => {
    if (file.size > largestFileBytes) return toast("warning", words.fileTooLarge);
    const kind = file.type.startsWith("image/") && file.type !== "image/svg+xml" ? "image" : "file";
    await send({ [kind]: { name: file.name, base64: await base64Of(file) } });
  };
  const menu = sendMenu({ ...parts, person: () => from.value, send, sendFile, onLate: () => change({ late: true }) });
  listen(input, { sendText, sendFile });
  const asked = element("label", { class: "check" }, [mention, words.mention]);
  const form = { chips, who: group ? [from, asked] : [], menu: menu.root, input };
  return {
    root: element("div", { class: "composer" }, [formOf(form, { words, sendText }), ...menu.dialogs]),
    replyTo(message, inThread) {
      change({ parent: message, inThread });
      input.focus();
    },
    person: () => from.value,
  };
}

interface FormParts {
  chips: HTMLElement;
  who: readonly HTMLElement[];
  menu: HTMLElement;
  input: HTMLElement;
}

function formOf(
  { chips, who, menu, input }: FormParts,
  { words, sendText }: { words: Words; sendText: () => Promise<void> },
): HTMLElement {
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    void sendText();
  };
  const send = element("button", { type: "submit", class: "primary" }, [words.send]);
  const speaker = who.length === 0 ? undefined : element("div", { class: "row" }, who);
  return element("form", { onsubmit }, [chips, speaker, element("div", { class: "write" }, [menu, input, send])]);
}

function draftChip(text: string, label: string, onclick: () => void): HTMLElement {
  return element("span", { class: "draft-chip" }, [
    element("span", {}, [text]),
    button("×", { "aria-label": label, class: "quiet" }, onclick),
  ]);
}

function draftChips(
  { store, words }: ChatPanelParts,
  { parent, inThread, late }: Draft,
  change: (next: Partial<Draft>) => void,
): HTMLElement[] {
  const how = inThread ? words.replyInThread : words.replyTo;
  const about =
    parent === undefined ? "" : `${how} ${store.nameOf(parent.senderId)}: ${briefOf(parent, words).slice(0, 60)}`;
  return [
    ...(parent === undefined
      ? []
      : [draftChip(about, words.stopReply, () => change({ parent: undefined, inThread: false }))]),
    ...(late ? [draftChip(words.late, words.notLate, () => change({ late: false }))] : []),
  ];
}

interface Sends {
  sendText: () => Promise<void>;
  sendFile: (file: File) => Promise<void>;
}

function listen(input: HTMLTextAreaElement, { sendText, sendFile }: Sends): void {
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void sendText();
  });
  const take = (event: Event, files: FileList | undefined): void => {
    if (files === undefined || files.length === 0) return;
    event.preventDefault();
    for (const file of files) void sendFile(file);
  };
  input.addEventListener("paste", (event) => take(event, event.clipboardData?.files));
  input.addEventListener("drop", (event) => take(event, event.dataTransfer?.files));
}

interface SendMenuParts extends ChatPanelParts {
  person: () => string;
  send: (content: object) => Promise<boolean>;
  sendFile: (file: File) => Promise<void>;
  /** The next message arrives hours late. */
  onLate: () => void;
}

const forwardedMessages = 12;

/** A menu, and what it opens, which stands outside of the form that the menu is in. */
interface SendMenu {
  readonly root: HTMLElement;
  readonly dialogs: readonly HTMLElement[];
}

/** What can be sent besides text, and what else a person can do in a chat. */
function sendMenu(parts: SendMenuParts): SendMenu {
  const { words, chat, send, act, person } = parts;
  const picture = picker("image/*", parts.sendFile);
  const file = picker("", parts.sendFile);
  const forward = forwardDialog(parts);
  const menuKey = menuDialog(parts);
  const folded = element("details", { class: "send-menu" });
  const item = (icon: string, label: string, run: () => void): HTMLElement =>
    button(label, { role: "menuitem", class: `icon icon-${icon}` }, () => {
      folded.removeAttribute("open");
      run();
    });
  const sample = (icon: string, label: string, kind: string): HTMLElement =>
    item(icon, label, () => void send({ sample: kind }));
  const menu = element("div", { class: "menu", role: "menu", "aria-label": words.plus }, [
    item("image", words.image, () => picture.click()),
    item("file", words.file, () => file.click()),
    sample("sticker", words.sticker, "sticker"),
    sample("location", words.location, "location"),
    sample("contact", words.contact, "share_user"),
    sample("todo", words.todo, "todo"),
    item("forward", words.forward, () => forward.open()),
    element("hr"),
    item("clock", words.late, parts.onLate),
    chat.type === "p2p" ? item("enter", words.enter, () => void act("enter", { openId: person() })) : undefined,
    chat.type === "p2p" ? item("menu", words.pressMenu, () => menuKey.showModal()) : undefined,
  ]);
  const summary = element("summary", { "aria-label": words.plus, title: words.plus }, ["+"]);
  folded.append(summary, menu);
  keepMenu(folded, summary);
  return { root: folded, dialogs: [picture, file, forward.dialog, menuKey] };
}

/** The keys of menus: arrows move, Escape closes. It closes as well when the focus goes elsewhere. */
function keepMenu(folded: HTMLDetailsElement, summary: HTMLElement): void {
  folded.addEventListener("keydown", (event) => {
    const items = [...folded.querySelectorAll<HTMLElement>('[role="menuitem"]')];
    const at = items.findIndex((item) => item === document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      folded.removeAttribute("open");
      summary.focus();
    }
    if (step === undefined || !folded.open) return;
    event.preventDefault();
    items.at((Math.max(at, step > 0 ? -1 : 0) + step) % items.length)?.focus();
  });
  folded.addEventListener("focusout", ({ relatedTarget }) => {
    const inside = relatedTarget instanceof Node && folded.contains(relatedTarget);
    if (!inside && relatedTarget !== null) folded.removeAttribute("open");
  });
}

function picker(accept: string, onFile: (file: File) => Promise<void>): HTMLInputElement {
  const input = element("input", {
    type: "file",
    hidden: true,
    multiple: true,
    ...(accept === "" ? {} : { accept }),
    onchange() {
      for (const file of input.files ?? []) void onFile(file);
      input.value = "";
    },
  });
  return input;
}

function menuDialog({ words, act, person }: SendMenuParts): HTMLDialogElement {
  const key = element("input", {
    required: true,
    maxlength: "100",
    value: "help",
    autocomplete: "off",
    pattern: "[\\w.:\\/\\-]+",
  });
  const fields = [element("label", {}, [words.menuKey, key])];
  const onDone = (): Promise<boolean> => act("menu", { openId: person(), eventKey: key.value });
  return dialogOf({ title: words.pressMenu, done: words.press, words, fields, onDone });
}

function forwardDialog({ words, store, send }: SendMenuParts): { dialog: HTMLDialogElement; open: () => void } {
  const choices = element("fieldset", { class: "members" });
  const onDone = async (): Promise<boolean> => {
    const forward = [...choices.querySelectorAll<HTMLInputElement>("input:checked")].map(({ value }) => value);
    return forward.length > 0 && (await send({ forward }));
  };
  const dialog = dialogOf({ title: words.forward, done: words.send, words, fields: [choices], onDone });
  const open = (): void => {
    const latest = store.state.messages
      .filter(({ recalled }) => !recalled)
      .toSorted(byTime)
      .slice(-forwardedMessages);
    const boxes = latest.map((message) =>
      element("label", { class: "check" }, [
        element("input", { type: "checkbox", value: message.messageId }),
        `${store.nameOf(message.senderId)}: ${briefOf(message, words).slice(0, 50)}`,
      ]),
    );
    choices.replaceChildren(element("legend", {}, [words.message]), ...boxes);
    dialog.showModal();
  };
  return { dialog, open };
}
