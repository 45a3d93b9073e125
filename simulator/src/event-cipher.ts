import { createCipheriv, createHash, randomBytes } from "node:crypto";

/** Encrypts an event body: base64 of IV and AES-256-CBC under SHA-256 of the encrypt key (event subscription guide). */
export function encryptEvent(encryptKey: string, plain: string, iv: Buffer = randomBytes(16)): string {
  const key = createHash("sha256").update(encryptKey, "utf8").digest();
  const cipher = createCipheriv("aes-256-cbc", key, iv);
  return Buffer.concat([iv, cipher.update(plain, "utf8"), cipher.final()]).toString("base64");
}

/** What a signature covers; `body` is the raw request body as sent. */
export interface SignedParts {
  timestamp: string;
  nonce: string;
  encryptKey: string;
  body: string;
}

/** `X-Lark-Signature`: hex SHA-256 of timestamp, nonce, encrypt key and raw body, joined without separators. */
export function signEvent({ timestamp, nonce, encryptKey, body }: SignedParts): string {
  return createHash("sha256")
    .update(timestamp + nonce + encryptKey, "utf8")
    .update(body, "utf8")
    .digest("hex");
}
