import {
  moneyText,
  replyLanguages,
  rootSessionOf,
  textIn,
  type ReplyLanguage,
} from "@larkline/protocol";
import type { OperatorOrder, OrderResult } from "@larkline/store/operations";
import { withDeadline } from "@larkline/protocol/clock";
import type { FastifyReply, FastifyRequest } from "fastify";
import { html, type Html, idsIn, nameOf, who, withNames } from "./html.ts";
import type { Services } from "./services.ts";
import type { Visitor } from "./sign-ins.ts";
import { speaker, wordNamed, type Speak, type Word } from "./words.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** How long the page of a route may take, where that is longer than others. */
    pageMs?: number;
  }
}

/** What every page needs to know of who looks at it. */
export interface PlainView {
  language: ReplyLanguage;
  say: Speak;
  /** Path and query of the page. */
  url: string;
  /** Absent: not signed in. */
  visitor?: Visitor;
  /** The token that every form of this page has to carry; empty without a visitor. */
  csrf: string;
  /** Whether there is anything to sign out of. */
  hasSignIn: boolean;
}

/** The same, of a page that shows times. */
export interface View extends PlainView {
  /** When it is made, epoch ms: ages on it are counted from then. */
  nowMs: number;
  /** A sum of US dollars in the currency of the deployment. */
  money: (usd: number) => string;
}

export interface Page {
  title: string;
  body: Html;
  /** Said above everything else. */
  note?: Word;
}

/** Where a browser goes after a change: loading that page again changes nothing. The note is said there. */
export interface Move {
  to: string;
  note?: Word;
}

/** How long the store may take for everything that one page shows. */
export const pageDeadlineMs = 8_000;

/** Answers with the page that `make` reads or leads to, or says that there is nothing of the kind. */
export async function answerPage(
  services: Services,
  request: FastifyRequest,
  reply: FastifyReply,
  make: (view: View) => Promise<Page | Move | undefined>,
): Promise<FastifyReply> {
  const { clock, signIns } = services;
  const visitor = request.session;
  if (visitor === null) throw new Error("the guard has not seen this request");
  const view = {
    ...strangersView(request, signIns !== undefined),
    visitor,
    csrf: reply.generateCsrf(),
    nowMs: clock.now(),
    money: (usd: number) => moneyText(usd, languageOf(request), services.settings.currency),
  };
  const made = async (): Promise<Page | Move | undefined> => {
    const page = await make(view);
    if (page === undefined || "to" in page) return page;
    const note = page.note ?? noteIn(request);
    const body = await named(services, page.body, view.language);
    return { title: page.title, body, ...(note === undefined ? {} : { note }) };
  };
  const page = await withDeadline(
    clock,
    made(),
    request.routeOptions.config.pageMs ?? pageDeadlineMs,
  );
  if (page !== undefined && "to" in page) {
    return await reply.redirect(pathWithNote(page.to, page.note), 303);
  }
  if (page !== undefined) return await sendPage(reply, view, page);
  return await sendPage(reply.code(404), view, problemPage(view, "notFound"));
}

/** The address of a page that says a word first. */
function pathWithNote(path: string, note: Word | undefined): string {
  return note === undefined ? path : `${path}${path.includes("?") ? "&" : "?"}note=${note}`;
}

/** What the page says first: what has come of the change that led to it. */
function noteIn({ query }: FastifyRequest): Word | undefined {
  const { note } = query as { note?: unknown }; // fastify reads it into an object
  return typeof note === "string" ? wordNamed(note) : undefined;
}

async function named(
  { names, directory }: Services,
  body: Html,
  language: ReplyLanguage,
): Promise<Html> {
  const { ids, tools } = idsIn(body);
  const [known, offered] = await Promise.all([
    names.of(ids),
    tools.length === 0 ? undefined : directory.tools(),
  ]);
  const titles = new Map<string, string>();
  for (const [name, { announcement }] of offered ?? []) {
    if (announcement.title !== undefined) titles.set(name, textIn(announcement.title, language));
  }
  return withNames(body, known, titles);
}

