import { request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { toolJobId } from "@larkline/protocol/runner";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  callOf,
  openWorld,
  passwords,
  session,
  signIn,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

let world: World;
const running: TestConsole[] = [];

beforeEach(() => {
  world = openWorld();
});

afterEach(async () => {
  await Promise.all(running.splice(0).map(async (one) => await one.close()));
  await world.close();
});

async function start(
  given?: typeof passwords | null,
  proxies?: readonly string[],
): Promise<TestConsole> {
  const started = await startTestConsole(world, given, { proxies: proxies ?? [] });
  running.push(started);
  return started;
}

async function tryPassword(
  { url }: TestConsole,
  password: string,
  headers: Record<string, string> = {},
) {
  const body = new URLSearchParams({ password, next: "/rules" });
  return await fetch(`${url}/sign-in`, { method: "POST", body, headers, redirect: "manual" });
}

/** What answers a request that `fetch` does not send: with any Host header, and a path as it is written. */
async function rawAnswer(url: string, options: RequestOptions): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const sent = httpRequest(url, options, (response) => {
    response.resume();
    resolve(response);
  });
  sent.on("error", reject).end();
  return await promise;
}

async function statusWithHost(url: string, host: string): Promise<number | undefined> {
  return (await rawAnswer(url, { headers: { host } })).statusCode;
}

async function locationOf(url: string, path: string): Promise<string | undefined> {
  return (await rawAnswer(url, { path })).headers.location;
}

describe("signing in", () => {
  it("no page opens without it", async () => {
    const { url } = await start();
    for (const path of [
      "/",
      "/rules",
      `/sessions/${session}`,
      "/jobs/turns/1",
      "/queues",
      "/nowhere",
    ]) {
      const { status, headers } = await fetch(`${url}${path}`, { redirect: "manual" });
      expect([status, headers.get("location")]).toEqual([
        303,
        `/sign-in?next=${encodeURIComponent(path)}`,
      ]);
    }
    expect((await fetch(`${url}/queues/api/queues`)).status).toBe(401);
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect((await fetch(`${url}/ready`)).status).toBe(200);
  });

  it("a wrong password is refused, the right one leads on to the page that was asked for", async () => {
    const here = await start();
    expect((await tryPassword(here, "no")).status).toBe(401);
    const signedIn = await tryPassword(here, passwords.operator);
    expect([signedIn.status, signedIn.headers.get("location")]).toEqual([303, "/rules"]);
    expect(signedIn.headers.getSetCookie()).toEqual([
      expect.stringMatching(
        /^larkline_console=[0-9a-f]{64}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/,
      ),
      expect.stringMatching(
        /^larkline_browser=[0-9a-f]{64}; Max-Age=2592000; Path=\/; HttpOnly; SameSite=Strict$/,
      ),
    ]);
    const behindProxy = await tryPassword(here, passwords.operator, {
      "x-forwarded-proto": "https",
    });
    for (const cookie of behindProxy.headers.getSetCookie()) expect(cookie).toMatch(/; Secure;/);
  });

  it("leads to no other site", async () => {
    const { url } = await start();
    for (const next of ["https://evil.example", "//evil.example", "/\\evil.example", "/\r\nx: y"]) {
      const body = new URLSearchParams({ password: passwords.operator, next });
      const { headers } = await fetch(`${url}/sign-in`, {
        method: "POST",
        body,
        redirect: "manual",
      });
      expect(headers.get("location")).toBe("/");
    }
  });

  it("choosing a language leads to no other site either", async () => {
    const { url } = await start(null);
    expect(await locationOf(url, "/rules?x=1&language=zh")).toBe("/rules?x=1");
    for (const path of [
      "/.//evil.example/?language=zh",
      "//evil.example/?language=zh",
      "/\\evil.example?language=zh",
    ]) {
      expect(await locationOf(url, path), path).toBe("/");
    }
  });

  it("every replica knows who is signed in, and Redis holds nothing that could be used", async () => {
    const [one, other] = [await start(), await start()];
    const client = await signIn(one, passwords.operator);
    const { status } = await fetch(`${other.url}/rules`, { headers: { cookie: client.cookie } });
    expect(status).toBe(200);
    const token = client.cookie.split("=")[1] ?? "";
    const keys = (await world.redis.keys(`*${world.namespace}*`)).filter((key) =>
      key.includes(":look:"),
    );
    const values = await Promise.all(keys.map(async (key) => await world.redis.get(key)));
    expect(values).toHaveLength(2);
    expect(JSON.stringify([keys, values])).not.toContain(token);
    expect(JSON.stringify([keys, values])).not.toContain(passwords.operator);
    expect(await world.redis.pttl(keys[0] ?? "")).toBeGreaterThan(3_600_000);
  });

  it("signing out ends it at once", async () => {
    const here = await start();
    const client = await signIn(here, passwords.viewer ?? "");
    expect((await client.post("/sign-out")).status).toBe(303);
    expect((await client.get("/")).status).toBe(303);
  });

  it("a changed password ends the sign-ins of its role, and of no other", async () => {
    const here = await start();
    const [operator, viewer] = [
      await signIn(here, passwords.operator),
      await signIn(here, passwords.viewer ?? ""),
    ];
    const { url } = await start({ ...passwords, operator: "another" });
    const statusOf = async (cookie: string) =>
      (await fetch(url, { headers: { cookie }, redirect: "manual" })).status;
    expect([await statusOf(operator.cookie), await statusOf(viewer.cookie)]).toEqual([303, 200]);
  });
});

