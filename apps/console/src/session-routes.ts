import { parserOf, SessionKey } from "@larkline/protocol";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { confirmPage, type Question } from "./confirm-page.ts";
import { noted, order } from "./orders.ts";
import { answerPage, type PagesDeps } from "./pages.ts";
import { sessionPath } from "./paths.ts";
import { problemPage } from "./problem-page.ts";

import { isUnreadable } from "./session-list-routes.ts";
import { sessionPage, type ShownSession } from "./session-page.ts";
import type { View } from "./view.ts";
import type { Word } from "./words.ts";

const parseKey = parserOf(SessionKey);

/** As many of the newest messages, and of those that wait, as anybody reads. */
const maxMessages = 100;
const maxWaiting = 50;
const maxUnsent = 20;

interface OfSession {
  Params: { key: string };
}

type ReadSession = Omit<ShownSession, "isContentShown">;

/** What is left of a session that no version can read: that it is there, so that it can be reset. */
function unreadable(key: SessionKey): ReadSession {
  return { key, summary: undefined, messages: [], waiting: [], approvals: [], unsent: [] };
}

/** Undefined when there is no such session. */
async function sessionOf({ backend }: PagesDeps, given: string): Promise<ReadSession | undefined> {
  const key = parseKey(given);
  if (!key.ok) return undefined;
  const { store, approvals, index } = backend;
  try {
    const summary = await store.summary(key.value);
    if (summary.gen === 0 && summary.messages === 0 && summary.unsent === 0) return undefined;
    const [history, waiting, pending, unsent] = await Promise.all([
      summary.messages === 0 ? [] : store.history(key.value),
      store.waiting(key.value, maxWaiting),
      approvals.pending(key.value),
      index.unsent(key.value, maxUnsent),
    ]);
    return { key: key.value, summary, messages: history.slice(-maxMessages), waiting, approvals: pending, unsent };
  } catch (error) {
    if (isUnreadable(error)) return unreadable(key.value);
    throw error;
  }
}

type Act = (found: ReadSession) => Promise<Word>;

function actsOf(deps: PagesDeps): Readonly<Record<"cancel" | "reset" | "drop", Act>> {
  const { onAction } = deps;
  return {
    async cancel({ key: session, summary }) {
      if (summary?.head === undefined || summary.state === "idle") return "nothingRuns";
      const words = { done: "cancelled", nothing: "nothingRuns" } as const;
      const { word, isDone } = await order(deps, { do: "cancel", session, seq: summary.head.seq }, words);
      if (isDone) onAction("turn_cancelled", sessionPath(session));
      return word;
    },
    async reset({ key: session }) {
      const words = { done: "wasReset", nothing: "resetIdle" } as const;
      const { word, result } = await order(deps, { do: "reset", session }, words);
      if (result !== undefined) onAction("session_reset", sessionPath(session));
      return word;
    },
    async drop({ key: session }) {
      const words = { done: "dropped", nothing: "nothingWaits" } as const;
      const { word, result } = await order(deps, { do: "drop", session }, words);
      if (result !== undefined) onAction("inbox_dropped", sessionPath(session));
      return word;
    },
  };
}

const questions: Readonly<Record<"reset" | "drop", Pick<Question, "texts" | "label">>> = {
  reset: { texts: ["resetEnds", "resetBegins", "resetEffects"], label: "reset" },
  drop: { texts: ["dropTakes", "dropForever"], label: "dropWaiting" },
};

function at(view: View, key: string): View {
  return { ...view, url: sessionPath(key) };
}

/** Adds the page of one session, showing its content, and what can be done to it. */
export function registerSessionRoutes(server: FastifyInstance, deps: PagesDeps): void {
  const { onAction } = deps;
  const ask = async (name: keyof typeof questions, [request, reply]: [FastifyRequest<OfSession>, FastifyReply]) =>
    await answerPage(deps, [request, reply], async (view) => {
      if (view.visitor?.role !== "operator") return problemPage(view, "viewersLook");
      const found = await sessionOf(deps, request.params.key);
      if (found === undefined) return undefined;
      const back = sessionPath(found.key);
      return confirmPage(view, {
        ...questions[name],
        title: `${view.say(questions[name].label)}: ${found.key}`,
        path: `${back}/${name}`,
        back,
      });
    });

  server.get<OfSession>("/sessions/:key", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const found = await sessionOf(deps, request.params.key);
      return found && sessionPage(at(view, found.key), { ...found, isContentShown: false });
    }),
  );
  server.get<OfSession>("/sessions/:key/reset", async (request, reply) => ask("reset", [request, reply]));
  server.get<OfSession>("/sessions/:key/drop", async (request, reply) => ask("drop", [request, reply]));
  server.post<OfSession>("/sessions/:key/content", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const found = await sessionOf(deps, request.params.key);
      if (found === undefined) return undefined;
      // Noted before it is seen: whatever fails now, nobody has looked without a trace.
      const problem = await noted(deps, { kind: "content_shown", session: found.key });
      if (problem !== undefined) return problemPage(view, problem);
      onAction("content_shown", request.url);
      return sessionPage(at(view, found.key), { ...found, isContentShown: true }, "shown");
    }),
  );
  for (const [name, act] of Object.entries(actsOf(deps))) {
    server.post<OfSession>(`/sessions/:key/${name}`, async (request, reply) =>
      answerPage(deps, [request, reply], async (view) => {
        const found = await sessionOf(deps, request.params.key);
        if (found === undefined) return undefined;
        const note = await act(found);
        const now = (await sessionOf(deps, found.key)) ?? found;
        return sessionPage(at(view, found.key), { ...now, isContentShown: false }, note);
      }),
    );
  }
}
