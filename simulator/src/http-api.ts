import type { IncomingMessage, ServerResponse } from "node:http";
import { sendBody } from "./answer-body.ts";
import type { ApiCall } from "./api-call.ts";
import { checkScopes } from "./api-scopes.ts";
import type { FaultAction, FaultSource } from "./fault-table.ts";
import { errorAnswer, newLogId, okAnswer, readBody, sendAnswer, type Answer } from "./http-exchange.ts";
import type { Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";
import type { RouteTable } from "./route-table.ts";

/** What the HTTP surface of the open platform is made of. */
export interface HttpApiParts {
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
}

/** Handles one call of the open platform, faults first. */
export function createHttpApi(
  parts: HttpApiParts,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const startedAt = parts.platform.now();
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
        durationMs: parts.platform.now() - startedAt,
        logId: exchange.logId,
        ...(exchange.appId === undefined ? {} : { appId: exchange.appId }),
      });
    const fault = parts.faults.take(exchange.method, exchange.url.pathname);
    if (fault !== undefined && isRefusal(fault)) return refuse({ request, response, fault, exchange, record });
    const answer = await answerCall(parts, exchange, { request, delayMs: fault?.kind === "delay" ? fault.delayMs : 0 });
    if (fault?.kind === "lose_response") {
      record(0, answer.code);
      response.destroy();
      return;
    }
    record(answer.status, answer.code);
    const bodyFault = fault?.kind === "trickle" || fault?.kind === "truncate" ? fault : undefined;
    sendAnswer(response, answer, { logId: exchange.logId, fault: bodyFault });
  };
}

type RefusalFault = Extract<FaultAction, { kind: "respond" | "hang" | "drop" | "flood" }>;

function isRefusal(fault: FaultAction): fault is RefusalFault {
  return ["respond", "hang", "drop", "flood"].includes(fault.kind);
}

interface Refusal {
  request: IncomingMessage;
  response: ServerResponse;
  fault: RefusalFault;
  exchange: Exchange;
  record: (status: number, code: number) => void;
}

function refuse({ request, response, fault, exchange, record }: Refusal): void {
  request.resume();
  if (fault.kind === "respond") {
    const body = fault.body ?? { code: fault.status, msg: "injected fault" };
    const code = typeof body === "object" && "code" in body && typeof body.code === "number" ? body.code : fault.status;
    record(fault.status, code);
    const text = typeof body === "string" ? body : JSON.stringify(body);
    sendAnswer(response, { status: fault.status, code, body: text, headers: fault.headers ?? {} }, exchange);
    return;
  }
  if (fault.kind === "flood") {
    record(200, 0);
    response.writeHead(200, { "content-type": "application/octet-stream", "x-tt-logid": exchange.logId });
    void sendBody(response, { sizeBytes: fault.sizeBytes ?? Number.MAX_SAFE_INTEGER });
    return;
  }
  record(0, -1);
  if (fault.kind === "drop") response.destroy();
}

async function answerCall(
  parts: HttpApiParts,
  exchange: Exchange,
  { request, delayMs }: { request: IncomingMessage; delayMs: number },
): Promise<Answer> {
  try {
    const { body, form } = await readBody(request);
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    const match = parts.routes.find(exchange.method, exchange.url.pathname);
    if (match.kind === "open") return okAnswer(match.route.handle({ body, host: request.headers.host ?? "" }));
    const app = authenticatedApp(parts.platform, request);
    exchange.appId = app.appId;
    const { route, params } = match;
    parts.platform.limiter.checkApi({ appId: app.appId, api: `${route.method} ${route.path}` }, route.limits);
    parts.platform.quota.check(route.path);
    checkScopes(route, parts.platform.console.entry(app.appId).scopes);
    const files = form === undefined ? {} : { form };
    return okAnswer(route.handle({ app, params, query: exchange.url.searchParams, body, ...files }));
  } catch (error) {
    if (error instanceof PlatformError) return errorAnswer(error, exchange.logId, parts.errorStatus);
    const reason = error instanceof Error ? error.message : String(error);
    return errorAnswer(new PlatformError(1000003, `internal error: ${reason}`, { status: 500 }), exchange.logId, 500);
  }
}

function authenticatedApp(platform: Platform, request: IncomingMessage) {
  const app = platform.apps.get(platform.tokens.authenticate(request.headers.authorization));
  if (app === undefined) throw new PlatformError(99991663, "Invalid access token for authorization.");
  return app;
}
