/** Something that may be done so often in any second and any minute, by all processes together. */
export interface RateBucket {
  /** Begins with the app: `cli_1:chat:oc_1`. */
  key: string;
  perSecond?: number;
  perMinute?: number;
  /** The share of the limit that is used, above 0 and at most 1; 0.95 by default. */
  share?: number;
}

/** `final`: what a person waits for (last frames, answers, approvals); `frame` leaves room for it. */
export type RateLane = "final" | "frame";

export type RateGrant =
  | {
      granted: true;
      /** For {@link RateGovernor.ended}. */
      ticket: string;
    }
  /** `key` names the bucket that refused, `waitMs` when asking again makes sense. */
  | { granted: false; key: string; waitMs: number };

/** How full a bucket is. */
export interface BucketState {
  key: string;
  /** Grants that would be given at this moment, one after another. */
  left: number;
  /** Grants that a full bucket gives. */
  most: number;
  /** How long nothing is granted because the platform refused; 0: it is not paused. */
  pausedMs: number;
}

/** What the platform says its limits are. */
export interface RateCeiling {
  perSecond?: number;
  perMinute?: number;
}

/** Shares the platform's limits among all processes. */
export interface RateGovernor {
  /**
   * Takes a place in every bucket, or in none. The buckets are of one app, each named once. With `flightMs` the places
   * are kept until {@link ended} is told that the call is over, for `flightMs` at most.
   */
  take(buckets: readonly RateBucket[], lane: RateLane, flightMs?: number): Promise<RateGrant>;
  /** The call of this ticket, taken from these buckets with this `flightMs`, has arrived or never will. */
  ended(ticket: string, buckets: readonly RateBucket[], flightMs: number): Promise<void>;
  /**
   * The platform refused all the same: grants nothing from this bucket for that long. A limit that it named and that
   * is lower than ours is kept for ten minutes.
   */
  pause(key: string, pauseMs: number, ceiling?: RateCeiling): Promise<void>;
  /** Counts a call of the month; returns how many there were, this one included. `month` is `2026-11`. */
  countCall(app: string, month: string): Promise<number>;
  /** How full the buckets of one app are, as what a person waits for would find them. Takes nothing. */
  look(buckets: readonly RateBucket[]): Promise<BucketState[]>;
  /** Calls of the month so far. */
  callsOf(app: string, month: string): Promise<number>;
}