describe("guessing a password", () => {
  /** What a limit of so many tries in any minute allows since `sinceMs`. */
  const most = (perMinute: number, sinceMs: number) =>
    perMinute * (Math.floor((Date.now() - sinceMs) / 60_000) + 1);

  /** Sends wrong passwords, fifty at a time, as long as it is asked to; resolves with how many were checked. */
  async function attack(
    { url }: TestConsole,
    headersOf: (index: number) => Record<string, string>,
    goesOn = (sent: number): boolean => sent < 1_000,
  ): Promise<number> {
    const statuses: number[] = [];
    let next = 0;
    const guess = async () => {
      while (goesOn(next)) {
        const index = next++;
        statuses.push(
          (await tryPassword({ url } as TestConsole, `guess-${index}`, headersOf(index))).status,
        );
      }
    };
    await Promise.all(Array.from({ length: 50 }, guess));
    expect(statuses.filter((status) => status !== 401 && status !== 429)).toEqual([]);
    return statuses.filter((status) => status === 401).length;
  }

  const browserOf = (response: Response) =>
    response.headers
      .getSetCookie()
      .map((cookie) => cookie.split(";", 1)[0] ?? "")
      .find((cookie) => cookie.startsWith("larkline_browser=")) ?? "";

  it("a browser that has signed in before signs in on every replica, whatever others try beside it", async () => {
    const [one, other] = [await start(), await start()];
    const cookie = browserOf(await tryPassword(one, passwords.operator));
    const sinceMs = Date.now();
    const outcomes: number[] = [];
    const replicas = [one, other, one, other];
    const attacking = attack(
      one,
      (index) => ({
        cookie: `larkline_browser=${String(index).padStart(64, "0")}`,
        "x-forwarded-for": `203.0.113.${index % 250}`,
      }),
      (sent) => sent < 1_000 || outcomes.length < replicas.length,
    );
    for (const here of replicas) {
      outcomes.push((await tryPassword(here, passwords.operator, { cookie })).status);
    }
    expect(outcomes).toEqual([303, 303, 303, 303]);
    expect(await attacking).toBeLessThanOrEqual(most(30, sinceMs));
    expect((await tryPassword(other, passwords.operator, { cookie })).status).toBe(303);
  });

  it("where the proxy is named, one client's tries take nothing from another's", async () => {
    const here = await start(undefined, ["127.0.0.1"]);
    const sinceMs = Date.now();
    // What a client says itself stands before what the proxy adds, and is not believed.
    const attacked = await attack(here, (index) => ({
      "x-forwarded-for": `198.51.100.${index % 250}, 203.0.113.9`,
    }));
    expect(attacked).toBeLessThanOrEqual(most(7, sinceMs));
    expect(attacked).toBeGreaterThan(0);
    const another = await tryPassword(here, passwords.operator, {
      "x-forwarded-for": "203.0.113.10",
    });
    expect(another.status).toBe(303);
    const inNetwork = (last: string) => ({ "x-forwarded-for": `2001:db8:1:2:${last}` });
    const judged = await attack(
      here,
      (index) => inNetwork(`${index.toString(16)}::1`),
      (sent) => sent < 40,
    );
    expect(judged).toBeLessThanOrEqual(most(7, sinceMs));
    expect(
      (await tryPassword(here, passwords.operator, { "x-forwarded-for": "2001:db8:1:3::1" }))
        .status,
    ).toBe(303);
  });

  it("a browser that is known has few tries of its own, and its cookie opens nothing", async () => {
    const here = await start();
    const cookie = browserOf(await tryPassword(here, passwords.operator));
    expect((await fetch(`${here.url}/`, { headers: { cookie }, redirect: "manual" })).status).toBe(
      303,
    );
    const sinceMs = Date.now();
    const judged = await attack(
      here,
      () => ({ cookie }),
      (sent) => sent < 40,
    );
    expect(judged).toBeLessThanOrEqual(most(7, sinceMs));
    const refused = await tryPassword(here, passwords.operator, { cookie });
    if (judged < most(7, sinceMs)) return; // so slow that a minute went by
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
  });

  it("a viewer gets no more tries at the operator's password by making many browsers known", async () => {
    const here = await start();
    const sinceMs = Date.now();
    const cookies: string[] = [];
    for (let browser = 0; browser < 6; browser += 1) {
      cookies.push(browserOf(await tryPassword(here, passwords.viewer ?? "")));
    }
    expect(new Set(cookies).size).toBe(6);
    const ofKnown = (index: number) => ({ cookie: cookies[index % cookies.length] ?? "" });
    const judged = await attack(here, ofKnown, (sent) => sent < 200);
    // Those of known viewers, and those of unknown browsers, of which six were used up.
    expect(judged).toBeLessThanOrEqual(most(60, sinceMs) - 6);
  });

  it("a browser is known for as long as the password holds", async () => {
    const here = await start();
    const cookie = browserOf(await tryPassword(here, passwords.operator));
    const changed = await start({ ...passwords, operator: "another" });
    const again = await tryPassword(changed, "another", { cookie });
    expect([again.status, browserOf(again) === cookie]).toEqual([303, false]);
    expect(browserOf(await tryPassword(here, passwords.operator, { cookie }))).toBe(cookie);
  });
});

