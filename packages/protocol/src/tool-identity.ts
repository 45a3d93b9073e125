import { createCipheriv, createDecipheriv, hkdfSync } from "node:crypto";
import type { Random } from "./clock.ts";
import { jsonParserOf } from "./schema.ts";
import type { SessionKey } from "./session.ts";
import { ToolIdentity } from "./tool.ts";

// As whom a call acts goes to its runner with the permission to begin, sealed: what Redis keeps of the answer opens with
// the key of that runner alone, and as the answer to that question alone.

/** The question that an identity is the answer to. `callId`: of the attempt. */
export interface IdentityPlace {
  session: SessionKey;
  callId: string;
  ask: string;
}

const cipher = "aes-256-gcm";
const [ivBytes, tagBytes] = [12, 16];

export function sealIdentity(
  runnerKey: string,
  place: IdentityPlace,
  identity: ToolIdentity,
  random: Random,
): string {
  const iv = Buffer.from(random.id(), "base64url").subarray(0, ivBytes);
  const sealing = createCipheriv(cipher, keyOf(runnerKey), iv, { authTagLength: tagBytes }).setAAD(
    dataOf(place),
  );
  const sealed = Buffer.concat([sealing.update(JSON.stringify(identity)), sealing.final()]);
  return Buffer.concat([iv, sealing.getAuthTag(), sealed]).toString("base64url");
}

/** Undefined where it was sealed for another runner, call or question, or was changed. */
export function openIdentity(
  runnerKey: string,
  place: IdentityPlace,
  sealed: string,
): ToolIdentity | undefined {
  const bytes = Buffer.from(sealed, "base64url");
  try {
    const iv = bytes.subarray(0, ivBytes);
    const opening = createDecipheriv(cipher, keyOf(runnerKey), iv, { authTagLength: tagBytes });
    opening.setAAD(dataOf(place)).setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
    const opened = Buffer.concat([
      opening.update(bytes.subarray(ivBytes + tagBytes)),
      opening.final(),
    ]);
    const parsed = parseIdentity(opened.toString("utf8"));
    return parsed.ok ? parsed.value : undefined;
  } catch {
    return undefined;
  }
}

const parseIdentity = jsonParserOf(ToolIdentity);

function keyOf(runnerKey: string): Buffer {
  return Buffer.from(hkdfSync("sha256", runnerKey, "", "larkline identity of a call", 32));
}

function dataOf({ session, callId, ask }: IdentityPlace): Buffer {
  return Buffer.from(JSON.stringify([session, callId, ask]));
}
