import { createCipheriv } from "node:crypto";
import { describe, expect, it } from "vitest";
import { cipherKeyOf, decryptEvent, signatureOf } from "./webhook-cipher.ts";
import { createWebhookVerifier, type WebhookVerifierOptions } from "./webhook-verifier.ts";

const encryptKey = "test key";
const token = "vtoken";
const nowMs = 1_700_000_000_000;
const sampleCipher = "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=";

function encrypted(plain: unknown, key = encryptKey): Buffer {
  const iv = Buffer.alloc(16, 1);
  const cipher = createCipheriv("aes-256-cbc", cipherKeyOf(key), iv);
  const text = typeof plain === "string" ? plain : JSON.stringify(plain);
  const wire = Buffer.concat([iv, cipher.update(text, "utf8"), cipher.final()]).toString("base64");
  return Buffer.from(JSON.stringify({ encrypt: wire }));
}

function signed(body: Buffer, timestamp = String(nowMs / 1000), key = encryptKey): Record<string, string> {
  return {
    "x-lark-request-timestamp": timestamp,
    "x-lark-request-nonce": "nonce123",
    "x-lark-signature": signatureOf([timestamp, "nonce123", key], body),
  };
}

function event(overrides: object = {}): object {
  return {
    schema: "2.0",
    header: {
      event_id: "e1",
      event_type: "im.message.receive_v1",
      token,
      app_id: "cli_1",
      create_time: "1608725989000",
    },
    event: { a: 1 },
    ...overrides,
  };
}

function verifier(options: WebhookVerifierOptions = { encryptKey, verificationToken: token }) {
  return createWebhookVerifier({ now: () => nowMs, ...options });
}

function statusOf(plain: unknown, options?: WebhookVerifierOptions): unknown {
  const body = encrypted(plain);
  const verdict = verifier(options).verify(body, signed(body));
  return verdict.kind === "refused" ? verdict.status : verdict.kind;
}

function jsonBody(data: unknown): Buffer {
  return Buffer.from(JSON.stringify(data));
}

const challenge = { challenge: "abc", token, type: "url_verification" };

describe("the platform's vectors", () => {
  it("decrypts the documented sample", () => {
    expect(decryptEvent(cipherKeyOf(encryptKey), sampleCipher)).toBe("hello world");
  });

  it("encrypts a challenge to the known bytes", () => {
    expect(JSON.parse(encrypted('{"challenge":"abc","token":"vtoken","type":"url_verification"}').toString())).toEqual({
      encrypt:
        "AQEBAQEBAQEBAQEBAQEBAQPhoKKTEFj3aVICLPNFRWri6ydmoy/WU4shKdrADgFGJfLqnr9k2kysKSWnfM7sr7Zxl3KOHsSIDqiNTiTORSM=",
    });
  });

  it("signs the documented sample", () => {
    const body = Buffer.from(JSON.stringify({ encrypt: sampleCipher }));
    expect(signatureOf(["1700000000", "nonce123", encryptKey], body)).toBe(
      "669e3ed5328644f71370e3249f96af0fd17e5ed4d7b178c44f11f7997339e344",
    );
  });
});

