import type { QueueDepth } from "@larkline/queue";
import type { LivingRunner } from "@larkline/store";
import { html, type Html } from "./html.ts";
import type { OpenApprovals } from "./open-approvals.ts";
import { facts, moment, table } from "./parts.ts";
import type { Page, View } from "./view.ts";

export interface Overview {
  queues: readonly { name: string; depth: QueueDepth }[];
  /** Ids of living workers. */
  workers: readonly string[];
  runners: readonly LivingRunner[];
  open: OpenApprovals;
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

/** Everything at a glance: what waits, and who is there to do it. */
export function overviewPage(view: View, { queues, workers, runners, open }: Overview): Page {
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
