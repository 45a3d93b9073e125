import { tagRules } from "./card-tags.ts";
import { cardNodes, type CardNode } from "./card-tree.ts";
import type { CardClick } from "./card-view.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";

/** Fields that make a callback worth sending. */
const carriers = new Set(["value", "form_value", "input_value", "option"]);
const timePickers = new Set(["date_picker", "picker_time", "picker_datetime"]);

/** The `action` of a card callback (card callback page). A person who cannot do it is the caller's mistake: it throws. */
export function cardAction(card: JsonObject, click: CardClick): JsonObject {
  const used = click.elementId === undefined ? undefined : component(card, click.elementId);
  const submits = used?.node.form_action_type === "submit";
  const action: JsonObject = {
    tag: used?.tag ?? "button",
    value: click.value ?? callbackValue(used?.node),
    name: click.name ?? used?.node.name,
    form_value: submits ? submitted(card, used, click) : click.formValue,
    input_value: click.inputValue,
    option: click.option,
    timezone: timePickers.has(used?.tag ?? "") ? "Asia/Shanghai" : undefined,
  };
  const given = Object.entries(action).filter(([, value]) => value !== undefined);
  if (!given.some(([field]) => carriers.has(field))) {
    throw new Error("This component sends no callback: give a value");
  }
  return Object.fromEntries(given);
}

function component(card: JsonObject, id: string): CardNode {
  const usable = cardNodes(card).filter(
    ({ tag }) => tagRules[tag]?.interactive === true || tag === "interactive_container",
  );
  const found =
    usable.find(({ node }) => node.element_id === id) ??
    usable.find(({ node }) => node.name === id) ??
    usable.find(({ node }) => isJsonObject(node.text) && node.text.content === id);
  if (found === undefined) throw new Error(`The card has no component ${id}`);
  if (found.node.disabled === true) throw new Error(`The component ${id} is disabled`);
  return found;
}

/** What the component sends: the value of its callback behaviour, or of a 1.0 component. */
function callbackValue(node: JsonObject | undefined): JsonObject | string | undefined {
  const behaviors: unknown[] = Array.isArray(node?.behaviors) ? node.behaviors : [];
  const callback = behaviors.filter(isJsonObject).find((behavior) => behavior.type === "callback");
  const value = callback === undefined ? node?.value : callback.value;
  return isJsonObject(value) || typeof value === "string" ? value : undefined;
}

/** What a form sends: what stood in it, and what the person wrote, as far as the client lets them. */
function submitted(card: JsonObject, button: CardNode | undefined, { formValue = {} }: CardClick): JsonObject {
  const form = cardNodes(card).find(
    ({ tag, path }) => tag === "form" && path.every((key, index) => button?.path[index] === key),
  );
  const fields = cardNodes(form?.node)
    .filter(({ tag }) => tagRules[tag]?.interactive === true && tag !== "button")
    .map(({ node }) => node);
  const names = fields.map(({ name }) => String(name));
  const unknown = Object.keys(formValue).find((name) => !names.includes(name));
  if (unknown !== undefined) throw new Error(`The form has no field ${unknown}`);
  const values = fields.flatMap((field) => {
    const value = formValue[String(field.name)] ?? field.default_value ?? field.initial_option ?? field.selected_values;
    checkFilled(field, value);
    return value === undefined ? [] : [[String(field.name), value]];
  });
  return Object.fromEntries(values);
}

/** The client holds a form back that lacks something, and takes no more characters than allowed. */
function checkFilled({ name, required, max_length: maximum }: JsonObject, value: unknown): void {
  if (required === true && (value === undefined || value === "")) {
    throw new Error(`The field ${String(name)} has to be filled in`);
  }
  if (typeof maximum === "number" && typeof value === "string" && value.length > maximum) {
    throw new Error(`The field ${String(name)} takes ${maximum} characters`);
  }
}
