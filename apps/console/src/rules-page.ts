import { ruleText } from "@larkline/agent/permissions";
import type { PermissionRule } from "@larkline/protocol";
import { html, type Html } from "./html.ts";
import { moment, table } from "./parts.ts";
import { actionForm, type Page, type View } from "./view.ts";
import type { Word } from "./words.ts";

export interface RulesOfApp {
  app: string;
  rules: readonly PermissionRule[];
  hasMore: boolean;
}

function row(view: View, rule: PermissionRule) {
  const { say, language, visitor } = view;
  const { app, id, chatId, person, author, createdAtMs, expiresAtMs } = rule;
  return [
    ruleText(rule),
    chatId,
    person ?? say("everybody"),
    author.name ?? author.id,
    moment(language, createdAtMs),
    moment(language, expiresAtMs),
    visitor?.role === "operator" &&
      actionForm(view, { path: "/rules/revoke", label: "revoke", fields: { app, rule: id } }),
  ];
}

function section(view: View, { app, rules, hasMore }: RulesOfApp): Html {
  const { say } = view;
  const columns = ["rule", "chat", "person", "author", "added", "expires"] as const;
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

/** What is always allowed, because somebody said so; operators take it back. */
export function rulesPage(view: View, apps: readonly RulesOfApp[], note?: Word): Page {
  const body = html`${apps.map((app) => section(view, app))}`;
  return { title: view.say("rules"), body, ...(note === undefined ? {} : { note }) };
}
