import type { ComponentChildren, TargetedEvent, VNode } from "preact";
import { type CardPart, contentOf, partOf, partsOf, textOf } from "./card-part.ts";
import { imageView, type MarkdownContext, withSigns } from "./markdown-view.tsx";
import type { Words } from "./words.ts";

/** What a person does with a component, for the platform to tell the bot. */
export interface CardUse {
  elementId?: string;
  value?: unknown;
  name?: string;
  option?: string;
  inputValue?: string;
  formValue?: Record<string, unknown>;
}

/** What a card is shown with. */
export interface CardContext extends MarkdownContext {
  words: Words;
  /** What has been typed of a streamed text, and whether it is the one that grows. */
  typed(elementId: string, text: string): string;
  growing: string | undefined;
  /** Whether the card still streams. */
  streaming: boolean;
  /** The component that waits for its answer. */
  busy: string | undefined;
  use(use: CardUse): void;
}

/** Shows one component. */
export type ShowPart = (part: CardPart, context: CardContext) => VNode;

/** Components that people use. */
export const cardControls: Readonly<Record<string, ShowPart>> = {
  button: buttonView,
  input: inputView,
  select_static: selectView,
  multi_select_static: selectView,
  select_person: selectView,
  multi_select_person: selectView,
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
  "default primary danger text primary_text danger_text primary_filled danger_filled laser".split(
    " ",
  ),
);

function buttonView(part: CardPart, context: CardContext): VNode {
  const id = useId(part);
  const type = buttonTypes.has(textOf(part.type)) ? textOf(part.type) : "default";
  const busy = id !== "" && context.busy === id;
  const submits = part.form_action_type === "submit";
  const resets = part.form_action_type === "reset";
  const link = partsOf(part.behaviors).find((behavior) => behavior.type === "open_url");
  const calls =
    partsOf(part.behaviors).some((behavior) => behavior.type === "callback") ||
    part.value !== undefined;
  const onClick = (event: Event): void => {
    if (!confirmed(part)) return event.preventDefault();
    if (submits || resets) return;
    if (link !== undefined) {
      openLink(textOf(link.pc_url) || textOf(link.default_url) || textOf(link.url));
    }
    if (calls) context.use(useOf(part));
  };
  return (
    <button
      type={submits ? "submit" : resets ? "reset" : "button"}
      class={`card-button type-${type} size-${textOf(part.size) || "medium"}${part.width === "fill" ? " fill" : ""}`}
      disabled={part.disabled === true || busy}
      aria-busy={busy ? "true" : undefined}
      data-use={id}
      title={contentOf(part.disabled === true ? part.disabled_tips : part.hover_tips) || undefined}
      onClick={onClick}
    >
      {withSigns(contentOf(part.text))}
    </button>
  );
}

