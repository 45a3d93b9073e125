import type { FastifyInstance } from "fastify";
import { diagnose, traceOutcome } from "./diagnosis.ts";
import { answerPage, type PagesDeps } from "./pages.ts";
import { standingOf } from "./standing.ts";
import type { Page, View } from "./view.ts";
import { whyEmptyPage, whyListPage, whyPage, type ShownMessage } from "./why-page.ts";
import { findMessages, wantedIn, type Found } from "./why-search.ts";

interface WhyRoute {
  Querystring: { q?: unknown; frames?: unknown };
}

/** Messages of one trace that are shown with their reasons. */
const maxShown = 5;

async function shown({ backend }: PagesDeps, found: readonly Found[]): Promise<ShownMessage[]> {
  return await Promise.all(
    found.slice(0, maxShown).map(async ({ traceId, message }) => ({
      traceId,
      message,
      diagnosis: diagnose(message, await standingOf(backend, message)),
    })),
  );
}

async function answer(deps: PagesDeps, view: View, { q, frames }: WhyRoute["Querystring"]): Promise<Page> {
  const query = typeof q === "string" ? q.trim() : "";
  const wanted = wantedIn(query);
  if (wanted === undefined) return whyEmptyPage(view, query);
  const found = await findMessages(deps.backend.traces, wanted);
  if (found.length === 0) return whyEmptyPage(view, query);
  if (found.length > 1 && wanted.by !== "trace") {
    const listed = found.map((one) => ({ ...one, outcome: traceOutcome(one.message) }));
    return whyListPage(view, query, listed);
  }
  return whyPage(view, query, { shown: await shown(deps, found), everyFrame: frames === "all" });
}

/** Adds the page that says why a message has no answer; it shows no content to anybody. */
export function registerWhyRoutes(server: FastifyInstance, deps: PagesDeps): void {
  server.get<WhyRoute>("/why", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => await answer(deps, view, request.query)),
  );
}
