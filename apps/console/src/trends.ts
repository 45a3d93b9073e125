import { tokenCount, usdText } from "@larkline/agent/budgets";
import type { ReplyLanguage } from "@larkline/protocol";
import {
  countIn,
  outcomeKinds,
  quantileOf,
  timesBy,
  type TimesOf,
  usageBy,
  type UsageBucket,
  type UsageOf,
  type UsageSize,
  usageSizes,
} from "@larkline/store/operations";
import type { FastifyInstance } from "fastify";
import { barChart, lineChart, type ChartOptions, type Series } from "./chart.ts";
import { html, type Html, type HtmlValue, table, who } from "./html.ts";
import { answerPage, type Page, type View } from "./page.ts";
import { runsPath } from "./runs.ts";
import type { Services } from "./services.ts";
import { durationText } from "./why-text.ts";
import type { Word } from "./words.ts";

/** Adds the page that shows runs over time, and what models, agents, tools and people have used. */
export function registerTrends(server: FastifyInstance, services: Services): void {
  server.get<{ Querystring: { span?: unknown; refresh?: unknown } }>("/trends", async (request, reply) => {
    const { span, refresh } = request.query;
    const shown = spans.find(({ name }) => name === span) ?? spans[0];
    const isLive = refresh !== "off";
    if (isLive) reply.header("refresh", refreshSeconds);
    return await answerPage(services, request, reply, async (view) =>
      trendsPage(view, {
        shown,
        isLive,
        timeZone: services.settings.budgets.timeZone,
        ...(await readTrends(services, shown)),
      }),
    );
  });
}

/** The browser asks again by itself: no script is needed for that. */
export const refreshSeconds = 30;

interface Span {
  name: string;
  word: Word;
  size: UsageSize;
  /** Buckets, the present one included. */
  count: number;
}

export const daySpan: Span = { name: "day", word: "lastDay", size: "hour", count: 24 };

const spans: readonly [Span, ...Span[]] = [
  { name: "hour", word: "lastHour", size: "minute", count: 60 },
  daySpan,
  { name: "month", word: "lastMonth", size: "day", count: 30 },
];

/** Rows of the table of people. */
const maxPeople = 20;

interface Trends {
  buckets: readonly UsageBucket[];
  people: readonly UsageOf[];
}

async function readTrends({ usage }: Services, { size, count }: Span): Promise<Trends> {
  const [buckets, people] = await Promise.all([usage.newest(size, count), usage.people(size, count, maxPeople)]);
  return { buckets, people };
}

interface ShownTrends extends Trends {
  shown: Span;
  isLive: boolean;
  timeZone: string;
}

function trendsPage(view: View, trends: ShownTrends): Page {
  const { say } = view;
  const { buckets, shown } = trends;
  const body = html`${spanSwitch(view, trends)} ${figuresOf(view, buckets)}
    <div class="charts">${chartsOf(view, trends)}</div>
    <div class="tables">
      ${(["model", "agent"] as const).map((group) =>
        groupTable(view, group, usageBy(buckets, group), timesBy(buckets, group)),
      )}
      ${groupTable(view, "tool", usageBy(buckets, "tool"))} ${groupTable(view, "person", trends.people)}
    </div>
    <details>
      <summary>${say("allFigures")}</summary>
      ${bucketTable(view, trends)}
    </details>`;
  return { title: `${say("trends")}: ${say(shown.word)}`, body };
}

function spanSwitch({ say }: View, { shown, isLive }: ShownTrends): Html {
  const off = isLive ? "" : "&refresh=off";
  return html`<div class="row">
    <ul class="switch">
      ${spans.map(
        ({ name, word }) =>
          html`<li>
            <a href="/trends?span=${name}${off}" ${name === shown.name && html`aria-current="true"`}>${say(word)}</a>
          </li> `,
      )}
    </ul>
    <span class="quiet">
      ${
        isLive
          ? html`${say("refreshes")} <a href="/trends?span=${shown.name}&amp;refresh=off">${say("stopRefreshing")}</a>`
          : html`<a href="/trends?span=${shown.name}">${say("startRefreshing")}</a>`
      }
    </span>
  </div>`;
}

