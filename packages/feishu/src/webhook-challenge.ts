import { createCipheriv, randomBytes } from "node:crypto";
import { cipherKeyOf } from "./webhook-cipher.ts";

/** The request by which the developer console checks an address, and the challenge that must come back. */
export interface WebhookChallenge {
  body: string;
  challenge: string;
}

function encrypted(encryptKey: string, plain: string): string {
  const iv = randomBytes(16);
  const cipher = createCipheriv("aes-256-cbc", cipherKeyOf(encryptKey), iv);
  const bytes = Buffer.concat([iv, cipher.update(plain, "utf8"), cipher.final()]);
  return JSON.stringify({ encrypt: bytes.toString("base64") });
}

/** A `url_verification` ("Send notifications to developer's server"): encrypted when there is a key, never signed. */
export function createWebhookChallenge(secrets: { encryptKey?: string; verificationToken?: string }): WebhookChallenge {
  const challenge = randomBytes(12).toString("hex");
  const plain = JSON.stringify({ challenge, token: secrets.verificationToken ?? "", type: "url_verification" });
  const { encryptKey } = secrets;
  return { challenge, body: encryptKey === undefined ? plain : encrypted(encryptKey, plain) };
}
