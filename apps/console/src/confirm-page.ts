import { html } from "./html.ts";
import { actionForm, type Page, type View } from "./view.ts";
import type { Word } from "./words.ts";

export interface Question {
  title: string;
  /** What will happen. */
  texts: readonly Word[];
  /** Where a yes is sent. */
  path: string;
  label: Word;
  /** Where a no leads. */
  back: string;
}

/** Asks once more before something that cannot be undone. */
export function confirmPage(view: View, { title, texts, path, label, back }: Question): Page {
  const { say } = view;
  const body = html`${texts.map((text) => html`<p>${say(text)}</p>`)}
    <div class="row">
      ${actionForm(view, { path, label })}
      <a href="${back}">${say("back")}</a>
    </div>`;
  return { title, body };
}
