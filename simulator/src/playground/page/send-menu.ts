import type { ChatPanelParts } from "./chat-panel.ts";
import { dialogOf } from "./dialogs.ts";
import { button, element } from "./element.ts";
import { briefOf } from "./message-view.ts";
import { byTime } from "./store.ts";

export interface SendMenuParts extends ChatPanelParts {
  person: () => string;
  send: (content: object) => Promise<boolean>;
  sendFile: (file: File) => Promise<void>;
  /** The next message arrives hours late. */
  onLate: () => void;
}

const forwardedMessages = 12;

/** A menu, and what it opens, which stands outside of the form that the menu is in. */
export interface SendMenu {
  readonly root: HTMLElement;
  readonly dialogs: readonly HTMLElement[];
}

/** What can be sent besides text, and what else a person can do in a chat. */
export function sendMenu(parts: SendMenuParts): SendMenu {
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
