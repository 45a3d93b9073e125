import { partOf, textOf, type CardPart } from "./card-json.ts";
import type { CardContext } from "./card-view.ts";
import { node, type ViewElement, type ViewNode } from "./view-node.ts";

/** A form. Its buttons say themselves whether they submit it. */
export function formView(part: CardPart, context: CardContext, children: readonly ViewNode[]): ViewElement {
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    if (!(event instanceof SubmitEvent) || !(event.currentTarget instanceof HTMLFormElement)) return;
    const elementId = event.submitter?.dataset.use;
    const use = { ...(elementId === undefined ? {} : { elementId }), formValue: formValues(event.currentTarget) };
    if (confirmed(part)) context.use(use);
  };
  return node("form", { class: "card-form", "aria-label": textOf(part.name), onsubmit }, children);
}

/** Asks before an action, when its author wants that. */
export function confirmed(part: CardPart): boolean {
  if (part.confirm === undefined) return true;
  const { title, text } = partOf(part.confirm);
  const lines = [partOf(title).content, partOf(text).content].map(textOf).filter((line) => line !== "");
  return globalThis.confirm(lines.join("\n\n"));
}

/** The values of the components of a form, by name, as callbacks carry it. */
function formValues(form: HTMLFormElement): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const field of form.querySelectorAll<HTMLElement>("[data-name]")) {
    const { name = "", kind = "" } = field.dataset;
    const value = fieldValue(field, kind);
    if (value !== undefined) values[name] = value;
  }
  return values;
}

/** The value of one field; undefined while nothing is chosen. */
export function fieldValue(field: HTMLElement, kind: string): string | string[] | boolean | undefined {
  if (field instanceof HTMLSelectElement) {
    const chosen = [...field.selectedOptions].map(({ value }) => value).filter((value) => value !== "");
    return field.multiple ? chosen : chosen[0];
  }
  if (field instanceof HTMLTextAreaElement) return field.value;
  if (!(field instanceof HTMLInputElement)) return undefined;
  if (kind === "checker") return field.checked;
  if (field.value === "") return kind === "" ? "" : undefined;
  return kind === "" ? field.value : zoned(field.value.replace("T", " "));
}

/** Pickers carry the zone of the person ("Card callback"). */
function zoned(value: string): string {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${value} ${minutes < 0 ? "-" : "+"}${String(hours).padStart(2, "0")}${String(rest).padStart(2, "0")}`;
}
