import { hash } from "node:crypto";
import type { ReplyLanguage } from "@larkline/protocol";
import type { ErrorCode } from "@larkline/protocol/error";
import type { DeadLetterFacts } from "@larkline/store";
import { outcomeKind, type RunRecord } from "@larkline/store/operations";
import type { FastifyInstance } from "fastify";
import { html, type Html, moment, table } from "./html.ts";
import {
  answerPage,
  confirmPage,
  countAction,
  fieldOf,
  order,
  type Move,
  type Page,
  problemPage,
  type View,
} from "./page.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

// What went wrong lately, in words: failures of one kind are one line, with their number and the last time.

export const errorsPath = "/errors";

/** Adds the page of errors, and trying again what was given up for one reason. */
export function registerErrors(server: FastifyInstance, services: Services): void {
  server.get(errorsPath, async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      errorsPage(view, await errorsOf(services)),
    ),
  );
  server.get<OfGroup>(`${errorsPath}/again`, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      if (view.visitor?.role !== "operator") return problemPage(view, "viewersLook");
      const group = await groupNamed(services, String(request.query.group));
      if (group === undefined) return undefined;
      const isMessage = group.letters[0]?.kind === "message";
      return confirmPage(view, {
        title: `${view.say("tryAllAgain")}: ${group.letters.length}`,
        texts: isMessage ? ["againRuns", "againEffects", "atMostAtOnce"] : ["atMostAtOnce"],
        path: `${errorsPath}/again`,
        label: "tryAllAgain",
        fields: { group: group.fingerprint },
        back: errorsPath,
      });
    }),
  );
  server.post(`${errorsPath}/again`, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const group = await groupNamed(services, fieldOf(request, "group") ?? "");
      return group === undefined
        ? { to: errorsPath, note: "lettersGone" }
        : await tryAgain(services, view, group.letters);
    }),
  );
}

interface OfGroup {
  Querystring: { group?: unknown };
}

/** Of the newest, whichever they are. */
const maxRuns = 2_000;
const maxLetters = 500;
/** As many letters as workers settle while one page is waited for. */
const maxAtOnce = 20;
const spanMs = 86_400_000;

/** Runs that failed in the same way. */
interface FailedGroup {
  fingerprint: string;
  outcome: string;
  problem: string;
  count: number;
  lastAtMs: number;
}

/** What was given up for the same reason, the newest first. */
interface LetterGroup {
  fingerprint: string;
  letters: DeadLetterFacts[];
}

interface Errors {
  failed: FailedGroup[];
  /** Only the newest runs were looked at. */
  isCut: boolean;
  letters: LetterGroup[];
}

async function errorsOf(services: Services): Promise<Errors> {
  const { clock, runs, letters } = services;
  const sinceMs = clock.now() - spanMs;
  const [page, given] = await Promise.all([
    runs.page({ limit: maxRuns, sinceMs, matches: isFailed }),
    letters.list(maxLetters),
  ]);
  const failed = [...Map.groupBy(page.runs, fingerprintOf)].map(([common, ofKind]) => ({
    fingerprint: common,
    outcome: ofKind[0]?.outcome ?? "",
    problem: ofKind[0]?.problem ?? "",
    count: ofKind.length,
    lastAtMs: Math.max(...ofKind.map(({ endedAtMs }) => endedAtMs)),
  }));
  return {
    failed: failed.toSorted((one, other) => other.lastAtMs - one.lastAtMs),
    isCut: page.next !== undefined,
    letters: groupsOf(given),
  };
}

function groupsOf(letters: readonly DeadLetterFacts[]): LetterGroup[] {
  const newest = letters.toSorted((one, other) => other.atMs - one.atMs);
  const groups = Map.groupBy(newest, ({ kind, reason }) => fingerprint(kind, reason));
  return [...groups].map(([of, ofKind]) => ({ fingerprint: of, letters: ofKind }));
}

async function groupNamed({ letters }: Services, name: string): Promise<LetterGroup | undefined> {
  const groups = groupsOf(await letters.list(maxLetters));
  return groups.find(
    (group) => group.fingerprint === name && group.letters[0]?.kind !== "approval",
  );
}

function isFailed({ outcome }: RunRecord): boolean {
  return outcomeKind(outcome) === "failed";
}

/** What runs that failed in the same way have in common. */
export function fingerprintOf({ outcome, problem = "" }: RunRecord): string {
  return fingerprint(outcome, problem);
}

/** Ids, numbers and times differ from failure to failure. */
function fingerprint(kind: string, text: string): string {
  const same = text.toLowerCase().replaceAll(/[\w-]*\d[\w-]*/g, "#");
  return hash("sha256", `${kind}\n${same}`, "base64url").slice(0, 12);
}

