import type { ContentPart, Message } from "@larkline/protocol";
import type { SessionSummary } from "@larkline/session";
import { html, type Html } from "./html.ts";
import { facts, moment, table } from "./parts.ts";
import { sessionPath } from "./paths.ts";
import { actionForm, type Page, type View } from "./view.ts";
import type { Word } from "./words.ts";

export interface ShownSession {
  key: string;
  summary: SessionSummary;
  /** The newest of the history, oldest first. */
  messages: readonly Message[];
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

function historyOf(view: View, { key, summary, messages, isContentShown }: ShownSession): Html {
  const { say, visitor } = view;
  const first = summary.messages - messages.length + 1;
  return html`<h2>${say("history")}</h2>
    ${!isContentShown && html`<p class="quiet">${say("hiddenContent")}</p>`}
    ${
      !isContentShown &&
      visitor?.role === "operator" &&
      actionForm(view, { path: `${sessionPath(key)}/content`, label: "showContent" })
    }
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

/** One conversation: how it stands, and what was said in it without the words. */
export function sessionPage(view: View, shown: ShownSession, note?: Word): Page {
  const { say, language, visitor } = view;
  const { key, summary } = shown;
  const { turn } = summary;
  const open = turn?.calls.filter(({ state }) => state !== "done").map(({ name, state }) => `${name} (${state})`);
  const body = html`${facts([
    [say("state"), summary.state],
    [say("generation"), summary.gen],
    [say("epoch"), summary.epoch],
    [say("waitingMessages"), summary.waiting],
    [say("messages"), summary.messages],
    [say("inContext"), summary.inContext],
    [say("unsent"), summary.unsent],
    [say("turn"), turn && html`${turn.turnId}, ${moment(language, turn.startedAtMs)}`],
    [say("steps"), turn?.steps],
    [say("calls"), open === undefined || open.length === 0 ? undefined : open.join(", ")],
  ])}
  ${
    visitor?.role === "operator" &&
    summary.state !== "idle" &&
    actionForm(view, { path: `${sessionPath(key)}/cancel`, label: "cancelTurn" })
  }
  ${shown.messages.length > 0 && historyOf(view, shown)}`;
  return { title: `${say("session")} ${key}`, body, ...(note === undefined ? {} : { note }) };
}
