import { decidersText } from "@larkline/agent/permissions";
import type { Approval } from "@larkline/protocol";
import type { ApprovalStatus } from "@larkline/store";
import { html } from "./html.ts";
import type { OpenApprovals } from "./open-approvals.ts";
import { moment, table } from "./parts.ts";
import { sessionPath } from "./paths.ts";
import type { Page, View } from "./view.ts";
import type { Word } from "./words.ts";

const kinds: Readonly<Record<Approval["kind"], Word>> = {
  call: "kindCall",
  outcome: "kindOutcome",
  rule: "kindRule",
};

function row({ say, language }: View, { approval, decisions }: ApprovalStatus) {
  const { tool, kind, requester, session, deciders, risk, createdAtMs, expiresAtMs } = approval;
  return [
    tool,
    say(kinds[kind]),
    risk,
    requester.name ?? requester.id,
    decidersText(deciders, { language, nameOf: () => undefined }),
    `${decisions.length} / ${deciders.count}`,
    html`<a href="${sessionPath(session)}">${session}</a>`,
    moment(language, createdAtMs),
    moment(language, expiresAtMs),
  ];
}

/** What people are being asked; the arguments are on their cards, not here. */
export function approvalsPage(view: View, { approvals, hasMore }: OpenApprovals): Page {
  const { say } = view;
  const columns = ["tool", "kind", "risk", "requester", "deciders", "decided", "session", "asked", "expires"] as const;
  const body =
    approvals.length === 0
      ? html`<p>${say("noApprovals")}</p>`
      : html`${hasMore && html`<p class="note">${say("more")}</p>`}
        ${table({
          caption: say("openApprovals"),
          columns: columns.map(say),
          rows: approvals.map((status) => row(view, status)),
        })}`;
  return { title: say("approvals"), body };
}