/** Each letter is an order of its own, with a record of its own; one that another operator was faster with is gone. */
async function tryAgain(
  services: Services,
  view: View,
  letters: readonly DeadLetterFacts[],
): Promise<Move> {
  const words = { done: "allTriedAgain", nothing: "lettersGone" } as const;
  const results = await Promise.all(
    letters.slice(0, maxAtOnce).map(async ({ session, id: letterId }) => {
      const act = { do: "retry_letter", session, letterId } as const;
      return await order(services, view, act, words);
    }),
  );
  countAction(services, "letters_retried", errorsPath);
  const isWhole = letters.length <= maxAtOnce && results.every(({ isDone }) => isDone);
  return { to: errorsPath, note: isWhole ? "allTriedAgain" : "someTriedAgain" };
}

function errorsPage(view: View, { failed, isCut, letters }: Errors): Page {
  const { say } = view;
  const body = html`<p class="quiet">${say("errorsAre")}</p>
    ${isCut && html`<p class="note">${say("newestAlone")}</p>`}
    <h2>${say("failedRuns")}</h2>
    ${
      failed.length === 0
        ? html`<p class="quiet">${say("noErrors")}</p>`
        : table({
            caption: say("failedRuns"),
            columns: [say("letterWhat"), say("errorText"), say("times"), say("lastSeen")],
            rows: failed.map((group) => failedRow(view, group)),
          })
    }
    <h2>${say("letters")}</h2>
    ${
      letters.length === 0
        ? html`<p class="quiet">${say("noLetters")}</p>`
        : table({
            caption: say("letters"),
            columns: [say("letterWhat"), say("letterWhy"), say("times"), say("lastSeen"), ""],
            rows: letters.map((group) => letterRow(view, group)),
          })
    }`;
  return { title: say("errors"), body };
}

function failedRow(view: View, group: FailedGroup) {
  const { language } = view;
  const query = new URLSearchParams({ span: "day", error: group.fingerprint }).toString();
  return [
    html`<a href="/runs?${query}">${outcomeText(group.outcome, language)}</a>`,
    group.problem === "" ? "–" : group.problem,
    group.count,
    moment(view, group.lastAtMs),
  ];
}

function letterRow(
  view: View,
  { fingerprint: group, letters }: LetterGroup,
): (Html | string | number | false)[] {
  const { say, visitor } = view;
  const [newest] = letters;
  if (newest === undefined) return [];
  const mayRepeat = newest.kind !== "approval" && visitor?.role === "operator";
  return [
    html`<a href="/dead-letters">${say(letterKinds[newest.kind])}</a>`,
    newest.reason,
    letters.length,
    moment(view, newest.atMs),
    mayRepeat &&
      html`<a class="button" href="${errorsPath}/again?group=${group}">${say("tryAllAgain")}…</a>`,
  ];
}

/** What a letter is about. */
export const letterKinds: Readonly<Record<DeadLetterFacts["kind"], Word>> = {
  reply: "letterReply",
  message: "letterMessage",
  approval: "letterApproval",
};

/** What a run has ended with, in words; an outcome that is no error stays as it is. */
export function outcomeText(outcome: string, language: ReplyLanguage): string {
  return Object.hasOwn(errorTexts, outcome) ? errorTexts[outcome as ErrorCode][language] : outcome; // its own key
}

const errorTexts: Readonly<Record<ErrorCode, Readonly<Record<ReplyLanguage, string>>>> = {
  api_auth_error: { zh: "模型服务不接受密钥", en: "The model's server refuses the key" },
  api_rate_limit: { zh: "模型请求过于频繁", en: "Too many requests to the model" },
  api_overloaded: { zh: "模型服务繁忙", en: "The model is overloaded" },
  api_bad_request: { zh: "模型服务拒绝了请求", en: "The model's server refuses the request" },
  tool_not_found: { zh: "没有这个工具", en: "No such tool" },
  tool_execution_error: { zh: "工具执行失败", en: "A tool failed" },
  permission_denied: { zh: "没有权限", en: "Not permitted" },
  context_overflow: { zh: "会话超出模型的长度", en: "The conversation is too long for the model" },
  budget_exceeded: { zh: "预算已用完", en: "The budget is used up" },
  max_turns_reached: { zh: "步骤数达到上限", en: "Too many steps" },
  session_not_found: { zh: "没有这个会话", en: "No such session" },
  session_closed: { zh: "会话已关闭", en: "The session is closed" },
  mcp_connection_error: { zh: "无法连接 MCP 服务", en: "An MCP server cannot be reached" },
  plugin_load_error: { zh: "插件无法加载", en: "A plugin cannot be loaded" },
  internal_error: { zh: "内部错误", en: "An error of Larkline's own" },
  stream_truncated: { zh: "模型的回答中断", en: "The model broke its answer off" },
};
