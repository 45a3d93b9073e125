import { parserOf, SessionKey } from "@larkline/protocol";
import type { DeadLetter, DeadLetterFacts } from "@larkline/store";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { FailedJob } from "@larkline/store/queues";
import {
  countAction,
  confirmPage,
  lookAtContent,
  noted,
  toContent,
  order,
  answerPage,
  fieldOf,
  letterPath,
  problemPage,
  jobPath,
  sessionLink,
  shortSessionLink,
  whyPath,
  actionForm,
  type Page,
  type View,
} from "./page.ts";
import type { Word } from "./words.ts";
import { html, type Html, moment, table, facts, who } from "./html.ts";
import { letterKinds } from "./errors.ts";
import type { Services } from "./services.ts";

/** Adds the list of what was given up, looking into one, trying it again and doing away with it. */
export function registerDeadLetters(server: FastifyInstance, services: Services): void {
  const letterOf = async ({ params: { session, id } }: FastifyRequest<OfLetter>) =>
    parseKey(session).ok ? await services.letters.find(session, id) : undefined;

  server.get("/dead-letters", async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      deadLettersPage(view, await givenUp(services)),
    ),
  );
  registerJobActs(server, services);
  server.get<OfLetter>("/dead-letters/:session/:id", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const letter = await letterOf(request);
      if (letter === undefined) return undefined;
      const record = { kind: "content_shown", ...aboutOf(letter) } as const;
      const { isShown, problem } = await lookAtContent(services, view, request, record);
      return problem === undefined
        ? deadLetterPage(view, letter, isShown)
        : problemPage(view, problem);
    }),
  );
  server.get<OfLetter>("/dead-letters/:session/:id/retry", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      if (view.visitor?.role !== "operator") return problemPage(view, "viewersLook");
      const letter = await letterOf(request);
      if (letter?.kind !== "message") return undefined;
      const back = letterPath(letter.session, letter.id);
      const texts = ["againRuns", "againEffects"] as const;
      return confirmPage(view, {
        title: view.say("runAgain"),
        texts,
        path: `${back}/retry`,
        label: "runAgain",
        back,
      });
    }),
  );
  server.post("/dead-letters/:session/:id/content", toContent);
  const act = async (
    view: View,
    { session, id: letterId, kind }: DeadLetter,
    name: "retry" | "discard",
  ): Promise<Word> => {
    const again = kind === "message" ? "runsAgain" : "isSentAgain";
    const { word, result } =
      name === "retry"
        ? await order(
            services,
            view,
            { do: "retry_letter", session, letterId },
            { ...retryWords, done: again },
          )
        : await order(services, view, { do: "discard_letter", session, letterId }, discardWords);
    const action = name === "retry" ? "letter_retried" : "letter_discarded";
    if (result !== undefined) countAction(services, action, "/dead-letters");
    return word;
  };
  for (const name of ["retry", "discard"] as const) {
    server.post<OfLetter>(`/dead-letters/:session/:id/${name}`, async (request, reply) =>
      answerPage(services, request, reply, async (view) => {
        const letter = await letterOf(request);
        const note = letter === undefined ? "letterGone" : await act(view, letter, name);
        return { to: "/dead-letters", note };
      }),
    );
  }
}

function registerJobActs(server: FastifyInstance, services: Services): void {
  const { catalog, queues } = services;
  for (const name of ["retry", "discard"] as const) {
    const kind = name === "retry" ? "letter_retried" : "letter_discarded";
    const act = async (queue: string, job: string): Promise<Word> => {
      if (name === "retry") {
        return (await catalog.retryFailed(queue, job)) ? "jobRetried" : "jobGone";
      }
      return (await catalog.discardFailed(queue, job)) ? "jobDiscarded" : "jobGone";
    };
    server.post(`/dead-letters/jobs/${name}`, async (request, reply) =>
      answerPage(services, request, reply, async (view) => {
        const [queue, job] = [fieldOf(request, "queue"), fieldOf(request, "job")];
        if (queue === undefined || job === undefined || !(await queues.names()).includes(queue)) {
          return undefined;
        }
        // The audit log has a deed before it is done: whatever fails in the middle, it has a record.
        const problem = await noted(services, view, { kind, letterId: `${queue}/${job}` });
        if (problem !== undefined) return { to: "/dead-letters", note: problem };
        countAction(services, kind, "/dead-letters");
        return { to: "/dead-letters", note: await act(queue, job) };
      }),
    );
  }
}

const retryWords = {
  nothing: "letterGone",
  full: "inboxFull",
  not_possible: "approvalIsOver",
} as const;

const discardWords = { done: "letterDiscarded", nothing: "letterGone" } as const;

interface OfLetter {
  Params: { session: string; id: string };
}

const parseKey = parserOf(SessionKey);

function aboutOf({ id, session, turnId, app }: DeadLetter) {
  return {
    letterId: id,
    session,
    ...(turnId === undefined ? {} : { turnId }),
    ...(app === undefined ? {} : { app }),
  };
}

const maxLetters = 200;

/** Of each queue. */
const maxJobs = 50;

/** A job of a queue that has used up its tries. */
interface ListedJob extends FailedJob {
  queue: string;
}

interface GivenUp {
  letters: readonly DeadLetterFacts[];
  jobs: readonly ListedJob[];
  hasMore: boolean;
}

