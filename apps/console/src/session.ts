import { parserOf, SessionKey, type InboundMessage, type QueuedMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { ContentPart, Message } from "@larkline/protocol/content";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol/trace";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { decidersText } from "@larkline/agent/permissions";
import type { ApprovalStatus, OutboxRecord, SessionSummary } from "@larkline/store";
import {
  countAction,
  confirmPage,
  type Question,
  lookAtContent,
  order,
  toContent,
  answerPage,
  chatOfSession,
  sessionPath,
  problemPage,
  type View,
  whyPath,
  actionForm,
  type Page,
} from "./page.ts";
import { runsPath } from "./runs.ts";
import { isUnreadable } from "./sessions.ts";
import type { Word } from "./words.ts";
import { html, type Html, type HtmlValue, facts, moment, table, who, whoIn } from "./html.ts";
import type { Services } from "./services.ts";

/** Adds the page of one session, showing its content, and what can be done to it. */
export function registerSession(server: FastifyInstance, services: Services): void {
  const ask = async (
    name: keyof typeof questions,
    [request, reply]: [FastifyRequest<OfSession>, FastifyReply],
  ) =>
    await answerPage(services, request, reply, async (view) => {
      if (view.visitor?.role !== "operator") return problemPage(view, "viewersLook");
      const found = await sessionOf(services, request.params.key);
      if (found === undefined) return undefined;
      const back = sessionPath(found.key);
      return confirmPage(view, {
        ...questions[name],
        title: `${view.say(questions[name].label)}: ${found.key}`,
        path: `${back}/${name}`,
        back,
      });
    });

  server.get<OfSession>("/sessions/:key", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const found = await sessionOf(services, request.params.key);
      if (found === undefined) return undefined;
      const record = { kind: "content_shown", session: found.key } as const;
      const { isShown, problem } = await lookAtContent(services, view, request, record);
      if (problem !== undefined) return problemPage(view, problem);
      return sessionPage(view, { ...found, isContentShown: isShown });
    }),
  );
  server.get<OfSession>("/sessions/:key/reset", async (request, reply) =>
    ask("reset", [request, reply]),
  );
  server.get<OfSession>("/sessions/:key/drop", async (request, reply) =>
    ask("drop", [request, reply]),
  );
  server.post("/sessions/:key/content", toContent);
  for (const [name, act] of Object.entries(ordersOf(services))) {
    server.post<OfSession>(`/sessions/:key/${name}`, async (request, reply) =>
      answerPage(services, request, reply, async (view) => {
        const found = await sessionOf(services, request.params.key);
        if (found === undefined) return undefined;
        return { to: sessionPath(found.key), note: await act(found, view) };
      }),
    );
  }
}

interface OfSession {
  Params: { key: string };
}

const parseKey = parserOf(SessionKey);

const questions: Readonly<Record<"reset" | "drop", Pick<Question, "texts" | "label">>> = {
  reset: { texts: ["resetEnds", "resetBegins", "resetEffects"], label: "reset" },
  drop: { texts: ["dropTakes", "dropForever"], label: "dropWaiting" },
};

type Act = (found: ReadSession, view: View) => Promise<Word>;

function ordersOf(services: Services): Readonly<Record<"cancel" | "reset" | "drop", Act>> {
  return {
    async cancel({ key: session, summary }, view) {
      if (summary?.head === undefined || summary.state === "idle") return "nothingRuns";
      const words = { done: "cancelled", nothing: "nothingRuns" } as const;
      const { word, isDone } = await order(
        services,
        view,
        { do: "cancel", session, seq: summary.head.seq },
        words,
      );
      if (isDone) countAction(services, "turn_cancelled", sessionPath(session));
      return word;
    },
    async reset({ key: session }, view) {
      const words = { done: "wasReset", nothing: "resetIdle" } as const;
      const { word, result } = await order(services, view, { do: "reset", session }, words);
      if (result !== undefined) countAction(services, "session_reset", sessionPath(session));
      return word;
    },
    async drop({ key: session }, view) {
      const words = { done: "dropped", nothing: "nothingWaits" } as const;
      const { word, result } = await order(services, view, { do: "drop", session }, words);
      if (result !== undefined) countAction(services, "inbox_dropped", sessionPath(session));
      return word;
    },
  };
}

interface ShownSession {
  key: string;
  /** Undefined: what is stored of its turn cannot be read. */
  summary: SessionSummary | undefined;
  /** The newest of the history, oldest first. */
  messages: readonly Message[];
  /** Messages behind the one being answered. */
  waiting: readonly QueuedMessage[];
  /** Open questions. */
  approvals: readonly ApprovalStatus[];
  unsent: readonly OutboxRecord[];
  /** Notes that are kept of its chat. */
  notes: number;
  /** Only when an operator has asked for it, and that is noted. */
  isContentShown: boolean;
}

