import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@larkline/protocol/clock";
import {
  exportJWK,
  exportSPKI,
  generateKeyPair,
  SignJWT,
  UnsecuredJWT,
  type JWTPayload,
} from "jose";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { RateGovernor } from "@larkline/store/platform";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { approvalFor, suspendOn } from "./approval.fixture.ts";
import { personOf as callerOf, RequestLimits } from "./callers.ts";
import { loadConfig } from "./config.ts";
import {
  openStream,
  postChat,
  startTestIngress,
  type TestIngress,
  type TestOptions,
} from "./ingress.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const hashOf = (key: string) => createHash("sha256").update(key).digest("hex");
const jwtSecret = "a-secret-of-thirty-two-characters";
const signers = {
  ES256: await generateKeyPair("ES256", { extractable: true }),
  RS256: await generateKeyPair("RS256", { extractable: true }),
};
let folder: string;
let jwksFile: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "callers-"));
  jwksFile = join(folder, "jwks.json");
  const keys = Object.entries(signers).map(async ([alg, { publicKey }]) => ({
    ...(await exportJWK(publicKey)),
    alg,
    kid: alg,
  }));
  await writeFile(jwksFile, JSON.stringify({ keys: await Promise.all(keys) }));
});
afterAll(async () => await rm(folder, { recursive: true }));

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function started(options: TestOptions = {}): Promise<TestIngress> {
  const ingress = await startTestIngress(options);
  closing.push(ingress.close);
  return ingress;
}

const keysEnv = {
  API_KEYS: `alice:${hashOf("key-of-alice")}, bob:${hashOf("key-of-bob")},alice:${hashOf("new-key")}`,
};
const as = (token: string) => ({ authorization: `Bearer ${token}` });
const alice = as("key-of-alice");
const bob = as("key-of-bob");

async function post(
  { url }: TestIngress,
  path: string,
  body: unknown,
  headers: Record<string, string>,
) {
  return await fetch(`${url}${path}`, { method: "POST", body: JSON.stringify(body), headers });
}

/** The status that a credential gets, and the person of the message that it stores. */
async function personOf(
  ingress: TestIngress,
  token: string,
  session: string,
): Promise<[number, string | undefined]> {
  const { status } = await post(
    ingress,
    "/v1/runs",
    { input: "hi", session_id: session },
    as(token),
  );
  const { head } = await ingress.store.summary(`api.${session}`);
  return [status, head?.message.sender.id];
}

describe("the settings of callers", () => {
  it("name the variable that is wrong, and repeat no secret", async () => {
    const privateJwks = join(folder, "private.json");
    await writeFile(
      privateJwks,
      JSON.stringify({ keys: [await exportJWK(signers.ES256.privateKey)] }),
    );
    const problems = (env: Record<string, string>) => {
      const loaded = loadConfig(env);
      return loaded.ok ? "" : loaded.error;
    };
    expect(problems({ API_KEYS: `a:${hashOf("k")},carol:plain-key` })).toMatch(
      /^API_KEYS .* entry 2 is none\.$/,
    );
    expect(problems({ API_JWT_SECRET: "hunter2" })).toBe(
      "API_JWT_SECRET must be at least 32 characters long.",
    );
    expect(problems({ API_JWKS: join(folder, "none.json") })).toMatch(
      /^API_JWKS could not be read/,
    );
    expect(problems({ API_JWKS: privateJwks })).toMatch(
      /^API_JWKS must be a JSON Web Key Set of public keys/,
    );
    expect(problems({ ...keysEnv, API_JWT_SECRET: jwtSecret, API_JWKS: jwksFile })).toBe("");
  });
});

