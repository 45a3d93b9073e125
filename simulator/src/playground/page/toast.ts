import { element } from "./element.ts";

export type ToastKind = "info" | "success" | "warning" | "error";

/** Short notes that come and go at the top of the page. */
export interface Toasts {
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
