export {
  isolationLevels,
  sandboxStatuses,
  type IsolationLevel,
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
export {
  isPublicAddress,
  lookupOf,
  pinnedAddresses,
  resolveBySystem,
  type AddressPolicy,
  type ResolveHost,
} from "./egress-address.ts";
export { createGuardedFetch, type GuardedFetchOptions } from "./egress-fetch.ts";