describe("a caller", () => {
  it("AT-29: is a person by the name of its key, beside the one of API_TOKEN", async () => {
    const ingress = await started({ env: { ...keysEnv, API_TOKEN: "sixteen-chars..." } });
    expect(await personOf(ingress, "key-of-alice", "s1")).toEqual([202, "api:alice"]);
    expect(await personOf(ingress, "new-key", "s2")).toEqual([202, "api:alice"]);
    expect(await personOf(ingress, "sixteen-chars...", "s3")).toEqual([202, "api"]);
    expect(await personOf(ingress, hashOf("key-of-alice"), "s4")).toEqual([401, undefined]);
    const guesses = Array.from({ length: 10_000 }, (_, at) => `guess-${at}`);
    const near = guesses.find((guess) =>
      hashOf(guess).startsWith(hashOf("key-of-alice").slice(0, 2)),
    );
    expect(await personOf(ingress, near ?? expect.fail(), "s5")).toEqual([401, undefined]);
    expect((await fetch(`${ingress.url}/v1/runs/api.s1-1`)).status).toBe(401);
  });

  it("AT-29: is a person by the subject of a JSON Web Token that is signed, in time and for us", async () => {
    const ingress = await started({ env: { API_JWT_SECRET: jwtSecret, API_JWKS: jwksFile } });
    const secret = new TextEncoder().encode(jwtSecret);
    const claims = { aud: "larkline", sub: "ann|1", exp: Math.floor(Date.now() / 1_000) + 60 };
    const signed = async (payload: JWTPayload, alg: "HS256" | "ES256" | "RS256" = "HS256") =>
      await new SignJWT(payload)
        .setProtectedHeader({ alg, ...(alg === "HS256" ? {} : { kid: alg }) })
        .sign(alg === "HS256" ? secret : signers[alg].privateKey);
    for (const [session, alg] of [
      ["s1", "HS256"],
      ["s2", "ES256"],
      ["s3", "RS256"],
    ] as const) {
      expect(await personOf(ingress, await signed(claims, alg), session)).toEqual([
        202,
        "api:ann%7C1",
      ]);
    }
    const { exp: _exp, ...endless } = claims;
    const { sub: _sub, ...nameless } = claims;
    const stranger = await generateKeyPair("ES256");
    // The public key, taken for the secret of HS256.
    const confused = new TextEncoder().encode(await exportSPKI(signers.RS256.publicKey));
    const wrong = [
      await signed({ ...claims, exp: claims.exp - 120 }),
      await signed({ ...claims, aud: "elsewhere" }),
      await signed(endless),
      await signed(nameless),
      await signed({ ...claims, sub: "a b" }),
      await signed({ ...claims, nbf: claims.exp }),
      new UnsecuredJWT(claims).encode(),
      await new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(confused),
      await new SignJWT(claims)
        .setProtectedHeader({ alg: "ES256", kid: "ES256" })
        .sign(stranger.privateKey),
      `${await signed(claims)}x`,
      "no.jwt.atall",
    ];
    for (const token of wrong) {
      expect(await personOf(ingress, token, "bad")).toEqual([401, undefined]);
    }
  });

  it("AT-29: may have a key that is added to the file, which is read again once a minute at most", async () => {
    const file = join(folder, "rotated.json");
    const signerOf = async (kid: string) => {
      const { publicKey, privateKey } = await generateKeyPair("ES256", { extractable: true });
      return { jwk: { ...(await exportJWK(publicKey)), alg: "ES256", kid }, privateKey, kid };
    };
    const [first, second, third] = [
      await signerOf("one"),
      await signerOf("two"),
      await signerOf("three"),
    ];
    const write = async (...keys: (typeof first)[]) =>
      await writeFile(file, JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }));
    await write(first);
    const loaded = loadConfig({ API_JWKS: file });
    const { callers } = (loaded.ok ? loaded.value : expect.fail(loaded.error)).api;
    let now = 0;
    const clock = { ...systemClock, monotonic: () => now };
    const claims = { aud: "larkline", sub: "ann", exp: Math.floor(Date.now() / 1_000) + 600 };
    const person = async ({ kid, privateKey }: typeof first) => {
      const token = await new SignJWT(claims)
        .setProtectedHeader({ alg: "ES256", kid })
        .sign(privateKey);
      return await callerOf(callers, token, clock);
    };
    expect([await person(first), await person(second)]).toEqual(["api:ann", undefined]);
    await write(first, second);
    expect(await person(second)).toBeUndefined(); // read a moment ago
    now = 60_000;
    expect(await Promise.all([person(second), person(second)])).toEqual(["api:ann", "api:ann"]);
    now = 120_000;
    await writeFile(file, "half of a fi");
    expect([await person(third), await person(first), await person(second)]).toEqual([
      undefined,
      "api:ann",
      "api:ann",
    ]);
    now = 180_000;
    await write(third);
    expect([await person(third), await person(first)]).toEqual(["api:ann", undefined]);
  });

  it("AT-29: chooses the language of its own sessions only, by the messages that are stored", async () => {
    const ingress = await started({ env: keysEnv });
    const spoken = async (session: string) => await ingress.lookups.get(`lang:api:${session}`);
    await post(ingress, "/v1/runs", { input: "你好", session_id: "s1" }, alice);
    await vi.waitFor(async () => expect(await spoken("s1")).toBe("zh"), { timeout: 60_000 });
    const statuses = [
      await post(ingress, "/v1/runs", { input: "hello", session_id: "s1" }, bob),
      await post(ingress, "/chat", { message: "hello", session_id: "s1" }, bob),
      await post(ingress, "/v1/sessions/s1/commands", { command: "/new hello" }, bob),
      await post(ingress, "/v1/sessions/s2/commands", { command: "/memory hello" }, bob),
    ].map(({ status }) => status);
    expect(statuses).toEqual([404, 404, 404, 200]);
    expect([await spoken("s1"), await spoken("s2")]).toEqual(["zh", undefined]);
    await post(ingress, "/v1/sessions/s1/commands", { command: "/new hello" }, alice);
    await vi.waitFor(async () => expect(await spoken("s1")).toBe("en"), { timeout: 60_000 });
  });

  it("AT-29: has sessions of its own, and others get 404 for them and store nothing", async () => {
    const ingress = await started({ env: keysEnv });
    const first = await post(
      ingress,
      "/v1/runs",
      { input: "hi", session_id: "s1", message_id: "m1" },
      alice,
    );
    const { run_id: runId } = (await first.json()) as { run_id: string };
    const before = await ingress.store.summary("api.s1");
    const requests: [string, RequestInit][] = [
      ["/v1/runs", { method: "POST", body: JSON.stringify({ input: "mine?", session_id: "s1" }) }],
      [
        "/v1/runs",
        {
          method: "POST",
          body: JSON.stringify({ input: "hi", session_id: "s1", message_id: "m1" }),
        },
      ],
      [
        "/v1/runs",
        { method: "POST", body: JSON.stringify({ input: withHistory, session_id: "s1" }) },
      ],
      [`/v1/runs/${runId}`, {}],
      [`/v1/runs/${runId}/events`, {}],
      [`/v1/runs/${runId}/cancel`, { method: "POST" }],
      ["/chat", { method: "POST", body: JSON.stringify({ message: "mine?", session_id: "s1" }) }],
      ["/chat", { method: "POST", body: JSON.stringify({ message: "/stop", session_id: "s1" }) }],
      ["/chat/s1/events", {}],
      ["/v1/sessions/s1/commands", { method: "POST", body: JSON.stringify({ command: "/new" }) }],
      ["/v1/sessions/s1/commands", { method: "POST", body: JSON.stringify({ command: "/stop" }) }],
      ["/v1/approvals?session_id=s1", {}],
      ["/v1/permissions?session_id=s1", {}],
    ];
    for (const [path, init] of requests) {
      const { status } = await fetch(`${ingress.url}${path}`, { ...init, headers: bob });
      expect([path, status]).toEqual([path, 404]);
    }
    expect(await ingress.store.summary("api.s1")).toEqual(before);
    expect((await fetch(`${ingress.url}/v1/runs/${runId}`, { headers: alice })).status).toBe(200);
  });

  it("AT-29: decides approvals of its own runs, and of others where a role says so", async () => {
    const { memory, close } = connectSharedRedis();
    closing.push(close);
    const roles = { leads: { people: ["api:bob"] } };
    const env = { API_KEYS: `${keysEnv.API_KEYS},carol:${hashOf("key-of-carol")}` };
    const ingress = await started({ env, shared: memory, settings: { roles } });
    await post(ingress, "/v1/runs", { input: "deploy", session_id: "s1" }, alice);
    const { gen } = await ingress.store.summary("api.s1");
    const claim = (await ingress.store.claim("api.s1", gen, "test")) ?? expect.fail();
    const deciders = { requester: false, people: [], roles: ["leads"], fourEyes: true, count: 1 };
    const approval = approvalFor(claim, "s1", { deciders });
    await suspendOn(ingress, claim, [approval]);
    const decide = async (headers: Record<string, string>) =>
      (await post(ingress, `/v1/approvals/${approval.id}`, { decision: "approve" }, headers))
        .status;
    expect(await decide(as("key-of-carol"))).toBe(404);
    expect(await decide(alice)).toBe(403);
    const seen = await fetch(`${ingress.url}/v1/approvals?session_id=s1`, { headers: bob });
    expect(await seen.json()).toMatchObject({ approvals: [{ id: approval.id }] });
    expect(await decide(bob)).toBe(200);
  });
});

