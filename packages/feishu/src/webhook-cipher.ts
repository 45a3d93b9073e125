import { createDecipheriv, createHash, timingSafeEqual } from "node:crypto";

/** Key of the platform's event encryption: SHA-256 of the Encrypt Key ("Event encryption"). */
export function cipherKeyOf(encryptKey: string): Buffer {
  return createHash("sha256").update(encryptKey, "utf8").digest();
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Decrypts `base64(IV ‖ AES-256-CBC)`. Undefined when the text was not made with this key, or is none. */
export function decryptEvent(key: Buffer, wire: string): string | undefined {
  const bytes = Buffer.from(wire, "base64");
  if (bytes.length < 32 || bytes.length % 16 !== 0) return undefined;
  try {
    const decipher = createDecipheriv("aes-256-cbc", key, bytes.subarray(0, 16));
    return utf8.decode(Buffer.concat([decipher.update(bytes.subarray(16)), decipher.final()]));
  } catch {
    return undefined;
  }
}

/** What the platform puts into `X-Lark-Signature`; `parts` are timestamp, nonce and Encrypt Key. */
export function signatureOf(
  parts: readonly [timestamp: string, nonce: string, encryptKey: string],
  rawBody: Buffer,
): string {
  return createHash("sha256").update(parts.join(""), "utf8").update(rawBody).digest("hex");
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text, "utf8").digest();
}

/** Compares secrets in a time that does not tell where they differ. */
export function sameSecret(left: string, right: string): boolean {
  return timingSafeEqual(digestOf(left), digestOf(right));
}
