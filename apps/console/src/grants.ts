import { wordsOfScope } from "@larkline/feishu/cards";
import { textIn } from "@larkline/protocol";
import { grantEndsAtMs, grantStateAt, type GrantRecord } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { html, moment, table, who, type Html } from "./html.ts";
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

/** Adds the page of what people let bots do as them, and ending a grant. No token comes near it. */
export function registerGrants(server: FastifyInstance, services: Services): void {
  const listed = async () => ({
    ...(await services.grants.list(maxListed)),
    isOfOneApp: services.bots.length === 1,
  });
  server.get("/grants", async (request, reply) =>
    answerPage(services, request, reply, async (view) => grantsPage(view, await listed())),
  );
  server.post("/grants/end", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const [app, openId] = [fieldOf(request, "app"), fieldOf(request, "person")];
      if (app === undefined || openId === undefined) return undefined;
      const { word, isDone } = await order(services, view, { do: "end_grant", app, openId }, words);
      if (isDone) countAction(services, "grant_ended", request.url);
      return { to: "/grants", note: word };
    }),
  );
}

const words = {
  done: "grantWasEnded",
  nothing: "grantGone",
  not_possible: "grantNotHere",
} as const;

const maxListed = 300;
const maxUses = 3;

interface ListedGrants {
  grants: readonly GrantRecord[];
  /** There may be more than are listed. */
  count: number;
  isOfOneApp: boolean;
}

function grantsPage(view: View, { grants, count, isOfOneApp }: ListedGrants): Page {
  const { say } = view;
  const columns = [
    "person",
    "state",
    "mayDo",
    "grantedSince",
    "grantEnds",
    "lastUses",
    "refreshFailed",
  ] as const;
  const body =
    grants.length === 0
      ? html`<p>${say("noGrants")}</p>`
      : html`${count > grants.length && html`<p class="note">${say("more")}</p>`}
        ${table({
          caption: say("grants"),
          columns: [...columns.map(say), ""],
          rows: grants.map((grant) => row(view, grant, isOfOneApp)),
        })}`;
  return { title: say("grants"), body };
}

function row(view: View, grant: GrantRecord, isOfOneApp: boolean) {
  const { language, nowMs, visitor } = view;
  const { app, openId, granted, grantedAtMs, used, refreshError } = grant;
  const state = grantStateAt(grant, nowMs);
  return [
    isOfOneApp ? who(openId) : html`${who(openId)} (${app})`,
    stateText(view, grant),
    list(granted.map((scope) => wordsOfScope(scope, language) ?? scope)),
    moment(view, grantedAtMs),
    state === "active" && moment(view, grantEndsAtMs(grant)),
    list(
      used
        .slice(0, maxUses)
        .map(
          ({ tool, title, atMs }) =>
            html`${title === undefined ? tool : textIn(title, language)}, ${moment(view, atMs)}`,
        ),
    ),
    refreshError !== undefined && html`${refreshError.reason}, ${moment(view, refreshError.atMs)}`,
    visitor?.role === "operator" &&
      state !== "ended" &&
      actionForm(view, { path: "/grants/end", label: "endGrant", fields: { app, person: openId } }),
  ];
}

function stateText(view: View, grant: GrantRecord): Html {
  const { say, nowMs } = view;
  const state = grantStateAt(grant, nowMs);
  if (state !== "ended") return html`${say(state === "active" ? "grantActive" : "grantLapsed")}`;
  const { reason = "", atMs = 0 } = grant.ended ?? {};
  const why =
    reason === "person"
      ? say("endedByPerson")
      : reason === "operator"
        ? say("endedByOperator")
        : reason;
  return html`${say("grantEnded")}, ${moment(view, atMs)} (${why})`;
}

function list(items: readonly (string | Html)[]): Html | false {
  return (
    items.length > 0 &&
    html`<ul>
      ${items.map((item) => html`<li>${item}</li>`)}
    </ul>`
  );
}