const withHistory = [
  { role: "user", content: "a" },
  { role: "assistant", content: "b" },
  { role: "user", content: "c" },
];

describe("the limits of a caller", () => {
  it("are its own: requests beyond get 429 and the time to wait", async () => {
    const ingress = await started({ env: { ...keysEnv, API_REQUESTS_PER_MINUTE: "3" } });
    const ask = async (headers: Record<string, string>) =>
      await fetch(`${ingress.url}/v1/runs/api.none-1`, { headers });
    const statuses = [];
    for (let at = 0; at < 4; at += 1) statuses.push((await ask(alice)).status);
    expect(statuses).toEqual([404, 404, 404, 429]);
    expect(Number((await ask(alice)).headers.get("retry-after"))).toBeGreaterThan(10);
    expect((await ask(bob)).status).toBe(404);
  });

  it("count over all replicas", async () => {
    const { memory: shared, close } = connectSharedRedis();
    closing.push(close);
    const env = { ...keysEnv, API_REQUESTS_PER_MINUTE: "4" };
    const replicas = [await started({ env, shared }), await started({ env, shared })];
    const statuses = [];
    for (let at = 0; at < 6; at += 1) {
      const { url = "" } = replicas[at % 2] ?? {};
      statuses.push((await fetch(`${url}/v1/runs/api.none-1`, { headers: alice })).status);
    }
    expect(statuses).toEqual([404, 404, 404, 404, 429, 429]);
  });

  it.each([
    ["does not answer", true],
    ["is away", false],
  ])("come back with time, counted here while the store %s", async (_how, isReady) => {
    let now = 0;
    // Nothing listens there.
    const redis = connectRedis("redis://127.0.0.1:1");
    redis.on("error", () => undefined);
    closing.push(async () => await closeRedis(redis));
    const limits = new RequestLimits({
      clock: {
        ...systemClock,
        monotonic: () => now,
        after: (_ms, work) => systemClock.after(0, work),
      },
      governor: new RateGovernor({ redis, namespace: "none" }),
      isReady: () => isReady,
      perMinute: 6,
    });
    for (let at = 0; at < 6; at += 1) expect(await limits.take("a")).toBe(0);
    expect(await limits.take("a")).toBe(10);
    now = 10_000;
    expect([await limits.take("a"), await limits.take("a")]).toEqual([0, 10]);
  });

  it("bound its streams, which are free again when they are closed", async () => {
    const ingress = await started({
      env: { ...keysEnv, API_MAX_STREAMS_PER_CALLER: "1" },
      script: untilStopped,
    });
    const stream = await postChat(ingress, { message: "a", session_id: "s1" }, alice);
    await stream.until(/user_message/);
    const refused = await openStream(`${ingress.url}/chat/s1/events`, { headers: alice });
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "5"]);
    const other = await postChat(ingress, { message: "a", session_id: "s2" }, bob);
    expect(other.status).toBe(200);
    other.leave();
    stream.leave();
    await expect
      .poll(async () => {
        const again = await openStream(`${ingress.url}/chat/s1/events`, { headers: alice });
        again.leave();
        return again.status;
      })
      .toBe(200);
  });
});

const untilStopped: NonNullable<TestOptions["script"]> = async (_text, { stopped }) => {
  if (!stopped.aborted) {
    await new Promise((resolve) => stopped.addEventListener("abort", resolve, { once: true }));
  }
};
