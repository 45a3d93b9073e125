import type { FastifyInstance } from "fastify";
import type { FeishuSimulator } from "../index.ts";

/**
 * The page on which people say what an app may do as them, at the links of the device flow. On the platform a person
 * is signed in; here the page asks who looks at it, so that a forwarded link can be tried, too.
 */
export function registerConsentPage(
  server: FastifyInstance,
  simulator: Pick<FeishuSimulator, "grants" | "users">,
): void {
  const waitingAt = (query: string) =>
    simulator.grants.waiting.find(({ link }) => new URL(link).search === query);
  const form = "application/x-www-form-urlencoded";
  server.addContentTypeParser(
    form,
    { parseAs: "string", bodyLimit: 1_024 },
    (_request, body, done) => {
      done(null, Object.fromEntries(new URLSearchParams(String(body))));
    },
  );
  server.get("/page/device", (request, reply) => {
    const consent = waitingAt(queryOf(request.url));
    if (consent === undefined) {
      return reply
        .code(404)
        .type(html)
        .send(pageOf(`<p>${gone}</p>`));
    }
    const scopes = consent.scopes
      .map((scope) => `<li><code>${escaped(scope)}</code></li>`)
      .join("");
    const people = [...simulator.users.values()].map(
      ({ openId, name }) =>
        `<button name="by" value="${escaped(openId)}">以 ${escaped(name)} 的身份同意 · Allow as ${escaped(name)}</button>`,
    );
    return reply
      .type(html)
      .send(
        pageOf(
          `<p><strong>${escaped(consent.appName)}</strong> 请求以你的身份 · asks to act as you:</p><ul>${scopes}</ul>` +
            `<form method="post">${people.join(" ")} <button name="by" value="">拒绝 · Deny</button></form>`,
        ),
      );
  });
  server.post<{ Body: { by?: string } }>("/page/device", (request, reply) => {
    const consent = waitingAt(queryOf(request.url));
    if (consent === undefined) {
      return reply
        .code(404)
        .type(html)
        .send(pageOf(`<p>${gone}</p>`));
    }
    const { by = "" } = request.body;
    if (by !== "" && !simulator.users.has(by)) {
      return reply.code(404).type(html).send(pageOf("<p>?</p>"));
    }
    if (by === "") simulator.grants.refuse(consent.link);
    else simulator.grants.consent(consent.link, by);
    return reply.type(html).send(pageOf(`<p>${by === "" ? refused : agreed}</p>`));
  });
}

function queryOf(url: string): string {
  return new URL(url, "http://page.invalid").search;
}

const html = "text/html; charset=utf-8";
const gone = "链接已失效 · This link is not valid any more.";
const agreed = "已同意，可以关闭此页 · Granted. You can close this page.";
const refused = "已拒绝，可以关闭此页 · Denied. You can close this page.";

function pageOf(body: string): string {
  return (
    `<!doctype html><html lang="zh"><head><meta charset="utf-8"><title>授权 · Consent</title>` +
    `<link rel="stylesheet" href="/page/style.css"></head><body><main><h1>授权 · Consent</h1>${body}</main></body></html>`
  );
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
