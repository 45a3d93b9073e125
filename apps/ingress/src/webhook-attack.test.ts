import { createHash, randomUUID } from "node:crypto";
import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { encryptEvent, signEvent } from "@larkline/simulator";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";

let here: FeishuWorld;

beforeAll(async () => {
  here = await startWorld();
});
afterAll(async () => {
  await here.close();
});

function plainEvent({ token = testApp.verificationToken, appId = testApp.appId } = {}): string {
  const header = {
    event_id: randomUUID(),
    event_type: "im.message.receive_v1",
    create_time: String(Date.now()),
    token,
    app_id: appId,
    tenant_key: "t",
  };
  const message = {
    message_id: `om_${randomUUID()}`,
    create_time: String(Date.now()),
    chat_id: "oc_target",
    chat_type: "p2p",
    message_type: "text",
    content: '{"text":"transfer the money"}',
  };
  const sender = { sender_id: { open_id: "ou_x" }, sender_type: "user" };
  return JSON.stringify({ schema: "2.0", header, event: { sender, message } });
}

interface Letter {
  body: string | Buffer;
  encryptKey?: string;
  ageSeconds?: number;
  headers?: Record<string, string>;
}

async function post({
  body,
  encryptKey = testApp.encryptKey,
  ageSeconds = 0,
  headers = {},
}: Letter): Promise<number> {
  const timestamp = String(Math.floor(Date.now() / 1_000) - ageSeconds);
  const signature = signEvent({ timestamp, nonce: "n", encryptKey, body: body.toString() });
  const response = await fetch(`${here.ingress.url}/feishu/events`, {
    method: "POST",
    body: typeof body === "string" ? body : new Uint8Array(body),
    headers: {
      "content-type": "application/json",
      "x-lark-request-timestamp": timestamp,
      "x-lark-request-nonce": "n",
      "x-lark-signature": signature,
      ...headers,
    },
  });
  await response.arrayBuffer();
  return response.status;
}

/** The same signature that the platform would make, whatever the bytes are. */
function signedBytes(body: Buffer): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1_000));
  const hash = createHash("sha256").update(`${timestamp}n${testApp.encryptKey}`).update(body);
  return { "x-lark-request-timestamp": timestamp, "x-lark-signature": hash.digest("hex") };
}

function sealed(plain: string, encryptKey = testApp.encryptKey): string {
  return JSON.stringify({ encrypt: encryptEvent(encryptKey, plain) });
}

async function storedNothing(): Promise<void> {
  expect(here.ingress.wakes).toEqual([]);
  expect((await here.ingress.store.summary(`${testApp.appId}.oc_target`)).waiting).toBe(0);
}

