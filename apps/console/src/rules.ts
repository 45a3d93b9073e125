import type { FastifyInstance } from "fastify";
import { ruleText } from "@larkline/agent/permissions";
import type { PermissionRule } from "@larkline/protocol/approval";
import {
  countAction,
  order,
  answerPage,
  fieldOf,
  actionForm,
  type Page,
  type View,
} from "./page.ts";
import { html, type Html, moment, table, who } from "./html.ts";
import type { Services } from "./services.ts";

/** Adds the page of permission rules, and taking one back. */
export function registerRules(server: FastifyInstance, services: Services): void {
  const { apps } = services;
  const allRules = async () =>
    await Promise.all(apps.map(async (app) => await rulesOf(services, app)));

  server.get("/rules", async (request, reply) =>
    answerPage(services, request, reply, async (view) => rulesPage(view, await allRules())),
  );
  server.post("/rules/revoke", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const [app, rule] = [fieldOf(request, "app"), fieldOf(request, "rule")];
      if (app === undefined || rule === undefined || !apps.includes(app)) return undefined;
      const words = { done: "revoked", nothing: "ruleGone" } as const;
      const { word, isDone } = await order(
        services,
        view,
        { do: "revoke_rule", app, ruleId: rule },
        words,
      );
      if (isDone) countAction(services, "rule_revoked", request.url);
      return { to: "/rules", note: word };
    }),
  );
}

const maxRules = 500;

interface RulesOfApp {
  app: string;
  rules: readonly PermissionRule[];
  hasMore: boolean;
}

async function rulesOf({ rules: store }: Services, app: string): Promise<RulesOfApp> {
  const rules = await store.list(app);
  return { app, rules: rules.slice(0, maxRules), hasMore: rules.length > maxRules };
}

function row(view: View, rule: PermissionRule) {
  const { say, visitor } = view;
  const { app, id, chatId, person, author, createdAtMs, expiresAtMs } = rule;
  return [
    ruleText(rule),
    who(chatId),
    person === undefined ? say("everybody") : who(person),
    author.name ?? who(author.id),
    moment(view, createdAtMs),
    moment(view, expiresAtMs),
    visitor?.role === "operator" &&
      actionForm(view, { path: "/rules/revoke", label: "revoke", fields: { app, rule: id } }),
  ];
}

function section(view: View, { app, rules, hasMore }: RulesOfApp): Html {
  const { say } = view;
  const columns = ["rule", "chat", "onlyFor", "author", "added", "expires"] as const;
  return html`<section>
    <h2>${app}</h2>
    ${hasMore && html`<p class="note">${say("more")}</p>`}
    ${
      rules.length === 0
        ? html`<p>${say("noRules")}</p>`
        : table({
            caption: `${app}: ${say("rules")}`,
            columns: [...columns.map(say), ""],
            rows: rules.map((rule) => row(view, rule)),
          })
    }
  </section>`;
}

/** Rules that people have made; operators can revoke them. */
function rulesPage(view: View, apps: readonly RulesOfApp[]): Page {
  const body = html`${apps.map((app) => section(view, app))}`;
  return { title: view.say("rules"), body };
}
