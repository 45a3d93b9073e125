import { placeOfRun, type Rating, type RatingWord, ratingWords } from "@larkline/store/operations";
import type { FastifyInstance } from "fastify";
import {
  html,
  type Html,
  type HtmlValue,
  moment,
  nameOf,
  nameText,
  table,
  toolNamed,
  who,
} from "./html.ts";
import {
  actionForm,
  answerPage,
  lookAtContent,
  type Page,
  problemPage,
  type View,
} from "./page.ts";
import { type Choice, field, runsPath, select } from "./runs.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

/** Adds the page of what people say of answers. Reasons are content: operators see them, and each look has a record. */
export function registerFeedback(server: FastifyInstance, services: Services): void {
  server.get<Query>("/feedback", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const record = { kind: "content_shown" } as const;
      const { isShown, problem } = await lookAtContent(services, view, request, record);
      if (problem !== undefined) return problemPage(view, problem);
      const shown = { ...(await shownOf(services, request.query)), hasReasons: isShown };
      return { ...feedbackPage(view, shown), ...(isShown && { note: "shown" as const }) };
    }),
  );
  server.post<Query>("/feedback/reasons", async (request, reply) => {
    const path = feedbackPath(filtersIn(request.query));
    return await reply.redirect(`${path}${path.includes("?") ? "&" : "?"}content=shown`, 303);
  });
}

interface Query {
  Querystring: Readonly<Record<string, unknown>>;
}

const perPage = 50;
/** Ratings that one page counts. */
const maxLooked = 20_000;
const longestFilter = 240;
const spans = { day: 86_400_000, week: 7 * 86_400_000, month: 30 * 86_400_000 } as const;
const spanWords = {
  day: "lastDay",
  week: "lastWeek",
  month: "lastMonth",
} as const satisfies Record<string, Word>;

/** What a visitor has asked for, as it is in the address. */
const filterNames = ["rating", "agent", "model", "tool", "person", "span", "from"] as const;
type Filters = Partial<Record<(typeof filterNames)[number], string>>;

function filtersIn(query: Query["Querystring"]): Filters {
  const given = filterNames.map((name) => [name, query[name]] as const);
  const texts = given.flatMap(([name, value]) =>
    typeof value === "string" && value.trim() !== ""
      ? [[name, value.trim().slice(0, longestFilter)] as const]
      : [],
  );
  return Object.fromEntries(texts);
}

function feedbackPath(filters: Filters, path = "/feedback"): string {
  const query = new URLSearchParams(filters).toString();
  return query === "" ? path : `${path}?${query}`;
}

/** What one page shows: all that fits the filters is counted, and some of it listed. */
interface Shown {
  filters: Filters;
  ratings: Rating[];
  /** There are older ones that were not looked at. */
  isCut: boolean;
  agents: readonly string[];
  hasReasons: boolean;
}

async function shownOf(
  { clock, ratings: store, settings }: Services,
  query: Query["Querystring"],
): Promise<Shown> {
  const filters = filtersIn(query);
  const spanMs = Object.entries(spans).find(([name]) => name === filters.span)?.[1];
  const sinceMs = spanMs === undefined ? 0 : clock.now() - spanMs;
  const ratings: Rating[] = [];
  let looked = 0;
  for await (const rating of store.newest(maxLooked)) {
    looked += 1;
    if (rating.atMs < sinceMs) break;
    if (fits(rating, filters)) ratings.push(rating);
  }
  return {
    filters,
    ratings,
    isCut: looked >= maxLooked,
    agents: Object.keys(settings.agents),
    hasReasons: false,
  };
}

function fits(given: Rating, { rating, agent, model, tool, person }: Filters): boolean {
  return (
    (rating === undefined || rating === given.rating) &&
    (agent === undefined || agent === given.agent) &&
    (model === undefined || given.model.includes(model)) &&
    (tool === undefined || given.tools.includes(tool)) &&
    (person === undefined || person === given.person)
  );
}

function feedbackPage(view: View, shown: Shown): Page {
  const { say } = view;
  const { filters, ratings, isCut } = shown;
  const isFiltered = Object.keys(filters).length > 0;
  const body = html`${filterForm(view, shown)}
  ${isCut && html`<p class="note">${say("lookedFarEnough")}</p>`}
  ${
    ratings.length === 0
      ? html`<p class="quiet" role="status">
          ${say(isFiltered ? "noFeedbackFits" : "noFeedback")}
        </p>`
      : html`${totalsTable(
          view,
          "agent",
          countsBy(ratings, ({ agent }) => [agent]),
        )}
        ${totalsTable(
          view,
          "model",
          countsBy(ratings, ({ model }) => [model]),
        )}
        ${totalsTable(
          view,
          "tool",
          countsBy(ratings, ({ tools }) => tools),
        )}
        ${ratingTable(view, shown)} ${pager(view, shown)}`
  }`;
  return { title: say("feedback"), body };
}

