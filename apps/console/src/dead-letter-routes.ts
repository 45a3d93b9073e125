import { parserOf, SessionKey } from "@larkline/protocol";
import type { DeadLetter } from "@larkline/store";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { confirmPage } from "./confirm-page.ts";
import { deadLetterPage } from "./dead-letter-page.ts";
import { deadLettersPage, type GivenUp } from "./dead-letters-page.ts";
import { noted, order } from "./orders.ts";
import { answerPage, fieldOf, type PagesDeps } from "./pages.ts";
import { letterPath } from "./paths.ts";
import { problemPage } from "./problem-page.ts";
import type { QueueList } from "./queue-list.ts";

import type { Word } from "./words.ts";

export interface DeadLetterDeps extends PagesDeps {
  queues: Pick<QueueList, "names">;
}

const maxLetters = 200;
/** Of each queue. */
const maxJobs = 50;

const parseKey = parserOf(SessionKey);

interface OfLetter {
  Params: { session: string; id: string };
}

async function givenUp({ backend, queues }: DeadLetterDeps): Promise<GivenUp> {
  const { letters, catalog } = backend;
  const jobsOf = async (queue: string) =>
    (await catalog.failed(queue, maxJobs + 1)).map((job) => Object.assign(job, { queue }));
  const [listed, jobs] = await Promise.all([
    letters.list(maxLetters + 1),
    queues.names().then(async (names) => await Promise.all(names.map(jobsOf))),
  ]);
  return {
    letters: listed.slice(0, maxLetters),
    jobs: jobs.flatMap((ofQueue) => ofQueue.slice(0, maxJobs)).sort((one, other) => other.failedAtMs - one.failedAtMs),
    hasMore: listed.length > maxLetters || jobs.some((ofQueue) => ofQueue.length > maxJobs),
  };
}

function aboutOf({ id, session, turnId, app }: DeadLetter) {
  return {
    letterId: id,
    session,
    ...(turnId === undefined ? {} : { turnId }),
    ...(app === undefined ? {} : { app }),
  };
}

function registerJobActs(server: FastifyInstance, deps: DeadLetterDeps): void {
  const { catalog } = deps.backend;
  const acts = {
    retry: ["letter_retried", catalog.retryFailed, "jobRetried"],
    discard: ["letter_discarded", catalog.discardFailed, "jobDiscarded"],
  } as const;
  for (const [name, [kind, act, done]] of Object.entries(acts)) {
    server.post(`/dead-letters/jobs/${name}`, async (request, reply) =>
      answerPage(deps, [request, reply], async (view) => {
        const [queue, job] = [fieldOf(request, "queue"), fieldOf(request, "job")];
        if (queue === undefined || job === undefined || !(await deps.queues.names()).includes(queue)) return undefined;
        // The audit log has a deed before it is done: whatever fails in the middle, it has a record.
        const problem = await noted(deps, { kind, letterId: `${queue}/${job}` });
        if (problem !== undefined) {
          return deadLettersPage({ ...view, url: "/dead-letters" }, await givenUp(deps), problem);
        }
        deps.onAction(kind, "/dead-letters");
        const word: Word = (await act(queue, job)) ? done : "jobGone";
        return deadLettersPage({ ...view, url: "/dead-letters" }, await givenUp(deps), word);
      }),
    );
  }
}

const retryWords = { nothing: "letterGone", full: "inboxFull", not_possible: "approvalIsOver" } as const;
const discardWords = { done: "letterDiscarded", nothing: "letterGone" } as const;

/** Adds the list of what was given up, looking into one, trying it again and doing away with it. */
export function registerDeadLetterRoutes(server: FastifyInstance, deps: DeadLetterDeps): void {
  const { backend, onAction } = deps;
  const letterOf = async ({ params: { session, id } }: FastifyRequest<OfLetter>) =>
    parseKey(session).ok ? await backend.letters.find(session, id) : undefined;

  server.get("/dead-letters", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => deadLettersPage(view, await givenUp(deps))),
  );
  registerJobActs(server, deps);
  server.get<OfLetter>("/dead-letters/:session/:id", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const letter = await letterOf(request);
      return letter && deadLetterPage(view, letter, false);
    }),
  );
  server.get<OfLetter>("/dead-letters/:session/:id/retry", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      if (view.visitor?.role !== "operator") return problemPage(view, "viewersLook");
      const letter = await letterOf(request);
      if (letter?.kind !== "message") return undefined;
      const back = letterPath(letter.session, letter.id);
      const texts = ["againRuns", "againEffects"] as const;
      return confirmPage(view, { title: view.say("runAgain"), texts, path: `${back}/retry`, label: "runAgain", back });
    }),
  );
  server.post<OfLetter>("/dead-letters/:session/:id/content", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const letter = await letterOf(request);
      if (letter === undefined) return undefined;
      // Noted before it is seen: whatever fails now, nobody has looked without a trace.
      const problem = await noted(deps, { kind: "content_shown", ...aboutOf(letter) });
      if (problem !== undefined) return problemPage(view, problem);
      onAction("content_shown", request.url);
      return deadLetterPage({ ...view, url: letterPath(letter.session, letter.id) }, letter, true);
    }),
  );
  const act = async ({ session, id: letterId, kind }: DeadLetter, name: "retry" | "discard"): Promise<Word> => {
    const again = kind === "message" ? "runsAgain" : "isSentAgain";
    const { word, result } =
      name === "retry"
        ? await order(deps, { do: "retry_letter", session, letterId }, { ...retryWords, done: again })
        : await order(deps, { do: "discard_letter", session, letterId }, discardWords);
    if (result !== undefined) onAction(name === "retry" ? "letter_retried" : "letter_discarded", "/dead-letters");
    return word;
  };
  for (const name of ["retry", "discard"] as const) {
    server.post<OfLetter>(`/dead-letters/:session/:id/${name}`, async (request, reply) =>
      answerPage(deps, [request, reply], async (view) => {
        const letter = await letterOf(request);
        const word = letter === undefined ? "letterGone" : await act(letter, name);
        return deadLettersPage({ ...view, url: "/dead-letters" }, await givenUp(deps), word);
      }),
    );
  }
}
