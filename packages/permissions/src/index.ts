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
