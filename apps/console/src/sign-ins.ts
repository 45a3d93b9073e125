import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { isIPv6 } from "node:net";
import { jsonParserOf } from "@larkline/protocol";
import { pause, type Clock } from "@larkline/protocol/clock";
import { Type, type Static } from "@larkline/protocol/type";
import type { LookupCache, RateBucket, RateGovernor, RateGrant } from "@larkline/store/platform";
import type { Passwords } from "./config.ts";

/** `viewer` looks, `operator` also acts and may be shown content. */
export const roles = ["operator", "viewer"] as const;
export type Role = (typeof roles)[number];

/** Who makes a request. */
export interface Visitor {
  role: Role;
  /** What they call themselves: a claim, because passwords belong to roles. Absent: they gave none. */
  name?: string;
  /** What tokens of pages are made from: no other site's page can know it. */
  _csrf: string;
}

/** How long a sign-in lasts. */
export const signedInMs = 12 * 3_600_000;

/** How long a browser is known after the last sign-in with it. */
export const knownBrowserMs = 30 * 86_400_000;

/** Where a try comes from. */
interface TryOrigin {
  /** The client's own; undefined where it may be that of a proxy. */
  address: string | undefined;
  /** What the browser was given when a person signed in with it. */
  browser: string | undefined;
}

type SignInResult =
  | {
      result: "signed_in";
      role: Role;
      token: string;
      /** What makes this browser known at its next try. */
      browser: string;
    }
  | { result: "wrong" }
  /** More tries than a person makes; whether the password is right is not looked at. */
  | { result: "too_many"; waitMs: number };

/** How long a try waits for its turn. */
export const longestQueueMs = 5_000;
/** Tries that wait for their turn in this process. */
const longestQueue = 50;

/** Tries in any minute. A place in a bucket is taken whether the password is right or not. */
const perMinute = {
  /** From one known browser. */
  browser: 7,
  /** From one address, where that is a client's own. */
  address: 7,
  /** From all browsers that are not known; at most two of them in a second. */
  unknown: 30,
  /** From all browsers that only viewers signed in with: who may look could make any number of such. */
  viewers: 30,
};
const unknownPerSecond = 2;

/**
 * Sign-ins by password, kept in Redis so that every replica of the console knows them. Passwords are compared in
 * constant time, and never more often than {@link perMinute} says.
 */
export class SignIns {
  readonly #passwords: Passwords;
  readonly #lookups: LookupCache;
  readonly #governor: RateGovernor;
  readonly #clock: Clock;
  #waiting = 0;

  constructor(
    passwords: Passwords,
    { lookups, governor }: { lookups: LookupCache; governor: RateGovernor },
    clock: Clock,
  ) {
    this.#clock = clock;
    this.#passwords = passwords;
    this.#lookups = lookups;
    this.#governor = governor;
  }

