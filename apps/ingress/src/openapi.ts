import { readFileSync } from "node:fs";
import { createHash } from "node:crypto";
import {
  ApiAnswer,
  ApiApproval,
  ApiApprovals,
  ApiDecision,
  ApiQuestion,
  ApiQuestions,
  ApiRules,
  ChatRequest,
  StreamFrame,
} from "@larkline/protocol";
import { AgentEvent, ChatMessage, StructuredMessage } from "@larkline/protocol/views/chat-messages";
import { RunRecord } from "@larkline/protocol/views/engine-events";
import {
  ApiError,
  CommandAnswer,
  CommandRequest,
  Memories,
  RunCancelled,
  RunReport,
  RunRequest,
  RunStarted,
  SessionItems,
  SessionReport,
} from "@larkline/protocol/views/run-api";
import { ItemUsage, RunItem } from "@larkline/protocol/views/run-items";
import type { FastifyInstance } from "fastify";
import manifest from "../package.json" with { type: "json" };

// What the HTTP API can do, for programs (OpenAPI 3.1) and, from that, for people.

/** Texts for people. */
interface Bilingual {
  en: string;
  zh: string;
}

interface Operation {
  about: Bilingual;
  query?: Record<string, Parameter>;
  headers?: Record<string, Parameter>;
  body?: object;
  /** By status: the schema of the JSON answer, a stream of events, or nothing. */
  answers: Record<number, object | "events" | "empty">;
}

type Parameter = Bilingual & { schema: object; required?: true };

const text = { type: "string" };
const sessionId = {
  en: "The conversation.",
  zh: "会话。",
  schema: { ...text, pattern: "^[A-Za-z0-9_-]{1,64}$" },
  required: true,
} as const;
const after = { en: "The last event that was seen.", zh: "已看到的最后一个事件。", schema: text };

