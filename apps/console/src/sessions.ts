import { parserOf, SessionKey } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import type { SessionSummary } from "@larkline/store";
import { answerPage, sessionLink, sessionPath, type Page, type View } from "./page.ts";
import { html, type Html, moment, table } from "./html.ts";
import { longestSearch, meantBy, sessionsOf, wantedIn } from "./search.ts";
import type { Word } from "./words.ts";
import type { Services } from "./services.ts";

/** Adds the list of sessions, and finding one by its key, its chat or who has written in it. */
export function registerSessions(server: FastifyInstance, services: Services): void {
  server.get<{ Querystring: { search?: unknown; key?: unknown } }>(
    "/sessions",
    async (request, reply) => {
      const { search, key } = request.query;
      const [given = ""] = [search, key].flatMap((one) =>
        typeof one === "string" ? one.slice(0, longestSearch) : [],
      );
      const wanted = meantBy(given);
      if (wanted !== "" && parseKey(wanted).ok && exists(await lookAt(services, wanted))) {
        return await reply.redirect(sessionPath(wanted), 303);
      }
      return await answerPage(services, request, reply, async (view) =>
        sessionListPage(view, await listsOf(services, wanted === "" ? undefined : wanted)),
      );
    },
  );
}

/** How many of each list are shown. */
const maxListed = 50;
/** People and chats that a name stands for. */
const maxNamed = 10;

const parseKey = parserOf(SessionKey);

/** A session in a list; one whose state cannot be read at all has no summary. */
interface ListedSession {
  session: string;
  summary: SessionSummary | undefined;
  /** When it last finished a turn. */
  atMs?: number;
}

interface SessionLists {
  /** Undefined: nothing was searched for. */
  search: string | undefined;
  found: readonly ListedSession[];
  busy: readonly ListedSession[];
  recent: readonly ListedSession[];
  hasMore: boolean;
}

async function lookAt({ store }: Services, session: string, atMs?: number): Promise<ListedSession> {
  // One that no version can read is listed all the same: it is the one that an operator looks for.
  const summary = await store.summary(session).catch((error: unknown) => {
    if (isUnreadable(error)) return undefined;
    throw error;
  });
  return { session, summary, ...(atMs === undefined ? {} : { atMs }) };
}

/** Stored state that cannot be read is an error of our own; what Redis fails with is not. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "internal_error";
}

/** Whether anything is known of it. */
function exists({ summary }: ListedSession): boolean {
  return summary === undefined || summary.gen > 0 || summary.messages > 0 || summary.unsent > 0;
}

/** A key that is given in full, then conversations of a chat, then those that a person has written in; both also by name. */
async function find(services: Services, search: string): Promise<ListedSession[]> {
  const { apps, index, names: book } = services;
  const ids = [search, ...(await book.find(search, maxNamed))];
  const prefixes = ids.flatMap((id) => [id, ...apps.map((app) => `${app}.${id}`)]);
  const wanted = wantedIn(search);
  const keys = [...prefixes, ...(wanted === undefined ? [] : await sessionsOf(services, wanted))];
  const [exact, ofChats, ofPerson] = await Promise.all([
    Promise.all(
      keys.filter((key) => parseKey(key).ok).map(async (key) => await lookAt(services, key)),
    ),
    index.recent(maxListed, prefixes),
    Promise.all(ids.map(async (id) => await index.ofPerson(id, maxListed))),
  ]);
  const times = new Map(ofChats.map(({ session, atMs }) => [session, atMs]));
  const names = new Set([
    ...exact.filter(exists).map(({ session }) => session),
    ...times.keys(),
    ...ofPerson.flat(),
  ]);
  const shown = [...names].slice(0, maxListed);
  return await Promise.all(
    shown.map(async (session) => await lookAt(services, session, times.get(session))),
  );
}

async function listsOf(services: Services, search: string | undefined): Promise<SessionLists> {
  const { index } = services;
  const [busy, recent, found] = await Promise.all([
    index.busy(maxListed + 1),
    index.recent(maxListed),
    search === undefined ? [] : find(services, search),
  ]);
  const [busyOnes, recentOnes] = await Promise.all([
    Promise.all(busy.slice(0, maxListed).map(async (session) => await lookAt(services, session))),
    Promise.all(recent.map(async ({ session, atMs }) => await lookAt(services, session, atMs))),
  ]);
  return { search, found, busy: busyOnes, recent: recentOnes, hasMore: busy.length > maxListed };
}

function sinceOf(view: View, { summary, atMs }: ListedSession): Html | string {
  const { say } = view;
  const began = summary?.turn?.startedAtMs;
  if (began !== undefined) return html`${say("turnBegan")} ${moment(view, began)}`;
  return atMs === undefined ? "–" : moment(view, atMs);
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
    sessionLink(session),
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
        : table({
            caption: say(heading),
            columns: columns.map(say),
            rows: sessions.map((one) => row(view, one)),
          })
    }`;
}

/** What sessions do at this moment, what they did last, and a way to find one. */
function sessionListPage(view: View, { search, found, busy, recent, hasMore }: SessionLists): Page {
  const { say } = view;
  const body = html`<form action="/sessions" class="row" role="search">
      <label for="search">${say("searchSessions")}</label>
      <input
        id="search"
        name="search"
        value="${search ?? ""}"
        required
        maxlength="${longestSearch}"
        size="40"
      />
      <button>${say("search")}</button>
    </form>
    <p class="quiet">${say("searchHint")}</p>
    ${search !== undefined && list(view, ["foundSessions", "nothingFound"], found)}
    ${hasMore && html`<p class="note">${say("moreBusy")}</p>`}
    ${list(view, ["busySessions", "nothingBusy"], busy)}
    ${list(view, ["recentSessions", "nothingRecent"], recent)}`;
  return { title: say("sessions"), body };
}