describe("with an encrypt key", () => {
  it("takes a signed and encrypted event", () => {
    const body = encrypted(event());
    expect(verifier().verify(body, signed(body))).toMatchObject({
      kind: "event",
      envelope: { eventId: "e1", appId: "cli_1", event: { a: 1 } },
    });
  });

  it("checks the bytes as they arrived, not a re-serialised body", () => {
    const spaced = Buffer.from(encrypted(event()).toString().replace(":", " : "));
    expect(verifier().verify(spaced, signed(spaced)).kind).toBe("event");
    const changed = Buffer.from(spaced.toString().replace(" : ", ":"));
    expect(verifier().verify(changed, signed(spaced))).toMatchObject({ kind: "refused", status: 401 });
  });

  it("answers an unsigned encrypted challenge whose token is right", () => {
    expect(verifier().verify(encrypted(challenge), {})).toEqual({ kind: "challenge", challenge: "abc" });
  });

  it("answers an encrypted challenge without a configured token: only the platform knows the key", () => {
    expect(verifier({ encryptKey }).verify(encrypted(challenge), {}).kind).toBe("challenge");
  });

  it.each([
    ["an unsigned challenge with a wrong token", encrypted({ ...challenge, token: "x" }), {}],
    ["an unsigned event", encrypted(event()), {}],
    ["a plaintext event", Buffer.from(JSON.stringify(event())), {}],
    ["a plaintext challenge", Buffer.from(JSON.stringify(challenge)), {}],
    ["a broken padding", Buffer.from(JSON.stringify({ encrypt: Buffer.alloc(48, 7).toString("base64") })), {}],
    ["no JSON", Buffer.from("hello"), {}],
    ["an empty body", Buffer.alloc(0), {}],
    ["a list", Buffer.from("[1]"), {}],
  ])("refuses %s with 401 and the same words for every unsigned cipher text", (_name, body, headers) => {
    expect(verifier().verify(body, headers)).toMatchObject({ kind: "refused", status: 401 });
  });

  it("does not tell a wrong padding from wrong content of an unsigned request", () => {
    const padding = Buffer.from(JSON.stringify({ encrypt: Buffer.alloc(48, 7).toString("base64") }));
    expect(verifier().verify(padding, {})).toEqual(verifier().verify(encrypted(event()), {}));
  });

  it("refuses a signature made with another key", () => {
    const body = encrypted(event());
    expect(verifier().verify(body, signed(body, "1700000000", "other"))).toMatchObject({ status: 401 });
  });

  it("refuses numeric timestamps more than 300 s away, in either direction", () => {
    const body = encrypted(event());
    for (const [seconds, kind] of [
      [1_700_000_000 - 300, "event"],
      [1_700_000_000 - 301, "refused"],
      [1_700_000_000 + 301, "refused"],
    ] as const) {
      expect(verifier().verify(body, signed(body, String(seconds))).kind).toBe(kind);
    }
  });

  it("takes the time text that card callbacks carry", () => {
    const body = encrypted(event());
    const headers = signed(body, "2026-10-04 18:23:46.052290112 +0800 CST m=+3612.1");
    expect(verifier().verify(body, headers).kind).toBe("event");
  });

  it("refuses a signed event with a wrong token, of another app, or without meaning", () => {
    expect(statusOf(event({ header: { event_id: "e", event_type: "t", token: "x" } }))).toBe(403);
    expect(statusOf(event(), { encryptKey, appId: "cli_2" })).toBe(403);
    expect(statusOf(event(), { encryptKey, appId: "cli_1" })).toBe("event");
    expect(statusOf({ token, hello: 1 })).toBe(400);
    expect(statusOf("not json at all")).toBe(400);
  });

  it("ignores plaintext siblings of the encrypted part", () => {
    const body = Buffer.from(
      JSON.stringify({ ...JSON.parse(encrypted(event()).toString()), header: { token, event_id: "forged" } }),
    );
    expect(verifier().verify(body, signed(body))).toMatchObject({ envelope: { eventId: "e1" } });
  });

  it("refuses bodies above 1 MiB", () => {
    const body = Buffer.alloc(1024 * 1024 + 1, 32);
    expect(verifier().verify(body, signed(body))).toMatchObject({ kind: "refused", status: 400 });
  });
});

describe("with a token only", () => {
  const plain = verifier({ verificationToken: token });

  it("takes events and challenges with the token, refuses others", () => {
    expect(plain.verify(jsonBody(event()), {}).kind).toBe("event");
    expect(plain.verify(jsonBody(challenge), {})).toEqual({ kind: "challenge", challenge: "abc" });
    expect(plain.verify(jsonBody({ ...challenge, token: "x" }), {})).toMatchObject({ status: 403 });
    expect(plain.verify(jsonBody(event({ header: { event_id: "e", event_type: "t" } })), {})).toMatchObject({
      status: 403,
    });
    expect(plain.verify(encrypted(event()), {})).toMatchObject({ status: 401 });
    expect(plain.verify(Buffer.from("{"), {})).toMatchObject({ status: 400 });
  });

  it("takes a 1.0 envelope", () => {
    const verdict = plain.verify(
      jsonBody({
        uuid: "u",
        token,
        ts: "1502199207.7171419",
        type: "event_callback",
        event: { type: "p2p_chat_create" },
      }),
      {},
    );
    expect(verdict).toMatchObject({ kind: "event", envelope: { type: "p2p_chat_create", createdAtMs: 1502199207717 } });
  });
});

describe("without key and token", () => {
  it("refuses everything and says what to set, an empty value included", () => {
    for (const options of [{}, { encryptKey: "", verificationToken: "" }]) {
      const verdict = verifier(options).verify(Buffer.from(JSON.stringify({ ...challenge, token: "" })), {});
      expect(verdict).toMatchObject({ kind: "refused", status: 403 });
      expect(verdict).toHaveProperty("reason", expect.stringContaining("FEISHU_VERIFICATION_TOKEN"));
    }
  });
});
