import { parserOf, SessionKey } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import type { SessionSummary } from "@larkline/store";
import { sessionOfRun } from "@larkline/store/operations";
import {
  actionForm,
  answerPage,
  lookAtContent,
  type Page,
  problemPage,
  sessionLink,
  sessionPath,
  toContent,
  type View,
} from "./page.ts";
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
      return await answerPage(services, request, reply, async (view) => {
        const { keepsQuestions } = services.settings;
        const look = keepsQuestions
          ? await lookAtContent(services, view, request, { kind: "content_shown" })
          : { isShown: false };
        if (look.problem !== undefined) return problemPage(view, look.problem);
        const lists = await listsOf(services, wanted === "" ? undefined : wanted);
        const asked = look.isShown ? await askedIn(services, lists) : undefined;
        return sessionListPage(view, { ...lists, keepsQuestions, asked });
      });
    },
  );
  server.post("/sessions/content", toContent);
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

/** The lists as a visitor sees them. */
interface ShownLists extends SessionLists {
  keepsQuestions: boolean;
  /** The first words of what was asked last, by session; undefined: they are hidden. */
  asked: ReadonlyMap<string, string> | undefined;
}

/** What was asked last in each session, as far as runs are kept. */
async function askedIn(
  { runs }: Services,
  { found, busy, recent }: SessionLists,
): Promise<Map<string, string>> {
  const sessions = new Set([...found, ...busy, ...recent].map(({ session }) => session));
  const asked = new Map<string, string>();
  await runs.page({
    limit: sessions.size,
    matches: (run) => {
      const session = sessionOfRun(run);
      if (run.asked === undefined || !sessions.has(session) || asked.has(session)) return false;
      asked.set(session, run.asked);
      return true;
    },
  });
  return asked;
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

function row(view: View, listed: ListedSession, asked: ShownLists["asked"]) {
  const { session, summary } = listed;
  return [
    sessionLink(session),
    ...(asked === undefined ? [] : [asked.get(session) ?? "–"]),
    stateOf(view, summary),
    summary?.waiting ?? "–",
    summary?.unsent ?? "–",
    summary?.messages ?? "–",
    sinceOf(view, listed),
  ];
}

function list(
  view: View,
  [heading, none]: [Word, Word],
  [sessions, asked]: [readonly ListedSession[], ShownLists["asked"]],
): Html {
  const { say } = view;
  const words = asked === undefined ? [] : (["question"] as const);
  const columns = [
    "session",
    ...words,
    "state",
    "inInbox",
    "unsent",
    "messages",
    "lastTurn",
  ] as const;
  return html`<h2>${say(heading)}</h2>
    ${
      sessions.length === 0
        ? html`<p class="quiet">${say(none)}</p>`
        : table({
            caption: say(heading),
            columns: columns.map(say),
            rows: sessions.map((one) => row(view, one, asked)),
          })
    }`;
}

/** What sessions do at this moment, what they did last, and a way to find one. */
function sessionListPage(view: View, shown: ShownLists): Page {
  const { say, visitor } = view;
  const { search, found, busy, recent, hasMore, keepsQuestions, asked } = shown;
  const query = search === undefined ? "" : `?${new URLSearchParams({ search }).toString()}`;
  const path = `/sessions/content${query}`;
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
    ${
      keepsQuestions &&
      asked === undefined &&
      visitor?.role === "operator" &&
      actionForm(view, { path, label: "showQuestions" })
    }
    ${search !== undefined && list(view, ["foundSessions", "nothingFound"], [found, asked])}
    ${hasMore && html`<p class="note">${say("moreBusy")}</p>`}
    ${list(view, ["busySessions", "nothingBusy"], [busy, asked])}
    ${list(view, ["recentSessions", "nothingRecent"], [recent, asked])}`;
  return { title: say("sessions"), body, ...(asked !== undefined && { note: "shown" as const }) };
}