/** Sends a page as a whole document. */
export async function sendPage(
  reply: FastifyReply,
  view: PlainView,
  page: Page,
): Promise<FastifyReply> {
  return await reply.type("text/html; charset=utf-8").send(documentOf(view, page));
}

/** The view of a visitor without a sign-in. */
export function strangersView(request: FastifyRequest, hasSignIn: boolean): PlainView {
  const language = languageOf(request);
  const url = request.method === "GET" ? request.url : (request.url.split("?", 1)[0] ?? "/");
  return { language, say: speaker(language), url, csrf: "", hasSignIn };
}

/** The whole document around one page. */
function documentOf(view: PlainView, { title, body, note }: Page): string {
  const { say, language, visitor } = view;
  const { markup } = html`<html lang="${language === "zh" ? "zh-CN" : "en"}">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <title>${title} · ${say("title")}</title>
      <link rel="icon" href="data:," />
      <link rel="stylesheet" href="/style.css" />
    </head>
    <body ${visitor === undefined && html`class="stranger"`}>
      <a class="skip" href="#content">${say("skip")}</a>
      ${banner(view)}
      <main id="content" tabindex="-1">
        <h1>${title}</h1>
        ${note !== undefined && html`<p class="note" role="status">${say(note)}</p>`} ${body}
      </main>
    </body>
  </html>`;
  return `<!doctype html>\n${markup}\n`;
}

function banner(view: PlainView): Html {
  const { say, visitor, hasSignIn } = view;
  return html`<header>
    <p class="name">${say("title")}</p>
    ${visitor !== undefined && navigation(view)}
    <div class="person">
      ${
        visitor !== undefined &&
        html`<span>${visitor.name !== undefined && `${visitor.name}, `}${say(visitor.role)}</span>`
      }
      ${switchOf(view)}
      ${visitor !== undefined && hasSignIn && actionForm(view, { path: "/sign-out", label: "signOut" })}
    </div>
  </header>`;
}

const sections = [
  ["/", "overview"],
  ["/runs", "runs"],
  ["/errors", "errors"],
  ["/trends", "trends"],
  ["/feedback", "feedback"],
  ["/why", "why"],
  ["/sessions", "sessions"],
  ["/queues", "queues"],
  ["/runners", "runners"],
  ["/agents", "agentsAndTools"],
  ["/models", "models"],
  ["/approvals", "approvals"],
  ["/rules", "rules"],
  ["/schedules", "schedules"],
  ["/grants", "grants"],
  ["/dead-letters", "deadLetters"],
  ["/budgets", "budgets"],
  ["/feishu", "feishu"],
] as const;

function navigation({ say, url }: PlainView): Html {
  const path = url.split("?", 1)[0];
  return html`<nav aria-label="${say("navigation")}">
    <ul>
      ${sections.map(
        ([target, word]) =>
          html`<li>
            <a href="${target}" ${path === target && html`aria-current="page"`}>${say(word)}</a>
          </li> `,
      )}
    </ul>
  </nav>`;
}

function switchOf({ language, say, url }: PlainView): Html {
  const other = language === "zh" ? "en" : "zh";
  const target = new URL(url, "http://console");
  target.searchParams.set("language", other);
  return html`<a href="${pageAt(target)}" lang="${other}" hreflang="${other}"
    >${say("otherLanguage")}</a
  >`;
}

const languageCookie = "larkline_language";
const yearSeconds = 365 * 86_400;

function languageNamed(text: string | undefined): ReplyLanguage | undefined {
  return replyLanguages.find((language) => language === text);
}

/** What the person chose, or the first language of the browser that we have. */
function languageOf(request: FastifyRequest): ReplyLanguage {
  const chosen = languageNamed(request.cookies[languageCookie]);
  if (chosen !== undefined) return chosen;
  const wanted = (request.headers["accept-language"] ?? "")
    .split(",")
    .map((tag) => tag.trim().slice(0, 2));
  return wanted.map(languageNamed).find((language) => language !== undefined) ?? "en";
}

