import { decidersText } from "@larkline/agent/permissions";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol";
import type { Approval, ContentPart, InboundMessage, Message, QueuedMessage } from "@larkline/protocol";
import type { ApprovalStatus, OutboxRecord, SessionSummary } from "@larkline/store";
import { html, type Html, type HtmlValue } from "./html.ts";
import { facts, moment, table } from "./parts.ts";
import { sessionPath, whyPath } from "./paths.ts";
import { actionForm, type Page, type View } from "./view.ts";
import type { Word } from "./words.ts";

export interface ShownSession {
  key: string;
  /** Undefined: what is stored of its turn cannot be read. */
  summary: SessionSummary | undefined;
  /** The newest of the history, oldest first. */
  messages: readonly Message[];
  /** Messages behind the one being answered. */
  waiting: readonly QueuedMessage[];
  /** Questions that nobody has settled. */
  approvals: readonly ApprovalStatus[];
  unsent: readonly OutboxRecord[];
  /** Only when an operator has asked for it, and that is noted. */
  isContentShown: boolean;
}

/** What a part says, apart from what it is. */
function contentOf(part: ContentPart): string {
  switch (part.type) {
    case "text":
    case "thinking":
      return part.text;
    case "tool_use":
      return JSON.stringify(part.arguments, null, 2);
    case "tool_result":
      return typeof part.content === "string"
        ? part.content
        : part.content.map((inner) => (inner.type === "text" ? inner.text : "[image]")).join("\n");
    case "file":
      return part.name;
    case "image":
      return "";
  }
}

/** Which part it is; the names of tools are no content. */
function labelOf(part: ContentPart): string {
  if (part.type === "tool_use") return `tool_use ${part.name}`;
  return part.type === "tool_result" && part.isError ? "tool_result (error)" : part.type;
}

function partOf({ say }: View, part: ContentPart, isShown: boolean): Html {
  const content = contentOf(part);
  const size = `${labelOf(part)}, ${content.length} ${say("characters")}`;
  return html`<div>
    <span class="quiet">${size}${!isShown && `, ${say("hidden")}`}</span
    >${isShown && content !== "" && html`<pre>${content}</pre>`}
  </div>`;
}

function historyOf(view: View, { summary, messages, isContentShown }: ShownSession): Html {
  const { say } = view;
  const first = (summary?.messages ?? messages.length) - messages.length + 1;
  return html`<h2>${say("history")}</h2>
    ${table({
      caption: say("history"),
      columns: ["#", say("role"), say("content")],
      rows: messages.map(({ role, content }, at) => [
        first + at,
        role,
        content.map((part) => partOf(view, part, isContentShown)),
      ]),
    })}`;
}

function traceLink(message: InboundMessage): Html {
  const traceId = traceIdOf(traceparentOfMessage(message));
  return html`<a href="${whyPath(traceId)}"><code>${traceId.slice(0, 8)}</code></a>`;
}

/** Who waits since when, the one being answered first. */
function inboxOf(view: View, { summary, waiting, isContentShown }: ShownSession): Html {
  const { say, language } = view;
  const head = summary?.head;
  const queued = [...(head === undefined ? [] : [head]), ...waiting];
  return html`<h2>${say("inbox")}</h2>
    ${table({
      caption: say("inbox"),
      columns: ["#", say("sender"), say("sent"), say("content"), say("trace")],
      rows: queued.map(({ seq, message }) => [
        seq,
        message.sender.name ?? message.sender.id,
        moment(language, message.createdAtMs),
        message.command === undefined
          ? message.parts.map((part) => partOf(view, part, isContentShown))
          : `/${message.command.name}`,
        traceLink(message),
      ]),
    })}`;
}

/** Turns that wait for people while others of the group are answered: whose approval, and since when. */
function asideOf(view: View, { setAside }: SessionSummary, approvals: readonly ApprovalStatus[]): Html | false {
  const { say, language } = view;
  if (setAside.length === 0) return false;
  return html`<h2>${say("setAside")}</h2>
    <p class="quiet">${say("setAsideAre")}</p>
    ${table({
      caption: say("setAside"),
      columns: ["#", say("sender"), say("tool"), say("deciders"), say("asked"), say("trace")],
      rows: setAside.map(({ head: { seq, message }, turn }) => {
        const ids = new Set(turn?.calls.map(({ approvalId }) => approvalId));
        const asked = approvals.filter(({ approval }) => ids.has(approval.id)).map(({ approval }) => approval);
        const lines = (of: (approval: ApprovalStatus["approval"]) => HtmlValue) =>
          asked.map((approval) => html`<div>${of(approval)}</div>`);
        return [
          seq,
          message.sender.name ?? message.sender.id,
          asked.length === 0 ? say("decidedAlready") : lines(({ tool }) => tool),
          lines(({ deciders, requester }) => decidedBy(view, deciders, requester)),
          lines(({ createdAtMs }) => moment(language, createdAtMs)),
          traceLink(message),
        ];
      }),
    })}`;
}

function decidedBy({ language }: View, deciders: Approval["deciders"], { name, id }: Approval["requester"]): string {
  return decidersText(deciders, { language, requester: name ?? id, nameOf: () => undefined });
}

