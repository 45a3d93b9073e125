import type { FastifyInstance } from "fastify";
import type { QueueDepth } from "@larkline/store/queues";
import {
  countIn,
  type KnownInstance,
  outcomeKinds,
  type Pause,
  type RunRecord,
  type UsageBucket,
} from "@larkline/store/operations";
import type { AwayRunner, LivingRunner } from "@larkline/store/runners";
import { answerPage, type Page, type View } from "./page.ts";
import { agentsPath, operatorIn } from "./agents.ts";
import { openApprovals, type OpenApprovals } from "./approvals.ts";
import { html, type Html, facts, moment, table } from "./html.ts";
import { runsPath, runTable } from "./runs.ts";
import type { Services } from "./services.ts";
import { daySpan, figuresOf, refreshSeconds, runsChart } from "./trends.ts";
import { durationText } from "./why-text.ts";

/** Adds the page that shows at a glance what is wrong now, what waits, and what was done. */
export function registerOverview(server: FastifyInstance, services: Services): void {
  server.get<{ Querystring: { refresh?: unknown } }>("/", async (request, reply) => {
    if (request.query.refresh !== "off") reply.header("refresh", refreshSeconds);
    return await answerPage(services, request, reply, async (view) => {
      const { timeZone } = services.settings.budgets;
      return overviewPage(view, await overviewOf(services), timeZone);
    });
  });
}

interface Overview {
  queues: readonly { name: string; depth: QueueDepth }[];
  /** Ids of living workers. */
  workers: readonly string[];
  /** Living processes of ingress and workers, as they announce themselves. */
  instances: readonly KnownInstance[];
  /** Apps whose events an unknown client probably takes. */
  leaking: readonly string[];
  runners: readonly LivingRunner[];
  away: readonly AwayRunner[];
  open: OpenApprovals;
  /** What operators have paused. */
  pauses: readonly Pause[];
  /** What was given up. */
  letters: number;
  clockProblem: string | undefined;
  takesWrites: boolean | string;
  /** Of the last hour, and of the last day. */
  hour: readonly UsageBucket[];
  day: readonly UsageBucket[];
  newest: readonly RunRecord[];
}

const shownRuns = 8;

async function overviewOf(services: Services): Promise<Overview> {
  const { queues, catalog, presence, directory, approvals, letters, usage, runs, pauses } =
    services;
  const living = async () => {
    const known = await services.instances.instances();
    return known.filter(({ expiresAtMs }) => expiresAtMs > services.clock.now());
  };
  const leaking = async () => {
    const reports = await Promise.all(services.bots.map((app) => services.watches.of(app)));
    return reports.flatMap((report) =>
      report !== undefined && report.missed.length > 0 ? [report.app] : [],
    );
  };
  const named = async () => {
    const names = await queues.names();
    return await Promise.all(
      names.map(async (name) => ({ name, depth: await catalog.depth(name) })),
    );
  };
  const [depths, members, instances, leaks, runners, away, open, given] = await Promise.all([
    named(),
    presence.members(),
    living(),
    leaking(),
    directory.runners(),
    directory.away(),
    openApprovals(approvals),
    letters.count(),
  ]);
  const [hour, day, newest, takesWrites, stopped] = await Promise.all([
    usage.newest("minute", 60),
    usage.newest(daySpan.size, daySpan.count),
    runs.page({ limit: shownRuns }),
    services.takesWrites(),
    pauses.list(),
  ]);
  return {
    queues: depths,
    workers: members,
    instances,
    leaking: leaks,
    runners,
    away,
    open,
    pauses: stopped,
    letters: given,
    clockProblem: services.serverClock.problem,
    takesWrites,
    hour,
    day,
    newest: newest.runs,
  };
}

function overviewPage(view: View, seen: Overview, timeZone: string): Page {
  const { say } = view;
  const { runners, workers, instances, open, day, newest } = seen;
  const ingresses = instances.filter(({ service }) => service === "ingress");
  const names = [...new Set(runners.map(({ runner }) => runner))].sort();
  const count = `${open.approvals.length}${open.hasMore ? "+" : ""}`;
  const body = html`${troublesOf(view, seen)}
    <h2>${say("nowWaiting")}</h2>
    ${facts([
      [say("ingresses"), ingresses.length],
      [say("workers"), workers.length],
      [
        say("runners"),
        names.length === 0 ? say("noRunners") : html`<a href="/runners">${names.join(", ")}</a>`,
      ],
      [say("openApprovals"), html`<a href="/approvals">${count}</a>`],
    ])}
    ${queueTable(view, seen.queues)}
    <h2>${say("doneLastDay")}</h2>
    ${figuresOf(view, day)} ${runsChart(view, { buckets: day, shown: daySpan, timeZone })}
    ${
      newest.length > 0 &&
      html`<h2>${say("newestRunsTitle")}</h2>
        ${runTable(view, newest)}`
    }
    <p class="row">
      <a href="/runs">${say("allRuns")}</a> <a href="/trends">${say("trends")}</a>
      <a href="/queues">${say("openBoard")}</a>
    </p>
    ${sessionForm(view)}`;
  return { title: say("overview"), body };
}

