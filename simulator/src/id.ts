import { randomBytes } from "node:crypto";

/** A platform-like id: the prefix and 32 hex digits (`om_…`, `oc_…`, `ou_…`). */
export function newId(prefix: string): string {
  return `${prefix}${randomBytes(16).toString("hex")}`;
}

/** App ids have a fixed form; the official SDK's long connection refuses any other. */
export function isAppId(value: string): boolean {
  return /^cli_[0-9a-fA-F]{16}$/.test(value);
}
