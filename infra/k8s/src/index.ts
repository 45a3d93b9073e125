export { clusterFiles, type Cluster } from "./cluster-files.ts";
export { alertRuleOf } from "./alert-rule.ts";