/** A job that has waited for so long is worth a look, ms. */
const longWaitMs = 60_000;
/** From so many failed runs of an hour on, and this share of all, something is wrong. */
const manyFailures = 3;
const largeShare = 0.1;

/** What an operator should look at now, the worst first. */
function troublesOf(view: View, seen: Overview): Html {
  const { say, language } = view;
  const { workers, away, letters, queues, hour, clockProblem, takesWrites } = seen;
  const failed = countIn(hour, "failed");
  const runs = outcomeKinds.reduce((sum, kind) => sum + countIn(hour, kind), 0);
  const isFailing = failed >= manyFailures && failed / runs >= largeShare;
  const paused = queues.filter(({ depth }) => depth.isPaused).map(({ name }) => name);
  const late = queues.filter(
    ({ depth }) => view.nowMs - (depth.oldestAtMs ?? Number.MAX_SAFE_INTEGER) > longWaitMs,
  );
  const given = queues.reduce((sum, { depth }) => sum + depth.failed, letters);
  const wrong = [
    workers.length === 0 && html`${say("noWorkers")}`,
    takesWrites !== true && html`${takesWrites || say("noWrites")}`,
    clockProblem !== undefined && html`${say("clocksDiffer")}${clockProblem}`,
    ...seen.instances.map(
      ({ clock, service, host }) =>
        clock !== undefined && html`${service} ${host}: ${say("clocksDiffer")}${clock}`,
    ),
    ...seen.leaking.map((app) => html`<a href="/feishu">${app}</a> ${say("unknownTakes")}`),
    isFailing &&
      html`<a href="${runsPath({ outcome: "failed", span: "hour" })}">${failed} / ${runs}</a>
        ${say("runsFailedLately")}`,
    ...away.map(({ runner }) => html`<a href="/runners">${runner}</a> ${say("runnerAway")}`),
  ];
  const waits = [
    ...seen.pauses.map(
      ({ what, name, by }) =>
        html`${say(what)} <a href="${agentsPath}">${name}</a> ${say("paused")} (${operatorIn(by)})`,
    ),
    ...paused.map(
      (name) =>
        html`<a href="/queues/queue/${encodeURIComponent(name)}">${name}</a> ${say("paused")}`,
    ),
    ...late.map(
      ({ name, depth }) =>
        html`<a href="/queues/queue/${encodeURIComponent(name)}">${name}</a> ${say("waitsSince")}
          ${durationText(language, view.nowMs - (depth.oldestAtMs ?? 0))}`,
    ),
    given > 0 && html`<a href="/dead-letters">${say("deadLetters")}</a>: ${given}`,
  ];
  const reasons = [
    ...wrong.map((text) => ({ text, tone: "wrong" })),
    ...waits.map((text) => ({ text, tone: "waits" })),
  ].filter(({ text }) => text !== false);
  if (reasons.length === 0) {
    return html`<p class="reason fine" role="status">${say("nothingWrong")}</p>`;
  }
  return html`<ul class="troubles" aria-label="${say("wrongNow")}">
    ${reasons.map(({ text, tone }) => html`<li class="reason ${tone}">${text}</li> `)}
  </ul>`;
}

function queueTable(view: View, queues: Overview["queues"]): Html {
  const { say } = view;
  return table({
    caption: say("queues"),
    columns: [
      say("queue"),
      say("waiting"),
      say("active"),
      say("delayed"),
      say("failed"),
      say("oldest"),
    ],
    rows: queues.map(({ name, depth }) => [
      html`<a href="/queues/queue/${encodeURIComponent(name)}">${name}</a>
        ${depth.isPaused && `(${say("paused")})`}`,
      depth.waiting,
      depth.active,
      depth.delayed,
      depth.failed,
      depth.oldestAtMs === undefined ? "–" : moment(view, depth.oldestAtMs),
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
