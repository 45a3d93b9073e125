import type { FastifyInstance } from "fastify";
import type { Logger } from "@larkline/process/telemetry";
import { accessOf, type AccessRules } from "./access.ts";

/** Lets only those use the routes of a scope who may use the HTTP API. */
export function guardApi(scope: FastifyInstance, { rules, logger }: { rules: AccessRules; logger: Logger }): void {
  scope.addHook("onRequest", async (request, reply) => {
    const { host, origin, authorization } = request.headers;
    const isCrossSite = request.headers["sec-fetch-site"] === "cross-site";
    const caller = { address: request.socket.remoteAddress ?? "", host, origin, authorization, isCrossSite };
    const access = accessOf({ ...caller, headerNames: Object.keys(request.headers) }, rules);
    if (access.allowed) return undefined;
    logger.warn({ reason: access.reason, address: request.ip }, "API request refused");
    if (access.status === 401) reply.header("www-authenticate", "Bearer");
    return await reply.code(access.status).send({ error: access.reason });
  });
}
