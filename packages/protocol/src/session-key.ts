import { Type } from "typebox";

/**
 * Names one conversation in every store and queue: app, chat and thread joined by `.`.
 * Safe in Redis keys, job ids (no `:`) and URLs.
 */
export const SessionKey = Type.String({ pattern: "^[A-Za-z0-9_.-]{1,240}$" });
export type SessionKey = string;