type ReadSession = Omit<ShownSession, "isContentShown">;

/** As many of the newest messages, and of those that wait, as a page shows. */
const maxMessages = 100;

const maxWaiting = 50;

const maxUnsent = 20;

/** Undefined when there is no such session. */
async function sessionOf(
  { store, approvals, index, memories }: Services,
  given: string,
): Promise<ReadSession | undefined> {
  const key = parseKey(given);
  if (!key.ok) return undefined;
  try {
    const summary = await store.summary(key.value);
    if (summary.gen === 0 && summary.messages === 0 && summary.unsent === 0) return undefined;
    const [history, waiting, pending, unsent, notes] = await Promise.all([
      summary.messages === 0 ? [] : store.history(key.value),
      store.waiting(key.value, maxWaiting),
      approvals.pending(key.value),
      index.unsent(key.value, maxUnsent),
      memories.count(chatOf(key.value)),
    ]);
    return {
      key: key.value,
      summary,
      messages: history.slice(-maxMessages),
      waiting,
      approvals: pending,
      unsent,
      notes,
    };
  } catch (error) {
    if (isUnreadable(error)) return unreadable(key.value);
    throw error;
  }
}

/** The owner of the notes of a chat; over HTTP each session is one. */
function chatOf(session: SessionKey): Parameters<Services["memories"]["count"]>[0] {
  const [app = "", chat = ""] = session.split(".");
  return { kind: "chat", app, id: app === "api" ? session : chat };
}

/** What is left of a session that no version can read: that it is there, so that it can be reset. */
function unreadable(key: SessionKey): ReadSession {
  return {
    key,
    summary: undefined,
    messages: [],
    waiting: [],
    approvals: [],
    unsent: [],
    notes: 0,
  };
}

/** One conversation: how it stands, and what was said in it without the words. */
function sessionPage(view: View, shown: ShownSession): Page {
  const { say, visitor } = view;
  const { key, summary, messages, waiting, approvals, unsent } = shown;
  const hasInbox = summary?.head !== undefined || waiting.length > 0;
  const hasContent = messages.length > 0 || hasInbox || unsent.length > 0;
  const body = html`${unreadableNote(view, shown)} ${damageNotes(view, shown)}
    ${summary !== undefined && factsOf(view, summary, shown)}
    <p><a href="${whyPath(key)}">${say("why")}</a></p>
    ${visitor?.role === "operator" && actsOf(view, shown)} ${hasContent && contentNote(view, shown)}
    ${hasInbox && inboxOf(view, shown)}
    ${summary !== undefined && html`${asideOf(view, summary, approvals)} ${callsOf(view, summary)}`}
    ${approvals.length > 0 && approvalsOf(view, approvals)}
    ${unsent.length > 0 && unsentOf(view, shown)} ${messages.length > 0 && historyOf(view, shown)}`;
  return {
    title: `${say("session")} ${key}`,
    body,
    ...(shown.isContentShown && { note: "shown" as const }),
  };
}

function unreadableNote({ say }: View, { summary }: ShownSession): Html | false {
  const isLost = summary === undefined || summary.head?.unreadable === true;
  return isLost && html`<p class="note" role="alert">${say("unreadableSession")}</p>`;
}

/** Which parts of what is stored are damaged, and why. */
function damageNotes({ say }: View, { summary }: ShownSession): Html[] {
  if (summary === undefined) return [];
  const turns = [summary, ...summary.setAside].flatMap(({ damaged }) =>
    damaged === undefined ? [] : [damaged],
  );
  const { damagedSettings } = summary;
  return [
    ...turns.map(
      (reason) => html`<p class="note" role="alert">${say("damagedTurn")} ${reason}</p>`,
    ),
    ...(damagedSettings === undefined
      ? []
      : [html`<p class="note" role="alert">${say("damagedSettings")} ${damagedSettings}</p>`]),
  ];
}

function factsOf(
  view: View,
  { state, gen, epoch, turn, ...counts }: SessionSummary,
  { key, notes }: Pick<ShownSession, "key" | "notes">,
): Html {
  const { say } = view;
  return facts([
    [
      say("chat"),
      html`<a href="${runsPath({ chat: chatOfSession(key) })}">${who(chatOfSession(key))}</a>`,
    ],
    [say("state"), state],
    [say("generation"), gen],
    [say("epoch"), epoch],
    [say("waitingMessages"), counts.waiting],
    [say("messages"), counts.messages],
    [say("inContext"), counts.inContext],
    [say("unsent"), counts.unsent],
    [say("notes"), notes],
    [say("turn"), turn && html`${turn.turnId}, ${moment(view, turn.startedAtMs)}`],
    [say("steps"), turn?.steps],
    [say("model"), counts.settings.model],
    [say("speaker"), turn?.agent ?? counts.settings.agent?.to],
  ]);
}

