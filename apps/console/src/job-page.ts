import { finishedCallOf, type FinishedCall, type ToolJob } from "@larkline/protocol";
import type { QueuedJob } from "@larkline/queue";
import { html, type Html } from "./html.ts";
import { facts, moment } from "./parts.ts";
import { jobPath, sessionPath, whyPath } from "./paths.ts";
import { jobFactsOf } from "./shown-job.ts";
import { actionForm, type Page, type View } from "./view.ts";

export interface ShownJob {
  queue: string;
  job: QueuedJob;
  /** Only when an operator has asked for it, and that is noted. */
  isContentShown: boolean;
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function sessionLink(session: string): Html {
  return html`<a href="${sessionPath(session)}">${session}</a>`;
}

function callFacts({ say, language }: View, call: FinishedCall, actor?: ToolJob["actor"]): Html {
  return facts([
    [say("session"), sessionLink(call.session)],
    [say("turn"), html`<a href="${whyPath(call.turnId)}">${call.turnId}</a>`],
    [say("call"), call.callId],
    [say("tool"), call.name],
    [say("effect"), call.effect],
    [say("attempt"), call.attempt],
    [say("app"), actor?.app],
    [say("requester"), actor && (actor.userName ?? actor.userId)],
    [say("deadline"), moment(language, call.deadlineMs)],
  ]);
}

function callOf(view: View, call: ToolJob, { queue, job, isContentShown }: ShownJob): Html {
  const { say, visitor } = view;
  const size = `${call.arguments.length} ${say("characters")}, ${say("hidden")}`;
  return html`${callFacts(view, finishedCallOf(call), call.actor)}
    <h2>${say("arguments")}</h2>
    ${
      isContentShown
        ? html`<pre>${indented(call.arguments)}</pre>`
        : html`<p class="quiet">${size}. ${say("hiddenContent")}</p>`
    }
    ${
      !isContentShown &&
      visitor?.role === "operator" &&
      actionForm(view, { path: `${jobPath(queue, job.id)}/content`, label: "showContent" })
    }`;
}

function detailsOf(view: View, shown: ShownJob): Html {
  const { say } = view;
  const found = jobFactsOf(shown.job.data);
  if (found.kind === "call") return callOf(view, found.call, shown);
  if (found.kind === "finished") {
    const size = `${found.call.argumentsLength} ${say("characters")}. ${say("argumentsGone")}`;
    return html`${callFacts(view, found.call)}
      <h2>${say("arguments")}</h2>
      <p class="quiet">${size}</p>`;
  }
  if (found.kind === "unknown") return html`<p>${say("unreadable")}</p>`;
  return facts([
    [say("session"), sessionLink(found.session)],
    [say("generation"), found.gen],
  ]);
}

/** One job, what it is about and where it belongs. */
export function jobPage(view: View, shown: ShownJob): Page {
  const { say, language } = view;
  const { queue, job, isContentShown } = shown;
  const body = html`${facts([
    [say("queue"), html`<a href="/queues/queue/${encodeURIComponent(queue)}">${queue}</a>`],
    [say("state"), job.state],
    [say("added"), moment(language, job.addedAtMs)],
    [say("tries"), job.tries],
    [say("failedReason"), job.failedReason],
  ])}
  ${detailsOf(view, shown)}`;
  return { title: `${say("job")} ${job.id}`, body, ...(isContentShown && { note: "shown" as const }) };
}
