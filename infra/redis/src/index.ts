export { appUsers, runnerUserName } from "@larkline/store/rights";
export { aclFileOf, healthUser, rulesOf } from "./acl-file.ts";
