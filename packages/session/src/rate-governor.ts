/** Something that may be done so often in any second and any minute, by all processes together. */
export interface RateBucket {
  /** Begins with the app: `cli_1:chat:oc_1`. */
  key: string;
  perSecond?: number;
  perMinute?: number;
}

/** `final`: what a person waits for (last frames, answers, approvals); `frame` leaves room for it. */
export type RateLane = "final" | "frame";

export type RateGrant =
  | { granted: true }
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

/** Shares the platform's limits among all processes. */
export interface RateGovernor {
  /** Takes one from every bucket, or from none. The buckets are of one app, each named once. */
  take(buckets: readonly RateBucket[], lane: RateLane): Promise<RateGrant>;
  /** The platform refused all the same: grants nothing from this bucket for that long. */
  pause(key: string, pauseMs: number): Promise<void>;
  /** Counts a call of the month; returns how many there were, this one included. `month` is `2026-11`. */
  countCall(app: string, month: string): Promise<number>;
  /** How full the buckets of one app are, as what a person waits for would find them. Takes nothing. */
  look(buckets: readonly RateBucket[]): Promise<BucketState[]>;
  /** Calls of the month so far. */
  callsOf(app: string, month: string): Promise<number>;
}
