export { createProcessPool, type ProcessPool, type ProcessPoolOptions } from "./process-pool.ts";
export { ProcessCallError, type ProcessCallOptions, type ProcessFailure } from "./process-pool.ts";
export {
  openSandbox,
  probeTiers,
  type OpenSandboxOptions,
  type SandboxOpening,
} from "./open-sandbox.ts";
export {
  type NetworkPolicy,
  type Sandbox,
  type SandboxCommand,
  type SandboxFile,
  type SandboxLimits,
  type SandboxProgram,
  type SandboxRequest,
  type SandboxResult,
  type SandboxSession,
  type SandboxStatus,
  type TierFinding,
} from "./sandbox.ts";
export { sandboxTiers, type SandboxEvent, type SandboxTier } from "./sandbox.ts";
export {
  isPublicAddress,
  lookupOf,
  pinnedAddresses,
  resolveBySystem,
  type AddressPolicy,
  type ResolveHost,
} from "./egress-policy.ts";
export { createGuardedFetch, type GuardedFetchOptions } from "./egress-fetch.ts";
export type { EgressSettings } from "./egress-policy.ts";
