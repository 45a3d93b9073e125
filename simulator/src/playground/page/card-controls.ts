import {
  type CardPart,
  contentOf,
  node,
  partOf,
  partsOf,
  textOf,
  type ViewElement,
  type ViewNode,
} from "./view-node.ts";
import type { CardContext, CardUse, ShowPart } from "./card-view.ts";
import { imageView } from "./markdown-view.ts";

/** Components that people use. */
export const cardControls: Readonly<Record<string, ShowPart>> = {
  button: buttonView,
  input: inputView,
  select_static: (part, context) => selectView(part, context, partsOf(part.options)),
  multi_select_static: (part, context) => selectView(part, context, partsOf(part.options)),
  select_person: (part, context) => selectView(part, context, partsOf(part.options)),
  multi_select_person: (part, context) => selectView(part, context, partsOf(part.options)),
  date_picker: (part, context) => pickerView(part, context, "date"),
  picker_time: (part, context) => pickerView(part, context, "time"),
  picker_datetime: (part, context) => pickerView(part, context, "datetime-local"),
  overflow: overflowView,
  checker: checkerView,
  select_img: imageChoiceView,
};

/** By what the platform finds the component again. */
function useId(part: CardPart): string {
  return textOf(part.element_id) || textOf(part.name) || contentOf(part.text);
}

function useOf(part: CardPart, more: CardUse = {}): CardUse {
  const id = useId(part);
  return { ...(id === "" ? {} : { elementId: id }), ...more };
}

const buttonTypes = new Set(
  "default primary danger text primary_text danger_text primary_filled danger_filled laser".split(" "),
);

function buttonView(part: CardPart, context: CardContext): ViewElement {
  const id = useId(part);
  const type = buttonTypes.has(textOf(part.type)) ? textOf(part.type) : "default";
  const busy = id !== "" && context.busy === id;
  const submits = part.form_action_type === "submit";
  const link = partsOf(part.behaviors).find((behavior) => behavior.type === "open_url");
  const calls = partsOf(part.behaviors).some((behavior) => behavior.type === "callback") || part.value !== undefined;
  const onclick = (event: Event): void => {
    if (!confirmed(part)) return event.preventDefault();
    if (submits || part.form_action_type === "reset") return;
    if (link !== undefined) openLink(textOf(link.pc_url) || textOf(link.default_url) || textOf(link.url));
    if (calls) context.use(useOf(part));
  };
  return node(
    "button",
    {
      type: submits ? "submit" : part.form_action_type === "reset" ? "reset" : "button",
      class: `card-button type-${type} size-${textOf(part.size) || "medium"}${part.width === "fill" ? " fill" : ""}`,
      disabled: part.disabled === true || busy,
      "aria-busy": busy ? "true" : undefined,
      "data-use": id,
      title: contentOf(part.disabled === true ? part.disabled_tips : part.hover_tips) || undefined,
      onclick,
    },
    [contentOf(part.text)],
  );
}

