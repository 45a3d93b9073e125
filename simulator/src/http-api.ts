import type { IncomingMessage, ServerResponse } from "node:http";
import { type Clock, pause } from "@larkline/protocol/clock";
import findMyWay from "find-my-way";
import type { HTTPMethod } from "find-my-way";
import {
  type FaultSource,
  type FaultAction,
  sendBody,
  type AnswerBody,
  FileAnswer,
  type BodyFault,
  bodySize,
} from "./faults.ts";
import type { TokenOwner } from "./grants.ts";
import type { Platform } from "./platform.ts";
import { type FormParts, parseMultipart } from "./media.ts";
import { checkScopes, checkPersonScopes, type ApiRoute } from "./api-route.ts";
import {
  PlatformError,
  type JsonObject,
  parseJsonObject,
  randomHex,
  isJsonObject,
  type OpenRoute,
} from "./open-api.ts";

/** What the HTTP surface of the open platform is made of. */
interface HttpApiParts {
  platform: Platform;
  faults: FaultSource;
  routes: RouteTable;
  /** HTTP status of refusals that do not fix their own. */
  errorStatus: number;
  onCall: (call: ApiCall) => void;
}

interface Exchange {
  method: string;
  url: URL;
  logId: string;
  appId?: string;
  person?: string;
}

/** Handles one call of the open platform, faults first. */
export function createHttpApi(
  parts: HttpApiParts,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const startedAt = parts.platform.clock.now();
    const exchange: Exchange = {
      method: request.method ?? "GET",
      url: new URL(request.url ?? "/", "http://platform.invalid"),
      logId: newLogId(),
    };
    const record = (status: number, code: number): void =>
      parts.onCall({
        method: exchange.method,
        path: exchange.url.pathname,
        status,
        code,
        at: startedAt,
        durationMs: parts.platform.clock.now() - startedAt,
        logId: exchange.logId,
        ...(exchange.appId === undefined ? {} : { appId: exchange.appId }),
        ...(exchange.person === undefined ? {} : { person: exchange.person }),
      });
    const fault = parts.faults.take(exchange.method, exchange.url.pathname);
    if (fault !== undefined && isRefusal(fault)) {
      return refuse({ clock: parts.platform.clock, request, response, fault, exchange, record });
    }
    const answer = await answerCall(parts, exchange, { request, fault });
    if (fault?.kind === "lose_response") {
      record(0, answer.code);
      response.destroy();
      return;
    }
    record(answer.status, answer.code);
    const bodyFault = fault?.kind === "trickle" || fault?.kind === "truncate" ? fault : undefined;
    sendAnswer(response, answer, {
      clock: parts.platform.clock,
      logId: exchange.logId,
      fault: bodyFault,
    });
  };
}

type RefusalFault = Extract<FaultAction, { kind: "respond" | "hang" | "drop" | "flood" }>;

function isRefusal(fault: FaultAction): fault is RefusalFault {
  return ["respond", "hang", "drop", "flood"].includes(fault.kind);
}

interface Refusal {
  clock: Clock;
  request: IncomingMessage;
  response: ServerResponse;
  fault: RefusalFault;
  exchange: Exchange;
  record: (status: number, code: number) => void;
}

function refuse({ clock, request, response, fault, exchange, record }: Refusal): void {
  request.resume();
  if (fault.kind === "respond") {
    const body = fault.body ?? { code: fault.status, msg: "injected fault" };
    const code =
      typeof body === "object" && "code" in body && typeof body.code === "number"
        ? body.code
        : fault.status;
    record(fault.status, code);
    const text = typeof body === "string" ? body : JSON.stringify(body);
    sendAnswer(
      response,
      { status: fault.status, code, body: text, headers: fault.headers ?? {} },
      { clock, logId: exchange.logId },
    );
    return;
  }
  if (fault.kind === "flood") {
    record(200, 0);
    response.writeHead(200, {
      "content-type": "application/octet-stream",
      "x-tt-logid": exchange.logId,
    });
    void sendBody(clock, response, { sizeBytes: fault.sizeBytes ?? Number.MAX_SAFE_INTEGER });
    return;
  }
  record(0, -1);
  if (fault.kind === "drop") response.destroy();
}

