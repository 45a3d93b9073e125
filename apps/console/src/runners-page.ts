import type { ToolAnnouncement, ToolLimits } from "@larkline/protocol";
import type { LivingRunner } from "@larkline/session";
import { html, type Html } from "./html.ts";
import { moment, table } from "./parts.ts";
import type { Page, View } from "./view.ts";

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

function section(view: View, runner: string, instances: readonly LivingRunner[]): Html {
  const { say, language } = view;
  const tools = new Map(instances.flatMap((one) => one.tools.map((tool) => [tool.spec.name, tool])));
  const alive = instances.map(({ instance, expiresAtMs }) => [instance, moment(language, expiresAtMs)]);
  return html`<section>
    <h2>${runner}</h2>
    ${table({ caption: `${runner}: ${say("instance")}`, columns: [say("instance"), say("alive")], rows: alive })}
    ${table({
      caption: `${runner}: ${say("tools")}`,
      columns: [say("tool"), say("effect"), say("risk"), say("asks"), say("timeout"), say("limits")],
      rows: [...tools.values()].map((tool) => toolRow(view, tool)),
    })}
  </section>`;
}

/** Who runs tools, which ones, and how long their last word holds. */
export function runnersPage(view: View, runners: readonly LivingRunner[]): Page {
  const { say } = view;
  const byName = [...Map.groupBy(runners, ({ runner }) => runner)].sort(([one], [other]) => (one < other ? -1 : 1));
  const body =
    byName.length === 0
      ? html`<p class="note">${say("noRunners")}</p>`
      : html`${byName.map(([runner, instances]) => section(view, runner, instances))}`;
  return { title: say("runners"), body };
}