/** What operators may do; a page of its own asks before an action that cannot be undone. */
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

/** Who waits since when, the one being answered first. */
function inboxOf(view: View, { summary, waiting, isContentShown }: ShownSession): Html {
  const { say } = view;
  const head = summary?.head;
  const queued = [...(head === undefined ? [] : [head]), ...waiting];
  return html`<h2>${say("inbox")}</h2>
    ${table({
      caption: say("inbox"),
      columns: ["#", say("sender"), say("sent"), say("content"), say("trace")],
      rows: queued.map(({ seq, message }) => [
        seq,
        message.sender.name ?? who(message.sender.id),
        moment(view, message.createdAtMs),
        message.command === undefined
          ? message.parts.map((part) => partOf(view, part, isContentShown))
          : `/${message.command.name}`,
        traceLink(message),
      ]),
    })}`;
}

function traceLink(message: InboundMessage): Html {
  const traceId = traceIdOf(traceparentOfMessage(message));
  return html`<a href="${whyPath(traceId)}"><code>${traceId.slice(0, 8)}</code></a>`;
}

/** Turns that wait for people while others of the group are answered: whose approval, and since when. */
function asideOf(
  view: View,
  { setAside }: SessionSummary,
  approvals: readonly ApprovalStatus[],
): Html | false {
  const { say } = view;
  if (setAside.length === 0) return false;
  return html`<h2>${say("setAside")}</h2>
    <p class="quiet">${say("setAsideAre")}</p>
    ${table({
      caption: say("setAside"),
      columns: ["#", say("sender"), say("tool"), say("deciders"), say("asked"), say("trace")],
      rows: setAside.map(({ head: { seq, message }, turn }) => {
        const ids = new Set(turn?.calls.map(({ approvalId }) => approvalId));
        const asked = approvals
          .filter(({ approval }) => ids.has(approval.id))
          .map(({ approval }) => approval);
        const lines = (of: (approval: ApprovalStatus["approval"]) => HtmlValue) =>
          asked.map((approval) => html`<div>${of(approval)}</div>`);
        return [
          seq,
          message.sender.name ?? who(message.sender.id),
          asked.length === 0 ? say("decidedAlready") : lines(({ tool }) => tool),
          lines(({ deciders, requester }) => decidedBy(view, deciders, requester)),
          lines(({ createdAtMs }) => moment(view, createdAtMs)),
          traceLink(message),
        ];
      }),
    })}`;
}

function decidedBy(
  { language }: View,
  deciders: Approval["deciders"],
  { name, id }: Approval["requester"],
): Html {
  return whoIn(
    decidersText(deciders, { language, requester: name ?? id, nameOf: () => undefined }),
  );
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
  const { say } = view;
  return html`<h2>${say("openApprovals")}</h2>
    ${table({
      caption: say("openApprovals"),
      columns: [say("tool"), say("requester"), say("deciders"), say("asked"), say("expires")],
      rows: approvals.map(
        ({ approval: { tool, requester, deciders, createdAtMs, expiresAtMs } }) => [
          tool,
          requester.name ?? who(requester.id),
          decidedBy(view, deciders, requester),
          moment(view, createdAtMs),
          moment(view, expiresAtMs),
        ],
      ),
    })}`;
}

function unsentOf(view: View, { unsent, isContentShown }: ShownSession): Html {
  const { say } = view;
  return html`<h2>${say("unsent")}</h2>
    ${table({
      caption: say("unsent"),
      columns: [say("reply"), say("added"), say("tries"), say("content")],
      rows: unsent.map(({ id, createdAtMs, attempts, text }) => [
        id,
        moment(view, createdAtMs),
        attempts,
        partOf(view, { type: "text", text }, isContentShown),
      ]),
    })}`;
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

function partOf({ say }: View, part: ContentPart, isShown: boolean): Html {
  const content = contentOf(part);
  const size = `${labelOf(part)}, ${content.length} ${say("characters")}`;
  return html`<div>
    <span class="quiet">${size}${!isShown && `, ${say("hidden")}`}</span
    >${isShown && content !== "" && html`<pre>${content}</pre>`}
  </div>`;
}

/** Which part it is; the names of tools are no content. */
function labelOf(part: ContentPart): string {
  if (part.type === "tool_use") return `tool_use ${part.name}`;
  return part.type === "tool_result" && part.isError ? "tool_result (error)" : part.type;
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