/** Only pages of the web are opened. */
function openLink(url: string): void {
  if (/^https?:\/\//i.test(url)) globalThis.open(url, "_blank", "noopener,noreferrer");
}

/** A label around a field; what it is called without one is its placeholder. */
function labelled(part: CardPart, field: ViewNode): ViewElement {
  const label = contentOf(part.label);
  const required =
    part.required === true ? node("span", { class: "required", "aria-hidden": "true" }, ["*"]) : undefined;
  return node("label", { class: "card-field" }, [
    label === ""
      ? undefined
      : node(
          "span",
          {},
          [label, required].filter((child) => child !== undefined),
        ),
    field,
  ]);
}

/** What all fields have in common. Inside a form the name is what its value is sent under. */
function fieldAttributes(part: CardPart, kind = ""): Record<string, string | boolean | undefined> {
  return {
    "data-name": textOf(part.name) || undefined,
    "data-kind": kind,
    "aria-label": contentOf(part.label) || contentOf(part.placeholder) || textOf(part.name) || undefined,
    required: part.required === true,
    disabled: part.disabled === true,
  };
}

/** Outside of a form a component tells of its use at once. */
function alone(event: Event): HTMLElement | undefined {
  const field = event.currentTarget;
  return field instanceof HTMLElement && field.closest(".card-form") === null ? field : undefined;
}

function inputView(part: CardPart, context: CardContext): ViewElement {
  const multiline = part.input_type === "multiline_text";
  const value = textOf(part.default_value);
  const onchange = (event: Event): void => {
    const field = alone(event);
    if (field === undefined || !confirmed(part)) return;
    context.use(useOf(part, { inputValue: String(fieldValue(field, "") ?? "") }));
  };
  const attributes = {
    ...fieldAttributes(part),
    placeholder: contentOf(part.placeholder),
    maxlength: String(typeof part.max_length === "number" ? part.max_length : 1000),
    autocomplete: "off",
    onchange,
  };
  const rows = typeof part.rows === "number" ? String(part.rows) : "3";
  const field = multiline
    ? node("textarea", { ...attributes, rows }, [value])
    : node("input", { ...attributes, type: part.input_type === "password" ? "password" : "text", value });
  return labelled(part, field);
}

function selectView(part: CardPart, context: CardContext, options: readonly CardPart[]): ViewElement {
  const multiple = textOf(part.tag).startsWith("multi_");
  const chosen = new Set([
    textOf(part.initial_option),
    ...(Array.isArray(part.selected_values) ? part.selected_values : []),
  ]);
  const people = textOf(part.tag).endsWith("person");
  const choices = options.map((option) => {
    const value = textOf(option.value);
    const text = contentOf(option.text) || (people ? context.nameOf(value) : value);
    return node("option", { value, selected: chosen.has(value) }, [text]);
  });
  const empty = multiple ? [] : [node("option", { value: "" }, [contentOf(part.placeholder) || context.words.choose])];
  const onchange = (event: Event): void => {
    const field = alone(event);
    const option = field === undefined ? undefined : fieldValue(field, "select");
    if (typeof option === "string" && confirmed(part)) context.use(useOf(part, { option }));
  };
  const field = node("select", { ...fieldAttributes(part, "select"), multiple, onchange }, [...empty, ...choices]);
  return labelled(part, field);
}

function pickerView(part: CardPart, context: CardContext, type: "date" | "time" | "datetime-local"): ViewElement {
  const initial = textOf(part.initial_date ?? part.initial_time ?? part.initial_datetime).replace(" ", "T");
  const onchange = (event: Event): void => {
    const field = alone(event);
    const option = field === undefined ? undefined : fieldValue(field, type);
    if (typeof option === "string" && confirmed(part)) context.use(useOf(part, { option }));
  };
  return labelled(part, node("input", { ...fieldAttributes(part, type), type, value: initial, onchange }));
}

function overflowView(part: CardPart, context: CardContext): ViewElement {
  const items = partsOf(part.options).map((option) => {
    const onclick = (event: Event): void => {
      if (event.currentTarget instanceof HTMLElement) event.currentTarget.closest("details")?.removeAttribute("open");
      if (confirmed(part)) context.use(useOf(part, { option: textOf(option.value) }));
    };
    return node("button", { type: "button", onclick }, [contentOf(option.text) || textOf(option.value)]);
  });
  return node("details", { class: "overflow" }, [
    node("summary", { "aria-label": context.words.more }, ["⋯"]),
    node("div", { class: "menu" }, items),
  ]);
}

function checkerView(part: CardPart, context: CardContext): ViewElement {
  const onchange = (event: Event): void => {
    if (alone(event) !== undefined && confirmed(part)) context.use(useOf(part));
  };
  const box = node("input", {
    ...fieldAttributes(part, "checker"),
    type: "checkbox",
    checked: part.checked === true,
    onchange,
  });
  return node("label", { class: "checker" }, [box, node("span", {}, [contentOf(part.text)])]);
}

function imageChoiceView(part: CardPart, context: CardContext): ViewElement {
  const images = partsOf(part.options).map((option) => {
    const onclick = (): void => context.use(useOf(part, { option: textOf(option.value) }));
    const image = imageView({ key: textOf(option.img_key), alt: textOf(option.value) }, context);
    return node("button", { type: "button", class: "image-choice", disabled: option.disabled === true, onclick }, [
      image,
    ]);
  });
  return node("div", { class: "pictures" }, images);
}

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
function confirmed(part: CardPart): boolean {
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
function fieldValue(field: HTMLElement, kind: string): string | string[] | boolean | undefined {
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
