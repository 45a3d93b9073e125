import type { FastifyReply, FastifyRequest } from "fastify";

export interface CookieOptions {
  maxAgeSeconds: number;
  /** Whether scripts of our pages may read it; no by default. */
  readable?: boolean;
}

/** The value of one cookie of a request. */
export function cookieOf({ headers }: Pick<FastifyRequest, "headers">, name: string): string | undefined {
  for (const pair of (headers.cookie ?? "").split(";")) {
    const [key = "", value = ""] = pair.split("=", 2);
    if (key.trim() === name) return value.trim();
  }
  return undefined;
}

/**
 * Whether the browser came by https. What a proxy says about that is believed: at worst somebody makes
 * their own cookie useless to themselves.
 */
function isSecure({ protocol, headers }: FastifyRequest): boolean {
  const forwarded = String(headers["x-forwarded-proto"] ?? "").split(",")[0];
  return protocol === "https" || forwarded?.trim().toLowerCase() === "https";
}

/** Sets a cookie that no other site's pages make a browser send. `value` needs no escaping. */
export function setCookie(reply: FastifyReply, [name, value]: [string, string], options: CookieOptions): void {
  const attributes = [
    `${name}=${value}`,
    "Path=/",
    `Max-Age=${options.maxAgeSeconds}`,
    "SameSite=Strict",
    ...(options.readable === true ? [] : ["HttpOnly"]),
    ...(isSecure(reply.request) ? ["Secure"] : []),
  ];
  reply.header("set-cookie", attributes.join("; "));
}