describe("without passwords", () => {
  it("everyone on this machine is an operator", async () => {
    const { url } = await start(null);
    expect(await (await fetch(url)).text()).toContain("Operator");
  });

  it("a page of another site that names this machine its own gets nothing", async () => {
    const { url } = await start(null);
    expect(await statusWithHost(url, "evil.example")).toBe(403);
    expect(await statusWithHost(`${url}/queues/api/queues`, "evil.example:8003")).toBe(403);
    expect(await statusWithHost(url, "localhost:8003")).toBe(200);
  });

  it("a request through a proxy on this machine gets nothing", async () => {
    const { url } = await start(null);
    for (const name of ["forwarded", "x-forwarded-for", "x-forwarded-proto", "via", "x-real-ip"]) {
      expect([name, (await fetch(url, { headers: { [name]: "127.0.0.1" } })).status]).toEqual([
        name,
        403,
      ]);
    }
  });

  it("changes still need the token of a page", async () => {
    const { url } = await start(null);
    const body = new URLSearchParams({ app: "api", rule: "x" });
    expect((await fetch(`${url}/rules/revoke`, { method: "POST", body })).status).toBe(403);
    expect((await fetch(`${url}/queues/api/queues/turns/pause`, { method: "PUT" })).status).toBe(
      403,
    );
  });
});

