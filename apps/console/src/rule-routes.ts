import type { FastifyInstance } from "fastify";
import { answerPage, fieldOf, type PagesDeps } from "./pages.ts";
import { rulesPage, type RulesOfApp } from "./rules-page.ts";
import type { Word } from "./words.ts";

export interface RuleRoutesDeps extends PagesDeps {
  /** Apps whose rules are shown. */
  apps: readonly string[];
}

const maxRules = 500;

/** The name of the console where a person's would stand. */
export const consoleId = "console";

async function rulesOf({ backend }: RuleRoutesDeps, app: string): Promise<RulesOfApp> {
  const rules = await backend.rules.list(app);
  return { app, rules: rules.slice(0, maxRules), hasMore: rules.length > maxRules };
}

/** Adds the page of permission rules, and taking one back. */
export function registerRuleRoutes(server: FastifyInstance, deps: RuleRoutesDeps): void {
  const { apps, backend, onAction } = deps;
  const allRules = async () => await Promise.all(apps.map(async (app) => await rulesOf(deps, app)));

  server.get("/rules", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => rulesPage(view, await allRules())),
  );
  server.post("/rules/revoke", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const [app, rule] = [fieldOf(request, "app"), fieldOf(request, "rule")];
      if (app === undefined || rule === undefined || !apps.includes(app)) return undefined;
      const revoked = await backend.rules.revoke(app, rule, { id: consoleId });
      if (revoked !== undefined) onAction("rule_revoked", request.url);
      const note: Word = revoked === undefined ? "ruleGone" : "revoked";
      return rulesPage({ ...view, url: "/rules" }, await allRules(), note);
    }),
  );
}