async function answerCall(
  parts: HttpApiParts,
  exchange: Exchange,
  { request, fault }: { request: IncomingMessage; fault: FaultAction | undefined },
): Promise<Answer> {
  try {
    const { body, form } = await readBody(request);
    if (fault?.kind === "delay") await pause(parts.platform.clock, fault.delayMs);
    if (fault?.kind === "hold") await fault.until.catch(() => undefined);
    const match = parts.routes.find(exchange.method, exchange.url.pathname);
    const { host = "", authorization } = request.headers;
    if (match.kind === "open") {
      return okAnswer(match.route.handle({ body, params: match.params, host, authorization }));
    }
    const owner = personOf(parts.platform, authorization);
    const app = owner?.app ?? authenticatedApp(parts.platform, request);
    exchange.appId = app.appId;
    if (owner !== undefined) exchange.person = owner.person.openId;
    const { route, params } = match;
    parts.platform.limiter.checkApi(
      { appId: app.appId, api: `${route.method} ${route.path}` },
      route.limits,
    );
    parts.platform.quota.check(route.path);
    if (owner === undefined) checkScopes(route, parts.platform.console.entry(app.appId).scopes);
    else checkPersonScopes(route, owner.scopes);
    const files = form === undefined ? {} : { form };
    const person = owner === undefined ? {} : { person: owner.person };
    const query = exchange.url.searchParams;
    return okAnswer(route.handle({ app, ...person, params, host, query, body, ...files }));
  } catch (error) {
    if (error instanceof PlatformError) {
      return errorAnswer(error, exchange.logId, parts.errorStatus);
    }
    const reason = error instanceof Error ? error.message : String(error);
    return errorAnswer(
      new PlatformError(1000003, `internal error: ${reason}`, { status: 500 }),
      exchange.logId,
      500,
    );
  }
}

/** Whose token of a person the call carries; undefined: none of a person. */
function personOf(platform: Platform, authorization = ""): TokenOwner | undefined {
  const token = /^Bearer (u-.+)$/i.exec(authorization)?.[1];
  return token === undefined ? undefined : platform.grants.authenticate(token);
}

function authenticatedApp(platform: Platform, request: IncomingMessage) {
  const app = platform.apps.get(platform.tokens.authenticate(request.headers.authorization));
  if (app === undefined) {
    throw new PlatformError(99991663, "Invalid access token for authorization.");
  }
  return app;
}

const bodyLimitBytes = 1024 * 1024;
/** Room for a file beyond the largest allowed, so that the upload itself refuses it. */
const formLimitBytes = 64 * 1024 * 1024;

/** An answer of the platform, ready to send. */
interface Answer {
  status: number;
  code: number;
  body: AnswerBody;
  headers: Record<string, string>;
}

/** What a call brought: JSON or plain form fields in `body`, or a form with files. */
interface RequestBody {
  body: JsonObject;
  form?: FormParts;
}

/**
 * Reads a JSON or form body; nothing or something else than an object counts as `{}`. Over 1 MB, or 64 MB for forms
 * with files: refused with 413.
 */
async function readBody(request: IncomingMessage): Promise<RequestBody> {
  const mediaType = request.headers["content-type"] ?? "";
  const withFiles = mediaType.startsWith("multipart/form-data");
  const bytes = await readBytes(request, withFiles ? formLimitBytes : bodyLimitBytes);
  if (withFiles) return { body: {}, form: formOf(bytes, mediaType) };
  const text = bytes.toString("utf8");
  const isForm = mediaType.startsWith("application/x-www-form-urlencoded");
  return {
    body: isForm ? Object.fromEntries(new URLSearchParams(text)) : (parseJsonObject(text) ?? {}),
  };
}

