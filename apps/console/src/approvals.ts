import { decidersText, maskedArguments } from "@larkline/agent/permissions";
import { textIn } from "@larkline/protocol";
import { operatorsDecide, type Approval } from "@larkline/protocol/approval";
import type { ApprovalStatus, ApprovalStore } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { facts, html, type Html, moment, table, toolText, who, whoIn } from "./html.ts";
import {
  actionForm,
  answerPage,
  countAction,
  fieldOf,
  lookAtContent,
  order,
  problemPage,
  toContent,
  sessionLink,
  shortSessionLink,
  type Page,
  type View,
} from "./page.ts";
import type { Word } from "./words.ts";
import type { Services } from "./services.ts";

interface OfApproval {
  Params: { session: string; id: string };
}

/** Adds the page of questions that wait for people, and deciding those that operators may decide. */
export function registerApprovals(server: FastifyInstance, services: Services): void {
  const openOne = async ({
    session,
    id,
  }: OfApproval["Params"]): Promise<ApprovalStatus | undefined> =>
    (await openApprovals(services.approvals)).approvals.find(
      ({ approval }) => approval.session === session && approval.id === id,
    );
  server.get("/approvals", async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      approvalsPage(view, await openApprovals(services.approvals)),
    ),
  );
  server.post("/approvals/:session/:id/content", toContent);
  server.get<OfApproval>("/approvals/:session/:id", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const status = await openOne(request.params);
      if (status === undefined || !operatorsDecide(status.approval)) return undefined;
      const { session, turnId, callId, tool, app, chatId } = status.approval;
      const call = { session, turnId, callId, tool, app, chatId };
      const record = { kind: "content_shown", ...call } as const;
      const { isShown, problem } = await lookAtContent(services, view, request, record);
      if (problem !== undefined) return problemPage(view, problem);
      return isShown ? approvalPage(view, status) : { to: "/approvals" };
    }),
  );
  server.post<OfApproval>("/approvals/:session/:id/decide", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const [word, argumentsHash, app] = ["word", "hash", "app"].map((name) =>
        fieldOf(request, name),
      );
      if (word !== "approve" && word !== "reject") return undefined;
      if (argumentsHash === undefined || app === undefined) return undefined;
      const act = {
        do: "decide",
        app,
        approvalId: request.params.id,
        word,
        argumentsHash,
      } as const;
      const decided = await order(services, view, act, decideWords);
      if (decided.isDone) {
        countAction(services, `call_${word === "approve" ? "approved" : "rejected"}`, "/approvals");
      }
      return { to: "/approvals", note: decided.word };
    }),
  );
}

const decideWords = {
  done: "wasDecided",
  nothing: "isDecidedAlready",
  not_possible: "notForOperators",
} as const;

/**
 * One call with what it would do, and the two words that an operator may say. Nothing else has such a page: the reason of
 * a consent is what its person wrote, for that person's card alone.
 */
function approvalPage(view: View, { approval }: ApprovalStatus): Page {
  const { say, language } = view;
  const { app, session, words, requester, chatId, reason, risk, argumentsHash, expiresAtMs } =
    approval;
  const path = `${approvalPath(approval)}/decide`;
  const answer = (word: "approve" | "reject"): Html =>
    actionForm(view, { path, label: word, fields: { word, hash: argumentsHash, app } });
  const body = html`${facts([
      [say("tool"), toolIn(approval, language)],
      [
        say("description"),
        words?.summary === undefined ? undefined : textIn(words.summary, language),
      ],
      [say("requester"), requester.name ?? who(requester.id)],
      [say("chat"), who(chatId)],
      [say("reason"), reason === "" ? undefined : reason],
      [say("risk"), risk],
      [say("session"), sessionLink(session)],
      [say("expires"), moment(view, expiresAtMs)],
    ])}
    <pre>
${JSON.stringify(maskedArguments(approval.arguments, approval.secrets), undefined, 2)}</pre>
    <div class="row">
      ${answer("approve")} ${answer("reject")} <a href="/approvals">${say("back")}</a>
    </div>`;
  return { title: `${say("approvals")}: ${toolIn(approval, language)}`, body };
}

function approvalPath({ session, id }: Approval): string {
  return `/approvals/${encodeURIComponent(session)}/${id}`;
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
  const pending = (
    await Promise.all(sessions.map(async (session) => await store.pending(session)))
  ).flat();
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
  const columns = [
    "tool",
    "kind",
    "risk",
    "requester",
    "deciders",
    "decided",
    "session",
    "asked",
    "expires",
  ] as const;
  const body =
    approvals.length === 0
      ? html`<p>${say("noApprovals")}</p>`
      : html`${hasMore && html`<p class="note">${say("more")}</p>`}
        ${table({
          caption: say("openApprovals"),
          columns: [...columns.map(say), ""],
          rows: approvals.map((status) => row(view, status)),
        })}`;
  return { title: say("approvals"), body };
}

const kinds: Readonly<Record<Approval["kind"], Word>> = {
  call: "kindCall",
  outcome: "kindOutcome",
  rule: "kindRule",
  question: "kindQuestion",
  consent: "kindConsent",
};

function row(view: View, { approval, decisions }: ApprovalStatus) {
  const { say, language, visitor } = view;
  const { kind, requester, session, deciders, risk, createdAtMs, expiresAtMs } = approval;
  return [
    toolIn(approval, language),
    say(kinds[kind]),
    risk,
    requester.name ?? who(requester.id),
    whoIn(decidersText(deciders, { language, nameOf: () => undefined })),
    `${decisions.length} / ${deciders.count}`,
    shortSessionLink(session),
    moment(view, createdAtMs),
    moment(view, expiresAtMs),
    visitor?.role === "operator" &&
      operatorsDecide(approval) &&
      actionForm(view, { path: `${approvalPath(approval)}/content`, label: "decideThis" }),
  ];
}

function toolIn({ tool, words }: Approval, language: View["language"]): string {
  return toolText(tool, words?.title, language);
}
