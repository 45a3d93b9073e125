import { parserOf } from "@larkline/protocol";
import { RunnerName } from "@larkline/protocol/runner";
import type { ToolAnnouncement, ToolLimits } from "@larkline/protocol/tool";
import type { McpServerConfig } from "@larkline/process/config";
import { usageBy, type UsageOf } from "@larkline/store/operations";
import type { AwayRunner, LivingRunner } from "@larkline/store/runners";
import type { FastifyInstance } from "fastify";
import { html, type Html, type HtmlValue, moment, table, toolText } from "./html.ts";
import { actionForm, answerPage, countAction, fieldOf, type Page, type View } from "./page.ts";
import { field, runsPath } from "./runs.ts";
import type { Services } from "./services.ts";
import { daySpan } from "./trends.ts";
import type { Word } from "./words.ts";

/** Adds the page of runners, and forgetting one that is away. */
export function registerRunners(server: FastifyInstance, services: Services): void {
  const { directory, usage, settings } = services;
  const servers = settings.mcp.servers;
  const allRunners = async (): Promise<RunnersShown> => {
    const [living, away, day] = await Promise.all([
      directory.runners(),
      directory.away(),
      usage.newest(daySpan.size, daySpan.count),
    ]);
    const byTool = new Map(usageBy(day, "tool").map((one) => [one.name, one]));
    return { living, away, servers, usage: byTool };
  };
  server.get("/runners", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const { searchParams } = new URL(request.url, "http://console");
      const [name, file] = [searchParams.get("name") ?? "", searchParams.get("file") ?? ""];
      return runnersPage(view, await allRunners(), { name, file });
    }),
  );
  server.post("/runners/forget", async (request, reply) =>
    answerPage(services, request, reply, async () => {
      const runner = fieldOf(request, "runner");
      if (runner === undefined) return undefined;
      const { forgotten } = await directory.forget(runner);
      if (forgotten) countAction(services, "runner_forgotten", request.url);
      const note: Word = forgotten ? "runnerForgotten" : "runnerStays";
      return { to: "/runners", note };
    }),
  );
}

interface RunnersShown {
  living: readonly LivingRunner[];
  away: readonly AwayRunner[];
  /** MCP servers of the file. */
  servers: readonly McpServerConfig[];
  /** Of the last day, by tool. */
  usage: ReadonlyMap<string, UsageOf>;
}

/** Who runs tools, which ones, and how long their last word holds; and those whose tools are offered while they are away. */
function runnersPage(view: View, shown: RunnersShown, further: Further): Page {
  const { living, away, usage } = shown;
  const { say } = view;
  const byName = [...Map.groupBy(living, ({ runner }) => runner)].sort(([one], [other]) =>
    one < other ? -1 : 1,
  );
  const sections = [
    ...byName.map(([runner, instances]) => livingSection(view, { runner, instances, usage })),
    ...away.map((each) => awaySection(view, each, usage)),
  ];
  const none = sections.length === 0 ? [html`<p class="note">${say("noRunners")}</p>`] : [];
  const more = isOperator(view) ? furtherSection(view, further) : undefined;
  const body = html`${[...none, ...sections]} ${mcpSection(view, shown)} ${more}`;
  return { title: say("runners"), body };
}

/** The runner that the line is shown for. */
interface Further {
  name: string;
  file: string;
}

const parseName = parserOf(RunnerName);
/** As a shell takes it unquoted. */
const plainFile = /^[A-Za-z0-9_./@-]{1,200}$/;

function isOperator({ visitor }: View): boolean {
  return visitor?.role === "operator";
}

/** The line that starts one more runner. Its keys are not known here: the command prints them. */
function furtherSection(view: View, { name, file }: Further): Html {
  const { say } = view;
  const isWrong =
    (name !== "" && !parseName(name).ok) || (file !== "" && (name === "" || !plainFile.test(file)));
  const named = name === "" || isWrong ? "games" : name;
  const tools = file === "" || isWrong ? `${named}.ts` : file;
  // A program in Python is started itself.
  const variables = [
    `RUNNER_NAME=${named}`,
    ...(tools.endsWith(".py") ? [] : [`RUNNER_TOOLS=${tools}`]),
    `RUNNER_KEY=... # npm run -s runner-key -- ${named}`,
    "REDIS_URL=... # npm run redis-users",
  ];
  return html`<section id="further">
    <h2>${say("furtherRunner")}</h2>
    <form action="/runners#further" class="filters">
      ${field("name", say("serverName"), name)} ${field("file", say("fileOfTools"), file)}
      <div class="row"><button>${say("showLines")}</button></div>
      ${isWrong && html`<p><span class="wrong">${say("wrongRunner")}</span></p>`}
    </form>
    <p>${say("lineBesideStart")}</p>
    <pre><code>npm run -s runner -- add ${named} ${tools}</code></pre>
    <p>${say("lineWithoutClone")}</p>
    <pre><code>npx larkline runner add ${named} ${tools}</code></pre>
    <p>${say("variablesElsewhere")}</p>
    <pre><code>${variables.join("\n")}</code></pre>
    <p class="quiet">${say("keysAreElsewhere")}</p>
  </section>`;
}

/** MCP servers of the file, and whether their tools are there. */
function mcpSection(view: View, { servers, living }: RunnersShown): Html {
  const { say } = view;
  const offered = living.filter(({ isCurrent }) => isCurrent);
  const rows = servers.map(({ name, access, runner: owner }) => {
    const found = offered.flatMap(({ runner, tools }) =>
      tools.some(({ spec }) => spec.name.startsWith(`${name}_`)) ? [{ runner, tools }] : [],
    );
    const names = new Set(
      found.flatMap(({ tools }) =>
        tools.flatMap(({ spec }) => (spec.name.startsWith(`${name}_`) ? [spec.name] : [])),
      ),
    );
    const runners = [...new Set(found.map(({ runner }) => runner))].join(", ");
    const place = access.kind === "http" ? access.url : [access.command, ...access.args].join(" ");
    return [
      name,
      isOperator(view)
        ? html`<code>${place}</code>`
        : say(access.kind === "http" ? "address" : "program"),
      runners || owner || "–",
      names.size === 0 ? html`<span class="wrong">${say("noToolsOfServer")}</span>` : names.size,
    ];
  });
  return html`<section>
    <h2>${say("mcpServers")}</h2>
    ${
      rows.length === 0
        ? html`<p class="quiet">${say("noMcpServers")}</p>`
        : table({
            caption: say("mcpServers"),
            columns: [say("serverName"), say("address"), say("runners"), say("tools")],
            rows,
          })
    }
    ${isOperator(view) && mcpLines(view)}
  </section>`;
}

function mcpLines({ say }: View): Html {
  return html`<details>
    <summary>${say("addMcpServer")}</summary>
    <p>${say("mcpLinesAre")}</p>
    <pre><code>mcp: {
  servers: {
    handbook: {
      url: "https://handbook.example.com/mcp",
      headers: { authorization: "HANDBOOK_AUTHORIZATION" },
    },
    files: { command: "npx", args: ["-y", "@modelcontextprotocol/server-filesystem", "/srv/docs"] },
  },
},</code></pre>
  </details>`;
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

/** That it lives, and what its clock has against others. */
function aliveText({ say }: View, clock: string | undefined): Html | string {
  if (clock === undefined) return say("isAlive");
  return html`${say("isAlive")}, <strong role="alert">${say("clocksDiffer")}${clock}</strong>`;
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
