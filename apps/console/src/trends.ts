import { tokenCount } from "@larkline/agent/budgets";
import type { ReplyLanguage } from "@larkline/protocol";
import {
  countIn,
  outcomeKinds,
  quantileOf,
  timesBy,
  type TimesOf,
  usageBy,
  type UsageBucket,
  usageField,
  type UsageGroup,
  type UsageOf,
  type UsageSize,
  usageSizes,
} from "@larkline/store/operations";
import type { FastifyInstance } from "fastify";
import { barChart, lineChart, type ChartOptions, type Series } from "./chart.ts";
import {
  html,
  type Html,
  type HtmlValue,
  nameText,
  table,
  toolNamed,
  toolNameText,
  who,
} from "./html.ts";
import { answerPage, type Page, type View } from "./page.ts";
import { runsPath } from "./runs.ts";
import type { Services } from "./services.ts";
import { durationText } from "./why-text.ts";
import type { Word } from "./words.ts";

/** Adds the page that shows runs over time, and what models, agents, tools and people have used. */
export function registerTrends(server: FastifyInstance, services: Services): void {
  server.get<{ Querystring: { span?: unknown; by?: unknown; refresh?: unknown } }>(
    "/trends",
    async (request, reply) => {
      const { span, by: group, refresh } = request.query;
      const shown = spans.find(({ name }) => name === span) ?? spans[0];
      const by = groups.find((name) => name === group);
      const isLive = refresh !== "off";
      if (isLive) reply.header("refresh", refreshSeconds);
      return await answerPage(services, request, reply, async (view) =>
        trendsPage(view, {
          shown,
          by,
          isLive,
          timeZone: services.settings.budgets.timeZone,
          ...(await readTrends(services, shown)),
        }),
      );
    },
  );
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

const groups = ["model", "agent", "tool", "person"] as const satisfies readonly UsageGroup[];

/** People that are read of each bucket, and rows of their table. */
const maxRead = 100;
const maxPeople = 20;

interface Trends {
  buckets: readonly UsageBucket[];
  /** What people have used, in the same buckets. */
  people: readonly UsageBucket[];
}

async function readTrends({ usage }: Services, { size, count }: Span): Promise<Trends> {
  const [buckets, people] = await Promise.all([
    usage.newest(size, count),
    usage.people(size, count, maxRead),
  ]);
  return { buckets, people };
}

interface ShownTrends extends Trends {
  shown: Span;
  /** By what tokens and money are drawn; undefined: all together. */
  by: UsageGroup | undefined;
  isLive: boolean;
  timeZone: string;
}

/** The page with something else chosen. */
function trendsPath(
  { shown, by, isLive }: ShownTrends,
  other: { span?: string; by?: string; refresh?: string },
): string {
  const chosen = { span: shown.name, by: by ?? "", refresh: isLive ? "" : "off", ...other };
  const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value !== ""));
  return `/trends?${query.toString()}`;
}

function trendsPage(view: View, trends: ShownTrends): Page {
  const { say } = view;
  const { buckets, shown, by } = trends;
  const body = html`${spanSwitch(view, trends)} ${figuresOf(view, buckets)}
    <div class="charts">${chartsOf(view, trends)}</div>
    ${splitSwitch(view, trends)}
    <div class="charts">${useCharts(view, trends)}</div>
    ${by === "tool" && html`<p class="quiet">${say("useOfTool")}</p>`}
    <div class="tables">${groups.map((group) => groupTable(view, trends, group))}</div>
    <details>
      <summary>${say("allFigures")}</summary>
      ${bucketTable(view, trends)}
    </details>`;
  return { title: `${say("trends")}: ${say(shown.word)}`, body };
}

