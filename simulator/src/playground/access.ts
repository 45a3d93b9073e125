import type { FastifyInstance } from "fastify";

const loopbackNames = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * Guards the page and its API. Another web page must not steer the playground: a request that
 * names an origin must come from our own. Bound to loopback, only loopback names are served, so
 * that a foreign name that resolves to this machine does not count as our own.
 */
export function guardAccess(fastify: FastifyInstance, host: string): void {
  const loopbackOnly = loopbackNames.has(host) || host === "::1";
  fastify.addHook("onRequest", async (request, reply) => {
    const { host: name = "", origin } = request.headers;
    if (loopbackOnly && !loopbackNames.has(name.replace(/:\d+$/, ""))) {
      return reply.code(403).send({ error: "this playground is served to this machine only" });
    }
    const foreign = origin !== undefined && origin !== `http://${name}`;
    if (foreign || request.headers["sec-fetch-site"] === "cross-site") {
      return reply.code(403).send({ error: "requests of other sites are refused" });
    }
    return undefined;
  });
  fastify.addHook("onSend", async (_request, reply) => {
    reply.headers({
      "content-security-policy":
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cache-control": "no-store",
    });
  });
}
