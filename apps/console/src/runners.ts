import type { ToolAnnouncement, ToolLimits } from "@larkline/protocol";
import type { AwayRunner, LivingRunner } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { html, type Html, moment, table } from "./html.ts";
import { aliveText } from "./instances.ts";
import { actionForm, answerPage, countAction, fieldOf, type Page, type View } from "./page.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

/** Adds the page of runners, and forgetting one that is away. */
export function registerRunners(server: FastifyInstance, services: Services): void {
  const { directory } = services;
  const allRunners = async () => ({ living: await directory.runners(), away: await directory.away() });
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
}

/** Who runs tools, which ones, and how long their last word holds; and those whose tools are offered while they are away. */
function runnersPage(view: View, { living, away }: RunnersShown, note?: Word): Page {
  const { say } = view;
  const byName = [...Map.groupBy(living, ({ runner }) => runner)].sort(([one], [other]) => (one < other ? -1 : 1));
  const noted = note === undefined ? [] : [html`<p class="note" role="status">${say(note)}</p>`];
  const sections = [
    ...byName.map(([runner, instances]) => livingSection(view, runner, instances)),
    ...away.map((each) => awaySection(view, each)),
  ];
  const none = sections.length === 0 ? [html`<p class="note">${say("noRunners")}</p>`] : [];
  return { title: say("runners"), body: html`${[...noted, ...none, ...sections]}` };
}

function livingSection(view: View, runner: string, instances: readonly LivingRunner[]): Html {
  const { say, language } = view;
  const alive = instances.map(({ instance, expiresAtMs, clock, isCurrent }) => [
    instance,
    say(isCurrent ? "takesCalls" : "superseded"),
    html`${moment(language, expiresAtMs)}${clock !== undefined && html` ${aliveText(view, clock)}`}`,
  ]);
  const current = instances.filter(({ isCurrent }) => isCurrent);
  return html`<section>
    <h2>${runner}</h2>
    ${table({
      caption: `${runner}: ${say("instance")}`,
      columns: [say("instance"), say("state"), say("alive")],
      rows: alive,
    })}
    ${toolTable(
      view,
      runner,
      current.flatMap(({ tools }) => tools),
    )}
  </section>`;
}

function awaySection(view: View, { runner, tools, sinceMs, untilMs }: AwayRunner): Html {
  const { say, language } = view;
  return html`<section>
    <h2>${runner} (${say("runnerAway")})</h2>
    <p class="note">
      ${say("runnerAwaySince")} ${moment(language, sinceMs)} · ${say("runnerAwayUntil")} ${moment(language, untilMs)}
    </p>
    ${actionForm(view, { path: "/runners/forget", label: "forgetRunner", fields: { runner } })}
    ${toolTable(view, runner, tools)}
  </section>`;
}

function toolTable(view: View, runner: string, tools: readonly ToolAnnouncement[]): Html {
  const { say } = view;
  const byName = new Map(tools.map((tool) => [tool.spec.name, tool]));
  return table({
    caption: `${runner}: ${say("tools")}`,
    columns: [say("tool"), say("effect"), say("risk"), say("asks"), say("timeout"), say("limits")],
    rows: [...byName.values()].map((tool) => toolRow(view, tool)),
  });
}

function toolRow({ say }: View, tool: ToolAnnouncement) {
  const { spec, effect, risk = "medium", requiresApproval, timeoutMs, limits } = tool;
  return [
    html`<span title="${spec.description}">${spec.name}</span>`,
    effect,
    risk,
    say(requiresApproval ? "yes" : "no"),
    `${timeoutMs / 1_000} s`,
    limits === undefined ? "–" : limitsText(limits),
  ];
}

function limitsText({ concurrency, rate }: ToolLimits): string {
  const parts = [
    ...(concurrency === undefined ? [] : [`${concurrency}×`]),
    ...(rate === undefined ? [] : [`${rate.calls} / ${rate.perMs / 1_000} s`]),
  ];
  return parts.join(", ");
}