/** Everything that the API can be asked for, as `METHOD /path`. */
export const operations: Readonly<Record<string, Operation>> = {
  "POST /v1/runs": {
    about: {
      en: "Starts a run. The same session_id and message_id mean the same run, however often they are sent.",
      zh: "开始一次运行。相同的 session_id 和 message_id 始终指同一次运行。",
    },
    headers: {
      Prefer: {
        en: "`wait=<1-300>`: answer with the report if the run ends within so many seconds.",
        zh: "`wait=<1-300>`：若运行在该秒数内结束，则返回报告。",
        schema: text,
      },
      Accept: {
        en: "`text/event-stream`: answer with the events of the run.",
        zh: "`text/event-stream`：以事件流返回运行过程。",
        schema: text,
      },
    },
    body: RunRequest,
    answers: {
      200: RunReport,
      202: RunStarted,
      400: ApiError,
      404: ApiError,
      409: ApiError,
      413: ApiError,
    },
  },
  "GET /v1/runs/{id}": {
    about: {
      en: "Reports on a run, as long as its events are kept. Its lists come in pages.",
      zh: "查询一次运行（在其事件保留期内）。其中的列表分页返回。",
    },
    query: {
      after: { en: "`next` of the page before.", zh: "上一页的 `next`。", schema: text },
      limit: {
        en: "Entries of each list in a page, 1 to 500; default 100.",
        zh: "每页中各列表的条数，1 到 500，默认 100。",
        schema: text,
      },
    },
    answers: { 200: RunReport, 400: ApiError, 404: ApiError },
  },
  "GET /v1/runs/{id}/events": {
    about: {
      en: "Follows a run in a view. The event `end` is the last one; 204 when nothing is left to see.",
      zh: "以某种视图跟随一次运行。最后一个事件是 `end`；没有更多内容时返回 204。",
    },
    query: {
      view: {
        en: "`engine` (default), `items` or `messages`.",
        zh: "`engine`（默认）、`items` 或 `messages`。",
        schema: { ...text, enum: ["engine", "items", "messages"] },
      },
      after,
      nested: {
        en: "`1` adds the events of runs that work for this one, each with its `runId` and `parentRunId`: all of a helper's before the result of its call. The `id` lines are opaque positions in all of them.",
        zh: "`1` 加入子运行的事件，各带自己的 `runId` 和 `parentRunId`：子运行的全部事件都在其调用结果之前。`id` 行是所有运行的总位置，请原样使用。",
        schema: { ...text, enum: ["0", "1"] },
      },
    },
    headers: { "Last-Event-ID": after },
    answers: { 200: "events", 204: "empty", 400: ApiError, 404: ApiError },
  },
  "POST /v1/runs/{id}/cancel": {
    about: { en: "Stops a run, waiting or under way.", zh: "停止一次等待中或进行中的运行。" },
    answers: { 202: RunCancelled, 404: ApiError, 409: RunCancelled },
  },
  "GET /v1/sessions/{id}": {
    about: {
      en: "Returns the state of a session, and what its runs have used.",
      zh: "查询会话状态及其用量。",
    },
    answers: { 200: SessionReport, 404: ApiError },
  },
  "GET /v1/sessions/{id}/items": {
    about: {
      en: "The conversation of a session, oldest first, in pages.",
      zh: "分页读取会话内容，最早的在前。",
    },
    query: {
      after: { en: "`next` of the page before.", zh: "上一页的 `next`。", schema: text },
      limit: {
        en: "Messages of a page, 1 to 200; default 50.",
        zh: "每页消息数，1 到 200，默认 50。",
        schema: text,
      },
    },
    answers: { 200: SessionItems, 400: ApiError, 404: ApiError },
  },
  "POST /v1/sessions/{id}/commands": {
    about: {
      en: "Gives an order such as /new or /status: 200 with its answer, 202 where a run answers it.",
      zh: "执行 /new、/status 等命令：直接答复时返回 200，由一次运行答复时返回 202。",
    },
    body: CommandRequest,
    answers: { 200: CommandAnswer, 202: RunStarted, 400: ApiError, 404: ApiError, 409: ApiError },
  },
  "GET /v1/approvals": {
    about: {
      en: "Lists the approvals that a session waits for, oldest first.",
      zh: "列出会话等待的审批，最早的在前。",
    },
    query: { session_id: sessionId },
    answers: { 200: ApiApprovals, 400: ApiError, 404: ApiError },
  },
  "POST /v1/approvals/{id}": {
    about: {
      en: "Decides an approval. 403: others have to; 409: it was decided before, or has expired.",
      zh: "对审批作出决定。403：须由他人决定；409：已决定或已过期。",
    },
    body: ApiDecision,
    answers: {
      200: approvalIn({}),
      400: ApiError,
      403: approvalIn(text),
      404: ApiError,
      409: approvalIn(text),
    },
  },
  "GET /v1/inputs": {
    about: {
      en: "Lists the questions to people that a session waits for, oldest first.",
      zh: "列出会话等待回答的提问，最早的在前。",
    },
    query: { session_id: sessionId },
    answers: { 200: ApiQuestions, 400: ApiError, 404: ApiError },
  },
  "POST /v1/inputs/{id}": {
    about: {
      en: "Answers a question. 403: others were asked; 409: it was answered before, or has expired.",
      zh: "回答一个提问。403：提问对象是他人；409：已有回答或已过期。",
    },
    body: ApiAnswer,
    answers: {
      200: questionIn({}),
      400: ApiError,
      403: questionIn(text),
      404: ApiError,
      409: questionIn(text),
    },
  },
  "GET /v1/permissions": {
    about: {
      en: "Lists what runs in a session without asking, oldest first.",
      zh: "列出会话中无需询问即可运行的内容。",
    },
    query: { session_id: sessionId },
    answers: { 200: ApiRules, 400: ApiError, 404: ApiError },
  },
  "DELETE /v1/permissions/{id}": {
    about: { en: "Takes a remembered permission back, at once.", zh: "立即收回一条记住的许可。" },
    query: { session_id: sessionId },
    answers: { 204: "empty", 400: ApiError, 404: ApiError },
  },
  "GET /v1/memories": {
    about: {
      en: "Lists what is remembered of the caller and of a session, the newest first.",
      zh: "列出关于调用方和会话所记住的内容，最新的在前。",
    },
    query: { session_id: sessionId },
    answers: { 200: Memories, 400: ApiError, 404: ApiError },
  },
  "DELETE /v1/memories/{id}": {
    about: { en: "Takes a memory away, at once.", zh: "立即忘掉一条内容。" },
    query: { session_id: sessionId },
    answers: { 204: "empty", 400: ApiError, 404: ApiError },
  },
  "POST /chat": {
    about: {
      en: "Sends a message and streams its run as frames; with Last-Event-ID and a session it resumes.",
      zh: "发送一条消息并以帧流返回运行过程；带 Last-Event-ID 和会话时继续读取。",
    },
    headers: {
      "X-Session-Id": { en: "As `session_id`.", zh: "同 `session_id`。", schema: text },
      "Idempotency-Key": { en: "As `message_id`.", zh: "同 `message_id`。", schema: text },
      "Last-Event-ID": after,
    },
    body: ChatRequest,
    answers: { 200: "events", 204: "empty", 400: ApiError, 404: ApiError, 413: ApiError },
  },
  "GET /chat/{sessionId}/events": {
    about: {
      en: "Follows the run under way of a session as frames, or shows the last one.",
      zh: "以帧流跟随会话中进行的运行，或显示最后一次运行。",
    },
    query: { after, run: { en: "The run to follow.", zh: "要跟随的运行。", schema: text } },
    headers: { "Last-Event-ID": after },
    answers: { 200: "events", 204: "empty", 400: ApiError, 404: ApiError },
  },
};

