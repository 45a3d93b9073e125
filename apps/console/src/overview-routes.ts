import type { FastifyInstance } from "fastify";
import { approvalsPage } from "./approvals-page.ts";
import { openApprovals } from "./open-approvals.ts";
import { overviewPage, type Overview } from "./overview-page.ts";
import { answerPage, type PagesDeps } from "./pages.ts";
import type { QueueList } from "./queue-list.ts";
import { runnersPage } from "./runners-page.ts";

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

/** Adds the pages that show what there is, and change nothing. */
export function registerOverviewRoutes(server: FastifyInstance, deps: OverviewDeps): void {
  const { approvals, directory } = deps.backend;
  server.get("/", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => overviewPage(view, await overviewOf(deps))),
  );
  server.get("/runners", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => runnersPage(view, await directory.runners())),
  );
  server.get("/approvals", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) =>
      approvalsPage(view, await openApprovals(approvals, maxApprovals)),
    ),
  );
}
