import { html } from "./html.ts";
import type { Page, View } from "./view.ts";
import type { Word } from "./words.ts";

export interface SignInForm {
  /** Where to go on afterwards. */
  next: string;
  problem?: Word;
}

export function signInPage({ say }: View, { next, problem }: SignInForm): Page {
  const body = html`<form method="post" action="/sign-in" class="sign-in">
    <input type="hidden" name="next" value="${next}" />
    <label for="password">${say("password")}</label>
    <input
      id="password"
      name="password"
      type="password"
      required
      autofocus
      autocomplete="current-password"
      maxlength="1000"
      ${problem !== undefined && html`aria-invalid="true" aria-describedby="problem"`}
    />
    ${problem !== undefined && html`<p id="problem" role="alert">${say(problem)}</p>`}
    <button>${say("signIn")}</button>
  </form>`;
  return { title: say("signIn"), body };
}
