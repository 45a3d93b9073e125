import type { FastifyInstance } from "fastify";
import { order } from "./orders.ts";
import { answerPage, fieldOf, type PagesDeps } from "./pages.ts";
import { rulesPage, type RulesOfApp } from "./rules-page.ts";

export interface RuleRoutesDeps extends PagesDeps {
  /** Apps whose rules are shown. */
  apps: readonly string[];
}

const maxRules = 500;

async function rulesOf({ backend }: RuleRoutesDeps, app: string): Promise<RulesOfApp> {
  const rules = await backend.rules.list(app);
  return { app, rules: rules.slice(0, maxRules), hasMore: rules.length > maxRules };
}

/** Adds the page of permission rules, and taking one back. */
export function registerRuleRoutes(server: FastifyInstance, deps: RuleRoutesDeps): void {
  const { apps, onAction } = deps;
  const allRules = async () => await Promise.all(apps.map(async (app) => await rulesOf(deps, app)));

  server.get("/rules", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => rulesPage(view, await allRules())),
  );
  server.post("/rules/revoke", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const [app, rule] = [fieldOf(request, "app"), fieldOf(request, "rule")];
      if (app === undefined || rule === undefined || !apps.includes(app)) return undefined;
      const words = { done: "revoked", nothing: "ruleGone" } as const;
      const { word, isDone } = await order(deps, { do: "revoke_rule", app, ruleId: rule }, words);
      if (isDone) onAction("rule_revoked", request.url);
      return rulesPage({ ...view, url: "/rules" }, await allRules(), word);
    }),
  );
}
