import type { FastifyInstance } from "fastify";

/** Our own pages hold no scripts at all. */
const pagePolicy = [
  "default-src 'none'",
  "style-src 'self'",
  "img-src 'self' data:",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** Bull Board brings scripts, workers and styles of its own. */
const boardPolicy = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "worker-src 'self' blob:",
  "object-src 'none'",
  "form-action 'self'",
  "base-uri 'self'",
  "frame-ancestors 'none'",
].join("; ");

/** Tells browsers what pages may do: nothing from elsewhere, nothing inside of others, nothing kept. */
export function sendSecurityHeaders(server: FastifyInstance, boardPath: string): void {
  server.addHook("onRequest", async ({ url }, reply) => {
    const isBoard = url === boardPath || url.startsWith(`${boardPath}/`) || url.startsWith(`${boardPath}?`);
    reply.headers({
      "content-security-policy": isBoard ? boardPolicy : pagePolicy,
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      "referrer-policy": "same-origin",
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "cache-control": "no-store",
    });
  });
}
