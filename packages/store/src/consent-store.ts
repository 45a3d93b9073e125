import { hash, timingSafeEqual } from "node:crypto";
import { jsonParserOf } from "@larkline/protocol";
import { systemRandom, type Random } from "@larkline/protocol/clock";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import type { GrantOwner } from "./grant-book.ts";
import { GrantSeal } from "./grant-store.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// Consents that wait for their person: at most one of each app and person, which all calls join that need something of
// them. It ends with its last call.

const ConsentMember = Type.Object({
  session: Type.String(),
  approvalId: Type.String(),
  scopes: Type.Array(Type.String(), { maxItems: 50 }),
});

const PendingConsent = Type.Object({
  /** The calls that wait, oldest first. The card of the first one asks. */
  members: Type.Array(ConsentMember, { maxItems: 50 }),
  /**
   * `new`: the person has no link yet; `waiting`: they have one, and the platform is asked whether they have answered;
   * `ran_out`: nothing happens until they want another link; `other_person`: as before, because another person has
   * agreed; `trouble`: as before, because the platform has refused to ask.
   */
  state: Type.Enum(["new", "waiting", "ran_out", "other_person", "trouble"]),
  /** What the link asks for. */
  asked: Type.Array(Type.String(), { maxItems: 50 }),
  /** The device code, or the verifier of a code, sealed: with it a process gets the tokens. */
  sealed: Type.String(),
  /** For the code flow: the id of the `state` in the link; `sealed` is the verifier then. Empty: the device flow. */
  stateId: Type.String(),
  link: Type.String(),
  startedAtMs: Type.Integer(),
  endsAtMs: Type.Integer(),
  intervalMs: Type.Integer(),
  nextPollMs: Type.Integer(),
  /** When the person wanted the present link, 0 for the first one. */
  againAtMs: Type.Integer(),
  /** `againAtMs` of a link whose answer was lost, and that was replaced without being asked for. */
  replacedOfMs: Type.Optional(Type.Integer()),
});
export type PendingConsent = Static<typeof PendingConsent>;
export type ConsentMember = Static<typeof ConsentMember>;

const parseConsent = jsonParserOf(PendingConsent);
const swapConsent = script("swap-consent");

/** More calls of one person wait for their own consent after this one. */
const maxMembers = 50;
/** How long a person has for the page of the code flow, and their code lives after that ("Obtain authorization code"). */
export const codeFlowMs = 600_000;
/** Calls wait for a week. */
const ttlMs = 8 * 86_400_000;

interface ConsentStoreOptions extends StoreOptions {
  /** As of the grants. */
  grantKeys: readonly [string, ...string[]];
}

