import type { GrantsApi, ConsentRound } from "@larkline/feishu";
import type { Logger } from "@larkline/process/telemetry";
import type { InboundMessage } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import {
  codeFlowMs,
  type ApprovalStatus,
  type ApprovalStore,
  type ConsentMember,
  type ConsentStore,
  type GrantOwner,
  type GrantStore,
  type PendingConsent,
} from "@larkline/store";
import type { PersonTokens } from "./person-tokens.ts";

// A call that acts as a person waits for an approval of the kind `consent`. The platform asks the person, behind a link;
// this chapter gets the link, asks the platform for the answer, and settles the approvals of all calls that wait for it.
// Each step is a round of the approval's cards, which one worker has at a time and any other takes up after its death.

interface ConsentsOptions {
  consents: ConsentStore;
  grants: GrantStore;
  tokens: PersonTokens;
  /** Throws for an app of which this worker has no credentials. */
  apiOf(app: string): GrantsApi;
  /**
   * The address to which a person's consent comes back in the code flow; undefined: the device flow is used.
   */
  redirectOf(app: string): string | undefined;
  approvals: ApprovalStore;
  wake: (session: string, gen: number) => Promise<void>;
  /** Reports that the app lacks permissions: the platform leaves them off its page without a word. */
  lacks?(owner: GrantOwner, scopes: readonly string[]): Promise<void>;
  clock: Clock;
  log: Pick<Logger, "info" | "warn" | "error">;
}

/** The most scopes of one link, beside the permission to refresh. */
const maxScopes = 49;
const maxIntervalMs = 60_000;
/** More time between two questions: "slow_down", and after an answer that cannot be read. */
const [slowDownMs, unreadMs] = [5_000, 1_000];
/** How long the card that asks waits until it is asked again about calls that have joined it. */
const touchAgainMs = 1_000;
/** The platform does not answer, or another consent of the person has to end first. */
const laterMs = 10_000;
/** A link may end so much before the time that was said. */
const earlyMs = 5_000;
/**
 * In the code flow, how long after the first look the consent is looked up once more, in case its callback was lost.
 */
const lookAgainMs = 15_000;

type Pending = ApprovalStatus["approval"];

interface CodeWanted {
  wanted: string[];
  againAtMs: number;
  redirectUri: string;
}

export class Consents {
  readonly #options: ConsentsOptions;

  constructor(options: ConsentsOptions) {
    this.#options = options;
  }

  /** The next step of a consent. Rejects when the store does not answer; then it is repeated. */
  async advance(status: ApprovalStatus): Promise<ConsentRound> {
    const { approval, state } = status;
    const owner = ownerOf(approval);
    if (state !== "pending") return await this.#ended(owner, status);
    const { scopes, refused = false } = approval.consent ?? { scopes: [] };
    const grant = await this.#options.grants.read(owner);
    const hasAll =
      grant?.tokens !== undefined && scopes.every((scope) => grant.granted.includes(scope));
    // Another call of the person has brought it.
    if (hasAll && (!refused || grant.grantedAtMs >= approval.createdAtMs)) {
      await this.#settle(memberOf(approval), approval, grant.granted);
      return {};
    }
    const consent = await this.#options.consents.join(owner, memberOf(approval));
    const [first] = consent.members;
    if (first === undefined || first.approvalId !== approval.id) {
      return await this.#joined(owner, approval, consent);
    }
    if (
      grant?.tokens !== undefined &&
      consent.startedAtMs > 0 &&
      grant.grantedAtMs >= consent.startedAtMs
    ) {
      return await this.#granted(approval, consent, grant.granted);
    }
    const againAtMs = await this.#options.approvals.againAtMs(approval);
    const wanted = wantedOf(consent);
    if (consent.state === "new" || !isWhole(consent) || againAtMs !== consent.againAtMs) {
      const redirectUri = this.#options.redirectOf(owner.app);
      return redirectUri === undefined
        ? await this.#ask(owner, wanted, againAtMs)
        : await this.#askForCode(owner, memberOf(approval), { wanted, againAtMs, redirectUri });
    }
    return consent.state === "waiting"
      ? await this.#poll(owner, approval, consent)
      : shownOf(consent);
  }

