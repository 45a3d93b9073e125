import {
  pause,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import { tokenDigestOf } from "@larkline/protocol/tool";
import type { GrantsApi, GrantedTokens } from "@larkline/feishu";
import {
  endingKeptMs,
  type GrantOwner,
  type GrantStore,
  type StoredGrant,
  type AuditRecord,
} from "@larkline/store";

/**
 * The token with which a call acts as a person. `consent`: the person has to be asked for these scopes first;
 * `unavailable`: the platform does not answer, and a later try may do better.
 */
export type PersonToken =
  | { state: "token"; token: string }
  | { state: "consent"; scopes: string[] }
  | { state: "unavailable" };

/**
 * What became of the tokens of a consent. `other_person`: not the person who was asked has agreed; `unavailable`: the
 * platform does not say who it was, and nothing is kept.
 */
export type AcceptedConsent =
  | { state: "granted"; granted: string[] }
  | { state: "other_person" | "unavailable" };

interface PersonTokensOptions {
  grants: GrantStore;
  apiOf(app: string): GrantsApi;
  /**
   * Tokens with less time left are refreshed, ms. Early, because the old one stays good: when the answer to a refresh
   * is lost, no running turn is cut off.
   */
  refreshBeforeMs?: number;
  /** A person has granted something, or a grant has ended. */
  changed?(owner: GrantOwner): Promise<void>;
  /** Writes down what becomes of grants. */
  audit?(record: Omit<AuditRecord, "atMs">): Promise<void>;
  /** How long one process may take for a refresh, ms; after an answer that is unknown no other one tries for so long. */
  leaseMs?: number;
  clock?: Clock;
  random?: Random;
}

/** A token that ends within this time is not given out: a call takes a while to arrive. */
const leastMs = 60_000;
const pollMs = 50;
/** Ended grants whose tokens one sweep ends. */
const portion = 50;
/** The platform is asked again so much later, ms. */
const againMs = 300_000;

/** Gives tokens of people to calls, and refreshes them: at most one process at a time, however many ask. */
export class PersonTokens {
  readonly #options: PersonTokensOptions;
  readonly #refreshBeforeMs: number;
  readonly #leaseMs: number;
  readonly #clock: Clock;
  readonly #holder: string;
  readonly #refreshing = new Map<string, Promise<boolean>>();

  constructor(options: PersonTokensOptions) {
    const { clock = systemClock, random = systemRandom } = options;
    this.#options = options;
    this.#refreshBeforeMs = options.refreshBeforeMs ?? 1_800_000;
    this.#leaseMs = options.leaseMs ?? 15_000;
    this.#clock = clock;
    this.#holder = random.uuid();
  }

  /** `refused`: digest of a token that the platform has not accepted; another one is fetched in its place. */
  async tokenFor(
    owner: GrantOwner,
    scopes: readonly string[],
    refused?: string,
  ): Promise<PersonToken> {
    const { grants } = this.#options;
    const untilMs = this.#clock.monotonic() + 2 * this.#leaseMs;
    for (;;) {
      const grant = await grants.read(owner);
      const missing = scopes.filter((scope) => grant?.granted.includes(scope) !== true);
      if (grant?.tokens === undefined || missing.length > 0) {
        return { state: "consent", scopes: grant?.tokens === undefined ? [...scopes] : missing };
      }
      const { accessToken: token, refreshToken } = grant.tokens;
      const isRefused = refused !== undefined && tokenDigestOf(token) === refused;
      const leftMs = isRefused ? 0 : grant.accessEndsAtMs - this.#clock.now();
      const good = leftMs > leastMs ? ({ state: "token", token } as const) : undefined;
      if (good && leftMs >= this.#refreshBeforeMs) return good;
      const mayRefresh = refreshToken !== undefined && grant.state === "active";
      if (!mayRefresh && isRefused) await grants.refused(owner, grant.generation);
      if (!mayRefresh) return good ?? { state: "consent", scopes: [...scopes] };
      const isKnown = await this.#refresh(owner, grant, refreshToken);
      if (isKnown) continue;
      if (good) return good;
      if (this.#clock.monotonic() >= untilMs) return { state: "unavailable" };
      await pause(this.#clock, pollMs);
    }
  }

  /**
   * Takes the tokens of a consent, if the person who was asked is the one who has agreed. Tokens of another person
   * are ended at the platform and kept nowhere.
   */
  async accept(
    owner: GrantOwner,
    tokens: GrantedTokens,
    { asked, issuer }: { asked: readonly string[]; issuer: string },
  ): Promise<AcceptedConsent> {
    const { grants, apiOf } = this.#options;
    const api = apiOf(owner.app);
    const who = await api.owner(tokens.accessToken);
    if (who.state !== "known") return { state: "unavailable" };
    if (who.owner.openId !== owner.openId || who.owner.tenantKey !== owner.tenant) {
      await this.#endTokens(owner.app, tokens);
      return { state: "other_person" };
    }
    const { unionId } = who.owner;
    for (;;) {
      const before = (await grants.read(owner))?.generation ?? 0;
      const facts = {
        ...this.#timesOf(tokens),
        asked: [...asked],
        issuer,
        unionId,
        grantedAtMs: this.#clock.now(),
      };
      if (!(await grants.write(owner, facts, before))) continue;
      await this.#record("grant_given", owner, { scopes: tokens.scopes.slice(0, 20) });
      await this.#options.changed?.(owner);
      return { state: "granted", granted: tokens.scopes };
    }
  }

  /**
   * Ends what the person granted before `atMs`. False where it was granted anew since, or not at all. `by`: who wants it
   * so, and the platform has to end it, too, now or later. Absent: the platform has ended it.
   */
  async end(
    owner: GrantOwner,
    { reason, atMs, by }: { reason: string; atMs: number; by?: string | undefined },
  ): Promise<boolean> {
    const { grants } = this.#options;
    const grant = await grants.read(owner);
    if (grant === undefined || grant.state === "revoked" || grant.grantedAtMs > atMs) return false;
    if (!(await grants.revoke(owner, reason, { atPlatform: by !== undefined }))) return false;
    await this.#record("grant_ended", owner, { result: by ?? reason });
    await this.#options.changed?.(owner);
    if (by !== undefined) await this.endAtPlatform();
    return true;
  }

  /** Asks the platform to end the tokens of grants that have ended here; requests without an answer are repeated. */
  async endAtPlatform(): Promise<void> {
    const { grants } = this.#options;
    const nowMs = this.#clock.now();
    for (const ending of await grants.endings(nowMs, portion)) {
      const { owner, tokens, endedAtMs } = ending;
      const row = await grants.book.read(owner);
      // The platform knows one grant of a person: what was granted since must not end with what was before.
      const isAnew = row !== undefined && row.state !== "revoked" && row.grantedAtMs > endedAtMs;
      const isOver = nowMs > endedAtMs + endingKeptMs;
      if (isAnew || isOver) {
        await grants.ended(ending);
        continue;
      }
      // Later in the first place: an app that this deployment does not have any more holds up no other.
      await grants.endLater(ending, nowMs + againMs);
      // While keys are replaced, another worker may have the key that this one lacks.
      if (tokens === undefined) continue;
      if (await this.#endTokens(owner.app, tokens)) await grants.ended(ending);
    }
  }

  /** False where the platform has not answered. */
  async #endTokens(
    app: string,
    { accessToken, refreshToken }: { accessToken: string; refreshToken?: string },
  ): Promise<boolean> {
    const api = this.#options.apiOf(app);
    const ends = [
      refreshToken === undefined ? "ended" : await api.revoke(refreshToken, "refresh_token"),
      await api.revoke(accessToken, "access_token"),
    ];
    return !ends.includes("unknown");
  }

  /** Waits for refreshes that are under way: a process that ended before their answers are stored would lose grants. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#refreshing.values());
  }

  /** Refreshes a grant that no call needs now, before it ends. False when it is as it was. */
  async keepAlive(owner: GrantOwner): Promise<boolean> {
    const grant = await this.#options.grants.read(owner);
    const refreshToken = grant?.tokens?.refreshToken;
    if (grant?.state !== "active" || refreshToken === undefined) return false;
    return await this.#refresh(owner, grant, refreshToken);
  }

  async #record(
    kind: "grant_given" | "grant_refreshed" | "grant_ended",
    { app, tenant, openId: userId }: GrantOwner,
    more: Pick<AuditRecord, "result" | "scopes"> = {},
  ): Promise<void> {
    await this.#options.audit?.({ kind, app, tenant, userId, ...more });
  }

  /** Whether the row has changed, so that it is worth reading. Calls of one process share a refresh. */
  async #refresh(owner: GrantOwner, grant: StoredGrant, refreshToken: string): Promise<boolean> {
    const key = JSON.stringify([owner.app, owner.tenant, owner.openId, grant.generation]);
    const running = this.#refreshing.get(key) ?? this.#refreshOnce(owner, grant, refreshToken);
    this.#refreshing.set(key, running);
    try {
      return await running;
    } finally {
      this.#refreshing.delete(key);
    }
  }

  async #refreshOnce(
    owner: GrantOwner,
    grant: StoredGrant,
    refreshToken: string,
  ): Promise<boolean> {
    const { grants, apiOf } = this.#options;
    const { generation, grantedAtMs, unionId, issuer } = grant;
    if (!(await grants.lease(owner, generation, this.#holder, this.#leaseMs))) {
      return (await grants.read(owner))?.generation !== generation;
    }
    const answer = await apiOf(owner.app).refresh(refreshToken, issuer);
    switch (answer.state) {
      case "granted": {
        const { tokens } = answer;
        const facts = {
          ...this.#timesOf(tokens),
          asked: grant.asked,
          grantedAtMs,
          unionId,
          issuer,
        };
        if (await grants.write(owner, facts, generation)) {
          await this.#record("grant_refreshed", owner);
        } else if ((await grants.read(owner))?.tokens === undefined) {
          await this.#endTokens(owner.app, tokens); // it has ended meanwhile
        }
        return true;
      }
      case "consent":
        // If another generation is stored, its refresh has used this token, and nothing is lost.
        if (await grants.needsConsent(owner, generation)) await this.#noteError(owner, answer);
        return true;
      case "person_gone":
        await grants.revoke(owner, "person_gone");
        await this.#record("grant_ended", owner, { result: "person_gone" });
        await this.#options.changed?.(owner);
        return true;
      default:
        // The platform may have used the token, or not: the row stays, and the lease keeps others from asking at once.
        await this.#noteError(owner, answer);
        return false;
    }
  }

  async #noteError(
    owner: GrantOwner,
    { state, code }: { state: string; code: number },
  ): Promise<void> {
    await this.#options.grants.noteRefreshError(owner, `${state} ${code}`, this.#clock.now());
  }

  #timesOf({ accessToken, refreshToken, expiresInMs, refreshExpiresInMs, scopes }: GrantedTokens) {
    const nowMs = this.#clock.now();
    return {
      tokens: refreshToken === undefined ? { accessToken } : { accessToken, refreshToken },
      accessEndsAtMs: nowMs + expiresInMs,
      ...(refreshExpiresInMs === undefined ? {} : { refreshEndsAtMs: nowMs + refreshExpiresInMs }),
      granted: scopes,
    };
  }
}
