import { parserOf, SessionKey } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import { answerPage, type PagesDeps } from "./pages.ts";
import { sessionPath } from "./paths.ts";
import { sessionListPage, type ListedSession, type SessionLists } from "./session-list-page.ts";

export interface SessionListDeps extends PagesDeps {
  /** Apps that sessions belong to. */
  apps: readonly string[];
}

/** How many of each list are shown. */
const maxListed = 50;

const parseKey = parserOf(SessionKey);

async function listed({ backend }: PagesDeps, session: string, atMs?: number): Promise<ListedSession> {
  // One that no version can read is listed all the same: it is the one that somebody looks for.
  const summary = await backend.store.summary(session).catch((error: unknown) => {
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

/** A key that is given in full, then conversations of a chat, then those that a person has written in. */
async function find(deps: SessionListDeps, search: string): Promise<ListedSession[]> {
  const { backend, apps } = deps;
  const prefixes = [search, ...apps.map((app) => `${app}.${search}`)];
  const keys = prefixes.filter((key) => parseKey(key).ok);
  const [exact, ofChats, ofPerson] = await Promise.all([
    Promise.all(keys.map(async (key) => await listed(deps, key))),
    backend.index.recent(maxListed, prefixes),
    backend.index.ofPerson(search, maxListed),
  ]);
  const times = new Map(ofChats.map(({ session, atMs }) => [session, atMs]));
  const names = new Set([...exact.filter(exists).map(({ session }) => session), ...times.keys(), ...ofPerson]);
  const shown = [...names].slice(0, maxListed);
  return await Promise.all(shown.map(async (session) => await listed(deps, session, times.get(session))));
}

async function listsOf(deps: SessionListDeps, search: string | undefined): Promise<SessionLists> {
  const { index } = deps.backend;
  const [busy, recent, found] = await Promise.all([
    index.busy(maxListed + 1),
    index.recent(maxListed),
    search === undefined ? [] : find(deps, search),
  ]);
  const [busyOnes, recentOnes] = await Promise.all([
    Promise.all(busy.slice(0, maxListed).map(async (session) => await listed(deps, session))),
    Promise.all(recent.map(async ({ session, atMs }) => await listed(deps, session, atMs))),
  ]);
  return { search, found, busy: busyOnes, recent: recentOnes, hasMore: busy.length > maxListed };
}

/** Adds the list of sessions, and finding one by its key, its chat or who has written in it. */
export function registerSessionListRoutes(server: FastifyInstance, deps: SessionListDeps): void {
  server.get<{ Querystring: { search?: unknown; key?: unknown } }>("/sessions", async (request, reply) => {
    const { search, key } = request.query;
    const [wanted = ""] = [search, key].flatMap((one) => (typeof one === "string" ? one.trim().slice(0, 240) : []));
    if (wanted !== "" && parseKey(wanted).ok && exists(await listed(deps, wanted))) {
      return await reply.redirect(sessionPath(wanted), 303);
    }
    return await answerPage(deps, [request, reply], async (view) =>
      sessionListPage(view, await listsOf(deps, wanted === "" ? undefined : wanted)),
    );
  });
}
