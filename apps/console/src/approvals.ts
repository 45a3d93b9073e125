import { decidersText } from "@larkline/agent/permissions";
import { textIn, type Approval } from "@larkline/protocol";
import type { ApprovalStatus, ApprovalStore } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { html, moment, table, who, whoIn } from "./html.ts";
import { answerPage, sessionPath, type Page, type View } from "./page.ts";
import type { Word } from "./words.ts";
import type { Services } from "./services.ts";

/** Adds the page of questions that wait for people. */
export function registerApprovals(server: FastifyInstance, services: Services): void {
  server.get("/approvals", async (request, reply) =>
    answerPage(services, request, reply, async (view) => approvalsPage(view, await openApprovals(services.approvals))),
  );
}

const maxListed = 200;

/** Open questions, those that expire first before others. */
export interface OpenApprovals {
  approvals: ApprovalStatus[];
  /** There are more than these. */
  hasMore: boolean;
}

/** All that is pending in all sessions, at most {@link maxListed} of them. */
export async function openApprovals(store: ApprovalStore): Promise<OpenApprovals> {
  const due = await store.dueExpiries(endOfTime, maxListed + 1);
  const sessions = [...new Set(due.map(({ session }) => session))];
  const pending = (await Promise.all(sessions.map(async (session) => await store.pending(session)))).flat();
  const byId = new Map(pending.map((status) => [status.approval.id, status]));
  // One that was settled meanwhile is not pending any more.
  const approvals = due.slice(0, maxListed).flatMap(({ approvalId }) => byId.get(approvalId) ?? []);
  return { approvals, hasMore: due.length > maxListed };
}

/** Later than anything expires: then everything that is pending is due. */
const endOfTime = Number.MAX_SAFE_INTEGER;

/** What people are being asked; the arguments are on their cards, not here. */
function approvalsPage(view: View, { approvals, hasMore }: OpenApprovals): Page {
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

const kinds: Readonly<Record<Approval["kind"], Word>> = {
  call: "kindCall",
  outcome: "kindOutcome",
  rule: "kindRule",
  question: "kindQuestion",
};

function row({ say, language }: View, { approval, decisions }: ApprovalStatus) {
  const { tool, words, kind, requester, session, deciders, risk, createdAtMs, expiresAtMs } = approval;
  return [
    words?.title === undefined ? tool : `${textIn(words.title, language)} (${tool})`,
    say(kinds[kind]),
    risk,
    requester.name ?? who(requester.id),
    whoIn(decidersText(deciders, { language, nameOf: () => undefined })),
    `${decisions.length} / ${deciders.count}`,
    html`<a href="${sessionPath(session)}">${session}</a>`,
    moment(language, createdAtMs),
    moment(language, expiresAtMs),
  ];
}
