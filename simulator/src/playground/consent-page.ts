import type { FastifyInstance, FastifyReply } from "fastify";
import type { FeishuSimulator } from "../index.ts";

/**
 * The page on which people say what an app may do as them, at the links of the device flow and of the code flow. On the
 * platform a person is signed in; here the page asks who looks at it, so that a forwarded link can be tried, too.
 */
export function registerConsentPage(
  server: FastifyInstance,
  simulator: Pick<FeishuSimulator, "grants" | "users" | "url">,
): void {
  const form = "application/x-www-form-urlencoded";
  server.addContentTypeParser(
    form,
    { parseAs: "string", bodyLimit: 1_024 },
    (_request, body, done) => {
      done(null, Object.fromEntries(new URLSearchParams(String(body))));
    },
  );
  const { grants, users } = simulator;
  for (const path of ["/page/device", "/open-apis/authen/v1/authorize"]) {
    server.get(path, (request, reply) => {
      const consent = grants.asked(simulator.url + request.url);
      if (consent === undefined) return send(reply.code(404), `<p>${gone}</p>`);
      const scopes = consent.scopes
        .map((scope) => `<li><code>${escaped(scope)}</code></li>`)
        .join("");
      const people = [...users.values()].map(
        ({ openId, name }) =>
          `<button name="by" value="${escaped(openId)}">以 ${escaped(name)} 的身份同意 · Allow as ${escaped(name)}</button>`,
      );
      return send(
        reply,
        `<p><strong>${escaped(consent.appName)}</strong> 请求以你的身份 · asks to act as you:</p><ul>${scopes}</ul>` +
          `<form method="post">${people.join(" ")} <button name="by" value="">拒绝 · Deny</button></form>`,
      );
    });
    server.post<{ Body: { by?: string } }>(path, (request, reply) => {
      const consent = grants.asked(simulator.url + request.url);
      if (consent === undefined) return send(reply.code(404), `<p>${gone}</p>`);
      const { by = "" } = request.body;
      if (by !== "" && !users.has(by)) return send(reply.code(404), "<p>?</p>");
      const { redirect } =
        by === "" ? grants.refuse(consent.link) : grants.consent(consent.link, by);
      if (redirect === undefined) return send(reply, `<p>${by === "" ? refused : agreed}</p>`);
      // The page leads the browser on. The policy of the page refuses redirects of its forms to other origins.
      const to = escaped(redirect);
      return send(reply, `<p><a href="${to}">回到应用 · Back to the app</a></p>`, to);
    });
  }
}

function send(reply: FastifyReply, body: string, next?: string): FastifyReply {
  const refresh = next === undefined ? "" : `<meta http-equiv="refresh" content="0;url=${next}">`;
  return reply
    .type("text/html; charset=utf-8")
    .send(
      `<!doctype html><html lang="zh"><head><meta charset="utf-8">${refresh}<title>授权 · Consent</title>` +
        `<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page/style.css"></head>` +
        `<body class="plain"><main><h1>授权 · Consent</h1>${body}</main></body></html>`,
    );
}

const gone = "链接已失效 · This link is not valid any more.";
const agreed = "已同意，可以关闭此页 · Granted. You can close this page.";
const refused = "已拒绝，可以关闭此页 · Denied. You can close this page.";

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