function filterForm({ say }: View, { filters, agents }: Shown): Html {
  const kinds = ratingWords.map((word): Choice => [word, say(kindWords[word])]);
  const times = Object.entries(spanWords).map(([name, word]): Choice => [name, say(word)]);
  const names = agents.map((name): Choice => [name, name]);
  return html`<form action="/feedback" role="search" class="filters">
    ${select("rating", say("rating"), filters.rating, [["", say("anyRating")], ...kinds])}
    ${select("span", say("since"), filters.span, [["", say("allKept")], ...times])}
    ${select("agent", say("agent"), filters.agent, [["", say("anyAgent")], ...names])}
    ${(["model", "tool"] as const).map((name) => field(name, say(name), filters[name]))}
    ${field("person", html`${say("person")} ${nameOf(filters.person ?? "")}`, filters.person)}
    <div class="row">
      <button>${say("applyFilters")}</button>
      ${Object.keys(filters).length > 0 && html`<a href="/feedback">${say("clearFilters")}</a>`}
    </div>
  </form>`;
}

const kindWords = { up: "ratedUp", down: "ratedDown", none: "ratedNone" } as const satisfies Record<
  RatingWord,
  Word
>;
/** As the list of runs colours its outcomes. */
const kindClasses: Readonly<Record<RatingWord, string>> = {
  up: "answered",
  down: "failed",
  none: "stopped",
};

type Counts = Readonly<Record<RatingWord, number>>;

/** How often each name was rated, those with most ratings first. */
function countsBy(
  ratings: readonly Rating[],
  namesOf: (rating: Rating) => readonly string[],
): [string, Counts][] {
  const counts = new Map<string, Record<RatingWord, number>>();
  for (const rating of ratings) {
    for (const name of namesOf(rating)) {
      if (name === "") continue;
      const known = counts.get(name) ?? { up: 0, down: 0, none: 0 };
      known[rating.rating] += 1;
      counts.set(name, known);
    }
  }
  const allOf = ({ up, down, none }: Counts): number => up + down + none;
  return [...counts].sort(([, one], [, other]) => allOf(other) - allOf(one));
}

const maxTotals = 20;

function totalsTable(
  { say }: View,
  name: "agent" | "model" | "tool",
  counts: readonly [string, Counts][],
): HtmlValue {
  if (counts.length === 0) return undefined;
  return table({
    caption: say(name),
    columns: [say(name), say("ratedUp"), say("ratedDown"), say("goodShare")],
    rows: counts
      .slice(0, maxTotals)
      .map(([each, { up, down }]) => [
        html`<a href="${feedbackPath({ [name]: each })}"
          >${name === "tool" ? toolNamed(each) : each}</a
        >`,
        up,
        down,
        up + down === 0 ? "–" : `${Math.round((100 * up) / (up + down))} %`,
      ]),
  });
}

function ratingTable(view: View, { filters, ratings, hasReasons }: Shown): Html {
  const { say } = view;
  const from = startOf(filters);
  return html`${table({
    caption: say("feedback"),
    columns: [
      say("rated"),
      say("rating"),
      say("person"),
      say("agent"),
      say("model"),
      say("tools"),
      say("reason"),
    ],
    rows: ratings
      .slice(from, from + perPage)
      .map(({ turn, rating, person, agent, model, tools, reason, atMs }) => [
        html`<a href="${runsPath({ q: turn })}" title="${nameText(placeOfRun({ turn }).chat)}"
          >${moment(view, atMs)}</a
        >`,
        html`<span class="pill ${kindClasses[rating]}">${say(kindWords[rating])}</span>`,
        html`<a href="${feedbackPath({ person })}">${who(person)}</a>`,
        agent,
        model,
        tools.length === 0
          ? "–"
          : tools.map((tool, at) => html`${at > 0 && ", "}${toolNamed(tool)}`),
        reason === undefined ? "–" : hasReasons ? reason : say("reasonHidden"),
      ]),
  })}
  ${
    !hasReasons &&
    ratings.some(({ reason }) => reason !== undefined) &&
    view.visitor?.role === "operator" &&
    html`<div class="row">
      ${actionForm(view, { path: feedbackPath(filters, "/feedback/reasons"), label: "showReasons" })}
    </div>`
  }`;
}

function startOf({ from }: Filters): number {
  return /^\d{1,6}$/.test(from ?? "") ? Number(from) : 0;
}

function pager({ say }: View, { filters, ratings }: Shown): HtmlValue {
  const { from: _from, ...rest } = filters;
  const start = startOf(filters);
  const next = start + perPage;
  return html`<div class="row">
    ${start > 0 && html`<a class="button" href="${feedbackPath(rest)}">${say("newestRuns")}</a>`}
    ${
      next < ratings.length &&
      html`<a class="button" rel="next" href="${feedbackPath({ ...rest, from: String(next) })}"
        >${say("olderRuns")}</a
      >`
    }
  </div>`;
}
