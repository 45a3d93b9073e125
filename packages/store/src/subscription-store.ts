import { hash } from "node:crypto";
import { jsonParserOf } from "@larkline/protocol";
import { scheduleEventNames, type ScheduleEvent } from "@larkline/protocol/schedule";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import type { GrantOwner } from "./grant-book.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// Which people are subscribed to which events of the platform, because schedules of theirs wait for these. Whatever changes
// such a schedule, or the grant of its owner, makes the subscription due: a worker then brings it to what it has to be.

/** Whose subscription it is, and to which event. */
export interface SubscriptionOwner extends GrantOwner {
  on: ScheduleEvent;
}

/**
 * Where a subscription stands. `needs_consent`: its person has not granted what it needs; `failed`: the platform has
 * refused it or not answered.
 */
const Subscription = Type.Object({
  state: Type.Enum(["subscribed", "needs_consent", "failed"]),
  /** Since when, epoch ms. */
  atMs: Type.Number(),
  /** Why it has failed, for operators. */
  why: Type.Optional(Type.String({ maxLength: 200 })),
  /** Failures one after the other. */
  tries: Type.Integer(),
});
export type Subscription = Static<typeof Subscription>;
const parseSubscription = jsonParserOf(Subscription);

/** A subscription that a worker looks at, until `untilMs` (epoch ms) alone. */
export interface DueSubscription {
  owner: SubscriptionOwner;
  untilMs: number;
}

const claimSubscriptions = script("claim-subscriptions");
const settleSubscription = script("settle-subscription");

/** Subscriptions of which the names are given where some are missing. */
const maxNamed = 1_000;

/** The subscriptions of people. */
export class SubscriptionStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /** Those that are due, at most `limit`; each goes to one caller until `untilMs`. */
  async claimDue(limit: number, untilMs: number): Promise<DueSubscription[]> {
    const keys = { subscriptions: this.#keys.subscriptions };
    const members = await runScript(this.#redis, claimSubscriptions, keys, { limit, untilMs });
    return (members as string[]).flatMap((member) => {
      const owner = ownerIn(member);
      return owner === undefined ? [] : [{ owner, untilMs }];
    });
  }

  /** Where the subscriptions of a person stand, as far as there are any. */
  async ofPerson(
    person: Pick<GrantOwner, "app" | "openId">,
  ): Promise<Map<ScheduleEvent, Subscription>> {
    const row = await this.#redis.hgetall(this.#rowOf(person));
    return new Map(
      scheduleEventNames.flatMap((on) => {
        const parsed = parseSubscription(row[on] ?? "");
        return parsed.ok ? [[on, parsed.value] as const] : [];
      }),
    );
  }

  /** Writes down where one stands that was claimed. Undefined: it is neither there nor needed. */
  async settle(
    { owner, untilMs }: DueSubscription,
    to: { subscription: Subscription; againAtMs: number } | undefined,
  ): Promise<void> {
    const keys = {
      subscriptions: this.#keys.subscriptions,
      row: this.#rowOf(owner),
      lacking: this.#keys.subscriptionsLacking,
    };
    const isLacking = to !== undefined && to.subscription.state !== "subscribed";
    await runScript(this.#redis, settleSubscription, keys, {
      member: subscriptionMember(owner),
      event: owner.on,
      untilMs,
      value: to === undefined ? "" : JSON.stringify(to.subscription),
      againMs: to?.againAtMs ?? 0,
      isLacking: isLacking ? 1 : 0,
    });
  }

  /** The grant of a person has changed: their subscriptions are due. */
  async grantChanged(person: GrantOwner, nowMs: number): Promise<void> {
    const events = await this.#redis.hkeys(this.#rowOf(person));
    for (const on of scheduleEventNames) {
      if (!events.includes(on)) continue;
      const member = subscriptionMember({ ...person, on });
      await this.#redis.zadd(this.#keys.subscriptions, nowMs, member);
    }
  }

  /** How many subscriptions are needed and not there, and of which events the first of them are. */
  async lacking(): Promise<{ count: number; events: ScheduleEvent[] }> {
    const key = this.#keys.subscriptionsLacking;
    const [count, members] = await Promise.all([
      this.#redis.scard(key),
      this.#redis.srandmember(key, maxNamed),
    ]);
    const events = new Set(members.flatMap((member) => ownerIn(member)?.on ?? []));
    return { count, events: scheduleEventNames.filter((on) => events.has(on)) };
  }

  /** With a hash, so that no id of a person is in a key. */
  #rowOf({ app, openId }: Pick<GrantOwner, "app" | "openId">): string {
    return this.#keys.subscriptionsOf(app, hash("sha256", openId, "base64url").slice(0, 22));
  }
}

/** A subscription in the index of all. */
export function subscriptionMember({ app, tenant, openId, on }: SubscriptionOwner): string {
  return JSON.stringify([app, tenant, openId, on]);
}

const parseMember = jsonParserOf(Type.Array(Type.String(), { minItems: 4, maxItems: 4 }));

/** Undefined for an event that this version does not know. */
function ownerIn(member: string): SubscriptionOwner | undefined {
  const parsed = parseMember(member);
  const [app = "", tenant = "", openId = "", name] = parsed.ok ? parsed.value : [];
  const on = scheduleEventNames.find((one) => one === name);
  return on === undefined ? undefined : { app, tenant, openId, on };
}