/** An answer with an approval, and an error where it is one. */
function approvalIn(error: object): object {
  return withError({ approval: ApiApproval }, error);
}

/** The same with a question. */
function questionIn(error: object): object {
  return withError({ input: ApiQuestion }, error);
}

function withError(properties: object, error: object): object {
  const all = Object.keys(error).length > 0 ? { ...properties, error } : properties;
  return { type: "object", properties: all, required: Object.keys(all) };
}

/** What a status means. */
const meanings: Readonly<Record<number, Bilingual>> = {
  200: { en: "As asked.", zh: "成功。" },
  202: { en: "Taken; the run continues.", zh: "已接受，运行继续。" },
  204: { en: "Nothing more.", zh: "没有更多内容。" },
  400: {
    en: "Names the field that is wrong. Nothing is stored.",
    zh: "指明有误的字段；不存储任何内容。",
  },
  403: { en: "Others have to.", zh: "须由他人处理。" },
  404: {
    en: "Not known, no longer kept, or another caller's.",
    zh: "不存在、已过保留期或属于其他调用方。",
  },
  409: { en: "Not in this state.", zh: "当前状态不允许。" },
  413: { en: "Too long.", zh: "内容过长。" },
};

/** What any request may get. */
const refusals: Readonly<Record<number, Bilingual>> = {
  401: { en: "Wrong or missing token.", zh: "令牌缺失或有误。" },
  403: { en: "Not from here.", zh: "不允许从此处访问。" },
  429: {
    en: "Too many requests or streams of this caller, or waiting messages: see Retry-After.",
    zh: "请求、事件流或等待的消息过多：见 Retry-After。",
  },
  503: { en: "Not at the moment: see Retry-After.", zh: "暂时不可用：见 Retry-After。" },
};

const named: Readonly<Record<string, object>> = {
  RunRequest,
  RunStarted,
  RunReport,
  RunCancelled,
  SessionReport,
  SessionItems,
  CommandRequest,
  CommandAnswer,
  Usage: ItemUsage,
  RunEvent: RunRecord,
  RunItem,
  ChatMessage,
  AgentEvent,
  StructuredMessage,
  Approval: ApiApproval,
  Approvals: ApiApprovals,
  Question: ApiQuestion,
  Questions: ApiQuestions,
  Decision: ApiDecision,
  Permissions: ApiRules,
  Memories,
  ChatRequest,
  Frame: StreamFrame,
  Error: ApiError,
};

/** The description of the API, OpenAPI 3.1. */
export function openApiDocument(): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [route, operation] of Object.entries(operations)) {
    const [method = "", path = ""] = route.split(" ");
    paths[path] = { ...paths[path], [method.toLowerCase()]: described(route, operation) };
  }
  const schemas = Object.entries(named).map(([name, schema]) => [
    name,
    withReferences(schema, schema),
  ]);
  return {
    openapi: "3.1.0",
    info: {
      title: "Larkline",
      version: manifest.version,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    security: [{ bearer: [] }],
    paths,
    components: {
      securitySchemes: { bearer: { type: "http", scheme: "bearer" } },
      schemas: Object.fromEntries(schemas) as Record<string, unknown>,
    },
  };
}

