import { tokenCount } from "@larkline/agent/budgets";
import { isChildSession } from "@larkline/protocol";
import {
  outcomeKind,
  outcomeKinds,
  placeOfRun,
  sessionOfRun,
  type OutcomeKind,
  type RunPage,
  type RunQuery,
  type RunRecord,
} from "@larkline/store/operations";
import type { FastifyInstance } from "fastify";
import { html, type Html, type HtmlValue, moment, nameOf, table, toolNamed, who } from "./html.ts";
import { fingerprintOf, outcomeText } from "./errors.ts";
import {
  actionForm,
  answerPage,
  lookAtContent,
  type Page,
  problemPage,
  toContent,
  type View,
  whyPath,
} from "./page.ts";
import { longestSearch, meantBy } from "./search.ts";
import type { Services } from "./services.ts";
import { durationText } from "./why-text.ts";
import type { Word } from "./words.ts";

/** Adds the list of runs; each leads to what is known of it. What was asked is shown to operators who ask for it. */
export function registerRuns(server: FastifyInstance, services: Services): void {
  server.get<{ Querystring: Readonly<Record<string, unknown>> }>("/runs", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const filters = filtersIn(request.query);
      const look = services.settings.keepsQuestions
        ? await lookAtContent(services, view, request, { kind: "content_shown" })
        : { isShown: false };
      if (look.problem !== undefined) return problemPage(view, look.problem);
      const meant = meantBy(filters.q ?? "");
      const named = meant === "" ? [] : await services.names.find(meant, maxNamed);
      const { code, perUsd } = services.settings.currency ?? { code: "USD", perUsd: 1 };
      const query = queryOf(filters, [meant, ...named], { nowMs: view.nowMs, perUsd });
      const page = await services.runs.page({ ...query, inContent: look.isShown });
      const agents = Object.keys(services.settings.agents);
      const { keepsQuestions } = services.settings;
      return runsPage(view, { filters, page, agents, currency: code, keepsQuestions, ...look });
    }),
  );
  server.post("/runs/content", toContent);
}

const perPage = 50;
const longestFilter = 240;
/** People and chats that a name stands for. */
const maxNamed = 50;
const spans = { hour: 3_600_000, day: 86_400_000 } as const;
const spanWords = { hour: "lastHour", day: "lastDay" } as const satisfies Record<
  keyof typeof spans,
  Word
>;

/** What a visitor has asked for, as it is in the address. Empty: everything. */
const filterNames = [
  "q",
  "outcome",
  "error",
  "agent",
  "model",
  "tool",
  "person",
  "chat",
  "longer",
  "dearer",
  "span",
  "from",
  "to",
  "after",
] as const;
type Filters = Partial<Record<(typeof filterNames)[number], string>>;

function filtersIn(query: Readonly<Record<string, unknown>>): Filters {
  const given = filterNames.map((name) => [name, query[name]] as const);
  const texts = given.flatMap(([name, value]) =>
    typeof value === "string" && value.trim() !== ""
      ? [[name, value.trim().slice(0, name === "q" ? longestSearch : longestFilter)] as const]
      : [],
  );
  return Object.fromEntries(texts);
}

/** The list with these filters. */
export function runsPath(filters: Filters & { content?: string }): string {
  const query = new URLSearchParams(filters).toString();
  return query === "" ? "/runs" : `/runs?${query}`;
}

/**
 * `texts`: what is looked for, and ids of people and chats whose names have it in them. `perUsd`: how much a US dollar
 * is of the currency in which the filters say sums.
 */
function queryOf(
  { q, span, from, to, after, ...filters }: Filters,
  texts: readonly string[],
  { nowMs, perUsd }: { nowMs: number; perUsd: number },
): RunQuery {
  const spanMs = Object.entries(spans).find(([name]) => name === span)?.[1];
  const sinceMs = spanMs === undefined ? numberOf(from) : nowMs - spanMs;
  const untilMs = numberOf(to);
  return {
    limit: perPage,
    matches: (run) => fits(run, filters, perUsd),
    ...(q === undefined ? {} : { texts }),
    ...(sinceMs === undefined ? {} : { sinceMs }),
    ...(untilMs === undefined ? {} : { untilMs }),
    ...(after === undefined ? {} : { after }),
  };
}

function numberOf(text: string | undefined): number | undefined {
  const number = Number(text ?? Number.NaN);
  return Number.isFinite(number) && number >= 0 ? number : undefined;
}