export class ConsentStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #seal: GrantSeal;
  readonly #random: Random;

  constructor({ redis, namespace, grantKeys, random = systemRandom }: ConsentStoreOptions) {
    this.#redis = redis;
    this.#random = random;
    this.#keys = createKeyspace(namespace);
    this.#seal = new GrantSeal(grantKeys, random);
  }

  async read(owner: GrantOwner): Promise<PendingConsent | undefined> {
    return read(await this.#redis.get(this.#keyOf(owner)));
  }

  /**
   * A call joins the consent of its person, or begins it. Where the person's link works no more, its card asks from now
   * on. Repeated, it changes nothing.
   */
  async join(owner: GrantOwner, member: ConsentMember): Promise<PendingConsent> {
    return await this.#swap(owner, (before = begun) => {
      const { members, state } = before;
      const isIn = members.some(({ approvalId }) => approvalId === member.approvalId);
      if (isIn || members.length >= maxMembers) return before;
      if (state === "waiting" || (state === "new" && members.length > 0)) {
        return { ...before, members: [...members, member] };
      }
      return { ...before, state: "new", members: [member, ...members] };
    });
  }

  /** A call waits no more. `next`: the call whose card asks from now on, where it was that of this one. */
  async leave(owner: GrantOwner, approvalId: string): Promise<{ next?: ConsentMember }> {
    let wasFirst = false;
    const { members } = await this.#swap(owner, (before = begun) => {
      wasFirst = before.members[0]?.approvalId === approvalId;
      return {
        ...before,
        members: before.members.filter((member) => member.approvalId !== approvalId),
      };
    });
    const [next] = members;
    return wasFirst && next !== undefined ? { next } : {};
  }

  /** Changes what is there at that moment; one that has ended stays away. */
  async change(owner: GrantOwner, to: Partial<PendingConsent>): Promise<PendingConsent> {
    return await this.#swap(owner, (before = begun) => ({ ...before, ...to }));
  }

  async #swap(
    owner: GrantOwner,
    to: (before: PendingConsent | undefined) => PendingConsent,
  ): Promise<PendingConsent> {
    const consent = this.#keyOf(owner);
    for (;;) {
      const before = (await this.#redis.get(consent)) ?? "";
      const next = to(read(before));
      const after = next.members.length === 0 ? "" : JSON.stringify(next);
      if (after === before) return next;
      if (
        (await runScript(this.#redis, swapConsent, { consent }, { before, after, ttlMs })) === 1
      ) {
        const { stateId } = read(before) ?? {};
        if (stateId !== undefined && stateId !== "" && (after === "" || stateId !== next.stateId)) {
          await this.#forgetState(owner, stateId);
        }
        return next;
      }
    }
  }

  /**
   * Lets a consent come back to ingress, in the code flow: by `state` alone, and once. `verifier` is for PKCE; `member`:
   * whose card is looked at then.
   */
  async expectCode(
    { app }: GrantOwner,
    { session, approvalId }: ConsentMember,
  ): Promise<{ stateId: string; state: string; verifier: string }> {
    const [stateId, secret, verifier] = [this.#random.id(), this.#secret(), this.#secret()];
    const expected: ExpectedCode = { digest: digestOf(secret), session, approvalId };
    await this.#redis.set(
      this.#keys.consentStateOf(app, stateId),
      JSON.stringify(expected),
      "PX",
      codeFlowMs,
    );
    return { stateId, state: `${stateId}.${secret}`, verifier };
  }

  /** What has come back to ingress; undefined: nothing yet. */
  async codeOf({ app }: GrantOwner, { stateId }: PendingConsent): Promise<ConsentCode | undefined> {
    const text = await this.#redis.get(this.#keys.consentCodeOf(app, stateId));
    const code = text === null ? undefined : parseCode(text);
    return code?.ok === true ? code.value : undefined;
  }

  async #forgetState({ app }: GrantOwner, stateId: string): Promise<void> {
    await this.#redis.unlink(this.#keys.consentStateOf(app, stateId));
    await this.#redis.unlink(this.#keys.consentCodeOf(app, stateId));
  }

  /** 43 characters, of 256 bits. */
  #secret(): string {
    return hash("sha256", `${this.#random.id()}${this.#random.id()}`, "base64url");
  }

  /** `secret`: a device code or a verifier. */
  seal(owner: GrantOwner, secret: string): string {
    return this.#seal.close(secret, placeOf(owner));
  }

  /** The secret; undefined where no key of this process opens it. */
  open(owner: GrantOwner, { sealed }: PendingConsent): string | undefined {
    return this.#seal.open(sealed, placeOf(owner))?.text;
  }

  #keyOf({ app, tenant, openId }: GrantOwner): string {
    return this.#keys.consentOf(
      app,
      hash("sha256", JSON.stringify([tenant, openId]), "base64url").slice(0, 22),
    );
  }
}

const begun: PendingConsent = {
  members: [],
  state: "new",
  asked: [],
  sealed: "",
  stateId: "",
  link: "",
  startedAtMs: 0,
  endsAtMs: 0,
  intervalMs: 0,
  nextPollMs: 0,
  againAtMs: 0,
};

function read(text: string | null): PendingConsent | undefined {
  const parsed = text === null || text === "" ? undefined : parseConsent(text);
  return parsed?.ok === true ? parsed.value : undefined;
}

function placeOf({ app, tenant, openId }: GrantOwner): string {
  return JSON.stringify(["consent", app, tenant, openId]);
}

const ExpectedCode = Type.Object({
  digest: Type.String(),
  session: Type.String(),
  approvalId: Type.String(),
});
type ExpectedCode = Static<typeof ExpectedCode>;
const parseExpected = jsonParserOf(ExpectedCode);

/** What the consent page has sent back: a code, or that the person has refused. */
const ConsentCode = Type.Object({ code: Type.Optional(Type.String()) });
export type ConsentCode = Static<typeof ConsentCode>;
const parseCode = jsonParserOf(ConsentCode);

/** Where consents of the code flow come back: ingress, which can read no consent, no grant and no verifier. */
export class ConsentCallbacks {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: Pick<StoreOptions, "redis" | "namespace">) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /**
   * Takes what has come back with this `state`, for the worker. Undefined, and nothing is kept: it is none that a person
   * of this app has a link with now, or it was used before. Otherwise whose card waits for it.
   */
  async take(
    app: string,
    state: string,
    code: ConsentCode,
  ): Promise<{ session: string; approvalId: string } | undefined> {
    const [, stateId, secret] = /^([\w-]{22})\.([\w-]{43})$/.exec(state) ?? [];
    if (stateId === undefined || secret === undefined) return undefined;
    const text = await this.#redis.get(this.#keys.consentStateOf(app, stateId));
    const expected = text === null ? undefined : parseExpected(text);
    if (expected?.ok !== true) return undefined;
    const { digest, session, approvalId } = expected.value;
    const [given, known] = [Buffer.from(digestOf(secret)), Buffer.from(digest)];
    if (given.length !== known.length || !timingSafeEqual(given, known)) return undefined;
    const answer = this.#keys.consentCodeOf(app, stateId);
    const kept = await this.#redis.set(answer, JSON.stringify(code), "PX", codeFlowMs, "NX");
    return kept === "OK" ? { session, approvalId } : undefined;
  }
}

function digestOf(secret: string): string {
  return hash("sha256", secret, "base64url");
}
