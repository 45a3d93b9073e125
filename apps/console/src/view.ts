import { replyLanguages, type ReplyLanguage } from "@larkline/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import { cookieOf, setCookie } from "./cookie.ts";
import { html, type Html } from "./html.ts";
import { isOwnPath } from "./paths.ts";
import type { Visitor } from "./sign-ins.ts";
import { speaker, type Speak, type Word } from "./words.ts";

/** What every page needs to know of who looks at it. */
export interface View {
  language: ReplyLanguage;
  say: Speak;
  /** Path and query of the page. */
  url: string;
  /** Absent: not signed in. */
  visitor?: Visitor;
  /** Whether there is anything to sign out of. */
  hasSignIn: boolean;
}

export interface Page {
  title: string;
  body: Html;
  /** Said above everything else. */
  note?: Word;
}

const languageCookie = "larkline_language";
const yearSeconds = 365 * 86_400;

function languageNamed(text: string | undefined): ReplyLanguage | undefined {
  return replyLanguages.find((language) => language === text);
}

/** What the person chose, or the first language of the browser that we have. */
export function languageOf(request: FastifyRequest): ReplyLanguage {
  const chosen = languageNamed(cookieOf(request, languageCookie));
  if (chosen !== undefined) return chosen;
  const wanted = (request.headers["accept-language"] ?? "").split(",").map((tag) => tag.trim().slice(0, 2));
  return wanted.map(languageNamed).find((language) => language !== undefined) ?? "en";
}

/** The same page with another query. A path can name another host once its dots are resolved: then the overview. */
function pageAt({ pathname, search }: URL): string {
  const path = `${pathname}${search}`;
  return isOwnPath(path) ? path : "/";
}

/** Obeys `?language=`: remembers it and returns where to go on, the same page without it. */
export function languageSwitch(request: FastifyRequest, reply: FastifyReply): string | undefined {
  const url = new URL(request.url, "http://console");
  const language = languageNamed(url.searchParams.get("language") ?? undefined);
  if (language === undefined || request.method !== "GET") return undefined;
  setCookie(reply, [languageCookie, language], { maxAgeSeconds: yearSeconds });
  url.searchParams.delete("language");
  return pageAt(url);
}

export function viewOf(request: FastifyRequest, visitor: Visitor | undefined, hasSignIn: boolean): View {
  const language = languageOf(request);
  return {
    language,
    say: speaker(language),
    url: request.method === "GET" ? request.url : (request.url.split("?", 1)[0] ?? "/"),
    ...(visitor === undefined ? {} : { visitor }),
    hasSignIn,
  };
}

/** A form that changes something: it carries the token that the guard asks for. */
export function actionForm(view: View, action: { path: string; label: Word; fields?: Record<string, string> }): Html {
  const fields = Object.entries({ csrf: view.visitor?.csrf ?? "", ...action.fields });
  return html`<form method="post" action="${action.path}">
    ${fields.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`)}
    <button>${view.say(action.label)}</button>
  </form>`;
}

const sections = [
  ["/", "overview"],
  ["/why", "why"],
  ["/sessions", "sessions"],
  ["/queues", "queues"],
  ["/runners", "runners"],
  ["/approvals", "approvals"],
  ["/rules", "rules"],
  ["/dead-letters", "deadLetters"],
  ["/budgets", "budgets"],
  ["/feishu", "feishu"],
  ["/instances", "instances"],
] as const;

function navigation({ say, url }: View): Html {
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

function switchOf({ language, say, url }: View): Html {
  const other = language === "zh" ? "en" : "zh";
  const target = new URL(url, "http://console");
  target.searchParams.set("language", other);
  return html`<a href="${pageAt(target)}" lang="${other}" hreflang="${other}">${say("otherLanguage")}</a>`;
}

function banner(view: View): Html {
  const { say, visitor, hasSignIn } = view;
  return html`<header>
    <p class="name">${say("title")}</p>
    ${visitor !== undefined && navigation(view)}
    <div class="person">
      ${visitor !== undefined && html`<span>${say(visitor.role)}</span>`} ${switchOf(view)}
      ${visitor !== undefined && hasSignIn && actionForm(view, { path: "/sign-out", label: "signOut" })}
    </div>
  </header>`;
}

/** The whole document around one page. */
export function documentOf(view: View, { title, body, note }: Page): string {
  const { say, language } = view;
  const { markup } = html`<html lang="${language === "zh" ? "zh-CN" : "en"}">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <title>${title} · ${say("title")}</title>
      <link rel="icon" href="data:," />
      <link rel="stylesheet" href="/style.css" />
    </head>
    <body>
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
