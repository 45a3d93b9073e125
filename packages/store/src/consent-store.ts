import { hash } from "node:crypto";
import { jsonParserOf, systemRandom } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import { runScript, script, type RedisConnection } from "./connection.ts";
import { GrantSeal, type GrantOwner } from "./grant-store.ts";
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
  /** The device code, sealed: with it a process gets the tokens. */
  sealed: Type.String(),
  link: Type.String(),
  startedAtMs: Type.Integer(),
  endsAtMs: Type.Integer(),
  intervalMs: Type.Integer(),
  nextPollMs: Type.Integer(),
  /** When the person wanted the present link, 0 for the first one. */
  againAtMs: Type.Integer(),
});
export type PendingConsent = Static<typeof PendingConsent>;
export type ConsentMember = Static<typeof ConsentMember>;

const parseConsent = jsonParserOf(PendingConsent);
const swapConsent = script("swap-consent");

/** More calls of one person wait for their own consent after this one. */
const maxMembers = 50;
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

  constructor({ redis, namespace, grantKeys, random = systemRandom }: ConsentStoreOptions) {
    this.#redis = redis;
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
        return next;
      }
    }
  }

  seal(owner: GrantOwner, deviceCode: string): string {
    return this.#seal.close(deviceCode, placeOf(owner));
  }

  /** The device code; undefined where no key of this process opens it. */
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