/** Only pages of the web are opened. */
function openLink(url: string): void {
  if (/^https?:\/\//i.test(url)) globalThis.open(url, "_blank", "noopener,noreferrer");
}

/** A label around a field; what it is called without one is its placeholder. */
function labelled(part: CardPart, field: ComponentChildren): VNode {
  const label = contentOf(part.label);
  return (
    <label class="card-field">
      {label !== "" && (
        <span>
          {label}
          {part.required === true && (
            <span class="required" aria-hidden="true">
              *
            </span>
          )}
        </span>
      )}
      {field}
    </label>
  );
}

/** What all fields have in common. Inside a form the name is what its value is sent under. */
function fieldAttributes(part: CardPart, kind = "") {
  return {
    "data-name": textOf(part.name) || undefined,
    "data-kind": kind,
    "aria-label":
      contentOf(part.label) || contentOf(part.placeholder) || textOf(part.name) || undefined,
    required: part.required === true,
    disabled: part.disabled === true,
  };
}

type Field = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

/** Outside of a form a component reports its use at once. */
function alone(event: TargetedEvent<Field>): Field | undefined {
  return event.currentTarget.closest(".card-form") === null ? event.currentTarget : undefined;
}

function inputView(part: CardPart, context: CardContext): VNode {
  const onChange = (event: TargetedEvent<Field>): void => {
    const field = alone(event);
    if (field === undefined || !confirmed(part)) return;
    context.use(useOf(part, { inputValue: String(fieldValue(field, "") ?? "") }));
  };
  const attributes = {
    ...fieldAttributes(part),
    placeholder: contentOf(part.placeholder),
    maxLength: typeof part.max_length === "number" ? part.max_length : 1000,
    autocomplete: "off" as const,
    defaultValue: textOf(part.default_value),
    onChange,
  };
  const rows = typeof part.rows === "number" ? part.rows : 3;
  const multiline = part.input_type === "multiline_text";
  return labelled(
    part,
    multiline ? (
      <textarea {...attributes} rows={rows} />
    ) : part.input_type === "password" ? (
      <input {...attributes} type="password" />
    ) : (
      <input {...attributes} type="text" />
    ),
  );
}

function selectView(part: CardPart, context: CardContext): VNode {
  const multiple = textOf(part.tag).startsWith("multi_");
  const people = textOf(part.tag).endsWith("person");
  const selected = Array.isArray(part.selected_values) ? part.selected_values : [];
  const chosen = new Set<unknown>([textOf(part.initial_option), ...selected]);
  const onChange = (event: TargetedEvent<Field>): void => {
    const field = alone(event);
    const option = field === undefined ? undefined : fieldValue(field, "select");
    if (typeof option === "string" && confirmed(part)) context.use(useOf(part, { option }));
  };
  return labelled(
    part,
    <select {...fieldAttributes(part, "select")} multiple={multiple} onChange={onChange}>
      {!multiple && <option value="">{contentOf(part.placeholder) || context.words.choose}</option>}
      {partsOf(part.options).map((option) => {
        const value = textOf(option.value);
        return (
          <option value={value} {...{ defaultSelected: chosen.has(value) }}>
            {contentOf(option.text) || (people ? context.nameOf(value) : value)}
          </option>
        );
      })}
    </select>,
  );
}

function pickerView(
  part: CardPart,
  context: CardContext,
  type: "date" | "time" | "datetime-local",
): VNode {
  const initial = textOf(part.initial_date ?? part.initial_time ?? part.initial_datetime).replace(
    " ",
    "T",
  );
  const onChange = (event: TargetedEvent<Field>): void => {
    const field = alone(event);
    const option = field === undefined ? undefined : fieldValue(field, type);
    if (typeof option === "string" && confirmed(part)) context.use(useOf(part, { option }));
  };
  return labelled(
    part,
    <input
      {...fieldAttributes(part, type)}
      type={type}
      defaultValue={initial}
      onChange={onChange}
    />,
  );
}

function overflowView(part: CardPart, context: CardContext): VNode {
  const choose = (event: TargetedEvent<HTMLElement>, option: CardPart): void => {
    event.currentTarget.closest("details")?.removeAttribute("open");
    if (confirmed(part)) context.use(useOf(part, { option: textOf(option.value) }));
  };
  return (
    <details class="overflow">
      <summary aria-label={context.words.more}>⋯</summary>
      <div class="menu">
        {partsOf(part.options).map((option) => (
          <button type="button" onClick={(event) => choose(event, option)}>
            {contentOf(option.text) || textOf(option.value)}
          </button>
        ))}
      </div>
    </details>
  );
}

function checkerView(part: CardPart, context: CardContext): VNode {
  const onChange = (event: TargetedEvent<Field>): void => {
    if (alone(event) !== undefined && confirmed(part)) context.use(useOf(part));
  };
  return (
    <label class="checker">
      <input
        {...fieldAttributes(part, "checker")}
        type="checkbox"
        defaultChecked={part.checked === true}
        onChange={onChange}
      />
      <span>{contentOf(part.text)}</span>
    </label>
  );
}

function imageChoiceView(part: CardPart, context: CardContext): VNode {
  return (
    <div class="pictures">
      {partsOf(part.options).map((option) => (
        <button
          type="button"
          class="image-choice"
          disabled={option.disabled === true}
          onClick={() => context.use(useOf(part, { option: textOf(option.value) }))}
        >
          {imageView({ key: textOf(option.img_key), alt: textOf(option.value) })}
        </button>
      ))}
    </div>
  );
}

/** A form. Its buttons say themselves whether they submit it. */
export function formView(part: CardPart, context: CardContext, children: ComponentChildren): VNode {
  const onSubmit = (event: SubmitEvent & { readonly currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    const elementId = event.submitter?.dataset.use;
    const use = {
      ...(elementId === undefined ? {} : { elementId }),
      formValue: formValues(event.currentTarget),
    };
    if (confirmed(part)) context.use(use);
  };
  return (
    <form class="card-form" aria-label={textOf(part.name)} onSubmit={onSubmit}>
      {children}
    </form>
  );
}

/** Asks before an action, when its author wants that. */
function confirmed(part: CardPart): boolean {
  if (part.confirm === undefined) return true;
  const { title, text } = partOf(part.confirm);
  const lines = [partOf(title).content, partOf(text).content]
    .map(textOf)
    .filter((line) => line !== "");
  return globalThis.confirm(lines.join("\n\n"));
}

/** The values of the components of a form, by name, as callbacks carry it. */
function formValues(form: HTMLFormElement): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const field of form.querySelectorAll<Field>("[data-name]")) {
    const { name = "", kind = "" } = field.dataset;
    const value = fieldValue(field, kind);
    if (value !== undefined) values[name] = value;
  }
  return values;
}

/** The value of one field; undefined while nothing is chosen. */
function fieldValue(field: Field, kind: string): string | string[] | boolean | undefined {
  if (field instanceof HTMLSelectElement) {
    const chosen = [...field.selectedOptions]
      .map(({ value }) => value)
      .filter((value) => value !== "");
    return field.multiple ? chosen : chosen[0];
  }
  if (field instanceof HTMLTextAreaElement) return field.value;
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
