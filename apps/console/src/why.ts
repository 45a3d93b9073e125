import type { FastifyInstance } from "fastify";
import { turnIdOf } from "@larkline/protocol";
import type { TraceId } from "@larkline/protocol/trace";
import {
  diagnose,
  standingOf,
  traceOutcome,
  refusalOf,
  toneOf,
  type Diagnosis,
  type TreeRow,
} from "./diagnosis.ts";
import { answerPage, type Page, type View, sessionLink, whyPath } from "./page.ts";
import { html, type Html, facts, moment, table, who, whoIn } from "./html.ts";
import { timelineOf, type MessageTrace, type TimelineRow } from "./message-trace.ts";
import { type Found, findInTraces, longestSearch, meantBy, wantedIn } from "./search.ts";
import { durationText, happeningText, refusalText, sentenceOf, tagText } from "./why-text.ts";
import type { Services } from "./services.ts";
import { readRoot, readTree, treeSection } from "./tree.ts";

/** Adds the page that says why a message has no answer; it shows no content. */
export function registerWhy(server: FastifyInstance, services: Services): void {
  server.get<WhyRoute>("/why", async (request, reply) =>
    answerPage(
      services,
      request,
      reply,
      async (view) => await answer(services, view, request.query),
    ),
  );
}

interface WhyRoute {
  Querystring: { q?: unknown; frames?: unknown };
}

/** Messages of one trace that are shown with their reasons. */
const maxShown = 5;

async function answer(
  services: Services,
  view: View,
  { q, frames }: WhyRoute["Querystring"],
): Promise<Page> {
  const query = typeof q === "string" ? q.trim().slice(0, longestSearch) : "";
  const wanted = wantedIn(meantBy(query));
  if (wanted === undefined) return whyEmptyPage(view, query);
  const found = await findInTraces(services, wanted);
  if (found.length === 0) return whyEmptyPage(view, query);
  if (found.length > 1 && wanted.by !== "trace") {
    const listed = found.map((one) => ({ ...one, outcome: traceOutcome(one.message) }));
    return whyListPage(view, query, listed);
  }
  return whyPage(view, query, {
    shown: await diagnosed(services, found),
    everyFrame: frames === "all",
  });
}

async function diagnosed(services: Services, found: readonly Found[]): Promise<ShownMessage[]> {
  return await Promise.all(
    found.slice(0, maxShown).map(async ({ traceId, message }) => {
      const [standing, helpers] = await Promise.all([
        standingOf(services, message),
        message.place === undefined ? [] : readTree(services, message.place),
      ]);
      const diagnosis = diagnose(
        message,
        standing === undefined ? undefined : { ...standing, helpers },
      );
      if (standing === undefined || helpers.length === 0) {
        return { traceId, message, tree: helpers, diagnosis };
      }
      const root = await readRoot(services, standing, { atMs: message.atMs, diagnosis, helpers });
      return { traceId, message, tree: [root, ...helpers], diagnosis };
    }),
  );
}

/** One message with its reason. */
interface ShownMessage {
  traceId: TraceId;
  message: MessageTrace;
  diagnosis: Diagnosis;
  /** Its run with the helpers below; empty without any. */
  tree: readonly TreeRow[];
}

/** A message in a list; its reason as far as it is known without asking. */
export interface ListedMessage {
  traceId: TraceId;
  message: MessageTrace;
  outcome: Diagnosis | undefined;
}

/** One trace: the messages in it, each with its reason and what happened. */
function whyPage(
  view: View,
  query: string,
  { shown, everyFrame }: { shown: readonly ShownMessage[]; everyFrame: boolean },
): Page {
  const body = html`${searchForm(view, query)}
  ${shown.map((one) => messageSection(view, one, everyFrame))}`;
  return { title: view.say("why"), body };
}

/** The messages that may be meant. */
function whyListPage(view: View, query: string, listed: readonly ListedMessage[]): Page {
  const { say, language } = view;
  const rows = listed.map(({ traceId, message, outcome }) => [
    html`<a href="${whyPath(message.messageId === "" ? traceId : message.messageId)}"
      >${message.messageId === "" ? traceId : message.messageId}</a
    >`,
    moment(view, message.atMs),
    outcome === undefined
      ? html`<strong>${say("notOver")}</strong>`
      : whoIn(sentenceOf(language, outcome, view.nowMs)),
    who(message.person),
    who(message.chat),
  ]);
  const columns = [
    say("messageId"),
    say("received"),
    say("asFarAsKnown"),
    say("personId"),
    say("chatId"),
  ];
  const body = html`${searchForm(view, query)} ${table({ caption: say("matches"), columns, rows })}`;
  return { title: say("why"), body };
}