describe("forged webhook requests are refused and leave no trace in the store", () => {
  it("signed with another key, unsigned, or with the signature of another body", async () => {
    const body = sealed(plainEvent());
    expect(await post({ body, encryptKey: "guess" })).toBe(401);
    expect(await post({ body, headers: { "x-lark-signature": "" } })).toBe(401);
    expect(await post({ body, headers: { "x-lark-signature": "0".repeat(64) } })).toBe(401);
    const signature = signEvent({
      timestamp: "1",
      nonce: "n",
      encryptKey: testApp.encryptKey,
      body: "{}",
    });
    expect(await post({ body, headers: { "x-lark-signature": signature } })).toBe(401);
    await storedNothing();
  });

  it("replayed after the window", async () => {
    expect(await post({ body: sealed(plainEvent()), ageSeconds: 400 })).toBe(401);
    expect(await post({ body: sealed(plainEvent()), ageSeconds: -400 })).toBe(401);
    await storedNothing();
  });

  it("replayed with its timestamp moved into the nonce, in whole or in part", async () => {
    const body = sealed(plainEvent());
    const old = String(Math.floor(Date.now() / 1_000) - 86_400);
    const signature = signEvent({
      timestamp: old,
      nonce: "n",
      encryptKey: testApp.encryptKey,
      body,
    });
    for (const cut of [0, 1, 9, 10, 11]) {
      const [timestamp, nonce] = [`${old}n`.slice(0, cut), `${old}n`.slice(cut)];
      const headers = { "x-lark-request-timestamp": timestamp, "x-lark-request-nonce": nonce };
      expect([
        cut,
        await post({ body, headers: { ...headers, "x-lark-signature": signature } }),
      ]).toEqual([cut, 401]);
    }
    await storedNothing();
  });

  it("not encrypted, encrypted with another key, truncated", async () => {
    expect(await post({ body: plainEvent(), headers: { "x-lark-signature": "" } })).toBe(401);
    const whole = sealed(plainEvent());
    const timestamp = String(Math.floor(Date.now() / 1_000));
    const signature = signEvent({
      timestamp,
      nonce: "n",
      encryptKey: testApp.encryptKey,
      body: whole,
    });
    const headers = { "x-lark-request-timestamp": timestamp, "x-lark-signature": signature };
    expect(await post({ body: whole.slice(0, -20), headers })).toBe(401);
    // A sender that signs correctly gets the answer that its body is malformed.
    for (const body of [
      plainEvent(),
      sealed(plainEvent(), "other"),
      whole.slice(0, -20),
      "",
      '{"encrypt":"AAAA"}',
    ]) {
      expect([body.slice(0, 20), await post({ body })]).toEqual([body.slice(0, 20), 400]);
    }
    await storedNothing();
  });

  it("with the token of another caller, or for another app", async () => {
    expect(await post({ body: sealed(plainEvent({ token: "wrong" })) })).toBe(403);
    expect(await post({ body: sealed(plainEvent({ appId: "cli_fedcba9876543210" })) })).toBe(403);
    await storedNothing();
  });

  it("a forged click on a card and a forged recall", async () => {
    for (const eventType of ["card.action.trigger", "im.message.recalled_v1"]) {
      const plain = plainEvent().replace("im.message.receive_v1", eventType);
      expect(await post({ body: sealed(plain), encryptKey: "guess" })).toBe(401);
      expect(await post({ body: plain, headers: { "x-lark-signature": "" } })).toBe(401);
    }
    await storedNothing();
  });

  it("compressed, or not in UTF-8: what was not signed is not read, what was is no text", async () => {
    const body = sealed(plainEvent());
    const zipped = gzipSync(body);
    expect(await post({ body: zipped, headers: { "content-encoding": "gzip" } })).toBe(401);
    expect(
      await post({ body: zipped, headers: { "content-encoding": "gzip", ...signedBytes(zipped) } }),
    ).toBe(400);
    const broken = Buffer.concat([
      Buffer.from(body.slice(0, -1)),
      Buffer.from(',"x":"\xff"}', "latin1"),
    ]);
    expect(await post({ body: broken })).toBe(401);
    expect(await post({ body: broken, headers: signedBytes(broken) })).toBe(400);
    const wide = Buffer.from(body, "utf16le");
    expect(await post({ body: wide, headers: signedBytes(wide) })).toBe(400);
    await storedNothing();
  });

  it("too large", async () => {
    expect(await post({ body: sealed(plainEvent() + " ".repeat(1_100_000)) })).toBe(413);
    await storedNothing();
  });

  it("cut off in the middle of the body", async () => {
    const socket = connect(Number(new URL(here.ingress.url).port), "127.0.0.1");
    const body = sealed(plainEvent());
    socket.write(
      `POST /feishu/events HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`,
    );
    socket.write(body.slice(0, -5));
    await new Promise<void>((resolve) => {
      socket.once("close", () => resolve());
      socket.end();
      socket.resume();
    });
    await storedNothing();
  });

  it("url_verification with a wrong token; the right one is answered with the challenge alone", async () => {
    const challenge = (token: string) =>
      sealed(JSON.stringify({ challenge: "abc", token, type: "url_verification" }));
    const answer = async (token: string) =>
      await fetch(`${here.ingress.url}/feishu/cards`, { method: "POST", body: challenge(token) });
    expect((await answer("wrong")).status).toBeGreaterThanOrEqual(400);
    const right = await answer(testApp.verificationToken);
    expect([right.status, await right.text()]).toEqual([200, '{"challenge":"abc"}']);
    await storedNothing();
  });

  it("a genuine request is accepted, so the refusals above have no other reason; replayed at once, it is known", async () => {
    const body = sealed(plainEvent());
    expect(await post({ body })).toBe(200);
    expect(await post({ body })).toBe(200);
    // The signature covers the bytes, so their type does not matter.
    expect(await post({ body, headers: { "content-type": "text/plain" } })).toBe(200);
    expect(new Set(here.ingress.wakes.map(({ gen }) => gen))).toEqual(new Set([1]));
    expect((await here.ingress.store.summary(`${testApp.appId}.oc_target`)).waiting).toBe(1);
    const text = await here.ingress.metrics.text();
    expect(text).toMatch(/larkline_ingress_webhook_refused_total\{[^}]*status="401"[^}]*\} \d+/);
    expect(text).toMatch(/larkline_ingress_webhook_refused_total\{[^}]*status="403"[^}]*\} \d+/);
  });
});

describe("answers to webhooks", () => {
  it("name no origin, since browsers send none; those of all other paths do", async () => {
    const originOf = async (path: string): Promise<string | null> => {
      const headers = { origin: "https://anywhere.example" };
      const response = await fetch(`${here.ingress.url}${path}`, {
        method: "POST",
        body: "{}",
        headers,
      });
      return response.headers.get("access-control-allow-origin");
    };
    expect(await originOf("/feishu/events")).toBeNull();
    expect(await originOf("/chat")).toBe("*");
    expect(await originOf("/no-such-path")).toBe("*");
  });
});

it("any number of refused requests fills no log", async () => {
  const warn = vi.spyOn(here.ingress.bots[0]?.log ?? expect.fail("there is a bot"), "warn");
  for (let count = 0; count < 5; count += 1) await post({ body: "{}", encryptKey: "wrong" });
  expect(warn.mock.calls.length).toBeLessThan(5);
});
