import { parserOf, SessionKey, turnIdOf } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import { answerPage, type PagesDeps } from "./pages.ts";
import { sessionPath } from "./paths.ts";
import { consoleId } from "./rule-routes.ts";
import { sessionPage, type ShownSession } from "./session-page.ts";
import type { Page, View } from "./view.ts";
import type { Word } from "./words.ts";

const parseKey = parserOf(SessionKey);

/** As many of the newest messages as anybody reads. */
const maxMessages = 100;

interface OfSession {
  Params: { key: string };
}

type ReadSession = Omit<ShownSession, "isContentShown">;

/** Undefined when there is no such session. */
async function sessionOf({ backend }: PagesDeps, given: string): Promise<ReadSession | undefined> {
  const key = parseKey(given);
  if (!key.ok) return undefined;
  const summary = await backend.store.summary(key.value);
  if (summary.gen === 0 && summary.messages === 0 && summary.unsent === 0) return undefined;
  const history = summary.messages === 0 ? [] : await backend.store.history(key.value);
  return { key: key.value, summary, messages: history.slice(-maxMessages) };
}

/** As a person's `/stop` does it, whoever's turn it is: stored first, then told to all workers. */
async function stopTurn({ backend }: PagesDeps, { key, summary }: ReadSession): Promise<boolean> {
  const { state, head } = summary;
  if (state === "idle" || head === undefined) return false;
  const turnId = turnIdOf(key, head.seq);
  const { accepted, wakeGen } = await backend.store.cancel(key, { turnId, reason: "cancelled" });
  if (wakeGen !== undefined) await backend.turns.wake(key, wakeGen);
  await backend.cancels.publish({ session: key, turnId });
  return accepted;
}

function shown(view: View, found: ReadSession, note?: Word): Page {
  return sessionPage({ ...view, url: sessionPath(found.key) }, { ...found, isContentShown: false }, note);
}

/** Adds the page of one session, showing its content, and stopping what it does. */
export function registerSessionRoutes(server: FastifyInstance, deps: PagesDeps): void {
  const { backend, onAction } = deps;
  server.get<{ Querystring: { key?: string } }>("/sessions", async (request, reply) => {
    const { key } = request.query;
    return await reply.redirect(typeof key === "string" && key !== "" ? sessionPath(key.trim()) : "/", 303);
  });
  server.get<OfSession>("/sessions/:key", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const found = await sessionOf(deps, request.params.key);
      return found && shown(view, found);
    }),
  );
  server.post<OfSession>("/sessions/:key/content", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const found = await sessionOf(deps, request.params.key);
      if (found === undefined) return undefined;
      // Noted before it is seen: whatever fails now, nobody has looked without a trace.
      await backend.audit.append({ kind: "content_shown", session: found.key, userId: consoleId });
      onAction("content_shown", request.url);
      return sessionPage({ ...view, url: sessionPath(found.key) }, { ...found, isContentShown: true }, "shown");
    }),
  );
  server.post<OfSession>("/sessions/:key/cancel", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const found = await sessionOf(deps, request.params.key);
      if (found === undefined) return undefined;
      const isStopped = await stopTurn(deps, found);
      if (isStopped) onAction("turn_cancelled", request.url);
      return shown(view, (await sessionOf(deps, found.key)) ?? found, isStopped ? "cancelled" : "nothingRuns");
    }),
  );
}
