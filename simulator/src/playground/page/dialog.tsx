import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Store } from "./store.ts";
import type { Words } from "./words.ts";

interface DialogProps {
  title: string;
  /** What the button says that finishes it. */
  done: string;
  words: Words;
  /** Takes the values of the fields by their names. Whether the dialog closes. */
  onDone: (fields: FormData) => Promise<boolean>;
  onClose: () => void;
  children: ComponentChildren;
}

/** A dialog that is open while it is shown; closed by Escape, by cancelling and when it is done. */
export function Dialog({ title, done, words, onDone, onClose, children }: DialogProps): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const onSubmit = (event: SubmitEvent & { readonly currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    void onDone(new FormData(event.currentTarget)).then((finished) => finished && onClose());
  };
  return (
    <dialog ref={dialog} aria-label={title} onClose={onClose}>
      <form onSubmit={onSubmit}>
        <h2>{title}</h2>
        {children}
        <div class="row">
          <span class="grow" />
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="primary">
            {done}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Boxes to choose from. */
export function Choices({
  legend,
  children,
}: {
  legend: string;
  children: readonly [value: string, label: string][];
}) {
  return (
    <fieldset class="members">
      <legend>{legend}</legend>
      {children.map(([value, label]) => (
        <label class="check" key={value}>
          <input type="checkbox" name="chosen" value={value} />
          {label}
        </label>
      ))}
    </fieldset>
  );
}

interface CreateProps {
  words: Words;
  store: Store;
  act: (path: string, body?: object) => Promise<boolean>;
  onClose: () => void;
}

/** Asks for the name of a new person. */
export function PersonDialog({ words, act, onClose }: CreateProps): VNode {
  const onDone = async (fields: FormData): Promise<boolean> =>
    await act("people", { name: fields.get("name") });
  return (
    <Dialog title={words.addPerson} done={words.create} {...{ words, onDone, onClose }}>
      <label>
        {words.personName}
        <input name="name" required maxLength={60} autocomplete="off" />
      </label>
    </Dialog>
  );
}

/** Asks for kind, name and people of a new chat; the bot comes to a group by being added. */
export function ChatDialog({ words, act, store, onClose }: CreateProps): VNode {
  const onDone = async (fields: FormData): Promise<boolean> => {
    const kind = fields.get("kind");
    const chosen = fields.getAll("chosen");
    return await act("chats", {
      type: kind === "p2p" ? "p2p" : "group",
      topic: kind === "topic",
      name: fields.get("name"),
      members: kind === "p2p" ? chosen.slice(0, 1) : chosen,
    });
  };
  return (
    <Dialog title={words.addChat} done={words.create} {...{ words, onDone, onClose }}>
      <label>
        {words.chatKind}
        <select name="kind">
          <option value="p2p">{words.p2p}</option>
          <option value="group">{words.group}</option>
          <option value="topic">{words.topicGroup}</option>
        </select>
      </label>
      <label>
        {words.chatName}
        <input name="name" maxLength={60} autocomplete="off" />
      </label>
      <Choices legend={words.members}>
        {store.state.people.map(({ openId, name }) => [openId, name])}
      </Choices>
    </Dialog>
  );
}

/* ---- Toasts ---- */

export type ToastKind = "info" | "success" | "warning" | "error";

/** A short note at the top of the page. */
export interface Toast {
  kind: ToastKind;
  text: string;
  /** It stays until a person closes it with this; undefined: it goes by itself. */
  close: (() => void) | undefined;
}

const icons: Readonly<Record<ToastKind, string>> = {
  info: "info",
  success: "done",
  warning: "warning",
  error: "failed",
};

export function Toasts({ toasts, words }: { toasts: readonly Toast[]; words: Words }): VNode {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map(({ kind, text, close }) => (
        <div class={`toast toast-${kind}`} key={text} role={kind === "error" ? "alert" : undefined}>
          <span class={`icon icon-${icons[kind]}`} aria-hidden="true" />
          <span>{text}</span>
          {close !== undefined && (
            <button type="button" onClick={close}>
              {words.close}
            </button>
          )}
        </div>
      ))}
    </div>
  );
}
