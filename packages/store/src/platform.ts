// What all processes share of the platform: its limits, its tokens, and what they have looked up.
export {
  RateGovernor,
  type BucketState,
  type RateBucket,
  type RateCeiling,
  type RateGrant,
  type RateLane,
} from "./rate-governor.ts";
export { LookupCache, TokenCache, type TokenSource } from "./caches.ts";
