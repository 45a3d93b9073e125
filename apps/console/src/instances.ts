import { type ToolAnnouncement, type ToolLimits } from "@larkline/protocol";
import {
  type EventWatchReport,
  type KnownInstance,
  maxMissed,
  usageBy,
  type UsageOf,
} from "@larkline/store/operations";
import type { AwayRunner, LivingRunner } from "@larkline/store/runners";
import type { FastifyInstance } from "fastify";
import { html, type Html, type HtmlValue, moment, table, toolText, who } from "./html.ts";
import { actionForm, answerPage, countAction, fieldOf, type Page, type View } from "./page.ts";
import { runsPath } from "./runs.ts";
import type { Services } from "./services.ts";
import { daySpan } from "./trends.ts";
import type { Word } from "./words.ts";

/** Adds the page about the processes of the deployment. */
export function registerInstances(server: FastifyInstance, services: Services): void {
  server.get("/instances", async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      instancesPage(view, await knownInstances(services)),
    ),
  );
}

/** What is known of the processes of a deployment. */
interface KnownInstances {
  instances: readonly KnownInstance[];
  /** Workers that beat but do not tell about themselves: of an older version. */
  unnamed: readonly string[];
  /** Looks for events that never came, by app. */
  watches: readonly { app: string; report: EventWatchReport | undefined }[];
  nowMs: number;
  /** What the console finds wrong with clocks. */
  clock?: string | undefined;
}

async function knownInstances({
  clock,
  bots,
  instances,
  presence,
  watches,
  serverClock,
}: Services): Promise<KnownInstances> {
  const [known, workers, reports] = await Promise.all([
    instances.instances(),
    presence.members(),
    Promise.all(bots.map(async (app) => ({ app, report: await watches.of(app) }))),
  ]);
  const named = new Set(known.map(({ id }) => id));
  return {
    instances: known.sort(byServiceAndAge),
    unnamed: workers.filter((id) => !named.has(id)),
    watches: reports,
    nowMs: clock.now(),
    clock: serverClock.problem,
  };
}

function byServiceAndAge(one: KnownInstance, other: KnownInstance): number {
  return one.service.localeCompare(other.service) || one.startedAtMs - other.startedAtMs;
}

/** Which processes there are, and whether another client takes events of our apps. */
function instancesPage(view: View, known: KnownInstances): Page {
  const { say } = view;
  const { instances, unnamed, watches, nowMs, clock } = known;
  const columns = [
    "instance",
    "service",
    "host",
    "version",
    "started",
    "apps",
    "events",
    "state",
  ] as const;
  const body = html`${clock !== undefined && html`<p class="note" role="alert">${say("clocksDiffer")}${clock}</p>`}
  ${
    instances.length === 0
      ? html`<p class="note">${say("noInstances")}</p>`
      : table({
          caption: say("instances"),
          columns: columns.map(say),
          rows: instances.map((instance) => row(view, instance, nowMs)),
        })
  }
  ${unnamed.length > 0 && html`<p>${say("unnamedWorkers")}: ${unnamed.length}</p>`}
  ${
    watches.length > 0 &&
    html`<h2>${say("strangers")}</h2>
      <p class="quiet">${say("strangersAre")}</p>
      ${watches.map((watch) => watchOf(view, known, watch))}`
  }`;
  return { title: say("instances"), body };
}

function row(view: View, instance: KnownInstance, nowMs: number) {
  const { say } = view;
  const { id, service, host, version, startedAtMs, expiresAtMs, apps } = instance;
  return [
    html`<code title="${id}">${id.slice(0, 20)}</code>`,
    service,
    host,
    version,
    moment(view, startedAtMs),
    apps.length === 0 ? "–" : html`<code>${apps.join(", ")}</code>`,
    feedsOf(view, instance),
    expiresAtMs > nowMs
      ? aliveText(view, instance.clock)
      : html`${say("wentSilent")} ${moment(view, expiresAtMs)}`,
  ];
}

