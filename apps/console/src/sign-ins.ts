import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { jsonParserOf } from "@larkline/protocol";
import type { LookupCache, RateGovernor } from "@larkline/session";
import { Type } from "typebox";
import type { Passwords } from "./config.ts";

/** `viewer` looks, `operator` also acts and may be shown content. */
export const roles = ["operator", "viewer"] as const;
export type Role = (typeof roles)[number];

/** Who makes a request. */
export interface Visitor {
  role: Role;
  /** What every request of theirs that changes something has to carry. */
  csrf: string;
}

export type SignInResult =
  | { result: "signed_in"; role: Role; token: string }
  | { result: "wrong" }
  /** More tries than a person makes; whether the password is right is not looked at. */
  | { result: "too_many"; waitMs: number };

/** Sign-ins of people, kept in Redis so that every replica of the console knows them. */
export interface SignIns {
  try(password: string, address: string): Promise<SignInResult>;
  /** Whoever holds this token; undefined when it is over, or its password has changed since. */
  find(token: string): Promise<Visitor | undefined>;
  end(token: string): Promise<void>;
}

export interface SignInsDeps {
  passwords: Passwords;
  lookups: Pick<LookupCache, "get" | "set" | "delete">;
  governor: Pick<RateGovernor, "take">;
}

/** How long somebody stays signed in. */
export const signedInMs = 12 * 3_600_000;

/** In any minute; all addresses together may do more than one. */
const triesPerMinute = { address: 7, everyone: 70 };

/** What is kept of a sign-in, under the hash of its token. */
const StoredSignIn = Type.Object({ role: Type.Enum([...roles]), proof: Type.String() });
const parseSignIn = jsonParserOf(StoredSignIn);

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Compares in constant time, whatever the lengths. */
export function isSame(one: string, other: string): boolean {
  return timingSafeEqual(digestOf(one), digestOf(other));
}

function keyOf(token: string): string {
  return `console-sign-in:${digestOf(token).toString("hex")}`;
}

/** Ties a sign-in to its password. Says nothing about it to whoever has no token. */
function proofOf(token: string, password: string): string {
  return createHmac("sha256", token).update(`password:${password}`).digest("hex");
}

/** What goes with one token, so that nobody else's page can know it. */
function csrfOf(token: string): string {
  return createHmac("sha256", token).update("csrf").digest("hex");
}

/** Whoever is on this machine, where there are no passwords: until this process ends. */
export function localVisitor(): Visitor {
  return { role: "operator", csrf: csrfOf(randomBytes(32).toString("hex")) };
}

function roleOf(given: string, { operator, viewer }: Passwords): Role | undefined {
  // Both are always compared: how long it takes says nothing.
  const isOperator = isSame(given, operator);
  const isViewer = viewer !== undefined && isSame(given, viewer);
  if (isOperator) return "operator";
  return isViewer ? "viewer" : undefined;
}

export function createSignIns({ passwords, lookups, governor }: SignInsDeps): SignIns {
  return {
    async try(password, address) {
      const grant = await governor.take(
        [
          { key: `console:address:${address}`, perMinute: triesPerMinute.address },
          { key: "console:everyone", perMinute: triesPerMinute.everyone },
        ],
        "final",
      );
      if (!grant.granted) return { result: "too_many", waitMs: grant.waitMs };
      const role = roleOf(password, passwords);
      if (role === undefined) return { result: "wrong" };
      const token = randomBytes(32).toString("hex");
      await lookups.set(keyOf(token), JSON.stringify({ role, proof: proofOf(token, password) }), signedInMs);
      return { result: "signed_in", role, token };
    },
    async find(token) {
      const stored = parseSignIn((await lookups.get(keyOf(token))) ?? "");
      if (!stored.ok) return undefined;
      const { role, proof } = stored.value;
      const password = passwords[role];
      const holds = password !== undefined && isSame(proof, proofOf(token, password));
      return holds ? { role, csrf: csrfOf(token) } : undefined;
    },
    end: async (token) => await lookups.delete(keyOf(token)),
  };
}