async function readBytes(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    if (!Buffer.isBuffer(chunk)) continue;
    size += chunk.length;
    if (size > limitBytes) {
      throw new PlatformError(99992402, "request body is too large", { status: 413 });
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function formOf(bytes: Buffer, mediaType: string): FormParts {
  const form = parseMultipart(bytes, mediaType);
  if (form === undefined) {
    throw new PlatformError(234001, "Invalid request param: the form cannot be read.");
  }
  return form;
}

/** The platform's log id, as in `X-Tt-Logid`. */
function newLogId(): string {
  return randomHex(32).toUpperCase();
}

function okAnswer(body: JsonObject | FileAnswer): Answer {
  if (body instanceof FileAnswer) {
    return { status: 200, code: 0, body: body.body, headers: body.headers };
  }
  return {
    status: 200,
    code: typeof body.code === "number" ? body.code : 0,
    body: JSON.stringify(body),
    headers: {},
  };
}

/** The answer to a refusal: `{code, msg, error: {log_id, troubleshooter}}`. */
function errorAnswer(error: PlatformError, logId: string, defaultStatus: number): Answer {
  const detail = { log_id: logId, troubleshooter: `https://open.feishu.cn/search?log_id=${logId}` };
  const { error: more, ...fields } = error.fields;
  const known = isJsonObject(more) ? { ...detail, ...more } : (more ?? detail);
  return {
    status: error.status ?? defaultStatus,
    code: error.code,
    body:
      error.text ??
      JSON.stringify({ code: error.code, msg: error.message, ...fields, error: known }),
    headers:
      error.text === undefined ? error.headers : { ...error.headers, "content-type": "text/html" },
  };
}

function sendAnswer(
  response: ServerResponse,
  answer: Answer,
  { clock, logId, fault }: { clock: Clock; logId: string; fault?: BodyFault | undefined },
): void {
  if (response.destroyed) return;
  response.writeHead(answer.status, {
    "content-type": "application/json; charset=utf-8",
    "content-length": bodySize(answer.body),
    "x-tt-logid": logId,
    ...answer.headers,
  });
  void sendBody(clock, response, answer.body, fault);
}

/** A route with the parameters of the path that matched it. */
type RouteMatch =
  | { kind: "api"; route: ApiRoute; params: Record<string, string> }
  | { kind: "open"; route: OpenRoute; params: Record<string, string> };

type Found = { kind: "api"; route: ApiRoute } | { kind: "open"; route: OpenRoute };

/** Longer than any id of the platform. */
const maxParamLength = 2_000;

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const satisfies readonly HTTPMethod[];

/** The operations of the platform by method and path. */
export class RouteTable {
  readonly #router = findMyWay({ maxParamLength });

  constructor(apiRoutes: readonly ApiRoute[], openRoutes: readonly OpenRoute[]) {
    for (const route of openRoutes) this.#add({ kind: "open", route });
    for (const route of apiRoutes) this.#add({ kind: "api", route });
  }

  /** Throws for unknown paths 404/99991201, for other methods of known ones 405/99991301. */
  find(method: string, path: string): RouteMatch {
    const known = methods.find((one) => one === method);
    const match = known && this.#router.find(known, path);
    if (match) {
      const found: Found = match.store; // What #add has put there.
      return { ...found, params: match.params as Record<string, string> };
    }
    if (methods.some((one) => this.#router.find(one, path) !== null)) {
      throw new PlatformError(99991301, "the request method is not supported", { status: 405 });
    }
    throw new PlatformError(99991201, "404 page not found", { status: 404 });
  }

  #add(found: Found): void {
    const { method, path } = found.route;
    const known = methods.find((one) => one === method);
    if (known === undefined) {
      throw new Error(`no operation of the platform has the method ${method}`);
    }
    this.#router.on(known, path, () => {}, found);
  }
}

/** A call that the open platform received. `status` 0 means that the caller got no answer. */
export interface ApiCall {
  method: string;
  path: string;
  status: number;
  /** The platform's code in the body; -1 when there was no answer. */
  code: number;
  /** Milliseconds since the epoch. */
  at: number;
  durationMs: number;
  logId: string;
  appId?: string;
  /** Open id of the person as whom it was made. */
  person?: string;
}