function callsOf(view: View, { turn }: SessionSummary): Html | false {
  const { say } = view;
  const open = turn?.calls.filter(({ state }) => state !== "done") ?? [];
  if (open.length === 0) return false;
  return html`<h2>${say("calls")}</h2>
    ${table({
      caption: say("calls"),
      columns: [say("call"), say("tool"), say("state")],
      rows: open.map(({ id, name, state }) => [id, name, state]),
    })}`;
}

function approvalsOf(view: View, approvals: readonly ApprovalStatus[]): Html {
  const { say, language } = view;
  return html`<h2>${say("openApprovals")}</h2>
    ${table({
      caption: say("openApprovals"),
      columns: [say("tool"), say("requester"), say("deciders"), say("asked"), say("expires")],
      rows: approvals.map(({ approval: { tool, requester, deciders, createdAtMs, expiresAtMs } }) => [
        tool,
        requester.name ?? requester.id,
        decidedBy(view, deciders, requester),
        moment(language, createdAtMs),
        moment(language, expiresAtMs),
      ]),
    })}`;
}

function unsentOf(view: View, { unsent, isContentShown }: ShownSession): Html {
  const { say, language } = view;
  return html`<h2>${say("unsent")}</h2>
    ${table({
      caption: say("unsent"),
      columns: [say("reply"), say("added"), say("tries"), say("content")],
      rows: unsent.map(({ id, createdAtMs, attempts, text }) => [
        id,
        moment(language, createdAtMs),
        attempts,
        partOf(view, { type: "text", text }, isContentShown),
      ]),
    })}`;
}

function factsOf({ say, language }: View, { state, gen, epoch, turn, ...counts }: SessionSummary): Html {
  return facts([
    [say("state"), state],
    [say("generation"), gen],
    [say("epoch"), epoch],
    [say("waitingMessages"), counts.waiting],
    [say("messages"), counts.messages],
    [say("inContext"), counts.inContext],
    [say("unsent"), counts.unsent],
    [say("turn"), turn && html`${turn.turnId}, ${moment(language, turn.startedAtMs)}`],
    [say("steps"), turn?.steps],
    [say("model"), counts.settings.model],
  ]);
}

/** What operators may do; what cannot be undone is asked about on a page of its own. */
function actsOf(view: View, { key, summary, waiting }: ShownSession): Html {
  const { say } = view;
  const path = sessionPath(key);
  return html`<div class="row">
    ${
      summary !== undefined &&
      summary.state !== "idle" &&
      actionForm(view, { path: `${path}/cancel`, label: "cancelTurn" })
    }
    <a class="button" href="${path}/reset">${say("reset")}…</a>
    ${waiting.length > 0 && html`<a class="button" href="${path}/drop">${say("dropWaiting")}…</a>`}
  </div>`;
}

function contentNote(view: View, { key, isContentShown }: ShownSession): Html | false {
  const { say, visitor } = view;
  if (isContentShown) return false;
  return html`<p class="quiet">${say("hiddenContent")}</p>
    ${visitor?.role === "operator" && actionForm(view, { path: `${sessionPath(key)}/content`, label: "showContent" })}`;
}

function unreadableNote({ say }: View, { summary }: ShownSession): Html | false {
  const isUnreadable = summary === undefined || summary.head?.unreadable === true;
  return isUnreadable && html`<p class="note" role="alert">${say("unreadableSession")}</p>`;
}

/** Which parts of what is stored are damaged, and why. */
function damageNotes({ say }: View, { summary }: ShownSession): Html[] {
  if (summary === undefined) return [];
  const turns = [summary, ...summary.setAside].flatMap(({ damaged }) => (damaged === undefined ? [] : [damaged]));
  const { damagedSettings } = summary;
  return [
    ...turns.map((reason) => html`<p class="note" role="alert">${say("damagedTurn")} ${reason}</p>`),
    ...(damagedSettings === undefined
      ? []
      : [html`<p class="note" role="alert">${say("damagedSettings")} ${damagedSettings}</p>`]),
  ];
}

/** One conversation: how it stands, and what was said in it without the words. */
export function sessionPage(view: View, shown: ShownSession, note?: Word): Page {
  const { say, visitor } = view;
  const { key, summary, messages, waiting, approvals, unsent } = shown;
  const hasInbox = summary?.head !== undefined || waiting.length > 0;
  const hasContent = messages.length > 0 || hasInbox || unsent.length > 0;
  const body = html`${unreadableNote(view, shown)} ${damageNotes(view, shown)}
    ${summary !== undefined && factsOf(view, summary)}
    <p><a href="${whyPath(key)}">${say("why")}</a></p>
    ${visitor?.role === "operator" && actsOf(view, shown)} ${hasContent && contentNote(view, shown)}
    ${hasInbox && inboxOf(view, shown)}
    ${summary !== undefined && html`${asideOf(view, summary, approvals)} ${callsOf(view, summary)}`}
    ${approvals.length > 0 && approvalsOf(view, approvals)} ${unsent.length > 0 && unsentOf(view, shown)}
    ${messages.length > 0 && historyOf(view, shown)}`;
  return { title: `${say("session")} ${key}`, body, ...(note === undefined ? {} : { note }) };
}
