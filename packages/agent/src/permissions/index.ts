export type {
  JudgedCall,
  PermissionPolicy,
  Person,
  PolicyEntry,
  PolicyMatch,
  Question,
  RiskFinding,
  RoleMembers,
  Verdict,
} from "./policy.ts";
export { addressesIn, addressKey, type Heard } from "./addresses.ts";
export { decideCall, unknownOutcomeOf } from "./decide-call.ts";
export { maskedArguments } from "./masked-arguments.ts";
export { decidersText, isDecider, mayDecide, type Decider, type DeciderNames, type GroupsOf } from "./may-decide.ts";
export { hasRole, type Roles } from "./person.ts";
export { approvalIdOf, approvalKindOf, rememberedRule, ruleApprovalOf, ruleText } from "./remembered-rule.ts";
export { riskOf } from "./risk-finding.ts";
export { holdsInForce, proposalFor, subjectOf, type ProposalFacts } from "./rule-proposal.ts";
export { matchesSubject } from "./subject-pattern.ts";
export { matchesName } from "./tool-name.ts";