function fits(
  run: RunRecord,
  { outcome, error, agent, model, tool, person, chat, longer, dearer }: Filters,
  perUsd: number,
): boolean {
  const place = placeOfRun(run);
  return (
    (outcome === undefined || outcome === run.outcome || outcome === outcomeKind(run.outcome)) &&
    (error === undefined || error === fingerprintOf(run)) &&
    (agent === undefined || agent === run.agent) &&
    (model === undefined || run.model.includes(model)) &&
    (tool === undefined || Object.hasOwn(run.tools ?? {}, tool)) &&
    (person === undefined || person === run.person) &&
    (chat === undefined || chat === place.chat) &&
    run.ms > (numberOf(longer) ?? -1) * 1_000 &&
    run.usd * perUsd > (numberOf(dearer) ?? -1)
  );
}

interface ShownRuns {
  filters: Filters;
  page: RunPage;
  /** Names of the agents that are configured. */
  agents: readonly string[];
  /** The code of the currency in which sums are shown. */
  currency: string;
  /** Whether records have content, and whether this visitor has asked for it. */
  keepsQuestions: boolean;
  isShown: boolean;
}

function runsPage(view: View, shown: ShownRuns): Page {
  const { say } = view;
  const { filters, page, isShown } = shown;
  const isFiltered = Object.keys(filters).length > 0;
  const body = html`${filterForm(view, shown)} ${contentButton(view, shown)}
  ${page.runs.length === 0 && html`<p class="quiet" role="status">${say(isFiltered ? "noRuns" : "noRunsYet")}</p>`}
  ${
    page.runs.length === 0 &&
    filters.q !== undefined &&
    html`<p>${say("runsHaveEnded")} <a href="${whyPath(filters.q)}">${say("why")}</a></p>`
  }
  ${page.runs.length > 0 && runTable(view, page.runs, isShown)} ${pager(view, shown)}`;
  return { title: say("runs"), body, ...(isShown && { note: "shown" as const }) };
}

/** Shows what was asked, and finds by it. */
function contentButton(view: View, { filters, keepsQuestions, isShown }: ShownRuns): Html | false {
  if (!keepsQuestions || isShown || view.visitor?.role !== "operator") return false;
  const path = runsPath(filters).replace("/runs", "/runs/content");
  return html`<div class="row">
    ${actionForm(view, { path, label: "showQuestions" })}
    <span class="quiet">${view.say("questionsAre")}</span>
  </div>`;
}

function filterForm(view: View, { filters, agents, currency, isShown }: ShownRuns): Html {
  const { say } = view;
  const { from, to } = filters;
  const outcomes = outcomeKinds.map((kind): Choice => [kind, say(kindWords[kind])]);
  const times = Object.keys(spans).map((name): Choice => [
    name,
    say(spanWords[name as keyof typeof spans]),
  ]); // its keys
  const isFiltered = Object.keys(filters).length > 0;
  return html`<form action="/runs" role="search" class="filters">
    <div class="field wider">
      <label for="q">${say("runsSearch")}</label>
      <input
        id="q"
        name="q"
        value="${filters.q ?? ""}"
        maxlength="${longestSearch}"
        aria-describedby="q-hint"
      />
      <span class="quiet" id="q-hint">${say("runsHint")}</span>
    </div>
    ${select("outcome", say("outcome"), filters.outcome, [["", say("anyOutcome")], ...outcomes])}
    ${select("span", say("since"), filters.span, [["", say("allKept")], ...times])}
    ${select("agent", say("agent"), filters.agent, [["", say("anyAgent")], ...agents.map((name): Choice => [name, name])])}
    ${(["model", "tool"] as const).map((name) => field(name, say(name), filters[name]))}
    ${(["person", "chat"] as const).map((name) => field(name, html`${say(name)} ${nameOf(filters[name] ?? "")}`, filters[name]))}
    ${numberField("longer", say("longerThan"), filters.longer)}
    ${numberField("dearer", `${say("dearerThan")} (${currency})`, filters.dearer)}
    ${(from ?? to) !== undefined && html`<p class="quiet field wider">${say("spanOfChart")}</p>`}
    ${from !== undefined && html`<input type="hidden" name="from" value="${from}" />`}
    ${to !== undefined && html`<input type="hidden" name="to" value="${to}" />`}
    ${filters.error !== undefined && html`<input type="hidden" name="error" value="${filters.error}" />`}
    ${isShown && html`<input type="hidden" name="content" value="shown" />`}
    <div class="row">
      <button>${say("applyFilters")}</button>
      ${isFiltered && html`<a href="/runs">${say("clearFilters")}</a>`}
    </div>
  </form>`;
}

/** One of a field of choices. */
export type Choice = readonly [value: string, text: string];

