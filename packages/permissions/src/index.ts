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
export { decideCall, unknownOutcomeOf } from "./decide-call.ts";
export { maskedArguments } from "./masked-arguments.ts";
export { decidersText, mayDecide, type Decider, type DeciderNames } from "./may-decide.ts";
export { hasRole, type Roles } from "./person.ts";
export { approvalIdOf, approvalKindOf, rememberedRule, ruleApprovalOf, ruleText } from "./remembered-rule.ts";
export { riskOf } from "./risk-finding.ts";
export { proposalFor, subjectOf, type ProposalFacts } from "./rule-proposal.ts";
export { matchesSubject } from "./subject-pattern.ts";
export { matchesName } from "./tool-name.ts";
