import { createHash } from "node:crypto";
import { FeishuError } from "./error.ts";

const idPattern = /^[A-Za-z0-9_-]{1,128}$/;

/**
 * An id as a path parameter. The SDK puts path parameters into the URL as they are, so anything but
 * letters, digits, `_` and `-` is refused before it could address another resource.
 */
export function pathId(api: string, id: string): string {
  if (idPattern.test(id)) return id;
  throw new FeishuError({ api, kind: "bad_request", code: 0, httpStatus: 0, reason: "malformed id" });
}

/** Longest `uuid` of a send ("Send message"). */
const maxUuidLength = 50;

function fitting(uuid: string): string {
  return uuid.length <= maxUuidLength ? uuid : createHash("sha256").update(uuid).digest("hex").slice(0, maxUuidLength);
}

/** The uuid for a further message of the same reply: a different one, always the same for the same input. */
export function derivedUuid(uuid: string, suffix: string | number): string {
  return fitting(`${uuid}.${suffix}`);
}

/** The uuid of message number `index` (from 0) of a split reply; the first one carries the uuid itself. */
export function partUuid(uuid: string, index: number): string {
  return index === 0 ? fitting(uuid) : derivedUuid(uuid, index);
}