/** What all of it comes to. */
export function figuresOf(view: View, buckets: readonly UsageBucket[]): Html {
  const { say, language } = view;
  const runs = runsIn(buckets);
  const failed = countIn(buckets, "failed");
  const share = runs === 0 ? "" : ` (${percent(failed / runs)})`;
  const times = (time: "first" | "total"): string =>
    [0.5, 0.95].map((part) => timeText(language, quantileOf(buckets, time, part))).join(" / ");
  return html`<dl class="figures">
    ${[
      [say("runs"), tokenCount(runs)],
      [say("outcomeFailed"), html`<span ${failed > 0 && html`class="wrong"`}>${failed}${share}</span>`],
      [`${say("firstText")} p50 / p95`, times("first")],
      [`${say("took")} p50 / p95`, times("total")],
      [say("tokens"), tokenCount(countIn(buckets, "tokens"))],
      [say("money"), usdText(countIn(buckets, "nano") / 1e9)],
    ].map(
      ([name, value]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div> `,
    )}
  </dl>`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function runsIn(buckets: readonly UsageBucket[]): number {
  return outcomeKinds.reduce((sum, kind) => sum + countIn(buckets, kind), 0);
}

function timeText(language: ReplyLanguage, ms: number | undefined): string {
  return ms === undefined ? "–" : durationText(language, ms);
}

const outcomeSeries = [
  ["answered", "outcomeAnswered", "good"],
  ["stopped", "outcomeStopped", "quiet"],
  ["failed", "outcomeFailed", "bad"],
] as const;

/** One chart of runs. */
export function runsChart(view: View, trends: Pick<ShownTrends, "buckets" | "shown" | "timeZone">): Html {
  const { say } = view;
  const { buckets } = trends;
  return barChart({
    ...commonOf(view, trends),
    title: say("runs"),
    figure: tokenCount(runsIn(buckets)),
    format: tokenCount,
    series: outcomeSeries.map(([kind, word, tone]) => ({
      name: say(word),
      tone,
      values: buckets.map((one) => countIn([one], kind)),
    })),
  });
}

function commonOf(
  view: View,
  { buckets, shown, timeZone }: Pick<ShownTrends, "buckets" | "shown" | "timeZone">,
): Pick<ChartOptions, "times" | "empty"> {
  return {
    times: buckets.map(({ startMs }) => timeLabel(view, startMs, { shown, timeZone })),
    empty: view.say("nothingThen"),
  };
}

function chartsOf(view: View, trends: ShownTrends): Html[] {
  const { say, language } = view;
  const { buckets } = trends;
  const common = commonOf(view, trends);
  const quantiles = (time: Parameters<typeof quantileOf>[1]): Series[] =>
    (
      [
        ["p50", 0.5, "one"],
        ["p95", 0.95, "two"],
      ] as const
    ).map(([name, part, tone]) => ({
      name,
      tone,
      values: buckets.map((one) => quantileOf([one], time, part)),
    }));
  const duration = (ms: number): string => durationText(language, ms);
  const times = (title: Word, time: Parameters<typeof quantileOf>[1]): Html =>
    lineChart({ ...common, title: say(title), format: duration, series: quantiles(time) });
  const sums = (title: Word, field: string, format: (value: number) => string): Html =>
    barChart({
      ...common,
      title: say(title),
      format,
      figure: format(countIn(buckets, field)),
      series: [{ name: say(title), tone: "one", values: buckets.map((one) => countIn([one], field)) }],
    });
  return [
    runsChart(view, trends),
    times("firstText", "first"),
    times("took", "total"),
    times("queueAge", "queued"),
    sums("tokens", "tokens", tokenCount),
    sums("money", "nano", (nano) => usdText(nano / 1e9)),
    sums("limiterWaits", "limiter-ms", duration),
  ];
}

function timeLabel(
  { language }: View,
  startMs: number,
  { shown, timeZone }: Pick<ShownTrends, "shown" | "timeZone">,
): string {
  const locale = language === "zh" ? "zh-CN" : "en-GB";
  const day = { month: "numeric", day: "numeric" } as const;
  const hour = { hour: "2-digit", minute: "2-digit" } as const;
  return new Intl.DateTimeFormat(locale, { timeZone, ...(shown.size === "day" ? day : hour) }).format(startMs);
}

const groupWords = { model: "byModel", agent: "byAgent", tool: "byTool", person: "byPerson" } as const;

function groupTable(
  view: View,
  group: keyof typeof groupWords,
  all: readonly UsageOf[],
  times?: ReadonlyMap<string, TimesOf>,
): Html | false {
  const { say, language } = view;
  if (all.length === 0) return false;
  const isTool = group === "tool";
  const timeOf = (name: string, time: keyof TimesOf): string =>
    [0.5, 0.95].map((share) => timeText(language, times?.get(name)?.[time](share))).join(" / ");
  const cells = ({ name, runs, failed, tokens, usd }: UsageOf): HtmlValue[] => [
    tokenCount(runs),
    ...(group === "person"
      ? []
      : [failed === 0 ? "0" : html`<span class="wrong">${failed} (${percent(failed / runs)})</span>`]),
    ...(times === undefined ? [] : [timeOf(name, "first"), timeOf(name, "total")]),
    ...(isTool ? [] : [tokenCount(tokens), usdText(usd)]),
  ];
  return html`<section>
    <h2>${say(groupWords[group])}</h2>
    ${table({
      caption: say(groupWords[group]),
      columns: [
        say(group),
        say(isTool ? "callCount" : "runs"),
        ...(group === "person" ? [] : [say("outcomeFailed")]),
        ...(times === undefined ? [] : [`${say("firstText")} p50 / p95`, `${say("took")} p50 / p95`]),
        ...(isTool ? [] : [say("tokens"), say("money")]),
      ],
      rows: all.map((one) => [
        html`<a href="${runsPath({ [group]: one.name })}">${group === "person" ? who(one.name) : one.name}</a>`,
        ...cells(one),
      ]),
    })}
  </section>`;
}

/** Everything that the charts show, in figures. */
function bucketTable(view: View, { buckets, shown, timeZone }: ShownTrends): Html {
  const { say, language } = view;
  const time = (bucket: UsageBucket, which: Parameters<typeof quantileOf>[1]): string =>
    [0.5, 0.95].map((part) => timeText(language, quantileOf([bucket], which, part))).join(" / ");
  return table({
    caption: say("allFigures"),
    columns: [
      say("since"),
      ...outcomeSeries.map(([, word]) => say(word)),
      `${say("firstText")} p50 / p95`,
      `${say("took")} p50 / p95`,
      `${say("queueAge")} p50 / p95`,
      say("tokens"),
      say("money"),
      say("limiterWaits"),
    ],
    rows: buckets
      .toReversed()
      .map((bucket) => [
        html`<a
          href="${runsPath({ from: String(bucket.startMs), to: String(bucket.startMs + usageSizes[shown.size].ms) })}"
          >${timeLabel(view, bucket.startMs, { shown, timeZone })}</a
        >`,
        ...outcomeSeries.map(([kind]) => countIn([bucket], kind)),
        time(bucket, "first"),
        time(bucket, "total"),
        time(bucket, "queued"),
        tokenCount(countIn([bucket], "tokens")),
        usdText(countIn([bucket], "nano") / 1e9),
        timeText(language, countIn([bucket], "limiter-ms")),
      ]),
  });
}
