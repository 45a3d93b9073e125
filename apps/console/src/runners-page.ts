import type { ToolAnnouncement, ToolLimits } from "@larkline/protocol";
import type { AwayRunner, LivingRunner } from "@larkline/store";
import { html, type Html } from "./html.ts";
import { aliveText } from "./instances-page.ts";
import { moment, table } from "./parts.ts";
import { actionForm, type Page, type View } from "./view.ts";
import type { Word } from "./words.ts";

function limitsText({ concurrency, rate }: ToolLimits): string {
  const parts = [
    ...(concurrency === undefined ? [] : [`${concurrency}×`]),
    ...(rate === undefined ? [] : [`${rate.calls} / ${rate.perMs / 1_000} s`]),
  ];
  return parts.join(", ");
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

function toolTable(view: View, runner: string, tools: readonly ToolAnnouncement[]): Html {
  const { say } = view;
  const byName = new Map(tools.map((tool) => [tool.spec.name, tool]));
  return table({
    caption: `${runner}: ${say("tools")}`,
    columns: [say("tool"), say("effect"), say("risk"), say("asks"), say("timeout"), say("limits")],
    rows: [...byName.values()].map((tool) => toolRow(view, tool)),
  });
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

export interface RunnersShown {
  living: readonly LivingRunner[];
  away: readonly AwayRunner[];
}

/** Who runs tools, which ones, and how long their last word holds; and those whose tools are offered while they are away. */
export function runnersPage(view: View, { living, away }: RunnersShown, note?: Word): Page {
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
