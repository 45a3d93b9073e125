import type { FastifyInstance } from "fastify";
import { approvalsPage } from "./approvals-page.ts";
import { openApprovals } from "./open-approvals.ts";
import { overviewPage, type Overview } from "./overview-page.ts";
import { answerPage, fieldOf, type PagesDeps } from "./pages.ts";
import type { QueueList } from "./queue-list.ts";
import { runnersPage } from "./runners-page.ts";
import type { Word } from "./words.ts";

const maxApprovals = 200;

export interface OverviewDeps extends PagesDeps {
  queues: Pick<QueueList, "names">;
}

async function overviewOf({ backend, queues }: OverviewDeps): Promise<Overview> {
  const { catalog, presence, directory, approvals } = backend;
  const named = async () => {
    const names = await queues.names();
    return await Promise.all(names.map(async (name) => ({ name, depth: await catalog.depth(name) })));
  };
  const [depths, workers, runners, open] = await Promise.all([
    named(),
    presence.members(),
    directory.runners(),
    openApprovals(approvals, maxApprovals),
  ]);
  return { queues: depths, workers, runners, open };
}

/** Adds the pages that show what there is, and forgetting a runner that is away. */
export function registerOverviewRoutes(server: FastifyInstance, deps: OverviewDeps): void {
  const { backend, onAction } = deps;
  const { approvals, directory } = backend;
  const allRunners = async () => ({ living: await directory.runners(), away: await directory.away() });
  server.get("/", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => overviewPage(view, await overviewOf(deps))),
  );
  server.get("/runners", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => runnersPage(view, await allRunners())),
  );
  server.post("/runners/forget", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const runner = fieldOf(request, "runner");
      if (runner === undefined) return undefined;
      const { forgotten } = await directory.forget(runner);
      if (forgotten) onAction("runner_forgotten", request.url);
      const note: Word = forgotten ? "runnerForgotten" : "runnerStays";
      return runnersPage({ ...view, url: "/runners" }, await allRunners(), note);
    }),
  );
  server.get("/approvals", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) =>
      approvalsPage(view, await openApprovals(approvals, maxApprovals)),
    ),
  );
}
