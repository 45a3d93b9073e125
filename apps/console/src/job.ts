import type { FastifyInstance } from "fastify";
import { parserOf } from "@larkline/protocol";
import { finishedCallOf, FinishedCall, ToolJob } from "@larkline/protocol/runner";
import { type QueuedJob, TurnJob } from "@larkline/store/queues";
import {
  answerPage,
  jobPath,
  lookAtContent,
  problemPage,
  toContent,
  sessionLink,
  whyPath,
  actionForm,
  type Page,
  type View,
} from "./page.ts";
import { html, type Html, facts, moment } from "./html.ts";
import type { Services } from "./services.ts";

/** Adds the page of one job, and showing what a call was given. */
export function registerJob(server: FastifyInstance, services: Services): void {
  const { catalog, queues } = services;
  const jobOf = async ({ queue, id }: OfJob["Params"]) =>
    (await queues.names()).includes(queue) ? await catalog.job(queue, id) : undefined;

  server.get<OfJob>("/jobs/:queue/:id", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const { queue } = request.params;
      const job = await jobOf(request.params);
      if (job === undefined) return undefined;
      const found = jobFactsOf(job.data);
      if (found.kind !== "call") return jobPage(view, { queue, job, isContentShown: false });
      const { session, turnId, callId, name: tool, actor } = found.call;
      const call = { session, turnId, callId, tool, app: actor.app, chatId: actor.chatId };
      const record = { kind: "content_shown", ...call } as const;
      const { isShown, problem } = await lookAtContent(services, view, request, record);
      return problem === undefined
        ? jobPage(view, { queue, job, isContentShown: isShown })
        : problemPage(view, problem);
    }),
  );
  server.post("/jobs/:queue/:id/content", toContent);
}

interface OfJob {
  Params: { queue: string; id: string };
}

interface ShownJob {
  queue: string;
  job: QueuedJob;
  /** Only when an operator has asked for it, and that is noted. */
  isContentShown: boolean;
}

/** One job, what it is about and where it belongs. */
function jobPage(view: View, shown: ShownJob): Page {
  const { say } = view;
  const { queue, job, isContentShown } = shown;
  const body = html`${facts([
    [say("queue"), html`<a href="/queues/queue/${encodeURIComponent(queue)}">${queue}</a>`],
    [say("state"), job.state],
    [say("added"), moment(view, job.addedAtMs)],
    [say("tries"), job.tries],
    [say("failedReason"), job.failedReason],
  ])}
  ${detailsOf(view, shown)}`;
  return {
    title: `${say("job")} ${job.id}`,
    body,
    ...(isContentShown && { note: "shown" as const }),
  };
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

function callFacts(view: View, call: FinishedCall, actor?: ToolJob["actor"]): Html {
  const { say } = view;
  return facts([
    [say("session"), sessionLink(call.session)],
    [say("turn"), html`<a href="${whyPath(call.turnId)}">${call.turnId}</a>`],
    [say("call"), call.callId],
    [say("tool"), call.name],
    [say("effect"), call.effect],
    [say("attempt"), call.attempt],
    [say("app"), actor?.app],
    [say("requester"), actor && (actor.userName ?? actor.userId)],
    [say("deadline"), moment(view, call.deadlineMs)],
  ]);
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** What a job is about, without what people and models wrote. */
type JobFacts =
  | { kind: "turn"; session: string; gen: number }
  | { kind: "call"; call: ToolJob }
  /** A call whose job has finished. */
  | { kind: "finished"; call: FinishedCall }
  /** Not written by this version. */
  | { kind: "unknown" };

const parseTurn = parserOf(TurnJob);

const parseCall = parserOf(ToolJob);

const parseFinished = parserOf(FinishedCall);

function jobFactsOf(data: unknown): JobFacts {
  const call = parseCall(data);
  if (call.ok) return { kind: "call", call: call.value };
  const finished = parseFinished(data);
  if (finished.ok) return { kind: "finished", call: finished.value };
  const turn = parseTurn(data);
  return turn.ok
    ? { kind: "turn", session: turn.value.session, gen: turn.value.gen }
    : { kind: "unknown" };
}

const hidden = "hidden";

/** The data of a job as the board shows it: arguments and the signature stay out. Of a finished call no more is kept. */
export function shownJobData(data: unknown): Record<string, unknown> {
  const about = jobFactsOf(data);
  if (about.kind === "turn") return { session: about.session, generation: about.gen };
  if (about.kind === "unknown") return { data: hidden };
  const call = about.kind === "finished" ? about.call : finishedCallOf(about.call);
  const {
    session,
    turnId,
    callId,
    name,
    effect,
    attempt,
    queuedAtMs,
    deadlineMs,
    argumentsLength,
  } = call;
  return {
    session,
    turn: turnId,
    call: callId,
    tool: name,
    effect,
    attempt,
    ...(about.kind === "call" && {
      app: about.call.actor.app,
      person: about.call.actor.userId,
      chat: about.call.actor.chatId,
    }),
    handedOutAt: new Date(queuedAtMs).toISOString(),
    deadlineAt: new Date(deadlineMs).toISOString(),
    arguments: `${about.kind === "call" ? hidden : "not kept"} (${argumentsLength} characters)`,
  };
}