/** The same page with another query. A path can name another host once its dots are resolved: then the overview. */
function pageAt({ pathname, search }: URL): string {
  const path = `${pathname}${search}`;
  return isOwnPath(path) ? path : "/";
}

/** Obeys `?language=`: remembers it and returns where to continue, the same page without it. */
export function languageSwitch(request: FastifyRequest, reply: FastifyReply): string | undefined {
  const url = new URL(request.url, "http://console");
  const language = languageNamed(url.searchParams.get("language") ?? undefined);
  if (language === undefined || request.method !== "GET") return undefined;
  reply.setCookie(languageCookie, language, { maxAge: yearSeconds, secure: isSecure(request) });
  url.searchParams.delete("language");
  return pageAt(url);
}

/**
 * Whether the browser came by https. What a proxy says about that is believed: at worst a client makes its own
 * cookie useless to itself.
 */
export function isSecure({ protocol, headers }: FastifyRequest): boolean {
  const forwarded = String(headers["x-forwarded-proto"] ?? "").split(",")[0];
  return protocol === "https" || forwarded?.trim().toLowerCase() === "https";
}

/** A form that changes something: it carries the token that the guard asks for. */
export function actionForm(
  view: PlainView,
  action: { path: string; label: Word; fields?: Record<string, string> },
): Html {
  const fields = Object.entries({ csrf: view.csrf, ...action.fields });
  return html`<form method="post" action="${action.path}">
    ${fields.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`)}
    <button>${view.say(action.label)}</button>
  </form>`;
}

/** One field of a form; undefined when it is missing or longer than it can be. */
export function fieldOf(
  { body }: FastifyRequest,
  name: string,
  maxLength = 300,
): string | undefined {
  const value = body instanceof URLSearchParams ? body.get(name) : null;
  return value === null || value.length > maxLength ? undefined : value;
}

/** Says why there is nothing else to see. */
export function problemPage({ say }: PlainView, problem: Word): Page {
  return { title: say("title"), body: html`<p role="alert">${say(problem)}</p>` };
}

export interface Question {
  title: string;
  /** What will happen. */
  texts: readonly Word[];
  /** Where a yes is sent. */
  path: string;
  label: Word;
  /** What goes with it. */
  fields?: Record<string, string>;
  /** Where a no leads. */
  back: string;
}

/** Asks once more before something that cannot be undone. */
export function confirmPage(view: View, question: Question): Page {
  const { say } = view;
  const { title, texts, path, label, fields = {}, back } = question;
  const body = html`${texts.map((text) => html`<p>${say(text)}</p>`)}
    <div class="row">
      ${actionForm(view, { path, label, fields })}
      <a href="${back}">${say("back")}</a>
    </div>`;
  return { title, body };
}

/** Who gives an order: the console knows roles, and the name that was claimed at sign-in. */
function operatorOf({ visitor }: View): string {
  return visitor?.name === undefined ? "console" : `console:${visitor.name}`;
}

/** Shorter than a page may take. A worker lets a model take 12 s for a test, and the platform 10 s for an app. */
const patienceMs = { slow: 15_000, other: 5_000 };

/** Of a page that shows what a slow order has found. */
export const slowPageMs = 18_000;

function isSlow(act: OperatorOrder["act"]): boolean {
  return act.do === "test_model" || act.do === "check_app";
}

/** What is said of each thing that can come of an order. */
type OrderWords = Readonly<Record<"done" | "nothing", Word>> &
  Partial<Record<OrderResult["result"], Word>>;

/** Has a worker do what the operator wants, and keep a record of it. */
export async function order(
  { orders }: Services,
  view: View,
  act: OperatorOrder["act"],
  words: OrderWords,
): Promise<{ word: Word; isDone: boolean; result?: OrderResult }> {
  const handed = await orders.handIn(
    { v: 1, by: operatorOf(view), act },
    patienceMs[isSlow(act) ? "slow" : "other"],
  );
  if (handed.state === "uncertain") return { word: "orderUncertain", isDone: false };
  if (handed.state === "not_taken" || handed.result.result === "late") {
    return { word: "orderNotTaken", isDone: false };
  }
  const { result } = handed;
  const word = words[result.result] ?? words.nothing;
  return { word, isDone: result.result === "done", result };
}

/** Has a record made of what the operator is about to be shown or to do; the word that says why not, if there is none. */
export async function noted(
  services: Services,
  view: View,
  record: Omit<Extract<OperatorOrder["act"], { do: "note" }>, "do">,
): Promise<Word | undefined> {
  const { word, isDone } = await order(
    services,
    view,
    { do: "note", ...record },
    { done: "shown", nothing: "orderUncertain" },
  );
  return isDone ? undefined : word;
}

/**
 * Whether the page shows what people wrote: where an operator asks for it (`?content=shown`), and only after a record
 * of the look is made. `problem`: why there is none.
 */
export async function lookAtContent(
  services: Services,
  view: View,
  { query, routeOptions }: FastifyRequest,
  record: Parameters<typeof noted>[2],
): Promise<{ isShown: boolean; problem?: Word }> {
  const { content } = query as { content?: unknown }; // fastify reads it into an object
  if (content !== "shown" || view.visitor?.role !== "operator") return { isShown: false };
  // Noted before it is seen: whatever fails now, each look has a record.
  const problem = await noted(services, view, record);
  if (problem !== undefined) return { isShown: false, problem };
  countAction(services, "content_shown", routeOptions.url ?? "");
  return { isShown: true };
}

/** The answer to the button `<page>/content`: the page, with its query, and with its content. */
export async function toContent(
  { url }: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const [path = "", query = ""] = url.split("?", 2);
  const shown = new URLSearchParams(query);
  shown.set("content", "shown");
  return await reply.redirect(`${path.replace(/\/content$/, "")}?${shown.toString()}`, 303);
}

/** Counts and logs what an operator did. */
export function countAction({ counters, log }: Services, action: string, path: string): void {
  counters.actions.add(1, { action });
  log.info({ action, path }, "an operator acted");
}

/** The page of one job. */
export function jobPath(queue: string, jobId: string): string {
  return `/jobs/${encodeURIComponent(queue)}/${encodeURIComponent(jobId)}`;
}

/** The page of one session. */
export function sessionPath(session: string): string {
  return `/sessions/${encodeURIComponent(session)}`;
}

/** A way to a session, with the name of its chat. */
export function sessionLink(session: string): Html {
  return html`<a href="${sessionPath(session)}">${session}</a> ${nameOf(chatOfSession(session))}`;
}

/**
 * A way to a session in a table, where its key would take the place of everything else: it stands behind the name, and
 * the end of it beside the name where that is one of a chat with threads or helpers.
 */
export function shortSessionLink(session: string): Html {
  const chat = chatOfSession(session);
  const within = session.slice(session.indexOf(".") + chat.length + 2);
  const end = within === "" ? "" : ` …${within.slice(-6)}`;
  return html`<a href="${sessionPath(session)}" title="${session}">${who(chat)}${end}</a>`;
}

/** The part of a key that names the chat, or the session of the HTTP API; of a helper the chat that it works for. */
export function chatOfSession(session: string): string {
  return rootSessionOf(session).split(".")[1] ?? "";
}

/** The page of something that was given up. */
export function letterPath(session: string, id: string): string {
  return `/dead-letters/${encodeURIComponent(session)}/${encodeURIComponent(id)}`;
}

/** Why a message has no answer: by the id of it, of its trace, its chat, its person or its session. */
export function whyPath(id: string): string {
  return `/why?q=${encodeURIComponent(id)}`;
}

/** Whether a sign-in may lead there: to pages of the console only. */
export function isOwnPath(path: string): boolean {
  return /^\/(?![/\\])[\x21-\x7e]*$/.test(path);
}