describe("changes", () => {
  const jobId = toolJobId(`${session}-1`, "c1");
  const paths = [
    "/queues/api/queues/pause",
    "/queues/api/queues/tools-local/pause",
    `/queues/api/queues/tools-local/${jobId}/clean`,
    `/queues/api/queues/tools-local/${jobId}/retry`,
    `/queues/api/queues/tools-local/${jobId}/promote`,
    "/queues/api/queues/tools-local/clean/waiting",
    "/queues/api/queues/tools-local/empty",
  ];

  beforeEach(async () => await world.tools.dispatch("local", [callOf("c1")]));

  it("viewers are refused every one of them", async () => {
    const viewer = await signIn(await start(), passwords.viewer ?? "");
    expect(viewer.csrf).not.toBe("");
    for (const path of paths) expect((await viewer.put(path)).status, path).toBe(403);
    for (const path of [
      "/rules/revoke",
      "/grants/end",
      `/sessions/${session}/content`,
      `/sessions/${session}/cancel`,
    ]) {
      expect((await viewer.post(path)).status, path).toBe(403);
    }
    expect((await viewer.post(`/jobs/tools-local/${jobId}/content`)).status).toBe(403);
  });

  it("what viewers see of queues offers no actions", async () => {
    const here = await start();
    const listed = async (password: string) => {
      const client = await signIn(here, password);
      return (await (
        await client.get("/queues/api/queues?activeQueue=tools-local&page=1&jobsPerPage=10")
      ).json()) as {
        queues: Record<string, unknown>[];
      };
    };
    const { queues: ofViewer } = await listed(passwords.viewer ?? "");
    expect(ofViewer).toMatchObject([
      { name: "turns", readOnlyMode: true, allowRetries: false },
      { name: "tools-local", readOnlyMode: true, allowRetries: false },
    ]);
    expect((await listed(passwords.operator)).queues).toMatchObject([
      { readOnlyMode: false },
      { readOnlyMode: false },
    ]);
  });

  it("operators are refused without the token, with a wrong one, and from pages of other sites", async () => {
    const operator = await signIn(await start(), passwords.operator);
    const token = { "x-xsrf-token": operator.csrf };
    const path = "/queues/api/queues/tools-local/pause";
    expect((await operator.put(path, {})).status).toBe(403);
    expect(
      (await operator.put(path, { "x-xsrf-token": `${operator.csrf.slice(1)}0` })).status,
    ).toBe(403);
    expect((await operator.put(path, { ...token, "sec-fetch-site": "cross-site" })).status).toBe(
      403,
    );
    expect((await operator.put(path, { ...token, origin: "https://evil.example" })).status).toBe(
      403,
    );
    expect((await operator.post("/rules/revoke", { csrf: "" })).status).toBe(403);
    const other = await signIn(await start(), passwords.operator);
    expect((await operator.put(path, { "x-xsrf-token": other.csrf })).status).toBe(403);
    expect((await operator.put(path, token)).status).toBe(200);
  });

  it("operators can pause, go on and clean up", async () => {
    const operator = await signIn(await start(), passwords.operator);
    expect((await operator.put("/queues/api/queues/tools-local/pause")).status).toBe(200);
    expect(await (await operator.get("/")).text()).toContain("(paused)");
    expect((await operator.put("/queues/api/queues/tools-local/resume")).status).toBe(200);
    expect((await operator.put(`/queues/api/queues/tools-local/${jobId}/clean`)).status).toBe(204);
    expect((await operator.get(`/jobs/tools-local/${jobId}`)).status).toBe(404);
  });

  it("visitors cannot add jobs, change their data, or take a queue's settings away", async () => {
    const { url } = await start();
    const operator = await signIn({ url }, passwords.operator);
    const headers = {
      cookie: operator.cookie,
      "x-xsrf-token": operator.csrf,
      "content-type": "application/json",
    };
    const tries = [
      ["POST", "add"],
      ["PATCH", `${jobId}/update-data`],
      ["PUT", "obliterate"],
      ["PUT", "concurrency"],
      ["PUT", "rate-limit"],
      ["PUT", "rate-limit/release"],
    ] as const;
    for (const [method, end] of tries) {
      const body = JSON.stringify({ name: "x", data: {}, jobData: {}, concurrency: 1 });
      const refused = await fetch(`${url}/queues/api/queues/tools-local/${end}`, {
        method,
        headers,
        body,
      });
      expect([end, refused.status]).toEqual([end, 403]);
    }
  });
});

it("says exactly what our pages and those of Bull Board may do", async () => {
  const operator = await signIn(await start(), passwords.operator);
  const policyOf = async (path: string) =>
    (await operator.get(path)).headers.get("content-security-policy");
  expect(await policyOf("/rules")).toBe(
    "default-src 'none';style-src 'self';img-src 'self' data:;form-action 'self';base-uri 'none';frame-ancestors 'none'",
  );
  for (const path of ["/queues", "/queues/api/queues?page=1&jobsPerPage=10"]) {
    expect(await policyOf(path)).toBe(
      "default-src 'self';script-src 'self';style-src 'self' 'unsafe-inline';img-src 'self' data:;font-src 'self';" +
        "worker-src 'self' blob:;object-src 'none';form-action 'self';base-uri 'self';frame-ancestors 'none'",
    );
  }
  const { headers } = await operator.get("/rules");
  for (const [name, value] of [
    ["x-frame-options", "DENY"],
    ["referrer-policy", "same-origin"],
    ["cross-origin-opener-policy", "same-origin"],
    ["cross-origin-resource-policy", "same-origin"],
    ["strict-transport-security", null],
  ] as const) {
    expect([name, headers.get(name)]).toEqual([name, value]);
  }
});

it("pages are not cached, fit into no frame, and load nothing from elsewhere", async () => {
  const operator = await signIn(await start(), passwords.operator);
  for (const path of ["/", "/queues", "/queues/api/queues?page=1&jobsPerPage=10", "/nowhere"]) {
    const { headers } = await operator.get(path);
    expect(headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
    expect(headers.get("content-security-policy")).not.toContain("http");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("cache-control")).toBe("no-store");
  }
  expect(await (await operator.get("/queues")).text()).not.toMatch(
    /(?:src|href)="(?:https?:)?\/\//,
  );
});