function feedsOf(view: View, { feeds }: KnownInstance): Html | string {
  const { say } = view;
  if (feeds.length === 0) return "–";
  return html`<ul class="plain">
    ${feeds.map(
      ({ app, transport, state, lastEventAtMs }) =>
        html`<li>
          <code>${app}</code> ${transport} (${state}),
          ${lastEventAtMs === undefined ? say("noEventYet") : html`${say("lastEvent")} ${moment(view, lastEventAtMs)}`}
        </li> `,
    )}
  </ul>`;
}

/** That it lives, and what its clock has against others. */
function aliveText({ say }: View, clock: string | undefined): Html | string {
  if (clock === undefined) return say("isAlive");
  return html`${say("isAlive")}, <strong role="alert">${say("clocksDiffer")}${clock}</strong>`;
}

function watchOf(
  view: View,
  known: KnownInstances,
  watch: KnownInstances["watches"][number],
): Html {
  const { say } = view;
  const { app, report } = watch;
  const looked =
    report === undefined
      ? say("notLooked")
      : html`${say("lastLook")} ${moment(view, report.checkedAtMs)}: ${say("comparedMessages")}
        ${report.compared}.
        ${report.problem !== undefined && html`${say("couldNotLook")} <code>${report.problem}</code>.`}`;
  return html`<section>
    <h3>${app}</h3>
    <p>${say("ourConnections")}: ${connectionsOf(known, app)}. ${looked}</p>
    ${report !== undefined && report.missed.length > 0 && missedOf(view, report)}
  </section>`;
}

function connectionsOf({ instances, nowMs }: KnownInstances, app: string): number {
  const feeds = instances
    .filter(({ expiresAtMs }) => expiresAtMs > nowMs)
    .flatMap((instance) => instance.feeds);
  return feeds.filter(
    (feed) => feed.app === app && feed.transport === "websocket" && feed.state === "connected",
  ).length;
}

function missedOf(view: View, { app, missed }: EventWatchReport): Html {
  const { say } = view;
  const count = missed.length >= maxMissed ? `${maxMissed}+` : String(missed.length);
  return html`<div class="note" role="alert">
      <p><strong>${say("unknownTakes")}</strong> ${say("neverCame")} ${count}.</p>
      <p>${say("whatToDo")}</p>
    </div>
    ${table({
      caption: `${app}: ${say("missedMessages")}`,
      columns: [say("message"), say("chat"), say("sent")],
      rows: missed.map(({ messageId, chatId, createdAtMs }) => [
        html`<code>${messageId}</code>`,
        html`<code>${who(chatId)}</code>`,
        moment(view, createdAtMs),
      ]),
    })}`;
}

/** Adds the page of runners, and forgetting one that is away. */
export function registerRunners(server: FastifyInstance, services: Services): void {
  const { directory, usage } = services;
  const allRunners = async (): Promise<RunnersShown> => {
    const [living, away, day] = await Promise.all([
      directory.runners(),
      directory.away(),
      usage.newest(daySpan.size, daySpan.count),
    ]);
    return { living, away, usage: new Map(usageBy(day, "tool").map((one) => [one.name, one])) };
  };
  server.get("/runners", async (request, reply) =>
    answerPage(services, request, reply, async (view) => runnersPage(view, await allRunners())),
  );
  server.post("/runners/forget", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const runner = fieldOf(request, "runner");
      if (runner === undefined) return undefined;
      const { forgotten } = await directory.forget(runner);
      if (forgotten) countAction(services, "runner_forgotten", request.url);
      const note: Word = forgotten ? "runnerForgotten" : "runnerStays";
      return runnersPage({ ...view, url: "/runners" }, await allRunners(), note);
    }),
  );
}

interface RunnersShown {
  living: readonly LivingRunner[];
  away: readonly AwayRunner[];
  /** Of the last day, by tool. */
  usage: ReadonlyMap<string, UsageOf>;
}

/** Who runs tools, which ones, and how long their last word holds; and those whose tools are offered while they are away. */
function runnersPage(view: View, { living, away, usage }: RunnersShown, note?: Word): Page {
  const { say } = view;
  const byName = [...Map.groupBy(living, ({ runner }) => runner)].sort(([one], [other]) =>
    one < other ? -1 : 1,
  );
  const noted = note === undefined ? [] : [html`<p class="note" role="status">${say(note)}</p>`];
  const sections = [
    ...byName.map(([runner, instances]) => livingSection(view, { runner, instances, usage })),
    ...away.map((each) => awaySection(view, each, usage)),
  ];
  const none = sections.length === 0 ? [html`<p class="note">${say("noRunners")}</p>`] : [];
  return { title: say("runners"), body: html`${[...noted, ...none, ...sections]}` };
}