/** The form alone; with a query, that nothing was found for it. */
function whyEmptyPage(view: View, query: string): Page {
  const { say } = view;
  const body = html`${searchForm(view, query)}
  ${query !== "" && html`<p class="reason wrong" role="status">${say(isId(query) ? "whyNothing" : "whyNothingElse")}</p>`}`;
  return { title: say("why"), body };
}

/** Whether something of the platform or of Larkline itself is meant, and no text. */
function isId(query: string): boolean {
  const wanted = wantedIn(meantBy(query));
  return wanted !== undefined && wanted.by !== "any";
}

function searchForm({ say }: View, query: string): Html {
  return html`<form action="/why" class="row" role="search">
      <label for="q">${say("whyWhat")}</label>
      <input
        id="q"
        name="q"
        value="${query}"
        required
        maxlength="${longestSearch}"
        size="48"
        aria-describedby="q-hint"
      />
      <button>${say("search")}</button>
    </form>
    <p class="quiet" id="q-hint">${say("whyHint")}</p>`;
}

function messageSection(view: View, shown: ShownMessage, everyFrame: boolean): Html {
  const { say } = view;
  const { message, traceId } = shown;
  const rows = timelineOf(message.entries, { everyFrame });
  const hasMore = rows.some(({ count }) => count > 1);
  return html`${reasonBox(view, shown)} ${messageFacts(view, shown)}
    ${treeSection(view, shown.tree)}
    <h2>${say("timeline")}</h2>
    ${rows.length === 0 ? html`<p class="quiet">${say("noTimeline")}</p>` : timelineTable(view, rows, message.atMs)}
    ${hasMore && html`<p><a href="${whyPath(traceId)}&amp;frames=all">${say("everyFrame")}</a></p>`}`;
}

function reasonBox({ language, nowMs }: View, { message, diagnosis }: ShownMessage): Html {
  const refusal = refusalOf(message, diagnosis);
  const sentence = whoIn(sentenceOf(language, diagnosis, nowMs));
  return html`<p class="reason ${toneOf(diagnosis)}" role="status">${sentence}</p>
    ${refusal !== undefined && html`<p class="refusal">${refusalText(language, refusal)}</p>`}`;
}

function messageFacts(view: View, { traceId, message }: ShownMessage): Html {
  const { say } = view;
  const { messageId, app, chat, person, place, atMs } = message;
  return facts([
    [say("traceId"), html`<code>${traceId}</code>`],
    [say("messageId"), messageId === "" ? undefined : html`<code>${messageId}</code>`],
    [say("received"), moment(view, atMs)],
    [say("app"), app === "" ? undefined : app],
    [say("chatId"), lookUpLink(chat)],
    [say("personId"), lookUpLink(person)],
    [say("session"), place && sessionLink(place.session)],
    [say("turnId"), place && turnIdOf(place.session, place.seq)],
  ]);
}

function lookUpLink(id: string): Html | undefined {
  return id === "" ? undefined : html`<a href="${whyPath(id)}">${who(id)}</a>`;
}

function timelineTable(view: View, rows: readonly TimelineRow[], startMs: number): Html {
  const { say, language } = view;
  const endMs = Math.max(startMs, ...rows.map(({ untilMs }) => untilMs));
  return html`<div class="timeline">
    ${table({
      caption: say("timeline"),
      columns: [
        say("offset"),
        say("what"),
        say("duration"),
        say("course"),
        say("details"),
        say("process"),
      ],
      rows: rows.map((row) => [
        html`<time
          datetime="${new Date(row.atMs).toISOString()}"
          title="${new Date(row.atMs).toISOString()}"
          >${offsetText(view, row, startMs)}</time
        >`,
        happeningText(language, row.name),
        row.ms === undefined ? "" : `${row.count > 1 ? "⌀ " : ""}${durationText(language, row.ms)}`,
        bar(row, [startMs, endMs]),
        detailsOf(view, row),
        html`<span title="${row.instance}"
          >${row.service} <span class="quiet">${processOf(row)}</span></span
        >`,
      ]),
    })}
  </div>`;
}

/** Tags that stand elsewhere on the page, or in the line already. */
const placeTags: ReadonlySet<string> = new Set([
  "message",
  "session",
  "turn",
  "app",
  "chat",
  "person",
  "reply",
]);

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
function bar(
  { atMs, untilMs, isOpen }: TimelineRow,
  [startMs, endMs]: readonly [number, number],
): Html {
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

/** The end of an instance's name distinguishes processes of one machine. */
function processOf({ instance }: TimelineRow): string {
  return instance.split("-").at(-1) ?? "";
}
