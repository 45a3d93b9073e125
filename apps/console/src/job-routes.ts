import type { FastifyInstance } from "fastify";
import { jobPage } from "./job-page.ts";
import { noted } from "./orders.ts";
import { answerPage, type PagesDeps } from "./pages.ts";
import { jobPath } from "./paths.ts";
import { problemPage } from "./problem-page.ts";
import type { QueueList } from "./queue-list.ts";

import { jobFactsOf } from "./shown-job.ts";

export interface JobRoutesDeps extends PagesDeps {
  queues: Pick<QueueList, "names">;
}

interface OfJob {
  Params: { queue: string; id: string };
}

/** Adds the page of one job, and showing what a call was given. */
export function registerJobRoutes(server: FastifyInstance, deps: JobRoutesDeps): void {
  const { backend, queues, onAction } = deps;
  const jobOf = async ({ queue, id }: OfJob["Params"]) =>
    (await queues.names()).includes(queue) ? await backend.catalog.job(queue, id) : undefined;

  server.get<OfJob>("/jobs/:queue/:id", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const { queue } = request.params;
      const job = await jobOf(request.params);
      return job && jobPage(view, { queue, job, isContentShown: false });
    }),
  );
  server.post<OfJob>("/jobs/:queue/:id/content", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const { queue } = request.params;
      const job = await jobOf(request.params);
      const facts = job && jobFactsOf(job.data);
      if (job === undefined || facts?.kind !== "call") return undefined;
      const { session, turnId, callId, name: tool, actor } = facts.call;
      // Noted before it is seen: whatever fails now, nobody has looked without a trace.
      const record = { session, turnId, callId, tool, app: actor.app, chatId: actor.chatId };
      const problem = await noted(deps, { kind: "content_shown", ...record });
      if (problem !== undefined) return problemPage(view, problem);
      onAction("content_shown", request.url);
      return jobPage({ ...view, url: jobPath(queue, job.id) }, { queue, job, isContentShown: true });
    }),
  );
}