async function givenUp({ letters, catalog, queues }: Services): Promise<GivenUp> {
  const jobsOf = async (queue: string) =>
    (await catalog.failed(queue, maxJobs + 1)).map((job) => Object.assign(job, { queue }));
  const [listed, jobs] = await Promise.all([
    letters.list(maxLetters + 1),
    queues.names().then(async (names) => await Promise.all(names.map(jobsOf))),
  ]);
  return {
    letters: listed.slice(0, maxLetters),
    jobs: jobs
      .flatMap((ofQueue) => ofQueue.slice(0, maxJobs))
      .sort((one, other) => other.failedAtMs - one.failedAtMs),
    hasMore: listed.length > maxLetters || jobs.some((ofQueue) => ofQueue.length > maxJobs),
  };
}

/** Dead letters that no operator has dealt with. */
function deadLettersPage(view: View, { letters, jobs, hasMore }: GivenUp): Page {
  const { say } = view;
  const body = html`<p>${say("lettersAre")}</p>
    ${hasMore && html`<p class="note">${say("moreLetters")}</p>`}
    <h2>${say("letters")}</h2>
    ${letterTable(view, letters)}
    <h2>${say("failedJobs")}</h2>
    ${jobTable(view, jobs)}`;
  return { title: say("deadLetters"), body };
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

function letterRow(view: View, letter: DeadLetterFacts) {
  const { say } = view;
  const { id, session, kind, reason, atMs, traceId } = letter;
  return [
    html`<a href="${letterPath(session, id)}">${say(letterKinds[kind])}</a>`,
    shortSessionLink(session),
    reason,
    traceId !== undefined &&
      html`<a href="${whyPath(traceId)}"><code>${traceId.slice(0, 8)}</code></a>`,
    moment(view, atMs),
  ];
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

function jobRow(view: View, { queue, id, reason, tries, failedAtMs, isRepeatable }: ListedJob) {
  const fields = { queue, job: id };
  return [
    html`<a href="${jobPath(queue, id)}">${id}</a>`,
    queue,
    reason,
    tries,
    moment(view, failedAtMs),
    view.visitor?.role === "operator" &&
      html`<div class="row">
        ${isRepeatable && actionForm(view, { path: "/dead-letters/jobs/retry", label: "retry", fields })}
        ${actionForm(view, { path: "/dead-letters/jobs/discard", label: "discard", fields })}
      </div>`,
  ];
}

/** One thing that was given up: why, and what can be done about it. `isShown`: an operator has asked for its content. */
function deadLetterPage(view: View, letter: DeadLetter, isShown: boolean): Page {
  const { say, visitor } = view;
  const body = html`${factsOf(view, letter)}
  ${letter.kind === "approval" && html`<p>${say("approvalIsOver")}</p>`}
  ${visitor?.role === "operator" && actsOf(view, letter)} ${shownContent(view, letter, isShown)}`;
  return { title: say("deadLetter"), body, ...(isShown ? { note: "shown" as const } : {}) };
}

function contentOf(letter: DeadLetter): string | undefined {
  if (letter.kind === "reply") return letter.record.view?.answer ?? letter.record.text;
  if (letter.kind === "approval") return undefined;
  return letter.message.parts
    .map((part) => (part.type === "text" ? part.text : `[${part.type}]`))
    .join("\n");
}

function factsOf(view: View, letter: DeadLetter): Html {
  const { say } = view;
  const { session, kind, reason, atMs, app, turnId, messageId, traceId } = letter;
  return facts([
    [say("letterWhat"), say(letterKinds[kind])],
    [say("letterWhy"), reason],
    [say("givenUpAt"), moment(view, atMs)],
    [say("session"), sessionLink(session)],
    [say("app"), app],
    [say("letterTurn"), turnId],
    [say("message"), messageId],
    [
      say("trace"),
      traceId === undefined ? undefined : html`<a href="${whyPath(traceId)}">${traceId}</a>`,
    ],
    [
      say("sender"),
      letter.kind === "message"
        ? (letter.message.sender.name ?? who(letter.message.sender.id))
        : undefined,
    ],
    [say("tries"), letter.kind === "reply" ? letter.record.attempts : undefined],
    [say("cards"), letter.kind === "reply" ? letter.cards?.cards.length : undefined],
    [say("tool"), letter.kind === "approval" ? letter.tool : undefined],
  ]);
}

function actsOf(view: View, letter: DeadLetter): Html {
  const path = letterPath(letter.session, letter.id);
  return html`<div class="row">
    ${letter.kind === "reply" && actionForm(view, { path: `${path}/retry`, label: "sendAgain" })}
    ${letter.kind === "message" && html`<a class="button" href="${path}/retry">${view.say("runAgain")}…</a>`}
    ${actionForm(view, { path: `${path}/discard`, label: "discard" })}
  </div>`;
}

function shownContent(view: View, letter: DeadLetter, isShown: boolean): Html | false {
  const { say, visitor } = view;
  const content = contentOf(letter);
  if (content === undefined) return false;
  return html`<h2>${say("content")}</h2>
    ${
      isShown
        ? html`<pre>${content}</pre>`
        : html`<p class="quiet">
              ${content.length} ${say("characters")}, ${say("hidden")}. ${say("hiddenContent")}
            </p>
            ${
              visitor?.role === "operator" &&
              actionForm(view, {
                path: `${letterPath(letter.session, letter.id)}/content`,
                label: "showContent",
              })
            }`
    }`;
}
