import { sharedNow, type ReplyLanguage } from "@larkline/protocol";
import { html, type Html, type HtmlValue } from "./html.ts";

// Parts that several pages are made of.

const units = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
] as const;

/** A moment as people say it, such as "3 minutes ago"; the exact time is behind it. */
export function moment(language: ReplyLanguage, atMs: number, nowMs = sharedNow()): Html {
  const awayMs = atMs - nowMs;
  const [unit, unitMs] = units.find(([, ms]) => Math.abs(awayMs) >= ms) ?? (["second", 1_000] as const);
  const words = new Intl.RelativeTimeFormat(language).format(Math.round(awayMs / unitMs), unit);
  const iso = new Date(atMs).toISOString();
  return html`<time datetime="${iso}" title="${iso}">${words}</time>`;
}

export interface TableOptions {
  /** What the table is about, for those who do not see it. */
  caption: string;
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
          ${columns.map((column) => html`<th scope="col">${column}</th>`)}
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
