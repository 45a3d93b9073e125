import type { Store } from "./store.ts";
import type { Words } from "./words.ts";

/** Attributes of an element; `false` and undefined leave an attribute out, `on…` adds a listener. */
type Attributes = Readonly<Record<string, string | boolean | undefined | ((event: Event) => void)>>;
export type Child = Node | string | undefined;

/** Builds an element. Text only ever becomes a text node. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  children: readonly Child[] = [],
): HTMLElementTagNameMap[Tag] {
  const built = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") built.addEventListener(name.slice(2), value);
    else if (value === true) built.setAttribute(name, "");
    else if (typeof value === "string") built.setAttribute(name, value);
  }
  for (const child of children) if (child !== undefined) built.append(child);
  return built;
}

/** A button that does not submit. */
export function button(label: string, attributes: Attributes, onclick: () => void): HTMLButtonElement {
  return element("button", { type: "button", ...attributes, onclick }, [label]);
}

interface DialogParts {
  title: string;
  /** What the button says that finishes it. */
  done: string;
  words: Words;
  fields: readonly HTMLElement[];
  /** Whether the dialog closes. */
  onDone: () => Promise<boolean>;
}

/** A dialog with fields, closed by Escape, by cancelling and when it is done. */
export function dialogOf({ title, done, words, fields, onDone }: DialogParts): HTMLDialogElement {
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    void onDone().then((finished) => finished && dialog.close());
  };
  const form = element("form", { onsubmit }, [
    element("h2", {}, [title]),
    ...fields,
    element("div", { class: "row" }, [
      element("span", { class: "grow" }),
      button(words.cancel, {}, () => dialog.close()),
      element("button", { type: "submit", class: "primary" }, [done]),
    ]),
  ]);
  const dialog = element("dialog", { "aria-label": title }, [form]);
  return dialog;
}

interface CreateParts {
  words: Words;
  store: Store;
  act: (path: string, body?: object) => Promise<boolean>;
}

/** Asks for the name of a new person. */
export function personDialog({ words, act }: CreateParts): HTMLDialogElement {
  const name = element("input", { required: true, maxlength: "60", autocomplete: "off" });
  const fields = [element("label", {}, [words.personName, name])];
  const onDone = (): Promise<boolean> => act("people", { name: name.value });
  return dialogOf({ title: words.addPerson, done: words.create, words, fields, onDone });
}

/** Asks for kind, name and people of a new chat; the bot comes to a group by being added. */
export function chatDialog({ words, act, store }: CreateParts): { dialog: HTMLDialogElement; open: () => void } {
  const name = element("input", { maxlength: "60", autocomplete: "off" });
  const kinds = [
    ["p2p", words.p2p],
    ["group", words.group],
    ["topic", words.topicGroup],
  ] as const;
  const kind = element(
    "select",
    {},
    kinds.map(([value, label]) => element("option", { value }, [label])),
  );
  const members = element("fieldset", { class: "members" });
  const fields = [element("label", {}, [words.chatKind, kind]), element("label", {}, [words.chatName, name]), members];
  const onDone = async (): Promise<boolean> => {
    const checked = [...members.querySelectorAll<HTMLInputElement>("input:checked")].map(({ value }) => value);
    const direct = kind.value === "p2p";
    return await act("chats", {
      type: direct ? "p2p" : "group",
      topic: kind.value === "topic",
      name: name.value,
      members: direct ? checked.slice(0, 1) : checked,
    });
  };
  const dialog = dialogOf({ title: words.addChat, done: words.create, words, fields, onDone });
  const open = (): void => {
    const boxes = store.state.people.map((person) =>
      element("label", { class: "check" }, [element("input", { type: "checkbox", value: person.openId }), person.name]),
    );
    members.replaceChildren(element("legend", {}, [words.members]), ...boxes);
    dialog.showModal();
  };
  return { dialog, open };
}

export type ToastKind = "info" | "success" | "warning" | "error";

/** Short notes that come and go at the top of the page. */
interface Toasts {
  readonly root: HTMLElement;
  show(kind: ToastKind, text: string): void;
}

const shownMs = 5000;
const mostShown = 3;
const icons: Readonly<Record<ToastKind, string>> = {
  info: "info",
  success: "done",
  warning: "warning",
  error: "failed",
};

export function createToasts(): Toasts {
  const root = element("div", { class: "toasts", role: "status", "aria-live": "polite" });
  const shown = new Map<string, () => void>();
  return {
    root,
    show(kind, text) {
      // The same once more takes the place of the one before.
      shown.get(text)?.();
      const icon = element("span", { class: `icon icon-${icons[kind]}`, "aria-hidden": "true" });
      const toast = element("div", { class: `toast toast-${kind}` }, [icon, element("span", {}, [text])]);
      if (kind === "error") toast.setAttribute("role", "alert");
      root.append(toast);
      while (root.childElementCount > mostShown) root.firstElementChild?.remove();
      const remove = (): void => {
        toast.remove();
        clearTimeout(timer);
        if (shown.get(text) === remove) shown.delete(text);
      };
      const timer = setTimeout(remove, shownMs);
      shown.set(text, remove);
    },
  };
}