/** A field of choices in a form of filters. */
export function select(
  name: string,
  label: string,
  chosen: string | undefined,
  choices: readonly Choice[],
): Html {
  // An outcome that the form does not offer, from a link.
  const known = chosen === undefined || choices.some(([value]) => value === chosen);
  const all = known ? choices : [...choices, [chosen, chosen] as const];
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <select id="${name}" name="${name}">
      ${all.map(
        ([value, text]) =>
          html`<option value="${value}" ${value === (chosen ?? "") && html`selected`}>
            ${text}
          </option> `,
      )}
    </select>
  </div>`;
}

/** A field of text in a form of filters. */
export function field(name: string, label: string | Html, value = ""): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input id="${name}" name="${name}" value="${value}" maxlength="${longestFilter}" />
  </div>`;
}

function numberField(name: string, label: string, value = ""): Html {
  return html`<div class="field narrow">
    <label for="${name}">${label}</label>
    <input id="${name}" name="${name}" value="${value}" type="number" min="0" step="any" />
  </div>`;
}

function pager({ say }: View, { filters, page, isShown }: ShownRuns): Html {
  const { after, ...others } = filters;
  const rest = { ...others, ...(isShown && { content: "shown" }) };
  const isCut = page.next !== undefined && page.runs.length < perPage;
  return html`${isCut && html`<p class="note">${say("lookedFarEnough")}</p>`}
    <div class="row">
      ${after !== undefined && html`<a class="button" href="${runsPath(rest)}">${say("newestRuns")}</a>`}
      ${
        page.next !== undefined &&
        html`<a class="button" rel="next" href="${runsPath({ ...rest, after: page.next })}"
          >${say("olderRuns")}</a
        >`
      }
    </div>`;
}

/** The runs of a list, each with a way to what is known of it. `isShown`: with what was asked. */
export function runTable(view: View, runs: readonly RunRecord[], isShown = false): Html {
  const { say, language } = view;
  return table({
    caption: say("runs"),
    columns: [
      say("ended"),
      ...(isShown ? [say("question")] : []),
      say("outcome"),
      say("person"),
      say("chat"),
      say("agent"),
      say("model"),
      say("tools"),
      say("firstText"),
      say("took"),
      say("tokensInOut"),
      say("cost"),
    ],
    rows: runs.map((run) => [
      html`<a href="${whyPath(run.trace)}">${moment(view, run.endedAtMs)}</a>`,
      ...(isShown ? [run.asked ?? "–"] : []),
      html`${outcomePill(view, run.outcome)}${problemsOf(run, isShown)}`,
      filterLink({ person: run.person }),
      filterLink({ chat: placeOfRun(run).chat }),
      agentOf(view, run),
      run.model,
      toolsText(run),
      run.firstMs === undefined ? "–" : durationText(language, run.firstMs),
      durationText(language, run.ms),
      `${tokenCount(run.input)} / ${tokenCount(run.output)}`,
      view.money(run.usd),
    ]),
  });
}

/** What the vendor said, and what a failed call said. */
function problemsOf({ problem, toolProblem }: RunRecord, isShown: boolean): Html[] {
  return [problem, isShown ? toolProblem : undefined].flatMap((text) =>
    text === undefined ? [] : [html` <span class="quiet">${text}</span>`],
  );
}

/** The agent, with its version where operators have changed it. */
function agentOf({ say }: View, run: RunRecord): string {
  const name = isChildSession(sessionOfRun(run)) ? `↳ ${run.agent}` : run.agent;
  return run.version === undefined ? name : `${name}, ${say("version")} ${run.version}`;
}

const kindWords = {
  answered: "outcomeAnswered",
  stopped: "outcomeStopped",
  failed: "outcomeFailed",
} as const satisfies Record<OutcomeKind, Word>;

/** What became of a run; failures in words. */
function outcomePill({ say, language }: View, outcome: string): Html {
  const kind = outcomeKind(outcome);
  const usual = outcome === "" || outcome === "answered" || outcome === "cancelled";
  const text = usual ? say(kindWords[kind]) : outcomeText(outcome, language);
  return html`<span class="pill ${kind}" title="${outcome}">${text}</span>`;
}

function filterLink(filters: Filters): HtmlValue {
  const [id = ""] = Object.values(filters);
  return id === "" ? "–" : html`<a href="${runsPath(filters)}">${who(id)}</a>`;
}

function toolsText({ tools, failedTools = {} }: RunRecord): HtmlValue {
  if (tools === undefined) return "–";
  return Object.entries(tools).map(([name, count], at) => {
    const failed = failedTools[name] ?? 0;
    return html`${at > 0 && ", "}<span ${failed > 0 && html`class="wrong"`}>${toolNamed(name)}</span
      >${count > 1 && ` ×${count}`}`;
  });
}