interface LivingGroup extends Pick<RunnersShown, "usage"> {
  runner: string;
  instances: readonly LivingRunner[];
}

function livingSection(view: View, { runner, instances, usage }: LivingGroup): Html {
  const { say } = view;
  const alive = instances.map(({ instance, expiresAtMs, clock, isCurrent, generation = "" }) => [
    instance,
    say(isCurrent ? "takesCalls" : "superseded"),
    html`${moment(view, expiresAtMs)}${clock !== undefined && html` ${aliveText(view, clock)}`}`,
    generation === "" ? "–" : html`<code>${generation.slice(0, longestGeneration)}</code>`,
  ]);
  const current = instances.filter(({ isCurrent }) => isCurrent);
  return html`<section>
    <h2>${runner}</h2>
    ${table({
      caption: `${runner}: ${say("instance")}`,
      columns: [say("instance"), say("state"), say("alive"), say("version")],
      rows: alive,
    })}
    ${toolTable(view, runner, { tools: current.flatMap(({ tools }) => tools), usage })}
  </section>`;
}

function awaySection(
  view: View,
  { runner, tools, sinceMs, untilMs }: AwayRunner,
  usage: RunnersShown["usage"],
): Html {
  const { say } = view;
  return html`<section>
    <h2>${runner} (${say("runnerAway")})</h2>
    <p class="note">
      ${say("runnerAwaySince")} ${moment(view, sinceMs)} · ${say("runnerAwayUntil")}
      ${moment(view, untilMs)}
    </p>
    ${actionForm(view, { path: "/runners/forget", label: "forgetRunner", fields: { runner } })}
    ${toolTable(view, runner, { tools, usage })}
  </section>`;
}

function toolTable(
  view: View,
  runner: string,
  { tools, usage }: { tools: readonly ToolAnnouncement[]; usage: RunnersShown["usage"] },
): Html {
  const { say } = view;
  const byName = new Map(tools.map((tool) => [tool.spec.name, tool]));
  return table({
    caption: `${runner}: ${say("tools")}`,
    columns: [
      say("tool"),
      say("effect"),
      say("risk"),
      say("asks"),
      say("timeout"),
      say("limits"),
      say("callsLastDay"),
      say("errorRate"),
      say("description"),
    ],
    rows: [...byName.values()].map((tool) => toolRow(view, tool, usage.get(tool.spec.name))),
  });
}

function toolRow({ say, language }: View, tool: ToolAnnouncement, used: UsageOf | undefined) {
  const { spec, title, effect, risk = "medium", requiresApproval, timeoutMs, limits } = tool;
  return [
    html`<a href="${runsPath({ tool: spec.name })}">${toolText(spec.name, title, language)}</a>`,
    effect,
    risk,
    say(requiresApproval ? "yes" : "no"),
    html`<span class="amount">${timeoutMs / 1_000} s</span>`,
    limits === undefined ? "–" : limitsText(limits),
    used?.runs ?? 0,
    failuresText(used),
    html`<span class="quiet">${spec.description.slice(0, longestDescription)}</span>`,
  ];
}

const longestDescription = 300;
const longestGeneration = 16;

function failuresText(used: UsageOf | undefined): HtmlValue {
  if (used === undefined || used.failed === 0) return used === undefined ? "–" : 0;
  return html`<span class="wrong"
    >${used.failed} (${Math.round((100 * used.failed) / used.runs)} %)</span
  >`;
}

function limitsText({ concurrency, rate }: ToolLimits): string {
  const parts = [
    ...(concurrency === undefined ? [] : [`${concurrency}×`]),
    ...(rate === undefined ? [] : [`${rate.calls} / ${rate.perMs / 1_000} s`]),
  ];
  return parts.join(", ");
}
