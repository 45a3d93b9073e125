/** HTML that is complete and safe to send. Only {@link html} makes it. */
export interface Html {
  readonly markup: string;
}

/** What may stand in a template; text is escaped. Undefined and false stand for nothing. */
export type HtmlValue = Html | string | number | undefined | false | readonly HtmlValue[];

const escapes: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => escapes[character] ?? "");
}

function isHtml(value: HtmlValue): value is Html {
  return typeof value === "object" && "markup" in value;
}

function markupOf(value: HtmlValue): string {
  if (value === undefined || value === false) return "";
  if (typeof value === "string" || typeof value === "number") return escaped(String(value));
  return isHtml(value) ? value.markup : value.map(markupOf).join("");
}

/** A template of HTML: values that are no HTML themselves are text, also within quoted attributes. */
export function html(parts: TemplateStringsArray, ...values: HtmlValue[]): Html {
  return { markup: parts.map((part, at) => part + markupOf(values[at])).join("") };
}
