import { fastify } from "fastify";
import { expect, onTestFinished, test } from "vitest";
import { startFeishuSimulator } from "../index.ts";
import { registerConsentPage } from "./consent-page.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "secret", name: "Bot <1>" };

async function scene() {
  const simulator = await startFeishuSimulator({ apps: [app] });
  onTestFinished(() => simulator.close());
  const ann = simulator.addUser({ name: 'Ann "A"' }).openId;
  const server = fastify();
  onTestFinished(() => server.close());
  registerConsentPage(server, simulator);
  const authorization = `Basic ${Buffer.from(`${app.appId}:${app.appSecret}`).toString("base64")}`;
  const begin = async (): Promise<string> => {
    const response = await fetch(`${simulator.url}/oauth/v1/device_authorization`, {
      method: "POST",
      headers: { authorization },
      body: new URLSearchParams({ client_id: app.appId, scope: "task:task:read" }),
    });
    const { verification_uri_complete: link } = (await response.json()) as {
      verification_uri_complete: string;
    };
    const { pathname, search } = new URL(link);
    return pathname + search;
  };
  const press = async (url: string, by: string) => {
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    return await server.inject({
      method: "POST",
      url,
      headers,
      payload: new URLSearchParams({ by }).toString(),
    });
  };
  return { simulator, server, ann, begin, press };
}

test("the page names the app and what it asks for, and a person agrees once", async () => {
  const { simulator, server, ann, begin, press } = await scene();
  const url = await begin();
  const page = (await server.inject({ method: "GET", url })).body;
  expect(page).toContain("<strong>Bot &lt;1></strong>");
  expect(page).toContain("<code>task:task:read</code>");
  expect(page).toContain("Allow as Ann &quot;A&quot;");
  expect((await press(url, ann)).body).toContain("Granted");
  expect(simulator.grants.grantedTo(app.appId, ann)).toEqual(["task:task:read"]);
  expect((await press(url, ann)).statusCode).toBe(404);
});

test("a person denies; strangers and unknown links get nothing", async () => {
  const { simulator, server, ann, begin, press } = await scene();
  const url = await begin();
  expect((await press(url, "ou_unknown")).statusCode).toBe(404);
  expect((await press(url, "")).body).toContain("Denied");
  expect(simulator.grants.grantedTo(app.appId, ann)).toEqual([]);
  expect((await server.inject({ method: "GET", url: "/page/device?flow_id=1" })).statusCode).toBe(
    404,
  );
});

test("a link of the code flow has the page, too, and leads the browser back with a code or a refusal", async () => {
  const { simulator, server, ann, press } = await scene();
  const query = new URLSearchParams({
    client_id: app.appId,
    redirect_uri: "https://bot.example.com/feishu/consent",
    scope: "task:task:read",
    state: "s&1",
  });
  const url = `/open-apis/authen/v1/authorize?${query.toString()}`;
  const page = (await server.inject({ method: "GET", url })).body;
  expect(page).toContain("<code>task:task:read</code>");
  const back = /content="0;url=(https:\/\/bot\.example\.com\/feishu\/consent\?)([^"]*)"/;
  const answerOf = async (by: string) => {
    const [, , values = ""] = back.exec((await press(url, by)).body) ?? [];
    return Object.fromEntries(new URLSearchParams(values.replaceAll("&amp;", "&")));
  };
  expect(await answerOf("")).toEqual({ error: "access_denied", state: "s&1" });
  expect(simulator.grants.grantedTo(app.appId, ann)).toEqual([]);
  expect(await answerOf(ann)).toEqual({ code: expect.any(String) as string, state: "s&1" });
  expect(simulator.grants.grantedTo(app.appId, ann)).toEqual(["task:task:read"]);
  const stranger = url.replace(app.appId, "cli_unknown");
  expect((await server.inject({ method: "GET", url: stranger })).statusCode).toBe(404);
});
