import { html } from "./html.ts";
import type { Page, View } from "./view.ts";
import type { Word } from "./words.ts";

/** Says why there is nothing else to see. */
export function problemPage({ say }: View, problem: Word): Page {
  return { title: say("title"), body: html`<p role="alert">${say(problem)}</p>` };
}
