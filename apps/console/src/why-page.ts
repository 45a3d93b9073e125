import { turnIdOf, type TraceId, sharedNow } from "@larkline/protocol";
import { refusalOf, toneOf, type Diagnosis } from "./diagnosis.ts";
import { html, type Html } from "./html.ts";
import { timelineOf, type MessageTrace, type TimelineRow } from "./message-trace.ts";
import { facts, moment, table } from "./parts.ts";
import { sessionPath, whyPath } from "./paths.ts";
import type { Page, View } from "./view.ts";
import { durationText, happeningText, refusalText, sentenceOf, tagText } from "./why-text.ts";

/** One message with its reason. */
export interface ShownMessage {
  traceId: TraceId;
  message: MessageTrace;
  diagnosis: Diagnosis;
}

/** A message in a list; its reason as far as it is known without asking. */
export interface ListedMessage {
  traceId: TraceId;
  message: MessageTrace;
  outcome: Diagnosis | undefined;
}

function searchForm({ say }: View, query: string): Html {
  return html`<form action="/why" class="row" role="search">
      <label for="q">${say("whyWhat")}</label>
      <input id="q" name="q" value="${query}" required maxlength="240" size="48" aria-describedby="q-hint" />
      <button>${say("search")}</button>
    </form>
    <p class="quiet" id="q-hint">${say("whyHint")}</p>`;
}

/** Tags that stand elsewhere on the page, or in the line already. */
const placeTags: ReadonlySet<string> = new Set(["message", "session", "turn", "app", "chat", "person", "reply"]);

function detailsOf(view: View, { data, failed, count, isOpen }: TimelineRow): Html {
  const { say, language } = view;
  const shown = Object.entries(data).filter(([name]) => !placeTags.has(name));
  const text = shown.flatMap(([name, value]) => tagText(language, name, value) ?? []).join(" · ");
  return html`${count > 1 && html`<strong>${count} ×</strong> `}${text}
  ${failed !== undefined && html`<span class="wrong">${say("failed")}: ${failed}</span>`}
  ${isOpen && html`<span class="wrong">${say("noEnd")}</span>`}`;
}

function offsetText({ language }: View, { atMs }: TimelineRow, startMs: number): string {
  return `+${durationText(language, atMs - startMs)}`;
}

/** Where in the whole a line is, for the eye; its figures stand beside it. */
function bar({ atMs, untilMs, isOpen }: TimelineRow, [startMs, endMs]: readonly [number, number]): Html {
  const wholeMs = Math.max(1, endMs - startMs);
  const share = (ms: number): number => Math.round((1_000 * ms) / wholeMs) / 10;
  const from = Math.min(99, share(atMs - startMs));
  const width = Math.max(1, share((isOpen ? endMs : untilMs) - atMs));
  return html`<svg
    class="${isOpen ? "bar open" : "bar"}"
    viewBox="0 0 100 8"
    preserveAspectRatio="none"
    aria-hidden="true"
  >
    <rect x="${from}" width="${Math.min(width, 100 - from)}" height="8" />
  </svg>`;
}

function timelineTable(view: View, rows: readonly TimelineRow[], startMs: number): Html {
  const { say, language } = view;
  const endMs = Math.max(startMs, ...rows.map(({ untilMs }) => untilMs));
  return html`<div class="timeline">
    ${table({
      caption: say("timeline"),
      columns: [say("offset"), say("what"), say("duration"), say("course"), say("details"), say("process")],
      rows: rows.map((row) => [
        html`<time datetime="${new Date(row.atMs).toISOString()}" title="${new Date(row.atMs).toISOString()}"
          >${offsetText(view, row, startMs)}</time
        >`,
        happeningText(language, row.name),
        row.ms === undefined ? "" : `${row.count > 1 ? "⌀ " : ""}${durationText(language, row.ms)}`,
        bar(row, [startMs, endMs]),
        detailsOf(view, row),
        html`<span title="${row.instance}">${row.service} <span class="quiet">${processOf(row)}</span></span>`,
      ]),
    })}
  </div>`;
}

/** The end of an instance's name tells processes of one machine apart. */
function processOf({ instance }: TimelineRow): string {
  return instance.split("-").at(-1) ?? "";
}

function reasonBox({ language }: View, { message, diagnosis }: ShownMessage): Html {
  const refusal = refusalOf(message, diagnosis);
  return html`<p class="reason ${toneOf(diagnosis)}" role="status">${sentenceOf(language, diagnosis, sharedNow())}</p>
    ${refusal !== undefined && html`<p class="refusal">${refusalText(language, refusal)}</p>`}`;
}

function lookUpLink(id: string): Html | undefined {
  return id === "" ? undefined : html`<a href="${whyPath(id)}">${id}</a>`;
}

function messageFacts(view: View, { traceId, message }: ShownMessage): Html {
  const { say, language } = view;
  const { messageId, app, chat, person, place, atMs } = message;
  return facts([
    [say("traceId"), html`<code>${traceId}</code>`],
    [say("messageId"), messageId === "" ? undefined : html`<code>${messageId}</code>`],
    [say("received"), moment(language, atMs)],
    [say("app"), app === "" ? undefined : app],
    [say("chatId"), lookUpLink(chat)],
    [say("personId"), lookUpLink(person)],
    [say("session"), place && html`<a href="${sessionPath(place.session)}">${place.session}</a>`],
    [say("turnId"), place && turnIdOf(place.session, place.seq)],
  ]);
}

function messageSection(view: View, shown: ShownMessage, everyFrame: boolean): Html {
  const { say } = view;
  const { message, traceId } = shown;
  const rows = timelineOf(message.entries, { everyFrame });
  const hasMore = rows.some(({ count }) => count > 1);
  return html`${reasonBox(view, shown)} ${messageFacts(view, shown)}
    <h2>${say("timeline")}</h2>
    ${rows.length === 0 ? html`<p class="quiet">${say("noTimeline")}</p>` : timelineTable(view, rows, message.atMs)}
    ${hasMore && html`<p><a href="${whyPath(traceId)}&amp;frames=all">${say("everyFrame")}</a></p>`}`;
}

/** One trace: the messages in it, each with its reason and what happened. */
export function whyPage(
  view: View,
  query: string,
  { shown, everyFrame }: { shown: readonly ShownMessage[]; everyFrame: boolean },
): Page {
  const body = html`${searchForm(view, query)} ${shown.map((one) => messageSection(view, one, everyFrame))}`;
  return { title: view.say("why"), body };
}

/** The messages that may be meant. */
export function whyListPage(view: View, query: string, listed: readonly ListedMessage[]): Page {
  const { say, language } = view;
  const rows = listed.map(({ traceId, message, outcome }) => [
    html`<a href="${whyPath(message.messageId === "" ? traceId : message.messageId)}"
      >${message.messageId === "" ? traceId : message.messageId}</a
    >`,
    moment(language, message.atMs),
    outcome === undefined ? html`<strong>${say("notOver")}</strong>` : sentenceOf(language, outcome, sharedNow()),
    message.person,
    message.chat,
  ]);
  const columns = [say("messageId"), say("received"), say("asFarAsKnown"), say("personId"), say("chatId")];
  const body = html`${searchForm(view, query)} ${table({ caption: say("matches"), columns, rows })}`;
  return { title: say("why"), body };
}

/** The form alone; with a query, that nothing was found for it. */
export function whyEmptyPage(view: View, query: string): Page {
  const { say } = view;
  const body = html`${searchForm(view, query)}
  ${query !== "" && html`<p class="reason wrong" role="status">${say("whyNothing")}</p>`}`;
  return { title: say("why"), body };
}
