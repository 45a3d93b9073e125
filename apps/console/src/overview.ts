import type { FastifyInstance } from "fastify";
import type { QueueDepth } from "@larkline/queue";
import type { LivingRunner } from "@larkline/store/runners";
import { answerPage, type Page, type View } from "./page.ts";
import { openApprovals, type OpenApprovals } from "./approvals.ts";
import { html, type Html, facts, moment, table } from "./html.ts";
import type { Services } from "./services.ts";

/** Adds the page that shows everything at a glance. */
export function registerOverview(server: FastifyInstance, services: Services): void {
  server.get("/", async (request, reply) =>
    answerPage(services, request, reply, async (view) => overviewPage(view, await overviewOf(services))),
  );
}

interface Overview {
  queues: readonly { name: string; depth: QueueDepth }[];
  /** Ids of living workers. */
  workers: readonly string[];
  runners: readonly LivingRunner[];
  open: OpenApprovals;
}

async function overviewOf({ queues, catalog, presence, directory, approvals }: Services): Promise<Overview> {
  const named = async () => {
    const names = await queues.names();
    return await Promise.all(names.map(async (name) => ({ name, depth: await catalog.depth(name) })));
  };
  const [depths, workers, runners, open] = await Promise.all([
    named(),
    presence.members(),
    directory.runners(),
    openApprovals(approvals),
  ]);
  return { queues: depths, workers, runners, open };
}

/** Everything at a glance: what waits, and who is there to do it. */
function overviewPage(view: View, { queues, workers, runners, open }: Overview): Page {
  const { say } = view;
  const names = [...new Set(runners.map(({ runner }) => runner))].sort();
  const count = `${open.approvals.length}${open.hasMore ? "+" : ""}`;
  const body = html`${workers.length === 0 && html`<p class="note">${say("noWorkers")}</p>`}
    ${facts([
      [say("workers"), workers.length],
      [say("runners"), names.length === 0 ? say("noRunners") : html`<a href="/runners">${names.join(", ")}</a>`],
      [say("openApprovals"), html`<a href="/approvals">${count}</a>`],
    ])}
    ${queueTable(view, queues)}
    <p><a href="/queues">${say("openBoard")}</a></p>
    ${sessionForm(view)}`;
  return { title: say("overview"), body };
}

function queueTable({ say, language }: View, queues: Overview["queues"]): Html {
  return table({
    caption: say("queues"),
    columns: [say("queue"), say("waiting"), say("active"), say("delayed"), say("failed"), say("oldest")],
    rows: queues.map(({ name, depth }) => [
      html`<a href="/queues/queue/${encodeURIComponent(name)}">${name}</a> ${depth.isPaused && `(${say("paused")})`}`,
      depth.waiting,
      depth.active,
      depth.delayed,
      depth.failed,
      depth.oldestAtMs === undefined ? "–" : moment(language, depth.oldestAtMs),
    ]),
  });
}

function sessionForm({ say }: View): Html {
  return html`<h2>${say("openSession")}</h2>
    <form action="/sessions" class="row">
      <label for="key">${say("sessionKey")}</label>
      <input id="key" name="key" required maxlength="240" size="40" placeholder="cli_….oc_…" />
      <button>${say("open")}</button>
    </form>`;
}
