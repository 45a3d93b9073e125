import { readFileSync } from "node:fs";
import { createHash } from "node:crypto";
import {
  ApiApproval,
  ApiApprovals,
  ApiDecision,
  ApiQuestion,
  ApiQuestions,
  ApiRules,
} from "@larkline/protocol/views/api-approval";
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
import { ChatRequest, StreamFrame } from "@larkline/protocol/views/stream-frame";
import type { FastifyInstance } from "fastify";
import manifest from "../package.json" with { type: "json" };

// What the HTTP API can do, for programs (OpenAPI 3.1) and, from that, for people. Each route says it where it is
// registered, as `config.operation`.

declare module "fastify" {
  interface FastifyContextConfig {
    /** What the route does; absent: it is no part of the API. */
    operation?: Operation;
  }
}

/** Texts for people. */
interface Bilingual {
  en: string;
  zh: string;
}

/** What one route of the API takes and answers. */
export interface Operation {
  about: Bilingual;
  query?: Record<string, Parameter>;
  headers?: Record<string, Parameter>;
  body?: object;
  /** The answers by status: the schema of the JSON answer, a stream of events, or nothing. */
  answers: Record<number, object | "events" | "empty">;
}

type Parameter = Bilingual & { schema: object; required?: true };

export const textSchema = { type: "string" };
export const sessionParameter = {
  en: "The conversation.",
  zh: "会话。",
  schema: { ...textSchema, pattern: "^[A-Za-z0-9_-]{1,64}$" },
  required: true,
} as const;
export const afterParameter = {
  en: "The last event that was seen.",
  zh: "已看到的最后一个事件。",
  schema: textSchema,
};

/** An answer with these properties, and with the text `error` where it is one. */
export function answerWith(properties: object, error?: "error"): object {
  const all = error === undefined ? properties : { ...properties, error: textSchema };
  return { type: "object", properties: all, required: Object.keys(all) };
}

/** What a status means. */
const meanings: Readonly<Record<number, Bilingual>> = {
  200: { en: "As asked.", zh: "成功。" },
  201: { en: "Made.", zh: "已创建。" },
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

/** The description of the API, OpenAPI 3.1. Operations are named `METHOD /path/{parameter}`. */
function openApiDocument(operations: ReadonlyMap<string, Operation>): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [route, operation] of operations) {
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
    schema: textSchema,
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

/** The id of the operation of a route, such as `postRunsCancel`. */
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
  return { content: { "text/event-stream": { schema: textSchema, "x-event-data": data } } };
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

/**
 * `GET /openapi.json` and the page `GET /docs`, of the routes that are registered in the scope after this. Both are the
 * same for everybody and tell nothing of the deployment.
 */
export function registerDescription(scope: FastifyInstance): void {
  const operations = new Map<string, Operation>();
  scope.addHook("onRoute", ({ method, url, config }) => {
    if (config?.operation === undefined) return;
    operations.set(`${String(method)} ${url.replaceAll(/:(\w+)/g, "{$1}")}`, config.operation);
  });
  let description: string | undefined;
  const policy = policyOf(page);
  scope.get("/openapi.json", async (_request, reply) => {
    return await reply
      .type("application/json")
      .send((description ??= JSON.stringify(openApiDocument(operations))));
  });
  scope.get("/docs", async (_request, reply) => {
    return await reply
      .type("text/html; charset=utf-8")
      .header("content-security-policy", policy)
      .header("x-content-type-options", "nosniff")
      .send(page);
  });
}
