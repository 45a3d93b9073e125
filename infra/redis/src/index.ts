export { aclFileOf, healthUser, rulesOf } from "./acl-file.ts";
export { appUsers, runnerUserName } from "./app-users.ts";
export type { Grant, RedisUser } from "./redis-user.ts";