function described(
  route: string,
  { about, query = {}, headers = {}, body, answers }: Operation,
): object {
  const [, path = ""] = route.split(" ");
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => ({
    name,
    in: "path",
    required: true,
    schema: text,
  }));
  const given = Object.entries(answers).map(([status, answer]) => {
    return [
      status,
      { ...shown(meanings[Number(status)] ?? { en: "", zh: "" }), ...answerOf(answer, path) },
    ] as const;
  });
  const refused = Object.entries(refusals)
    .filter(([status]) => !(Number(status) in answers))
    .map(([status, words]) => [status, { ...shown(words), ...jsonOf(ApiError) }] as const);
  return {
    operationId: operationIdOf(route),
    summary: about.en,
    "x-summary-zh": about.zh,
    parameters: [...inPath, ...parametersIn("query", query), ...parametersIn("header", headers)],
    ...(body === undefined ? {} : { requestBody: { required: true, ...jsonOf(body) } }),
    responses: Object.fromEntries([...given, ...refused]) as object,
  };
}

/** Such as `postRunsCancel`. */
function operationIdOf(route: string): string {
  const [first = "", ...words] = route
    .replaceAll(/\/v1|\{\w+\}/g, "")
    .split(/[^A-Za-z]+/)
    .filter((word) => word !== "");
  const one = route.endsWith("}") ? ["One"] : [];
  return [first.toLowerCase(), ...words.map(capital), ...one].join("");
}

function capital(word: string): string {
  return word.slice(0, 1).toUpperCase() + word.slice(1);
}

function shown({ en, zh }: Bilingual): object {
  return { description: en, "x-description-zh": zh };
}

function parametersIn(place: "query" | "header", parameters: Record<string, Parameter>): object[] {
  return Object.entries(parameters).map(([name, { schema, required = false, ...words }]) => ({
    name,
    in: place,
    required,
    ...shown(words),
    schema,
  }));
}

function answerOf(answer: Operation["answers"][number], path: string): object {
  if (answer === "empty") return {};
  if (answer !== "events") return jsonOf(answer);
  const views = { engine: "RunEvent", items: "RunItem" };
  const messages = ["ChatMessage", "AgentEvent", "StructuredMessage"].map(referenceTo);
  const ofViews = Object.entries(views).map(([view, name]) => [view, referenceTo(name)]);
  // The data of each event; OpenAPI has no word for it.
  const events = { ...Object.fromEntries(ofViews), messages: { anyOf: messages } };
  const data = path.startsWith("/v1") ? events : referenceTo("Frame");
  return { content: { "text/event-stream": { schema: text, "x-event-data": data } } };
}

function jsonOf(schema: object): object {
  return { content: { "application/json": { schema: withReferences(schema) } } };
}

function referenceTo(name: string): { $ref: string } {
  return { $ref: `#/components/schemas/${name}` };
}

/** A copy of a schema in which those with a name are references; `whole` itself is written out. */
function withReferences(schema: unknown, whole?: unknown): unknown {
  if (typeof schema !== "object" || schema === null) return schema;
  const name = schema === whole ? undefined : nameOf(schema);
  if (name !== undefined) return referenceTo(name);
  if (Array.isArray(schema)) return schema.map((each: unknown) => withReferences(each));
  return Object.fromEntries(
    Object.entries(schema).map(([key, value]) => [key, withReferences(value)]),
  );
}

function nameOf(schema: object): string | undefined {
  return Object.keys(named).find((name) => named[name] === schema);
}

/** A page for people, of this process alone: it loads nothing from elsewhere. */
const page = readFileSync(new URL("docs-page.html", import.meta.url), "utf8");

/** Allows only the scripts and styles that are part of the page itself. */
function policyOf(html: string): string {
  const hashOf = (tag: string): string => {
    const [, inner = ""] = new RegExp(`<${tag}>([^]*?)</${tag}>`).exec(html) ?? [];
    return `'sha256-${createHash("sha256").update(inner).digest("base64")}'`;
  };
  return `default-src 'none'; connect-src 'self'; script-src ${hashOf("script")}; style-src ${hashOf("style")}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

/** `GET /openapi.json` and the page `GET /docs`. Both are the same for everybody and tell nothing of the deployment. */
export function registerDescription(scope: FastifyInstance): void {
  let description: string | undefined;
  const policy = policyOf(page);
  scope.get("/openapi.json", { exposeHeadRoute: false }, async (_request, reply) => {
    return await reply
      .type("application/json")
      .send((description ??= JSON.stringify(openApiDocument())));
  });
  scope.get("/docs", { exposeHeadRoute: false }, async (_request, reply) => {
    return await reply
      .type("text/html; charset=utf-8")
      .header("content-security-policy", policy)
      .header("x-content-type-options", "nosniff")
      .send(page);
  });
}
