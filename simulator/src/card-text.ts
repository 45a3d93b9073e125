import { isJsonObject, type JsonObject } from "./json-fields.ts";

/** What a person reads on a card: titles and texts, one a line. Buttons and folded content are left out. */
export function cardText(card: JsonObject): string {
  const header = isJsonObject(card.header) ? card.header : {};
  const body = isJsonObject(card.body) ? card.body.elements : card.elements;
  const lines = [contentOf(header.title), contentOf(header.subtitle), ...linesOf(body)];
  const text = lines.filter((line) => line !== "").join("\n");
  return text === "" ? "[card]" : text;
}

function linesOf(elements: unknown): string[] {
  return Array.isArray(elements) ? elements.flatMap((element: unknown) => elementLines(element)) : [];
}

const readers: Readonly<Record<string, (element: JsonObject) => string[]>> = {
  markdown: (element) => [contentOf(element)],
  plain_text: (element) => [contentOf(element)],
  lark_md: (element) => [contentOf(element)],
  div: (element) => [contentOf(element.text), ...fieldLines(element.fields)],
  img: (element) => [contentOf(element.title)],
  checker: (element) => [contentOf(element.text)],
  input: (element) => [contentOf(element.label)],
  collapsible_panel: panelLines,
  column_set: (element) => linesOf(element.columns),
  table: tableLines,
};

function elementLines(element: unknown): string[] {
  if (!isJsonObject(element) || element.tag === "action") return [];
  const read = readers[String(element.tag)];
  return read === undefined ? linesOf(element.elements) : read(element);
}

function panelLines(panel: JsonObject): string[] {
  const header = isJsonObject(panel.header) ? panel.header : {};
  return [contentOf(header.title), ...(panel.expanded === true ? linesOf(panel.elements) : [])];
}

function tableLines({ columns, rows }: JsonObject): string[] {
  const names = objects(columns).map((column) => String(column.name));
  const titles = objects(columns).map((column) => String(column.display_name ?? column.name));
  const cells = objects(rows).map((row) => names.map((name) => cellText(row[name])).join(" | "));
  return [titles.join(" | "), ...cells];
}

function cellText(value: unknown): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
}

function fieldLines(fields: unknown): string[] {
  return objects(fields).map((field) => contentOf(field.text));
}

function objects(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isJsonObject) : [];
}

function contentOf(text: unknown): string {
  return isJsonObject(text) && typeof text.content === "string" ? text.content : "";
}
