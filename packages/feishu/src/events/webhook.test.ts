import { createCipheriv } from "node:crypto";
import { describe, expect, it } from "vitest";
import {
  WebhookVerifier,
  cipherKeyOf,
  decryptEvent,
  signatureOf,
  type WebhookVerifierOptions,
} from "./webhook.ts";

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

function signed(
  body: Buffer,
  timestamp = String(nowMs / 1000),
  key = encryptKey,
): Record<string, string> {
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
      create_time: String(nowMs - 1_000),
    },
    event: { a: 1 },
    ...overrides,
  };
}

function verifier(options: WebhookVerifierOptions = { encryptKey, verificationToken: token }) {
  return new WebhookVerifier({ clock: { now: () => nowMs }, ...options });
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
    expect(
      JSON.parse(
        encrypted('{"challenge":"abc","token":"vtoken","type":"url_verification"}').toString(),
      ),
    ).toEqual({
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
    expect(verifier().verify(changed, signed(spaced))).toMatchObject({
      kind: "refused",
      status: 401,
    });
  });

  it("answers an unsigned encrypted challenge whose token is right", () => {
    expect(verifier().verify(encrypted(challenge), {})).toEqual({
      kind: "challenge",
      challenge: "abc",
    });
  });

  it("answers an encrypted challenge without a configured token: only the platform knows the key", () => {
    expect(verifier({ encryptKey }).verify(encrypted(challenge), {}).kind).toBe("challenge");
  });

  it.each([
    ["an unsigned challenge with a wrong token", encrypted({ ...challenge, token: "x" }), {}],
    ["an unsigned event", encrypted(event()), {}],
    ["a plaintext event", Buffer.from(JSON.stringify(event())), {}],
    ["a plaintext challenge", Buffer.from(JSON.stringify(challenge)), {}],
    [
      "a broken padding",
      Buffer.from(JSON.stringify({ encrypt: Buffer.alloc(48, 7).toString("base64") })),
      {},
    ],
    ["no JSON", Buffer.from("hello"), {}],
    ["an empty body", Buffer.alloc(0), {}],
    ["a list", Buffer.from("[1]"), {}],
  ])(
    "refuses %s with 401 and the same words for every unsigned cipher text",
    (_name, body, headers) => {
      expect(verifier().verify(body, headers)).toMatchObject({ kind: "refused", status: 401 });
    },
  );

  it("does not tell a wrong padding from wrong content of an unsigned request", () => {
    const padding = Buffer.from(
      JSON.stringify({ encrypt: Buffer.alloc(48, 7).toString("base64") }),
    );
    expect(verifier().verify(padding, {})).toEqual(verifier().verify(encrypted(event()), {}));
  });

  it("refuses a signature made with another key", () => {
    const body = encrypted(event());
    expect(verifier().verify(body, signed(body, "1700000000", "other"))).toMatchObject({
      status: 401,
    });
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

  interface Stamp {
    timestamp: string;
    nonce?: string;
    /** Timestamp and nonce as the platform signed them. */
    signedAs?: string;
    timestampForms?: readonly RegExp[];
  }
  const stamped = ({
    timestamp,
    nonce = "nonce",
    signedAs = `${timestamp}${nonce}`,
    timestampForms,
  }: Stamp) => {
    const body = encrypted(event());
    return verifier({ encryptKey, verificationToken: token, timestampForms }).verify(body, {
      "x-lark-request-timestamp": timestamp,
      "x-lark-request-nonce": nonce,
      "x-lark-signature": signatureOf([signedAs, "", encryptKey], body),
    });
  };

  // nowMs is 2023-11-14T22:13:20Z.
  it.each([
    ["1700000000", "event"],
    ["1700000000000", "event"],
    ["1700000300000", "event"],
    ["1700000300001", "refused"],
    ["2023-11-15 06:13:20.052290112 +0800 CST m=+3612.100000001", "event"],
    ["2023-11-14 22:13:20 +0000 UTC", "event"],
    ["2023-11-14 17:18:20.9 -0500 EST m=-1.5", "event"],
    ["2023-11-14 17:18:21 -0500 EST", "refused"],
    ["2023-11-14 22:13:20 +0800 CST", "refused"],
    ["2023-11-15 03:43:20 +0530 +0530", "event"],
    ["2026-10-04 18:23:46.052290112 +0800 CST m=+3612.1", "refused"],
  ])("judges %s by its own instant: %s", (timestamp, kind) => {
    expect(stamped({ timestamp }).kind).toBe(kind);
  });

  it.each([
    "",
    "1",
    "170000000",
    "17000000000",
    "1700000000000000",
    " 1700000000",
    "1700000000 ",
    "+1700000000",
    "1.7e9",
    "0x6553f100",
    "2023-11-14T22:13:20Z",
    "2023-11-14 22:13:20",
    "2023-11-14 22:13:20 +00",
    "2023-13-14 22:13:20 +0000 UTC",
    "2023-11-14 22:13:20 +0000 UTC m=+1.0 more",
    "Tue, 14 Nov 2023 22:13:20 GMT",
    "soon",
    `1700000000${"0".repeat(200)}`,
  ])("refuses the timestamp '%s', however it is signed", (timestamp) => {
    expect(stamped({ timestamp }).kind).toBe("refused");
  });

  it("refuses an old request whose characters were moved between timestamp and nonce, at any place", () => {
    for (const old of ["1600000000", "1600000000000", "2020-09-13 20:26:40.5 +0800 CST m=+36.1"]) {
      const whole = `${old}4711nonce`;
      for (let cut = 0; cut <= whole.length; cut += 1) {
        const verdict = stamped({
          timestamp: whole.slice(0, cut),
          nonce: whole.slice(cut),
          signedAs: whole,
        });
        expect([old, cut, verdict]).toMatchObject([old, cut, { kind: "refused", status: 401 }]);
      }
    }
  });

  it("tells the log the shape of an unknown form and nothing of its content", () => {
    const reasonOf = (timestamp: string) => {
      const verdict = stamped({ timestamp });
      return verdict.kind === "refused" ? verdict.reason : verdict.kind;
    };
    expect(reasonOf("2023-11-14T22:13:20Z")).toContain(
      "unknown form: '9999-99-99a99:99:99a'; webhook.timestampForms",
    );
    expect(reasonOf("")).toContain("unknown form: empty;");
    expect(reasonOf("\n\u{1f600}" + "z".repeat(500)).length).toBeLessThan(250);
    expect(stamped({ timestamp: "soon", signedAs: "other" })).toMatchObject({
      reason: "signature missing, wrong or too old",
    });
  });

  it("takes forms that the configuration adds, by their instant as well", () => {
    const timestampForms = [
      /^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)T(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)(?<zone>Z|[+-]\d\d:\d\d)$/,
      /^(?<micros>\d{16})$/,
      /^at (?<seconds>\d+)$/,
    ];
    const kindOf = (timestamp: string) => stamped({ timestamp, timestampForms }).kind;
    expect(kindOf("2023-11-14T22:13:20Z")).toBe("event");
    expect(kindOf("2023-11-15T06:13:20+08:00")).toBe("event");
    expect(kindOf("2023-11-14T22:13:20+08:00")).toBe("refused");
    expect(kindOf("1700000000000000")).toBe("event");
    expect(kindOf("1600000000000000")).toBe("refused");
    expect(kindOf("at 1700000000")).toBe("event");
    expect(kindOf("at 17000000000")).toBe("refused");
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
      JSON.stringify({
        ...JSON.parse(encrypted(event()).toString()),
        header: { token, event_id: "forged" },
      }),
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
    expect(
      plain.verify(jsonBody(event({ header: { event_id: "e", event_type: "t" } })), {}),
    ).toMatchObject({
      status: 403,
    });
    expect(plain.verify(encrypted(event()), {})).toMatchObject({ status: 401 });
    expect(plain.verify(Buffer.from("{"), {})).toMatchObject({ status: 400 });
  });

  it("takes events as long as the platform repeats them, by their own time: 7.5 hours in ms, us or 1.0's seconds", () => {
    const hours = (count: number) => nowMs - count * 3_600_000;
    const kindAt = (time: string | null) => {
      const header = { event_id: "e1", event_type: "t", token, create_time: time };
      return plain.verify(jsonBody({ schema: "2.0", header, event: {} }), {});
    };
    expect(kindAt(String(hours(7.4)))).toMatchObject({ kind: "event" });
    expect(kindAt(`${hours(7.4)}000`)).toMatchObject({ kind: "event" });
    for (const time of [
      String(hours(7.6)),
      `${hours(7.6)}000`,
      String(nowMs + 301_000),
      "",
      "soon",
      "0",
      null,
    ]) {
      expect([time, kindAt(time)]).toMatchObject([time, { kind: "refused", status: 401 }]);
    }
    const old = {
      uuid: "u",
      token,
      ts: String(hours(8) / 1000),
      type: "event_callback",
      event: { type: "x" },
    };
    expect(plain.verify(jsonBody(old), {})).toMatchObject({ kind: "refused", status: 401 });
  });

  it("takes a 1.0 envelope", () => {
    const verdict = plain.verify(
      jsonBody({
        uuid: "u",
        token,
        ts: "1699999999.7171419",
        type: "event_callback",
        event: { type: "p2p_chat_create" },
      }),
      {},
    );
    expect(verdict).toMatchObject({
      kind: "event",
      envelope: { type: "p2p_chat_create", createdAtMs: 1699999999717 },
    });
  });
});

describe("without key and token", () => {
  it("refuses everything and says what to set, an empty value included", () => {
    for (const options of [{}, { encryptKey: "", verificationToken: "" }]) {
      const verdict = verifier(options).verify(
        Buffer.from(JSON.stringify({ ...challenge, token: "" })),
        {},
      );
      expect(verdict).toMatchObject({ kind: "refused", status: 403 });
      expect(verdict).toHaveProperty(
        "reason",
        expect.stringContaining("FEISHU_VERIFICATION_TOKEN"),
      );
    }
  });
});
