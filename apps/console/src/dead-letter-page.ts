import type { DeadLetter } from "@larkline/store";
import { letterKinds } from "./dead-letters-page.ts";
import { html, type Html } from "./html.ts";
import { facts, moment } from "./parts.ts";
import { letterPath, sessionPath, whyPath } from "./paths.ts";
import { actionForm, type Page, type View } from "./view.ts";

function contentOf(letter: DeadLetter): string | undefined {
  if (letter.kind === "reply") return letter.record.view?.answer ?? letter.record.text;
  if (letter.kind === "approval") return undefined;
  return letter.message.parts.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("\n");
}

function factsOf({ say, language }: View, letter: DeadLetter): Html {
  const { session, kind, reason, atMs, app, turnId, messageId, traceId } = letter;
  return facts([
    [say("letterWhat"), say(letterKinds[kind])],
    [say("letterWhy"), reason],
    [say("givenUpAt"), moment(language, atMs)],
    [say("session"), html`<a href="${sessionPath(session)}">${session}</a>`],
    [say("app"), app],
    [say("letterTurn"), turnId],
    [say("message"), messageId],
    [say("trace"), traceId === undefined ? undefined : html`<a href="${whyPath(traceId)}">${traceId}</a>`],
    [say("sender"), letter.kind === "message" ? (letter.message.sender.name ?? letter.message.sender.id) : undefined],
    [say("tries"), letter.kind === "reply" ? letter.record.attempts : undefined],
    [say("cards"), letter.kind === "reply" ? letter.cards?.cards.length : undefined],
    [say("tool"), letter.kind === "approval" ? letter.tool : undefined],
  ]);
}

function actsOf(view: View, letter: DeadLetter): Html {
  const path = letterPath(letter.session, letter.id);
  return html`<div class="row">
    ${letter.kind === "reply" && actionForm(view, { path: `${path}/retry`, label: "sendAgain" })}
    ${letter.kind === "message" && html`<a class="button" href="${path}/retry">${view.say("runAgain")}…</a>`}
    ${actionForm(view, { path: `${path}/discard`, label: "discard" })}
  </div>`;
}

function shownContent(view: View, letter: DeadLetter, isShown: boolean): Html | false {
  const { say, visitor } = view;
  const content = contentOf(letter);
  if (content === undefined) return false;
  return html`<h2>${say("content")}</h2>
    ${
      isShown
        ? html`<pre>${content}</pre>`
        : html`<p class="quiet">${content.length} ${say("characters")}, ${say("hidden")}. ${say("hiddenContent")}</p>
            ${
              visitor?.role === "operator" &&
              actionForm(view, { path: `${letterPath(letter.session, letter.id)}/content`, label: "showContent" })
            }`
    }`;
}

/** One thing that was given up: why, and what can be done about it. `isShown`: an operator has asked for its content. */
export function deadLetterPage(view: View, letter: DeadLetter, isShown: boolean): Page {
  const { say, visitor } = view;
  const body = html`${factsOf(view, letter)} ${letter.kind === "approval" && html`<p>${say("approvalIsOver")}</p>`}
  ${visitor?.role === "operator" && actsOf(view, letter)} ${shownContent(view, letter, isShown)}`;
  return { title: say("deadLetter"), body, ...(isShown ? { note: "shown" as const } : {}) };
}
