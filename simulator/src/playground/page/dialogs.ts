import { button, element } from "./element.ts";
import type { Store } from "./store.ts";
import type { Words } from "./words.ts";

export interface DialogParts {
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
