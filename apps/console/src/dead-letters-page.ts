import type { FailedJob } from "@larkline/queue";
import type { DeadLetterFacts } from "@larkline/store";
import { html, type Html } from "./html.ts";
import { moment, table } from "./parts.ts";
import { jobPath, letterPath, sessionPath, whyPath } from "./paths.ts";
import { actionForm, type Page, type View } from "./view.ts";
import type { Word } from "./words.ts";

/** A job of a queue that has used up its tries. */
export interface ListedJob extends FailedJob {
  queue: string;
}

export interface GivenUp {
  letters: readonly DeadLetterFacts[];
  jobs: readonly ListedJob[];
  hasMore: boolean;
}

/** What a letter is about. */
export const letterKinds: Readonly<Record<DeadLetterFacts["kind"], Word>> = {
  reply: "letterReply",
  message: "letterMessage",
  approval: "letterApproval",
};

function letterRow({ say, language }: View, letter: DeadLetterFacts) {
  const { id, session, kind, reason, atMs, traceId } = letter;
  return [
    html`<a href="${letterPath(session, id)}">${say(letterKinds[kind])}</a>`,
    html`<a href="${sessionPath(session)}">${session}</a>`,
    reason,
    traceId !== undefined && html`<a href="${whyPath(traceId)}"><code>${traceId.slice(0, 8)}</code></a>`,
    moment(language, atMs),
  ];
}

function jobRow(view: View, { queue, id, reason, tries, failedAtMs, isRepeatable }: ListedJob) {
  const fields = { queue, job: id };
  return [
    html`<a href="${jobPath(queue, id)}">${id}</a>`,
    queue,
    reason,
    tries,
    moment(view.language, failedAtMs),
    view.visitor?.role === "operator" &&
      html`<div class="row">
        ${isRepeatable && actionForm(view, { path: "/dead-letters/jobs/retry", label: "retry", fields })}
        ${actionForm(view, { path: "/dead-letters/jobs/discard", label: "discard", fields })}
      </div>`,
  ];
}

function letterTable(view: View, letters: GivenUp["letters"]): Html {
  const { say } = view;
  if (letters.length === 0) return html`<p class="quiet">${say("noLetters")}</p>`;
  return table({
    caption: say("letters"),
    columns: [say("letterWhat"), say("session"), say("letterWhy"), say("trace"), say("givenUpAt")],
    rows: letters.map((letter) => letterRow(view, letter)),
  });
}

function jobTable(view: View, jobs: GivenUp["jobs"]): Html {
  const { say } = view;
  if (jobs.length === 0) return html`<p class="quiet">${say("noFailedJobs")}</p>`;
  return table({
    caption: say("failedJobs"),
    columns: [say("job"), say("queue"), say("letterWhy"), say("tries"), say("givenUpAt"), ""],
    rows: jobs.map((job) => jobRow(view, job)),
  });
}

/** Everything that was given up and that nobody has dealt with. */
export function deadLettersPage(view: View, { letters, jobs, hasMore }: GivenUp, note?: Word): Page {
  const { say } = view;
  const body = html`<p>${say("lettersAre")}</p>
    ${hasMore && html`<p class="note">${say("moreLetters")}</p>`}
    <h2>${say("letters")}</h2>
    ${letterTable(view, letters)}
    <h2>${say("failedJobs")}</h2>
    ${jobTable(view, jobs)}`;
  return { title: say("deadLetters"), body, ...(note === undefined ? {} : { note }) };
}
