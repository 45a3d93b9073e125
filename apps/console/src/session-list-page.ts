import type { SessionSummary } from "@larkline/store";
import { html, type Html } from "./html.ts";
import { moment, table } from "./parts.ts";
import { sessionPath } from "./paths.ts";
import type { Page, View } from "./view.ts";
import type { Word } from "./words.ts";

/** A session in a list; one whose state cannot be read at all has no summary. */
export interface ListedSession {
  session: string;
  summary: SessionSummary | undefined;
  /** When it last finished a turn. */
  atMs?: number;
}

export interface SessionLists {
  /** Undefined: nothing was searched for. */
  search: string | undefined;
  found: readonly ListedSession[];
  busy: readonly ListedSession[];
  recent: readonly ListedSession[];
  hasMore: boolean;
}

function sinceOf({ language, say }: View, { summary, atMs }: ListedSession): Html | string {
  const began = summary?.turn?.startedAtMs;
  if (began !== undefined) return html`${say("turnBegan")} ${moment(language, began)}`;
  return atMs === undefined ? "–" : moment(language, atMs);
}

function stateOf({ say }: View, summary: SessionSummary | undefined): Html | string {
  if (summary === undefined || summary.head?.unreadable === true) return say("unreadableState");
  const { setAside, damaged, damagedSettings } = summary;
  const isDamaged = damaged !== undefined || damagedSettings !== undefined;
  const state = isDamaged ? `${summary.state}, ${say("damagedState")}` : summary.state;
  return setAside.length === 0
    ? state
    : html`${state} <span class="quiet">+ ${setAside.length} ${say("areSetAside")}</span>`;
}

function row(view: View, listed: ListedSession) {
  const { session, summary } = listed;
  return [
    html`<a href="${sessionPath(session)}">${session}</a>`,
    stateOf(view, summary),
    summary?.waiting ?? "–",
    summary?.unsent ?? "–",
    summary?.messages ?? "–",
    sinceOf(view, listed),
  ];
}

function list(view: View, [heading, none]: [Word, Word], sessions: readonly ListedSession[]): Html {
  const { say } = view;
  const columns = ["session", "state", "inInbox", "unsent", "messages", "lastTurn"] as const;
  return html`<h2>${say(heading)}</h2>
    ${
      sessions.length === 0
        ? html`<p class="quiet">${say(none)}</p>`
        : table({ caption: say(heading), columns: columns.map(say), rows: sessions.map((one) => row(view, one)) })
    }`;
}

/** What sessions do at this moment, what they did last, and a way to find one. */
export function sessionListPage(view: View, { search, found, busy, recent, hasMore }: SessionLists): Page {
  const { say } = view;
  const body = html`<form action="/sessions" class="row" role="search">
      <label for="search">${say("searchSessions")}</label>
      <input id="search" name="search" value="${search ?? ""}" required maxlength="240" size="40" />
      <button>${say("search")}</button>
    </form>
    <p class="quiet">${say("searchHint")}</p>
    ${search !== undefined && list(view, ["foundSessions", "nothingFound"], found)}
    ${hasMore && html`<p class="note">${say("moreBusy")}</p>`} ${list(view, ["busySessions", "nothingBusy"], busy)}
    ${list(view, ["recentSessions", "nothingRecent"], recent)}`;
  return { title: say("sessions"), body };
}
