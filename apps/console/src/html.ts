import { textIn, type LocalText, type ReplyLanguage } from "@larkline/protocol";

/** HTML that is complete and safe to send. Only {@link html} makes it. */
export interface Html {
  readonly markup: string;
}

/** What a template may contain; text is escaped. Undefined and false become nothing. */
export type HtmlValue = Html | string | number | undefined | false | readonly HtmlValue[];

const escapes: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escaped(text: string): string {
  return text.replaceAll(/[&<>"'\uE000\uE001]/g, (character) => escapes[character] ?? "");
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

/** A person or a chat: an id that {@link withNames} puts a name in place of. For content, not for attributes. */
export function who(id: string): Html {
  return { markup: `\uE000${escaped(id)}\uE001` };
}

/** The name of an id that stands beside it; nothing where it has none. */
export function nameOf(id: string): Html {
  return { markup: `\uE000!${escaped(id)}\uE001` };
}

/** A person or a chat in a plain text, such as a title, a caption or an attribute. */
export function nameText(id: string): Html {
  return { markup: `\uE000=${escaped(id)}\uE001` };
}

/** A tool: {@link withNames} puts the title that it has in the reader's language in place of its name. */
export function toolNamed(name: string): Html {
  return { markup: `\uE000@${escaped(name)}\uE001` };
}

/** A tool in a plain text. */
export function toolNameText(name: string): Html {
  return { markup: `\uE000=@${escaped(name)}\uE001` };
}

/** A text with ids of people and chats in it. */
export function whoIn(text: string): Html {
  return html`${text.split(/(o[uc]_[A-Za-z0-9_]+)/).map((part, at) => (at % 2 === 0 ? part : who(part)))}`;
}

const marks = /\uE000([!=]?)(@?)([^\uE001]*)\uE001/g;

/** What a page would show names for, as it is in the markup: ids of people and chats, and tools. */
export function idsIn({ markup }: Html): { ids: string[]; tools: string[] } {
  const found = [...markup.matchAll(marks)];
  const named = (mark: string): string[] =>
    found.flatMap(([, , kind, id = ""]) => (kind === mark ? [id] : []));
  return { ids: named(""), tools: named("@") };
}

/** The page with names and titles; the id is behind a name, beside a title that several tools have, or alone. */
export function withNames(
  { markup }: Html,
  names: ReadonlyMap<string, string>,
  titles: ReadonlyMap<string, string>,
): Html {
  const all = [...titles.values()];
  const shown = markup.replaceAll(marks, (_mark, form: string, kind: string, id: string) => {
    const title = titles.get(id) ?? "";
    const isShared = kind === "@" && title !== "" && all.indexOf(title) !== all.lastIndexOf(title);
    const name = isShared ? `${title} (${id})` : (kind === "@" ? titles : names).get(id);
    if (name === undefined) return form === "!" ? "" : id;
    if (form === "=") return escaped(name);
    return `<span class="who" title="${id}">${escaped(name)}</span>`;
  });
  return { markup: shown };
}

// Parts that several pages are made of.

/** A tool by its title and its name; by its name alone where it has no title. */
export function toolText(
  name: string,
  title: LocalText | undefined,
  language: ReplyLanguage,
): string {
  return title === undefined ? name : `${textIn(title, language)} (${name})`;
}

/** Each unit with its length and half of the next smaller one, both in milliseconds. */
const units = [
  ["day", 86_400_000, 1_800_000],
  ["hour", 3_600_000, 30_000],
  ["minute", 60_000, 500],
] as const;

/** With a blank between Chinese and numbers: Intl writes none. */
export function spaced(text: string): string {
  return text.replaceAll(/(?<=\d)(?=\p{Script=Han})|(?<=\p{Script=Han})(?=\d)/gu, " ");
}

/** A moment as people say it, such as "3 minutes ago"; the exact time is behind it. */
export function moment(
  { language, nowMs }: { language: ReplyLanguage; nowMs: number },
  atMs: number,
): Html {
  const awayMs = atMs - nowMs;
  // What rounds up to a whole unit is said in that unit: "1 minute ago", never "60 seconds ago".
  const [unit, unitMs] =
    units.find(([, ms, half]) => Math.abs(awayMs) >= ms - half) ?? (["second", 1_000] as const);
  const words = new Intl.RelativeTimeFormat(language).format(Math.round(awayMs / unitMs), unit);
  const iso = new Date(atMs).toISOString();
  return html`<time datetime="${iso}" title="${iso}">${spaced(words)}</time>`;
}

interface TableOptions {
  /** What the table is about, for those who do not see it. */
  caption: string | Html;
  columns: readonly string[];
  rows: readonly (readonly HtmlValue[])[];
}

/** A table whose first column names the row. */
export function table({ caption, columns, rows }: TableOptions): Html {
  return html`<div class="wide" role="region" aria-label="${caption}" tabindex="0">
    <table>
      <caption>
        ${caption}
      </caption>
      <thead>
        <tr>
          ${columns.map((column) => (column === "" ? html`<td></td>` : html`<th scope="col">${column}</th>`))}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          ([first, ...others]) =>
            html`<tr>
              <th scope="row">${first}</th>
              ${others.map((value) => html`<td>${value}</td>`)}
            </tr> `,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Names and values; an undefined value leaves its name out. */
export function facts(entries: readonly (readonly [string, HtmlValue])[]): Html {
  const known = entries.filter(([, value]) => value !== undefined);
  return html`<dl>
    ${known.map(
      ([name, value]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div> `,
    )}
  </dl>`;
}