  /**
   * Takes up to {@link longestQueueMs} longer than Redis does when others try as well; a browser that has signed
   * in before does not wait for them.
   */
  async try(
    { password, name }: { password: string; name?: string | undefined },
    origin: TryOrigin,
  ): Promise<SignInResult> {
    const known = await this.#knownBrowser(origin.browser);
    const grant = await this.#turnOf(known, origin.address);
    if (!grant.granted) return { result: "too_many", waitMs: grant.waitMs };
    const role = roleOf(password, this.#passwords);
    if (role === undefined) return { result: "wrong" };
    const token = randomBytes(32).toString("hex");
    const claimed = name === undefined ? {} : { name };
    await this.#keep(
      keyOf(token),
      { role, proof: proofOf(token, password), ...claimed },
      signedInMs,
    );
    // An operator who looks as a viewer for once stays known as one who may act.
    const isSameBrowser = known !== undefined && (known.role === role || known.role === "operator");
    const browser = isSameBrowser ? known.browser : randomBytes(32).toString("hex");
    const kept = isSameBrowser ? known.role : role;
    const keptPassword = this.#passwords[kept] ?? password;
    await this.#keep(
      browserKeyOf(browser),
      { role: kept, proof: proofOf(browser, keptPassword) },
      knownBrowserMs,
    );
    return { result: "signed_in", role, token, browser };
  }

  /** The visitor with this token; undefined when it is over, or its password has changed since. */
  async find(token: string): Promise<Visitor | undefined> {
    const found = await this.#find(keyOf(token), token);
    if (found === undefined) return undefined;
    const { role, name } = found;
    return { role, _csrf: csrfOf(token), ...(name === undefined ? {} : { name }) };
  }

  async end(token: string): Promise<void> {
    await this.#lookups.delete(keyOf(token));
  }

  async #keep(key: string, value: StoredSignIn, ttlMs: number): Promise<void> {
    await this.#lookups.set(key, JSON.stringify(value), ttlMs);
  }

  /** What a secret text stands for; undefined when it is over or the role's password has changed. */
  async #find(key: string, secret: string): Promise<StoredSignIn | undefined> {
    const stored = parseSignIn((await this.#lookups.get(key)) ?? "");
    if (!stored.ok) return undefined;
    const { role, proof } = stored.value;
    const password = this.#passwords[role];
    return password !== undefined && isSame(proof, proofOf(secret, password))
      ? stored.value
      : undefined;
  }

  async #knownBrowser(
    browser: string | undefined,
  ): Promise<{ browser: string; role: Role } | undefined> {
    const found =
      browser === undefined ? undefined : await this.#find(browserKeyOf(browser), browser);
    return browser === undefined || found === undefined ? undefined : { browser, role: found.role };
  }

  /** A place for one try. What others try takes none from a known browser of an operator. */
  async #turnOf(
    known: { browser: string; role: Role } | undefined,
    address: string | undefined,
  ): Promise<RateGrant> {
    if (known !== undefined) {
      const own = {
        key: browserKeyOf(known.browser).replace("-", ":"),
        perMinute: perMinute.browser,
      };
      const shared = { key: "console:viewers", perMinute: perMinute.viewers };
      const grant = await this.#governor.take(
        known.role === "operator" ? [own] : [own, shared],
        "final",
      );
      if (grant.granted || grant.key === own.key) return grant;
    }
    const unknown = {
      key: "console:unknown",
      perSecond: unknownPerSecond,
      perMinute: perMinute.unknown,
    };
    if (address === undefined) return await this.#queue([unknown]);
    return await this.#queue([
      unknown,
      { key: `console:address:${clientOf(address)}`, perMinute: perMinute.address },
    ]);
  }

  /** Waits for a place as long as there is hope, so that a person among many is slow and not refused. */
  async #queue(buckets: readonly RateBucket[]): Promise<RateGrant> {
    let leftMs = longestQueueMs;
    for (;;) {
      const grant = await this.#governor.take(buckets, "final");
      if (grant.granted || grant.waitMs > leftMs || this.#waiting >= longestQueue) return grant;
      this.#waiting += 1;
      await pause(this.#clock, grant.waitMs).finally(() => (this.#waiting -= 1));
      leftMs -= Math.max(1, grant.waitMs);
    }
  }
}

/** What is kept of a sign-in, under the hash of its token. */
const StoredSignIn = Type.Object({
  role: Type.Enum([...roles]),
  proof: Type.String(),
  name: Type.Optional(Type.String()),
});
type StoredSignIn = Static<typeof StoredSignIn>;
const parseSignIn = jsonParserOf(StoredSignIn);

function roleOf(given: string, { operator, viewer }: Passwords): Role | undefined {
  // Both are always compared: how long it takes says nothing.
  const isOperator = isSame(given, operator);
  const isViewer = viewer !== undefined && isSame(given, viewer);
  if (isOperator) return "operator";
  return isViewer ? "viewer" : undefined;
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Compares in constant time, whatever the lengths. */
function isSame(one: string, other: string): boolean {
  return timingSafeEqual(digestOf(one), digestOf(other));
}

function keyOf(token: string): string {
  return `console-sign-in:${digestOf(token).toString("hex")}`;
}

function browserKeyOf(browser: string): string {
  return `console-browser:${digestOf(browser).toString("hex")}`;
}

/** A client on IPv6 has at least a network of 64 bits to itself. */
function clientOf(address: string): string {
  const plain = address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = plain.split("%", 1)[0]?.split("::") ?? [];
  const groups = head.split(":");
  const missing = tail === undefined ? 0 : 8 - groups.length - tail.split(":").length;
  const all = [
    ...groups,
    ...Array<string>(Math.max(0, missing)).fill("0"),
    ...(tail ?? "").split(":"),
  ];
  return all
    .slice(0, 4)
    .map((group) => Number.parseInt(group || "0", 16).toString(16))
    .join(":");
}

/** Ties a sign-in to its password. Says nothing about the password without the token. */
function proofOf(token: string, password: string): string {
  return createHmac("sha256", token).update(`password:${password}`).digest("hex");
}

/** The secret behind one sign-in's page tokens. */
function csrfOf(token: string): string {
  return createHmac("sha256", token).update("csrf").digest("hex");
}

/** Everybody on this machine, where there are no passwords: until this process ends. */
export function localVisitor(): Visitor {
  return { role: "operator", _csrf: csrfOf(randomBytes(32).toString("hex")) };
}