  /** A call that another one's card asks for. */
  async #joined(
    owner: GrantOwner,
    { id }: Pending,
    { members, state, asked }: PendingConsent,
  ): Promise<ConsentRound> {
    const [first] = members;
    const own = members.find(({ approvalId }) => approvalId === id);
    if (first === undefined || own === undefined) {
      return { nextAtMs: this.#options.clock.now() + laterMs };
    }
    if (state === "new" || !own.scopes.every((scope) => asked.includes(scope))) {
      const isOpen = await this.#options.approvals.touchCards(
        first.session,
        first.approvalId,
        false,
      );
      if (!isOpen) {
        await this.#leave(owner, first.approvalId);
        return { nextAtMs: this.#options.clock.now() };
      }
      // The other card may be in the middle of a step, and go on as if nothing had changed.
      return { shown: { state: "moved" }, nextAtMs: this.#options.clock.now() + touchAgainMs };
    }
    return { shown: { state: "moved" } };
  }

  /** Gets a link for all that the calls need. */
  async #ask(owner: GrantOwner, wanted: string[], againAtMs: number): Promise<ConsentRound> {
    const { clock, consents, log } = this.#options;
    const started = await this.#options.apiOf(owner.app).startDevice(wanted);
    const nowMs = clock.now();
    if (started.state === "unknown") return { nextAtMs: nowMs + laterMs };
    if (started.state !== "started") {
      log.error(
        { app: owner.app, scopes: wanted, refusal: started },
        "the platform asks no person for these scopes",
      );
      return await this.#change(owner, { state: "trouble", asked: wanted, againAtMs });
    }
    const { deviceCode, link, expiresInMs, intervalMs } = started.device;
    return await this.#offer(owner, {
      asked: wanted,
      sealed: consents.seal(owner, deviceCode),
      stateId: "",
      link,
      endsAtMs: nowMs + expiresInMs,
      intervalMs,
      againAtMs,
    });
  }

  /** The same in the code flow, where the person's browser brings the answer to ingress. */
  async #askForCode(
    owner: GrantOwner,
    member: ConsentMember,
    { wanted, againAtMs, redirectUri }: CodeWanted,
  ): Promise<ConsentRound> {
    const { clock, consents } = this.#options;
    const { stateId, state, verifier } = await consents.expectCode(owner, member);
    const api = this.#options.apiOf(owner.app);
    return await this.#offer(owner, {
      asked: wanted,
      sealed: consents.seal(owner, JSON.stringify({ verifier, redirectUri })),
      stateId,
      link: api.consentLink({ redirectUri, scopes: wanted, state, verifier }),
      endsAtMs: clock.now() + codeFlowMs,
      intervalMs: lookAgainMs,
      againAtMs,
    });
  }

  async #offer(
    owner: GrantOwner,
    link: Omit<PendingConsent, "state" | "members" | "startedAtMs" | "nextPollMs">,
  ): Promise<ConsentRound> {
    const nowMs = this.#options.clock.now();
    const changed = await this.#options.consents.change(owner, {
      ...link,
      state: "waiting",
      startedAtMs: nowMs,
      nextPollMs: nowMs + link.intervalMs,
    });
    // A call has joined meanwhile that needs more: no person has seen this link.
    return isWhole(changed) ? shownOf(changed) : { nextAtMs: nowMs };
  }

  async #poll(
    owner: GrantOwner,
    approval: Pending,
    consent: PendingConsent,
  ): Promise<ConsentRound> {
    const { clock, log, tokens } = this.#options;
    const { asked, intervalMs, nextPollMs, endsAtMs, stateId } = consent;
    if (stateId === "" && clock.now() < nextPollMs) return shownOf(consent);
    const api = this.#options.apiOf(owner.app);
    const answer = await this.#answerTo(owner, api, consent);
    if (answer === undefined) return await this.#change(owner, { state: "ran_out" });
    const later = async (moreMs: number): Promise<ConsentRound> => {
      const next = Math.min(maxIntervalMs, intervalMs + moreMs);
      if (clock.now() >= endsAtMs) return await this.#change(owner, { state: "ran_out" });
      return await this.#change(owner, { intervalMs: next, nextPollMs: clock.now() + next });
    };
    switch (answer.state) {
      case "pending":
        return await later(0);
      case "slow_down":
        return await later(slowDownMs);
      case "unknown":
        return await later(unreadMs);
      case "denied":
        await this.#refuse(approval, consent.members);
        return {};
      case "granted": {
        const accepted = await tokens.accept(owner, answer.tokens, {
          asked,
          issuer: api.endpoints.token,
        });
        if (accepted.state === "granted") {
          return await this.#granted(approval, consent, accepted.granted);
        }
        const { app } = owner;
        log.warn(
          { app, approvalId: approval.id, state: accepted.state },
          "a consent is thrown away",
        );
        return await this.#change(owner, {
          state: accepted.state === "other_person" ? "other_person" : "trouble",
        });
      }
      case "expired":
      case "consent":
        return await this.#over(owner, consent);
      default:
        log.error({ app: owner.app, refusal: answer }, "the platform gives no tokens");
        return await this.#change(owner, { state: "trouble" });
    }
  }

  /**
   * A device code gives its tokens once: one that is over before its time has given them in an answer that no process
   * could keep. The person gets a new link at once, but one alone: after that they have to want it. In the code flow a
   * code may be refused because another person has brought it.
   */
  async #over(owner: GrantOwner, consent: PendingConsent): Promise<ConsentRound> {
    const { clock, log } = this.#options;
    const { endsAtMs, stateId, againAtMs: replacedOfMs } = consent;
    const nowMs = clock.now();
    const isLost = stateId === "" && nowMs < endsAtMs - earlyMs;
    if (!isLost || consent.replacedOfMs === replacedOfMs) {
      return await this.#change(owner, { state: "ran_out" });
    }
    log.warn(
      { app: owner.app },
      "the platform's answer to a consent was lost: its person is asked anew",
    );
    await this.#change(owner, { state: "new", startedAtMs: 0, replacedOfMs });
    return { nextAtMs: nowMs };
  }

  /** What the person has answered; undefined where this process cannot open what the consent was begun with. */
  async #answerTo(
    owner: GrantOwner,
    api: GrantsApi,
    consent: PendingConsent,
  ): Promise<Awaited<ReturnType<GrantsApi["poll"]>> | undefined> {
    const { consents } = this.#options;
    const secret = consents.open(owner, consent);
    if (secret === undefined) return undefined;
    if (consent.stateId === "") return await api.poll(secret);
    const back = await consents.codeOf(owner, consent);
    if (back === undefined) return { state: "pending" };
    if (back.code === undefined) return { state: "denied", code: 0 };
    const kept = JSON.parse(secret) as { verifier: string; redirectUri: string }; // sealed by askForCode alone
    return await api.exchange({ ...kept, code: back.code });
  }

  async #change(owner: GrantOwner, to: Partial<PendingConsent>): Promise<ConsentRound> {
    return shownOf(await this.#options.consents.change(owner, to));
  }

  /**
   * The calls begin that the link was for, or end where what they need was not granted. The first one comes last: its card
   * repeats this. Others have joined since, and ask for themselves when the first has left.
   */
  async #granted(
    approval: Pending,
    { members, asked }: PendingConsent,
    granted: readonly string[],
  ): Promise<ConsentRound> {
    const { log } = this.#options;
    log.info(
      { app: approval.app, approvalId: approval.id, scopes: granted.length },
      "a person has granted",
    );
    const ofLink = members.filter(({ scopes }) => scopes.every((scope) => asked.includes(scope)));
    for (const member of ofLink.toReversed()) await this.#settle(member, approval, granted);
    if (ofLink.some(({ approvalId }) => approvalId === approval.id)) return {};
    // The first one has joined after the link was made: it gets one of its own.
    await this.#change(ownerOf(approval), { state: "new", startedAtMs: 0 });
    return { nextAtMs: this.#options.clock.now() };
  }

  async #settle(
    member: ConsentMember,
    approval: Pending,
    granted: readonly string[],
  ): Promise<void> {
    const { approvals, lacks, log } = this.#options;
    const { requester: by, app } = approval;
    const { session, approvalId, scopes } = member;
    const missing = scopes.filter((scope) => !granted.includes(scope));
    if (missing.length > 0) {
      log.warn(
        { app, session, approvalId, missing },
        "scopes were not granted: the app may lack them",
      );
      await lacks?.(ownerOf(approval), missing);
    }
    const note = `the platform did not grant ${missing.join(", ")}; an administrator may have to add it to the app`;
    const decision =
      missing.length === 0 ? { decision: "approve", by } : { decision: "reject", by, note };
    await this.#wake(
      await approvals.decide(
        session,
        approvalId,
        decision as Parameters<ApprovalStore["decide"]>[2],
      ),
    );
  }

  async #refuse({ requester: by }: Pending, members: readonly ConsentMember[]): Promise<void> {
    for (const { session, approvalId } of members) {
      await this.#wake(
        await this.#options.approvals.decide(session, approvalId, { decision: "reject", by }),
      );
    }
  }

  async #wake(decided: Awaited<ReturnType<ApprovalStore["decide"]>>): Promise<void> {
    if (decided.result === "unknown" || !("wakeGen" in decided) || decided.wakeGen === undefined) {
      return;
    }
    const { session } = decided.status.approval;
    await this.#options.wake(session, decided.wakeGen).catch((error: unknown) => {
      // The decision is stored: the sweeper finds the session.
      this.#options.log.warn({ error, session }, "session could not be woken at once");
    });
  }

  /** The approval of a call is settled: by its person, by the end of its turn, or by time. */
  async #ended(
    owner: GrantOwner,
    { approval, state, decisions }: ApprovalStatus,
  ): Promise<ConsentRound> {
    const before = await this.#options.consents.read(owner);
    const wasFirst = before?.members[0]?.approvalId === approval.id;
    // "Not now" is about the card, and so about all calls that it asks for.
    const isNotNow = state === "rejected" && decisions.every(({ note = "" }) => note === "");
    if (wasFirst && isNotNow) await this.#refuse(approval, before.members.slice(1));
    await this.#leave(owner, approval.id);
    return { shown: { state: "ended" } };
  }

  /** The next call's card asks from now on. */
  async #leave(owner: GrantOwner, approvalId: string): Promise<void> {
    const { next } = await this.#options.consents.leave(owner, approvalId);
    if (next !== undefined) {
      await this.#options.approvals.touchCards(next.session, next.approvalId, false);
    }
  }
}

