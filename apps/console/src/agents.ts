import type { LocalText, ReplyLanguage } from "@larkline/protocol";
import type { OperatorOrder } from "@larkline/store/operations";
import type { Pause } from "@larkline/store/operations";
import { toolProblem } from "@larkline/process/config";
import type { FastifyInstance } from "fastify";
import { html, type Html, type HtmlValue, moment, table, toolText } from "./html.ts";
import {
  actionForm,
  answerPage,
  countAction,
  fieldOf,
  order,
  type Page,
  type View,
} from "./page.ts";
import type { Services } from "./services.ts";

/** Where agents and tools are paused. */
export const agentsPath = "/agents";

/** The page of one agent. */
export function agentPath(name: string): string {
  return `${agentsPath}/${name}`;
}

/** Adds the page of agents and tools, with pausing them and letting them work again. */
export function registerAgents(server: FastifyInstance, services: Services): void {
  server.get(agentsPath, async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      agentsPage(view, await shownAgents(services)),
    ),
  );
  for (const deed of ["pause", "resume"] as const) {
    server.post(`${agentsPath}/${deed}`, async (request, reply) =>
      answerPage(services, request, reply, async (view) => {
        const [what, name] = [fieldOf(request, "what"), fieldOf(request, "name")];
        if ((what !== "agent" && what !== "tool") || name === undefined || name === "") {
          return undefined;
        }
        const { word, isDone } = await order(
          services,
          view,
          { do: deed, what, name },
          wordsOf[deed],
        );
        if (isDone) countAction(services, `${what}_${deed}d`, agentsPath);
        return { to: agentsPath, note: word };
      }),
    );
  }
}

const wordsOf = {
  pause: {
    done: "nowPaused",
    nothing: "isPausedAlready",
    not_possible: "nothingToPause",
    full: "tooManyPauses",
  },
  resume: { done: "nowResumed", nothing: "isNotPaused" },
} as const;

type Pausable = Extract<OperatorOrder["act"], { do: "pause" | "resume" }>["what"];

interface Shown {
  name: string;
  /** What people read in place of the name of a tool. */
  title?: LocalText | undefined;
  about: string;
  pause: Pause | undefined;
  /** Why no model is offered a tool, in English, as the log has it. */
  problem?: string | undefined;
  /** Whether it has a page of its own. */
  hasPage?: boolean;
  /** Number of the version of an agent that counts; absent: it is as in the file. */
  version?: number | undefined;
}

/** All that there are, and what is paused and is not there any more. */
async function shownAgents({
  settings,
  directory,
  pauses,
  agentVersions,
}: Services): Promise<Record<Pausable, Shown[]>> {
  const [paused, tools, stored] = await Promise.all([
    pauses.list(),
    directory.tools(),
    agentVersions.list(),
  ]);
  const rowsOf = (
    what: Pausable,
    known: ReadonlyMap<string, Omit<Shown, "name" | "pause">>,
  ): Shown[] => {
    const its = new Map(
      paused.filter((pause) => pause.what === what).map((pause) => [pause.name, pause]),
    );
    const names = [...new Set([...known.keys(), ...its.keys()])].sort();
    return names.map((name) => ({ about: "", ...known.get(name), name, pause: its.get(name) }));
  };
  const agents = Object.values(settings.agents);
  const offered = [...tools].map(([name, { runner, announcement }]) => ({
    name,
    runner,
    announcement,
  }));
  return {
    agent: rowsOf(
      "agent",
      new Map(
        agents.map(({ name, description = "", team }) => {
          const version = settings.changesAgents ? stored.inForce.get(name)?.number : undefined;
          return [name, { about: description, hasPage: team === null, version }];
        }),
      ),
    ),
    tool: rowsOf(
      "tool",
      new Map(
        offered.map(({ name, runner, announcement: { title, spec } }) => [
          name,
          { about: runner, title, problem: toolProblem(spec) },
        ]),
      ),
    ),
  };
}

function agentsPage(view: View, shown: Record<Pausable, Shown[]>): Page {
  const { say } = view;
  const body = html`<p class="quiet">${say("pausesAre")}</p>
    ${tableOf(view, "agent", { caption: say("agents"), about: say("description"), shown: shown.agent })}
    ${
      shown.tool.length === 0
        ? html`<p>${say("noRunners")}</p>`
        : tableOf(view, "tool", { caption: say("tools"), about: say("runners"), shown: shown.tool })
    }`;
  return { title: say("agentsAndTools"), body };
}

function tableOf(
  view: View,
  what: Pausable,
  { caption, about, shown }: { caption: string; about: string; shown: readonly Shown[] },
): Html {
  const { say, language } = view;
  return table({
    caption,
    columns: [say(what), about, say("state"), say("action")],
    rows: shown.map((one) => [
      nameOf(one, language),
      one.about || "–",
      stateOf(view, one),
      actOf(view, what, one),
    ]),
  });
}

function nameOf({ name, title, hasPage = false }: Shown, language: ReplyLanguage): HtmlValue {
  if (hasPage) return html`<a href="${agentPath(name)}">${name}</a>`;
  return toolText(name, title, language);
}

function stateOf(view: View, shown: Shown): HtmlValue {
  const state = workOf(view, shown);
  if (shown.problem === undefined) return state;
  return html`${state}<br /><span class="wrong">${view.say("notOffered")} ${shown.problem}</span>`;
}

function workOf(view: View, { pause, version }: Shown): HtmlValue {
  const { say } = view;
  if (pause === undefined && version !== undefined) {
    return `${say("works")}, ${say("version")} ${version}`;
  }
  if (pause === undefined) return say("works");
  return html`<strong>${say("paused")}</strong>, ${operatorIn(pause.by)},
    ${moment(view, pause.sinceMs)}`;
}

/** The name that an operator gave when they signed in; of one without it, where the order came from. */
export function operatorIn(by: string): string {
  return by.slice(by.indexOf(":") + 1);
}

function actOf(view: View, what: Pausable, { name, pause }: Shown): HtmlValue {
  if (view.visitor?.role !== "operator") return undefined;
  const deed = pause === undefined ? "pause" : "resume";
  return actionForm(view, { path: `${agentsPath}/${deed}`, label: deed, fields: { what, name } });
}
