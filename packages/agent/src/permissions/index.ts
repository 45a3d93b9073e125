export {
  type JudgedCall,
  type PermissionPolicy,
  type Person,
  type PolicyEntry,
  type PolicyMatch,
  type Question,
  type RiskFinding,
  type RoleMembers,
  type Verdict,
  decidersText,
  isDecider,
  mayDecide,
  type Decider,
  type DeciderNames,
  type GroupsOf,
  hasRole,
  type Roles,
} from "./policy.ts";
export { addressesIn, addressKey, type AddressContext, maskedArguments, riskOf } from "./arguments.ts";
export { decideCall, unknownOutcomeOf } from "./decide-call.ts";
export {
  approvalIdOf,
  approvalKindOf,
  rememberedRule,
  ruleApprovalOf,
  ruleText,
  holdsInForce,
  proposalFor,
  subjectOf,
  type ProposalFacts,
  matchesSubject,
  matchesName,
} from "./rules.ts";