function ownerOf({ app, tenant = "", requester }: Pending): GrantOwner {
  return { app, tenant, openId: requester.id };
}

/** All that the calls need. */
function wantedOf({ members }: PendingConsent): string[] {
  return [...new Set(members.flatMap(({ scopes }) => scopes))].slice(0, maxScopes);
}

/** Whether the link asks for all of it. */
function isWhole(consent: PendingConsent): boolean {
  return wantedOf(consent).every((scope) => consent.asked.includes(scope));
}

function memberOf({ session, id: approvalId, consent }: Pending): ConsentMember {
  return { session, approvalId, scopes: consent?.scopes ?? [] };
}

function shownOf({
  state,
  link,
  endsAtMs,
  asked,
  startedAtMs,
  nextPollMs,
}: PendingConsent): ConsentRound {
  if (state === "new") return {};
  const shown = { state, asks: true, link, endsAtMs, scopes: asked, startedAtMs } as const;
  return state === "waiting" ? { shown, nextAtMs: nextPollMs } : { shown };
}

/** A token that ends sooner is not given out. */
const leastMs = 60_000;

/** What the person of a turn has granted. A decision asks, {@link supply} finds out between decisions. */
export class GrantedScopes {
  readonly #grants: GrantStore;
  readonly #clock: Clock;
  readonly #owner: GrantOwner;
  #known: readonly string[] | undefined;
  #isMissed = false;

  constructor(grants: GrantStore, clock: Clock, { app, tenant = "", sender }: InboundMessage) {
    this.#grants = grants;
    this.#clock = clock;
    this.#owner = { app, tenant, openId: sender.id };
  }

  granted(): readonly string[] {
    this.#isMissed ||= this.#known === undefined;
    return this.#known ?? [];
  }

  /** Reads what a decision has missed since the last call; undefined when it has missed nothing. */
  supply(): Promise<boolean> | undefined {
    return this.#isMissed ? this.#read() : undefined;
  }

  async #read(): Promise<boolean> {
    this.#isMissed = false;
    const grant = await this.#grants.read(this.#owner);
    const { tokens, state, accessEndsAtMs = 0, granted = [] } = grant ?? {};
    const canRefresh = tokens?.refreshToken !== undefined && state === "active";
    const isGood =
      tokens !== undefined && (canRefresh || accessEndsAtMs - this.#clock.now() > leastMs);
    this.#known = isGood ? granted : [];
    return true;
  }

  /** A new decision begins: consents may have come, and grants may have ended. */
  renew(): void {
    this.#known = undefined;
  }
}