function spanSwitch({ say }: View, trends: ShownTrends): Html {
  const { shown, isLive } = trends;
  return html`<div class="row">
    ${switchOf(spans.map(({ name, word }) => ({ path: trendsPath(trends, { span: name }), text: say(word), isChosen: name === shown.name })))}
    <span class="quiet">
      ${
        isLive
          ? html`${say("refreshes")}
              <a href="${trendsPath(trends, { refresh: "off" })}">${say("stopRefreshing")}</a>`
          : html`<a href="${trendsPath(trends, { refresh: "" })}">${say("startRefreshing")}</a>`
      }
    </span>
  </div>`;
}

function switchOf(choices: readonly { path: string; text: string; isChosen: boolean }[]): Html {
  return html`<ul class="switch">
    ${choices.map(
      ({ path, text, isChosen }) =>
        html`<li><a href="${path}" ${isChosen && html`aria-current="true"`}>${text}</a></li> `,
    )}
  </ul>`;
}

function splitSwitch({ say }: View, trends: ShownTrends): Html {
  const choices = [undefined, ...groups].map((group) => ({
    path: `${trendsPath(trends, { by: group ?? "" })}#split`,
    text: say(group === undefined ? "inAll" : groupWords[group]),
    isChosen: group === trends.by,
  }));
  return html`<div class="row" id="split">
    <h2>${say("splitBy")}</h2>
    ${switchOf(choices)}
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
      [
        say("outcomeFailed"),
        html`<span ${failed > 0 && html`class="wrong"`}>${failed}${share}</span>`,
      ],
      [`${say("firstText")} p50 / p95`, times("first")],
      [`${say("took")} p50 / p95`, times("total")],
      [say("tokens"), tokenCount(countIn(buckets, "tokens"))],
      [say("money"), view.money(countIn(buckets, "nano") / 1e9)],
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
export function runsChart(
  view: View,
  trends: Pick<ShownTrends, "buckets" | "shown" | "timeZone">,
): Html {
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
): Pick<ChartOptions, "times" | "timeZone" | "empty"> {
  return {
    times: buckets.map(({ startMs }) => timeLabel(view, startMs, { shown, timeZone })),
    timeZone,
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
  return [
    runsChart(view, trends),
    times("firstText", "first"),
    times("took", "total"),
    times("queueAge", "queued"),
    sumChart(view, trends, { title: "limiterWaits", field: "limiter-ms", format: duration }),
  ];
}

interface Sum {
  title: Word;
  field: string;
  format(value: number): string;
}

function sumChart(view: View, trends: ShownTrends, { title, field, format }: Sum): Html {
  const { buckets } = trends;
  const name = view.say(title);
  return barChart({
    ...commonOf(view, trends),
    title: name,
    format,
    figure: format(countIn(buckets, field)),
    series: [{ name, tone: "one", values: buckets.map((one) => countIn([one], field)) }],
  });
}

/** Tokens and money, all together or by what was chosen. */
function useCharts(view: View, trends: ShownTrends): Html[] {
  const sums = [
    { title: "tokens", field: "tokens", format: tokenCount },
    { title: "money", field: "nano", format: (nano: number) => view.money(nano / 1e9) },
  ] as const;
  const { by } = trends;
  return sums.map((sum) =>
    by === undefined ? sumChart(view, trends, sum) : splitChart(view, trends, { ...sum, by }),
  );
}

/** How a group's members are named where they are not called by what they are. */
const shownForms: Partial<Record<UsageGroup, (name: string) => Html>> = {
  person: who,
  tool: toolNamed,
};
/** The same in plain texts. */
const textForms: Partial<Record<UsageGroup, (name: string) => Html>> = {
  person: nameText,
  tool: toolNameText,
};
const splitTones = ["one", "two", "three", "four"] as const;

/** The biggest few, and all others together. Runs that call several tools count with each: those are not added up. */
function splitChart(
  view: View,
  trends: ShownTrends,
  { title, field, format, by }: Sum & { field: "tokens" | "nano"; by: UsageGroup },
): Html {
  const { say } = view;
  const { buckets } = trends;
  const { uses, from } = usesBy(trends, by);
  const biggest = uses.toSorted((one, other) =>
    field === "nano" ? other.usd - one.usd : other.tokens - one.tokens,
  );
  const series = splitTones.flatMap((tone, at): Series[] => {
    const { name } = biggest[at] ?? {};
    if (name === undefined) return [];
    const values = from.map((one) => countIn([one], usageField(by, field, name)));
    return [{ name: textForms[by]?.(name) ?? name, tone, values }];
  });
  const others = buckets.map((one, at) =>
    Math.max(
      0,
      series.reduce((rest, { values }) => rest - (values[at] ?? 0), countIn([one], field)),
    ),
  );
  const common = {
    ...commonOf(view, trends),
    title: `${say(title)} · ${say(groupWords[by])}`,
    format,
  };
  if (by === "tool") return lineChart({ ...common, series });
  const hasOthers = others.some((value) => value > 0);
  return barChart({
    ...common,
    series: hasOthers
      ? [...series, { name: say("others"), tone: "quiet", values: others }]
      : series,
  });
}

/** What each of a group has used, the biggest first, and the buckets that say so. */
function usesBy(
  { buckets, people }: Trends,
  group: UsageGroup,
): { uses: UsageOf[]; from: readonly UsageBucket[] } {
  const from = group === "person" ? people : buckets;
  return { uses: usageBy(from, group), from };
}

function timeLabel(
  { language }: View,
  startMs: number,
  { shown, timeZone }: Pick<ShownTrends, "shown" | "timeZone">,
): string {
  const locale = language === "zh" ? "zh-CN" : "en-GB";
  const day = { month: "numeric", day: "numeric" } as const;
  const hour = { hour: "2-digit", minute: "2-digit" } as const;
  return new Intl.DateTimeFormat(locale, {
    timeZone,
    ...(shown.size === "day" ? day : hour),
  }).format(startMs);
}

const groupWords = {
  model: "byModel",
  agent: "byAgent",
  tool: "byTool",
  person: "byPerson",
} as const;

function groupTable(view: View, trends: ShownTrends, group: UsageGroup): Html | false {
  const { say, language } = view;
  const { buckets, by } = trends;
  const { uses } = usesBy(trends, group);
  if (uses.length === 0) return false;
  const times = group === "model" || group === "agent" ? timesBy(buckets, group) : undefined;
  const timeOf = (name: string, time: keyof TimesOf): string =>
    [0.5, 0.95].map((share) => timeText(language, times?.get(name)?.[time](share))).join(" / ");
  const cells = ({ name, runs, failed, tokens, usd }: UsageOf): HtmlValue[] => [
    tokenCount(runs),
    ...(group === "person"
      ? []
      : [
          failed === 0
            ? "0"
            : html`<span class="wrong">${failed} (${percent(failed / runs)})</span>`,
        ]),
    ...(times === undefined ? [] : [timeOf(name, "first"), timeOf(name, "total")]),
    tokenCount(tokens),
    view.money(usd),
  ];
  return html`<section>
    <h2>${say(groupWords[group])}</h2>
    ${table({
      caption: say(groupWords[group]),
      columns: [
        say(group),
        say(group === "tool" ? "callCount" : "runs"),
        ...(group === "person" ? [] : [say("outcomeFailed")]),
        ...(times === undefined
          ? []
          : [`${say("firstText")} p50 / p95`, `${say("took")} p50 / p95`]),
        say("tokens"),
        say("money"),
      ],
      rows: (group === "person" ? uses.slice(0, maxPeople) : uses).map((one) => [
        html`<a href="${runsPath({ [group]: one.name })}"
          >${shownForms[group]?.(one.name) ?? one.name}</a
        >`,
        ...cells(one),
      ]),
    })}
    ${group === "tool" && by !== "tool" && html`<p class="quiet">${say("useOfTool")}</p>`}
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
        view.money(countIn([bucket], "nano") / 1e9),
        timeText(language, countIn([bucket], "limiter-ms")),
      ]),
  });
}
